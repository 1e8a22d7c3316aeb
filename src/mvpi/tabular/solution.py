"""The answer of a solver: a policy, its value and a bound on all values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, overload

import numpy as np
import numpy.typing as npt

from mvpi import stats
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.risk import Risk
from mvpi.tabular._matrices import closed_classes
from mvpi.tabular.labels import Labels, PolicyByLabel
from mvpi.tabular.mdp import MDP

TOLERANCE = 1e-9
"""Default largest gap between value and bound, as a share of half the range of the rewards."""
_ROUNDING = 1e-14
"""Relative error of a value."""
_WALK = 1e-8
"""Share of the uniform policy in a mixture whose chain would not be unichain otherwise."""

Progress = Callable[[int, float, float], None]
"""Called while a search goes on with: risk-neutral solves so far, best value, upper bound."""
Later = Callable[[], float]
"""Computes a number that not every user asks for."""


class OnDemand:
    """A field of a frozen dataclass: a number, or a function that is called when first read.

    Afterwards the field holds the number, and the function, with all it refers to, is released.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> NoReturn: ...

    @overload
    def __get__(self, instance: object, owner: type) -> float: ...

    def __get__(self, instance: object | None, owner: type) -> float:
        if instance is None:  # dataclasses look for a default here
            raise AttributeError(self._name)
        held: float | Later = vars(instance)[self._name]
        if not callable(held):
            return held
        number = vars(instance)[self._name] = held()
        return number

    def __set__(self, instance: object, value: float | Later) -> None:
        vars(instance)[self._name] = value


@dataclass(frozen=True, eq=False, kw_only=True)
class Solution:
    """A policy and its certificate.

    No policy has a value above `upper_bound`. It is infinite for a method that finds a local
    optimum only.
    """

    policy: Any
    """`(S,)` actions, or `(S, A)` probabilities when the optimum has to mix; for the return of an
    episode a `ReturnPolicy`."""
    mean: float
    """`E[R]`, the expected reward of a step, or the expected return."""
    variance: OnDemand = OnDemand()
    """`Var(R)`. That of a risk-neutral optimum of more than 64 states is evaluated when it is first
    read; until then the solution keeps the chain of its policy in memory."""
    value: float
    """The risk measure of `R`; for a variance budget, the mean."""
    dual: float
    """The best `y` of this policy."""
    upper_bound: float
    converged: bool
    """Whether the gap to the bound is within the tolerance; of a method for local optima, whether
    it ended by its own criterion rather than at a limit."""
    trace: tuple[float, ...]
    """The best value after each iteration (`policy_iteration`) or risk-neutral solve."""
    solves: int
    """Risk-neutral solves spent."""
    labels: Labels | None = None
    """The names of states and actions; None for numbers."""

    @property
    def policy_by_label(self) -> PolicyByLabel:
        """The policy as a dict: state label to action label.

        Of a randomised policy, state label to a dict of action labels and probabilities.
        """
        if not isinstance(self.policy, np.ndarray):
            raise InputError(
                "the policy depends on the time and the return so far: call "
                "policy(state, time, return_so_far), or list its rows()"
            )
        shape = (len(self.policy), int(self.policy.max(initial=0)) + 1)
        labels = self.labels or Labels.checked(None, None, shape)
        return labels.by_label(self.policy)

    @property
    def gap(self) -> float:
        """`upper_bound - value`: how much a better policy could gain at the most."""
        return 0.0 if self.upper_bound == self.value else self.upper_bound - self.value

    @property
    def std(self) -> float:
        """The standard deviation of `R`."""
        return math.sqrt(self.variance)

    @property
    def sharpe(self) -> float:
        """`E[R] / std`, the Sharpe ratio; infinite when a mean that is not 0 has no variance."""
        return float(stats.sharpe_ratio(self.mean, self.variance))

    def having(self, **changes: Any) -> Solution:
        """The same with some fields changed; a variance not asked for yet is not evaluated."""
        return Solution(**vars(self) | changes)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: all fields, as numbers."""
        return vars(self) | {"variance": self.variance}

    def __repr__(self) -> str:
        policy = self.policy
        if isinstance(policy, np.ndarray):
            kind = "randomised" if policy.ndim == 2 else "deterministic"
            policy = f"{kind} policy of {len(policy)} states"
        return (
            f"Solution(value={self.value:.8g}, upper_bound={self.upper_bound:.8g}, "
            f"mean={self.mean:.8g}, variance={self.variance:.8g}, dual={self.dual:.8g}, "
            f"{policy}, solves={self.solves}, converged={self.converged})"
        )


@dataclass(frozen=True)
class Certificate:
    """How an answer was found, and a bound on its error; see `Solution`."""

    upper_bound: float
    tolerance: float
    """The gap to the bound that was asked for; `converged` allows ten times that, or rounding."""
    solves: int
    trace: tuple[float, ...] = ()


def distribution_of(mdp: MDP, policy: npt.NDArray[Any]) -> tuple[Array, Array]:
    """The rewards of a step and their probabilities, from the occupancy."""
    return mdp.reward_distribution(mdp.occupancy(policy))


def moments(distribution: tuple[Array, Array]) -> tuple[float, float]:
    """Mean and variance of a distribution: values, and the probability of each."""
    rewards, weights = distribution
    # Relative to the most frequent reward: a reward that is always paid is exactly the mean.
    usual = float(rewards[np.argmax(weights)])
    mean = usual + stats.mean(rewards - usual, weights)
    return mean, stats.variance(rewards, weights)


def describe(
    policy: npt.NDArray[Any],
    distribution: tuple[Array, Array],
    risk: Risk,
    certificate: Certificate,
) -> Solution:
    """The `Solution` for a policy and its distribution."""
    mean, variance = stats.mean(*distribution), stats.variance(*distribution)
    value, dual = risk.value(*distribution), risk.dual(*distribution)
    return describe_moments(policy, mean, variance, value, certificate, dual)


def describe_moments(
    policy: npt.NDArray[Any],
    mean: float,
    variance: float | Later,
    value: float,
    certificate: Certificate,
    dual: float | None = None,
) -> Solution:
    """The `Solution` for a policy of known mean and variance; `dual` is its mean when left out."""
    answer = policy.copy()
    answer.flags.writeable = False
    upper_bound = max(certificate.upper_bound, value)
    allowed = max(10.0 * certificate.tolerance, _ROUNDING * abs(value))
    return Solution(
        policy=answer,
        mean=mean,
        variance=variance,
        value=value,
        dual=mean if dual is None else dual,
        upper_bound=upper_bound,
        converged=upper_bound == value or upper_bound - value <= allowed,
        trace=certificate.trace,
        solves=certificate.solves,
    )


def mixture(mdp: MDP, policies: Iterable[npt.NDArray[Any]], shares: Iterable[float]) -> Array:
    """The stationary policy whose occupancy is a weighted mean of the policies' occupancies.

    `pi(a | s) = d(s, a) / d(s)`; in states that no policy visits, actions are those of the first.
    At discount 1 the policies may have different closed classes; then a share of 1e-8 of the
    uniform policy connects them.
    """
    policies = list(policies)
    parts = [w * mdp.occupancy(p) for p, w in zip(policies, shares, strict=True)]
    fallback = np.eye(mdp.n_actions)[policies[0]]
    policy = with_occupancy(sum(parts, np.zeros_like(fallback)), fallback)
    if mdp.discount == 1.0 and len(closed_classes(mdp.policy_matrix(policy))) > 1:
        uniform = np.full_like(fallback, 1.0 / mdp.n_actions)
        parts = [(1.0 - _WALK) * part for part in parts] + [_WALK * mdp.occupancy(uniform)]
        policy = with_occupancy(sum(parts, np.zeros_like(fallback)), fallback)
    return policy


def with_occupancy(d: Array, fallback: Array) -> Array:
    """`pi(a | s) = d(s, a) / d(s)`, and the `fallback` where nothing is visited."""
    visits = d.sum(axis=1, keepdims=True)
    return np.where(visits > 0, d / np.where(visits > 0, visits, 1.0), fallback)
