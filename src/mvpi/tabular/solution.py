"""What a solver answers: a policy, what it is worth, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi import stats
from mvpi.risk import Risk
from mvpi.tabular.chain import closed_classes
from mvpi.tabular.mdp import MDP

Array = npt.NDArray[np.float64]

TOLERANCE = 1e-9
"""Default largest gap between value and bound, as a share of half the range of the rewards."""
_ROUNDING = 1e-14
"""A value is not known better than to this share of it."""
_WALK = 1e-8
"""Share of time spent on walks between places that a mixture would otherwise keep apart."""

Progress = Callable[[int, float, float], None]
"""Called while a search goes on with: risk-neutral solves so far, best value, upper bound."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A policy and its certificate.

    No policy has a value above `upper_bound`. It is infinite for a method that only climbs to a
    local optimum.
    """

    policy: npt.NDArray[Any]
    """`(S,)` actions, or `(S, A)` probabilities when the optimum has to mix."""
    mean: float
    """`E[R]`, the expected reward of a step."""
    variance: float
    """`Var(R)`."""
    value: float
    """The risk measure of `R`; for a variance budget, the mean."""
    dual: float
    """The best `y` of this policy."""
    upper_bound: float
    converged: bool
    """Whether the gap to the bound is as small as was asked for; of a method that only climbs,
    whether it ended by its own criterion rather than at a limit."""
    trace: tuple[float, ...]
    """The best value after each iteration (`policy_iteration`) or risk-neutral solve."""
    solves: int
    """Risk-neutral solves spent."""

    @property
    def gap(self) -> float:
        """`upper_bound - value`: how much a better policy could gain at the most."""
        return self.upper_bound - self.value

    def __repr__(self) -> str:
        kind = "randomised" if self.policy.ndim == 2 else "deterministic"
        return (
            f"Solution(value={self.value:.8g}, upper_bound={self.upper_bound:.8g}, "
            f"mean={self.mean:.8g}, variance={self.variance:.8g}, dual={self.dual:.8g}, "
            f"{kind} policy of {len(self.policy)} states, solves={self.solves}, "
            f"converged={self.converged})"
        )


@dataclass(frozen=True)
class Certificate:
    """How an answer was found and how far off it can be; see `Solution`."""

    upper_bound: float
    tolerance: float
    """The gap to the bound that was asked for; ten times that, or rounding, will do."""
    solves: int
    trace: tuple[float, ...] = ()


def moments(mdp: MDP, policy: npt.NDArray[Any]) -> tuple[float, float]:
    """Mean and variance of the reward of a step, from the occupancy."""
    rewards, weights = mdp.reward_distribution(mdp.occupancy(policy))
    # Seen from the reward that is paid most often, a reward that is always paid is its own mean.
    usual = float(rewards[np.argmax(weights)])
    mean = usual + stats.mean(rewards - usual, weights)
    return mean, stats.variance(rewards, weights)


def describe(mdp: MDP, policy: npt.NDArray[Any], risk: Risk, certificate: Certificate) -> Solution:
    """The `Solution` for a policy, its statistics computed from its occupancy."""
    rewards, weights = mdp.reward_distribution(mdp.occupancy(policy))
    return _solution(
        policy,
        certificate,
        mean=stats.mean(rewards, weights),
        variance=stats.variance(rewards, weights),
        value=risk.value(rewards, weights),
        dual=risk.dual(rewards, weights),
    )


def describe_moments(
    policy: npt.NDArray[Any], mean: float, variance: float, value: float, certificate: Certificate
) -> Solution:
    """The `Solution` for a policy of known mean and variance."""
    return _solution(policy, certificate, mean=mean, variance=variance, value=value, dual=mean)


def _solution(
    policy: npt.NDArray[Any], certificate: Certificate, *, value: float, **statistics: float
) -> Solution:
    answer = policy.copy()
    answer.flags.writeable = False
    upper_bound = max(certificate.upper_bound, value)
    allowed = max(10.0 * certificate.tolerance, _ROUNDING * abs(value))
    return Solution(
        policy=answer,
        value=value,
        upper_bound=upper_bound,
        converged=upper_bound - value <= allowed,
        trace=certificate.trace,
        solves=certificate.solves,
        **statistics,
    )


def mixture(mdp: MDP, policies: Iterable[npt.NDArray[Any]], shares: Iterable[float]) -> Array:
    """The stationary policy whose occupancy is a weighted mean of the policies' occupancies.

    `pi(a | s) = d(s, a) / d(s)`; where no policy goes, actions are those of the first. At
    discount 1 two policies may stay in different places; then the mixture walks between them
    now and then, which costs it a share of 1e-8 of the time.
    """
    policies = list(policies)
    parts = [w * mdp.occupancy(p) for p, w in zip(policies, shares, strict=True)]
    fallback = np.eye(mdp.n_actions)[policies[0]]
    policy = _with_occupancy(sum(parts, np.zeros_like(fallback)), fallback)
    if mdp.discount == 1.0 and len(closed_classes(mdp.policy_matrix(policy))) > 1:
        # Two places to stay: only a rare walk between them lets one chain visit both.
        uniform = np.full_like(fallback, 1.0 / mdp.n_actions)
        parts = [(1.0 - _WALK) * part for part in parts] + [_WALK * mdp.occupancy(uniform)]
        policy = _with_occupancy(sum(parts, np.zeros_like(fallback)), fallback)
    return policy


def _with_occupancy(d: Array, fallback: Array) -> Array:
    visits = d.sum(axis=1, keepdims=True)
    return np.where(visits > 0, d / np.where(visits > 0, visits, 1.0), fallback)
