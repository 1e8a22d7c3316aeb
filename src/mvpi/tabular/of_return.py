"""The global optimum of a risk measure of the return of an episode, with a certificate.

The searches are those for the reward of a step (`mvpi.tabular._searches`), on the problem of the
return (`mvpi.tabular.return_problem`). If rewards were rounded, every return is within `e` of the
rounded one, for all policies. Then the value of any policy is within

    e        for a measure with a nondecreasing utility: it is monotone, and adding a constant to
             all returns adds it to the value
    e L      otherwise, with `L` the steepest slope of the utility over the range of returns

of the value for rounded returns, and its standard deviation within `e`. The upper bound holds for
the exact returns; mean, variance and value are those of the rounded ones.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mvpi.errors import InputError
from mvpi.risk import OfReturn, Risk, VarianceBudget
from mvpi.tabular._objectives import LimitTooSmall
from mvpi.tabular._reachable import Core
from mvpi.tabular._searches import optimum
from mvpi.tabular.return_problem import ReturnProblem, explore_returns
from mvpi.tabular.solution import Progress, Solution


def best_of_return(
    core: Core,
    risk: OfReturn,
    horizon: int,
    return_step: float | None,
    tolerance: float,
    progress: Progress | None,
) -> Solution:
    """The best policy for a measure of the return of `horizon` steps."""
    inner = risk.risk
    if inner.search == "none":
        raise InputError(
            f"{risk} stands for many measures: use mvpi.frontier(mdp, horizon={horizon})"
            ".best(risk_aversion)"
        )
    problem = explore_returns(core, horizon, return_step)
    if problem.error == 0.0:
        solution = optimum(problem, inner, tolerance, progress)
    elif inner.variance_limit is not None:
        solution = _within_limit(problem, inner.variance_limit, tolerance, progress)
    else:
        solution = optimum(problem, inner, tolerance, progress)
        upper = solution.upper_bound + _effect(problem, inner)
        solution = _widened(problem, solution, upper, tolerance)
    return solution.having(policy=problem.lifted(solution.policy), labels=core.whole.labels)


def _effect(problem: ReturnProblem, risk: Risk) -> float:
    """A bound on how much larger a value is for the exact returns."""
    if risk.required_probability is not None or risk.is_neutral:
        return problem.error
    reach = float(np.ptp(problem.rewards)) + 2.0 * problem.error
    slopes = risk.slope(np.array([-reach, reach]))
    steepest = 1.0 if slopes[1] >= 0.0 else float(np.abs(slopes).max())
    return problem.error * steepest


def _within_limit(
    problem: ReturnProblem, limit: float, tolerance: float, progress: Progress | None
) -> Solution:
    """A policy whose exact returns satisfy the limit, not only the rounded ones.

    A standard deviation changes by no more than the error: the limit is tightened by that for the
    answer, and loosened for the bound.
    """
    e = problem.error
    tight, loose = ((max(math.sqrt(limit) + sign * e, 0.0)) ** 2 for sign in (-1.0, 1.0))
    try:
        solution = optimum(problem, VarianceBudget(tight), tolerance, progress)
    except LimitTooSmall as error:
        least = (math.sqrt(error.least) + e) ** 2
        hint = f" for certain with return_step={problem.step:g} (or take a smaller one)"
        raise LimitTooSmall(limit, least, hint) from None
    upper = optimum(problem, VarianceBudget(loose), tolerance, progress).upper_bound
    return _widened(problem, solution, upper + e, tolerance)


def _widened(
    problem: ReturnProblem, solution: Solution, upper: float, tolerance: float
) -> Solution:
    """The solution with a bound that includes the rounding of rewards."""
    allowed = 10.0 * tolerance * 0.5 * float(np.ptp(problem.rewards))
    return replace(
        solution,
        upper_bound=upper,
        converged=solution.converged and upper - solution.value <= allowed,
    )
