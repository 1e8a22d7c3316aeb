"""The risk-neutral optimum, with a certificate: one solve.

    maximise   E[R]   over policies

`mvpi.tabular.solve` finds the policy and proves how good it is. Here the mean and the variance of
that policy are evaluated, and the proof becomes the certificate of a `Solution`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mvpi._checks import check_number
from mvpi.tabular import solve as solver
from mvpi.tabular.bellman import Array
from mvpi.tabular.chain import DIRECT_UP_TO
from mvpi.tabular.mdp import MDP
from mvpi.tabular.polygon import Units
from mvpi.tabular.reachable import reachable_core
from mvpi.tabular.solution import TOLERANCE, Certificate, Solution, describe_moments, moments
from mvpi.tabular.solve import Optimum

_SUITABLE = 5.0
"""Units at most this many times larger than those of the rewards that are paid will do."""
_CHANGES_OF_UNITS = 3
_FINEST = 1e-12
"""Moments of scaled rewards are not evaluated more exactly than this."""
_ROUNDING = 8 * float(np.finfo(np.float64).eps)
"""Share of itself by which a scaled reward may be off."""


def solve(mdp: MDP, *, tolerance: float = TOLERANCE) -> Solution:
    """The policy of `mdp` with the largest expected reward per step, with a proof.

    The same as `optimize(mdp, 0.0)`. One solve is enough, unless huge rewards that the policy
    avoids, such as the cost of a forbidden action, hide those that it is paid.

    Args:
        mdp: the problem, discounted or average-reward.
        tolerance: the gap to the upper bound at which to stop, as a share of half the range of
            the rewards that the policy is paid. `converged` says whether the gap is at most ten
            times that. Mean and variance are right to a tenth of it.

    >>> import mvpi
    >>> solution = mvpi.solve(mvpi.examples.four_state())
    >>> round(solution.mean, 6), round(solution.variance, 6), int(solution.policy[0])
    (0.0, 0.411765, 0)
    """
    tolerance = check_number(tolerance, "tolerance", at_least=0.0)
    core = reachable_core(mdp)
    solution = largest_mean(core.mdp, tolerance)
    return replace(solution, policy=core.lifted(solution.policy))


def largest_mean(mdp: MDP, tolerance: float) -> Solution:
    """`solve`, for an MDP whose states can all be reached."""
    low, high = float(mdp.rewards.min()), float(mdp.rewards.max())
    own = Units(0.5 * low + 0.5 * high, 0.5 * (high - low) or 1.0)
    policy, solves, suitable = None, 0, False
    while not suitable:
        units = own
        scaled = _scaled(mdp, units)
        # Raised by what rounding may have taken: the bound holds for the real rewards.
        scaled = scaled + _ROUNDING * np.abs(scaled)
        optimum = solver.solve(mdp, scaled, policy=policy, tolerance=tolerance)
        policy, solves = optimum.policy, solves + 1
        own = Units.of(mdp.rewards_paid_by(policy), mdp.rewards)
        gap, enough = units.scale * (optimum.upper - optimum.lower), _SUITABLE * own.scale
        suitable = units.scale <= enough or gap <= tolerance * enough
        suitable = suitable or solves > _CHANGES_OF_UNITS
    mean, variance = _moments(mdp, optimum, units, own, max(0.1 * tolerance, _FINEST))
    upper = units.centre + units.scale * optimum.upper
    rounding = _ROUNDING * (abs(units.centre) + abs(units.scale * optimum.upper))
    certificate = Certificate(upper + rounding, tolerance * own.scale, solves, (mean,))
    return describe_moments(optimum.policy, mean, variance, mean, certificate)


def _moments(
    mdp: MDP, optimum: Optimum, units: Units, own: Units, accuracy: float
) -> tuple[float, float]:
    """Mean and variance of the policy of `optimum`, right to `accuracy` in its `own` units.

    The values in `optimum`, in `units`, are nearly those of its policy. Squares are taken around
    the mean, so that nothing cancels.
    """
    states, policy = np.arange(mdp.n_states), optimum.policy
    if mdp.n_states <= DIRECT_UP_TO:
        return moments(mdp, policy)
    chain = optimum.chain or mdp.chain(policy)
    paid = _scaled(mdp, own)[states, policy]
    guess = units.scale / own.scale * optimum.values
    m = chain.evaluate_relative(paid, accuracy, guess).gain
    squares = mdp.expected(lambda r: ((r - own.centre) / own.scale - m) ** 2)[states, policy]
    spread = chain.evaluate_relative(squares, accuracy).gain
    spread = min(max(spread, float(squares.min())), float(squares.max()))
    mean = own.centre + own.scale * m
    return mean, own.scale**2 * spread if spread > (10.0 * accuracy) ** 2 else 0.0


def _scaled(mdp: MDP, units: Units) -> Array:
    """`E[r | s, a]` in some units, `(S, A)`."""
    return mdp.expected(lambda r: (r - units.centre) / units.scale)
