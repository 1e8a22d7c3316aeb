"""The global optimum of a risk measure over all policies of a finite MDP, with a certificate.

Of the reward of a step (`mvpi.tabular._step_problem`) or of the return of an episode
(`mvpi.tabular.return_problem`); the searches are the same (`mvpi.tabular._searches`).

If the rewards of an episode were rounded, every return is within `e` of the rounded one, for all
policies. Then the value of any policy is within

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

from mvpi._checks import check_callback, check_number
from mvpi.errors import InputError
from mvpi.risk import OfReturn, Risk, VarianceBudget, as_risk
from mvpi.tabular._objectives import LimitTooSmall
from mvpi.tabular._reachable import Core, reachable_core
from mvpi.tabular._searches import optimum
from mvpi.tabular._step_problem import StepProblem
from mvpi.tabular.mdp import MDP
from mvpi.tabular.return_problem import ReturnProblem, checked_horizon, explore_returns
from mvpi.tabular.solution import TOLERANCE, Progress, Solution


def optimize(
    mdp: MDP,
    risk: Risk | float,
    *,
    horizon: int | None = None,
    return_step: float | None = None,
    tolerance: float = TOLERANCE,
    progress: Progress | None = None,
) -> Solution:
    """The best policy of `mdp` for `risk` among all policies, with a proof.

    Args:
        mdp: the problem, discounted or average-reward.
        risk: any risk measure, or a number for `MeanVariance`. For a `VarianceBudget` the best
            policy may have to mix two; it then comes as `(S, A)` probabilities. With
            `OfReturn(risk)` the risk is that of the return of `horizon` steps, and the policy is a
            `mvpi.tabular.ReturnPolicy`, which looks at the time and the return so far.
        horizon: the number of steps of an episode, for `OfReturn` only. The return is the sum of
            `discount^t r_t`, at discount 1 the plain sum.
        return_step: for `OfReturn` only: round discounted rewards to multiples of this, where there
            are too many different returns for memory. The upper bound includes the error.
        tolerance: the gap to the upper bound at which to stop, as a share of half the range of
            the rewards that a risk-neutral policy is paid; 1e-9 when left out. `converged` says
            whether the gap is at most ten times that.
        progress: called as `progress(solves, best, bound)` while the search goes on.

    >>> import mvpi
    >>> mdp = mvpi.examples.four_state()
    >>> solution = mvpi.optimize(mdp, risk=4.0)
    >>> round(solution.value, 6), round(solution.upper_bound, 6), int(solution.policy[0])
    (-1.380623, -1.380623, 1)

    A coin that pays 2 or costs 1, to be tossed or left alone three times; whoever has lost nothing
    yet can afford to toss:

    >>> coin = [("game", "toss", 0.5, 2, "game"), ("game", "toss", 0.5, -1, "game")]
    >>> game = mvpi.MDP.from_outcomes([*coin, ("game", "leave", 1, 0, "game")], discount=1.0)
    >>> solution = mvpi.optimize(game, mvpi.OfReturn(mvpi.CVaR(0.5)), horizon=3)
    >>> solution.value, solution.policy("game", time=2, return_so_far=4)
    (0.0, 'leave')
    """
    tolerance = check_number(tolerance, "tolerance", at_least=0.0)
    check_callback(progress, "progress")
    risk, core = as_risk(risk), reachable_core(mdp)
    if isinstance(risk, OfReturn):
        steps = checked_horizon(horizon, "mvpi.optimize(mdp, mvpi.OfReturn(risk), horizon=20)")
        if return_step is not None:
            return_step = check_number(return_step, "return_step", above=0.0)
        return _best_of_return(core, risk, steps, return_step, tolerance, progress)
    if horizon is not None or return_step is not None:
        name = "return_step" if horizon is None else "horizon"
        raise InputError(
            f"{name} is for the return of an episode: use mvpi.OfReturn({risk}), or leave it out"
        )
    if risk.search == "none":
        raise InputError(
            f"{risk} stands for many measures: use mvpi.frontier(mdp).best(risk_aversion)"
        )
    return core.answer(optimum(StepProblem(core.mdp), risk, tolerance, progress))


def _best_of_return(
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
