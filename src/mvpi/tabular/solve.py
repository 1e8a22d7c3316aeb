"""Risk-neutral solves: the policy with the largest reward per step, and a proof of how large.

    maximise   E[R] = sum_{s,a} d_pi(s, a) r(s, a)   over policies

For any function `v` of the states and residual `b = T v - v`, `T` the optimality operator,

    (1 - g) mu v + min b   <=   max over policies of E[R]   <=   (1 - g) mu v + max b

(`g` the discount, `mu` the start; at `g = 1` the first term is 0 and the bounds hold for the
average reward; Puterman, theorems 6.6.2 and 8.5.5). The greedy policy reaches the left side. The
loop of `solve_rewards` backs up `v`, stops when the bounds meet, and lets a strategy of
`mvpi.tabular._engines` improve `v` otherwise. Both bounds are part of the answer. `upper` is a
certificate: it holds however `v` was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_number
from mvpi._types import Array
from mvpi.errors import NoConvergence
from mvpi.tabular._engines.backups import Actions, rounding, upper_residual
from mvpi.tabular._engines.linear_systems import row_means
from mvpi.tabular._engines.methods import Method, check_method, choose, strategies
from mvpi.tabular._engines.ordered_sweeps import lower_values
from mvpi.tabular._engines.policy_iteration import unichain_policy
from mvpi.tabular._engines.strategy import Iterate
from mvpi.tabular._matrices import NotUnichain, mean_over
from mvpi.tabular._reachable import reachable_core
from mvpi.tabular._stored_mdp import PolicyRewards
from mvpi.tabular._vertices import Units
from mvpi.tabular.chain import DIRECT_UP_TO, Chain, Values
from mvpi.tabular.mdp import MDP
from mvpi.tabular.solution import (
    TOLERANCE,
    Certificate,
    Later,
    Solution,
    describe_moments,
    distribution_of,
    moments,
)

_ALL = slice(None)
_EPS = float(np.finfo(np.float64).eps)
WORST_UTILITY = -1e13
"""Utilities are clipped here; outcomes this bad have an occupancy below rounding at an optimum."""
_ITERATIONS = 500
_EVALUATED = 0.01
"""Accuracy of policy evaluation before the next improvement, as a share of the residual."""
_SUITABLE = 5.0
"""Largest ratio of the units of a solve to those of the rewards that are paid."""
_CHANGES_OF_UNITS = 3
_FINEST = 1e-12
"""Best accuracy of the moments of scaled rewards."""
_ROUNDING = 8 * _EPS
"""Relative error of a scaled reward."""


def solve(mdp: MDP, *, tolerance: float = TOLERANCE, method: Method = "auto") -> Solution:
    """The policy of `mdp` with the largest expected reward per step, with a proof.

    The same as `optimize(mdp, 0.0)`. One solve is enough, unless the policy avoids rewards so
    large, such as the penalty of a forbidden action, that those it is paid are lost to rounding.

    Args:
        mdp: the problem, discounted or average-reward.
        tolerance: the gap to the upper bound at which to stop, as a share of half the range of
            the rewards that the policy is paid; 1e-9 when left out. `converged` says
            whether the gap is at most ten times that. Mean and variance are right to a tenth of it.
            The variance is evaluated when it is first read: it takes no part in the search, and
            about a third of its time.
        method: "modified policy iteration", "ordered sweeps", "policy iteration" (evaluation by
            LU), "inexact policy iteration" (by a Krylov method) or "local policy iteration"; "auto"
            chooses by the size and the transitions. All give the same certified answer. Sweeps and
            local policy iteration need a discount below 1.

    >>> import mvpi
    >>> solution = mvpi.solve(mvpi.examples.four_state())
    >>> round(solution.mean, 6), round(solution.variance, 6), int(solution.policy[0])
    (0.0, 0.411765, 0)
    """
    tolerance = check_number(tolerance, "tolerance", at_least=0.0)
    core = reachable_core(mdp)
    solution = largest_mean(core.mdp, tolerance, check_method(core.mdp, method))
    return core.answer(solution)


def largest_mean(mdp: MDP, tolerance: float, method: Method = "auto") -> Solution:
    """`solve`, for an MDP whose states can all be reached."""
    low, high = float(mdp.rewards.min()), float(mdp.rewards.max())
    own = Units(0.5 * low + 0.5 * high, 0.5 * (high - low) or 1.0)
    policy, solves, suitable = None, 0, False
    while not suitable:
        units = own
        scaled = _scaled(mdp, units)
        # Raised by the rounding error, so that the bound holds for the exact rewards.
        scaled = scaled + _ROUNDING * np.abs(scaled)
        optimum = solve_rewards(mdp, scaled, policy=policy, tolerance=tolerance, method=method)
        policy, solves = optimum.policy, solves + 1
        chain = optimum.chain or mdp.chain(policy)
        paid = PolicyRewards(mdp, policy, chain.matrix)
        own = Units.of(paid.paid_in(chain.support), mdp.rewards, high - low)
        gap, enough = units.scale * (optimum.upper - optimum.lower), _SUITABLE * own.scale
        suitable = units.scale <= enough or gap <= tolerance * enough
        suitable = suitable or solves > _CHANGES_OF_UNITS
    mean, variance = _moments(mdp, optimum, chain, paid, units, own, max(0.1 * tolerance, _FINEST))
    upper = units.centre + units.scale * optimum.upper
    rounding = _ROUNDING * (abs(units.centre) + abs(units.scale * optimum.upper))
    certificate = Certificate(upper + rounding, tolerance * own.scale, solves, (mean,))
    return describe_moments(optimum.policy, mean, variance, mean, certificate)


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best policy for a linear objective; no policy has more than `upper`."""

    policy: Actions
    upper: float
    chain: Chain | None = None
    """The chain of the policy, if it was evaluated last."""


@dataclass(frozen=True, kw_only=True)
class Optimum(Best):
    """The best policy for a linear reward; it reaches at least `lower`."""

    values: Array
    """State values, up to a constant."""
    lower: float


def solve_rewards(
    mdp: MDP,
    rewards: Array,
    *,
    policy: Actions | None = None,
    values: Values | None = None,
    tolerance: float = 1e-10,
    method: Method = "auto",
) -> Optimum:
    """The best policy of `mdp` when pair `(s, a)` pays `rewards[s, a]`.

    Args:
        mdp: gives transitions, discount and start; its own rewards are not used.
        rewards: `(S, A)`.
        policy: a policy to start from; it is kept where nothing is better.
        values: relative values to start from; those of `policy` when left out.
        tolerance: stop when `upper - lower` is at most this (or as small as rounding allows).
        method: see `solve`.
    """
    if mdp.discount == 1.0 and len(mdp.closed_classes) > 1:
        raise NotUnichain("the MDP", [mdp.labels.state(s) for s in mdp.closed_classes])
    iterate, far = _start(mdp, rewards, policy, values, tolerance)
    remaining = strategies(mdp, method, warm=policy is not None or values is not None, far=far)
    for _ in range(_ITERATIONS):
        iterate.back_up()
        bounds = _Bounds.of(iterate, tolerance)
        iterate.measure(bounds.span)
        if bounds.are_final(iterate, tolerance):
            break
        iterate.smallest = min(iterate.smallest, bounds.span)
        inexact = _EVALUATED * bounds.span if iterate.changed else 0.0
        iterate.target = max(inexact, 0.5 * tolerance)
        while not remaining[0].improve(iterate):
            remaining.pop(0)
        iterate.centre()
    else:
        raise NoConvergence(f"no convergence after {_ITERATIONS} policy improvements")
    if mdp.discount == 1.0:
        iterate.policy = unichain_policy(mdp, iterate.policy, iterate.rewards, strict=True)
        iterate.chain = None
    return _optimum(iterate, bounds, rewards)


def _start(
    mdp: MDP, rewards: Array, policy: Actions | None, values: Values | None, tolerance: float
) -> tuple[Iterate, bool]:
    """Values and a policy to start from; and whether most states are far from any reward."""
    actions = np.zeros(mdp.n_states, np.int64) if policy is None else policy.copy()
    if policy is not None and values is None:
        paid = rewards[np.arange(mdp.n_states), actions]
        values = mdp.chain(actions).evaluate_relative(paid, tolerance)
    if values is not None:
        given = rewards - values.gain, values.values.copy(), actions, values.gain
        return Iterate(mdp, *given), False
    if choose(mdp) in ("modified policy iteration", "ordered sweeps"):
        v, far = lower_values(mdp, rewards)
        return Iterate(mdp, rewards, v, actions), far
    return Iterate(mdp, rewards, np.zeros(mdp.n_states), actions), False


@dataclass(frozen=True)
class _Bounds:
    """Bounds on the residual, over the states whose rounding errors are small enough."""

    low: float
    high: float
    floor: float
    """Largest rounding error of a residual."""
    noise: Array
    """The same, by state."""
    counted: slice | npt.NDArray[np.bool_]

    @classmethod
    def of(cls, iterate: Iterate, tolerance: float) -> _Bounds:
        noise = rounding(iterate.mdp, iterate.rewards, iterate.values, iterate.policy)
        counted = _counted(iterate.mdp, noise, tolerance)
        residual = iterate.residual[counted]
        floor = float(noise[counted].max())
        return cls(float(residual.min()), float(residual.max()), floor, noise, counted)

    @property
    def span(self) -> float:
        return self.high - self.low

    def are_final(self, iterate: Iterate, tolerance: float) -> bool:
        settled = not iterate.changed or self.counted is _ALL
        if self.span <= tolerance and settled:
            return True
        if self.span <= self.floor and not iterate.changed:
            return True
        # Only rounding errors are left, unless the values diverged, which makes those large too.
        smallest = max(iterate.smallest, 1e-3 * self.span)
        return iterate.stalled > 3 and smallest <= 1e4 * self.floor


def _optimum(iterate: Iterate, bounds: _Bounds, rewards: Array) -> Optimum:
    mdp, v, offset = iterate.mdp, iterate.values, iterate.offset
    upper = bounds.high + bounds.floor
    if bounds.counted is not _ALL or mdp.n_states <= DIRECT_UP_TO:
        upper = _upper_bound(mdp, rewards - offset, v, iterate.policy, bounds.noise, bounds.counted)
    rest = 1.0 - mdp.discount
    base = offset + rest * mean_over(mdp.start, v)
    size = abs(offset) + rest * mean_over(mdp.start, np.abs(v)) + abs(upper)
    upper = min(base + upper + 8 * _EPS * size, float(rewards.max()))
    lower = base + bounds.low
    return Optimum(policy=iterate.policy, values=v, lower=lower, upper=upper, chain=iterate.chain)


def _counted(mdp: MDP, noise: Array, tolerance: float) -> slice | npt.NDArray[np.bool_]:
    """The states whose residuals count for convergence.

    Left out are states of such low value that the rounding errors of their residuals alone exceed
    the tolerance.
    """
    if mdp.discount == 1.0 or float(noise.max()) <= tolerance:
        return _ALL
    ordinary = noise <= max(tolerance, 1e3 * float(noise[mdp.start > 0].max()))
    return _ALL if ordinary.all() else ordinary


def _upper_bound(
    mdp: MDP,
    rewards: Array,
    values: Array,
    policy: Actions,
    noise: Array,
    counted: slice | npt.NDArray[np.bool_],
) -> float:
    """The largest residual after the values of the states left out are raised.

    The bound holds for any `v`. Raising `v` where rounding errors are large makes residuals
    negative there, and changes the others only through actions that are far from optimal.
    """
    left_out = np.ones(mdp.n_states, dtype=bool)
    left_out[counted] = False
    margin = 4.0 * float(noise.max(where=left_out, initial=0.0)) / (1.0 - mdp.discount or 1.0)
    raised = values + np.where(left_out, margin, 0.0)
    return float(upper_residual(mdp, rewards, raised, policy).max())


def _moments(
    mdp: MDP,
    optimum: Optimum,
    chain: Chain,
    paid: PolicyRewards,
    units: Units,
    own: Units,
    accuracy: float,
) -> tuple[float, float | Later]:
    """Mean and variance of the policy of `optimum`, right to `accuracy` in its `own` units.

    The values in `optimum`, in `units`, are nearly those of its policy.
    """
    if mdp.n_states <= DIRECT_UP_TO:
        return moments(distribution_of(mdp, optimum.policy))
    first = paid.expected(lambda r: (r - own.centre) / own.scale)
    guess = units.scale / own.scale * optimum.values
    m = chain.evaluate_relative(first, accuracy, guess).gain
    return own.centre + own.scale * m, partial(variance_around, chain, paid, own, m, accuracy)


def variance_around(
    chain: Chain,
    paid: PolicyRewards,
    units: Units,
    m: float,
    accuracy: float,
    guess: Array | None = None,
) -> float:
    """The variance of a policy whose mean is `m` in some units, right to `accuracy` in those.

    Squares are taken around the mean, which avoids cancellation. A variance below the squared
    accuracy of the mean is 0. `guess` are values to start from.
    """
    squares = paid.expected(lambda r: ((r - units.centre) / units.scale - m) ** 2)
    spread = chain.evaluate_relative(squares, accuracy, guess).gain
    spread = min(max(spread, float(squares.min())), float(squares.max()))
    return units.scale**2 * spread if spread > (10.0 * accuracy) ** 2 else 0.0


def _scaled(mdp: MDP, units: Units) -> Array:
    """`E[r | s, a]` in some units, `(S, A)`."""
    if mdp.rewards.ndim == 2 or mdp.n_states <= DIRECT_UP_TO:
        return mdp.expected(lambda r: r - units.centre) / units.scale
    # Without a copy of all rewards, which would take longer than the sums.
    return row_means(mdp.transitions, mdp.rewards, units.centre).reshape(mdp.shape) / units.scale
