"""The global optimum of a risk measure over all policies of a finite MDP, with a certificate.

Mean-variance, and the mean under a variance budget, are answered on the polygon of moments
(`mvpi.tabular.exploration`): `m - lam (q - m^2)` is convex in `(m, q)`, so a corner is optimal.

Any other measure is a search over its dual variable (`mvpi.tabular.dual_search`). For the
entropic measure the best policy is the same for all `y`: one solve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from mvpi._checks import check_callback, check_number
from mvpi.errors import InputError
from mvpi.risk import Entropic, MeanVariance, Risk, VarianceBudget, as_risk
from mvpi.tabular.bellman import Actions
from mvpi.tabular.dual_search import DualSearch
from mvpi.tabular.exploration import Exploration, explore, own_units
from mvpi.tabular.levels import Candidate, Levels, most_mean
from mvpi.tabular.mdp import MDP
from mvpi.tabular.polygon import Corner, Gap, Line, Objective, Point, unit
from mvpi.tabular.reachable import reachable_core
from mvpi.tabular.risk_neutral import largest_mean
from mvpi.tabular.solution import (
    TOLERANCE,
    Certificate,
    Progress,
    Solution,
    describe,
    describe_moments,
)
from mvpi.tabular.solve import expected_utility, solve

_ROUNDING = 1e-13
"""A variance this little above its limit, in scaled units, may be within it."""
_CHANGES_OF_UNITS = 6
"""How often a policy with rewards far from those of the largest mean is looked at in its units."""
_LARGEST_EXPONENT = 40.0
"""Costs above `exp` of this are as good as infinite; to count less of them keeps bounds valid."""
_ACCURACY = 1e-10
"""Largest tolerance for expected exponentials, which are near 1 at a good `y`."""
_ENTROPIC_ROUNDING = 1e-14
"""Share of itself by which an expected exponential may be off."""
_ENTROPIC_SOLVES = 60
"""Enough to halve the range of the rewards until arithmetic cannot."""


def optimize(
    mdp: MDP,
    risk: Risk | float,
    *,
    tolerance: float = TOLERANCE,
    progress: Progress | None = None,
) -> Solution:
    """The best policy of `mdp` for `risk` among all policies, with a proof.

    Args:
        mdp: the problem, discounted or average-reward.
        risk: any risk measure, or a number for `MeanVariance`. For a `VarianceBudget` the best
            policy may have to mix two; it then comes as `(S, A)` probabilities.
        tolerance: the gap to the upper bound at which to stop, as a share of half the range of
            the rewards that a risk-neutral policy is paid. `converged` says whether the gap is
            at most ten times that.
        progress: called while the search goes on; see `mvpi.tabular.Progress`.

    >>> import mvpi
    >>> mdp = mvpi.examples.four_state()
    >>> solution = mvpi.optimize(mdp, risk=4.0)
    >>> round(solution.value, 6), round(solution.upper_bound, 6), int(solution.policy[0])
    (-1.380623, -1.380623, 1)
    """
    tolerance = check_number(tolerance, "tolerance", at_least=0.0)
    check_callback(progress, "progress")
    core = reachable_core(mdp)
    solution = _optimum(core.mdp, as_risk(risk), tolerance, progress)
    return replace(solution, policy=core.lifted(solution.policy))


def _optimum(mdp: MDP, risk: Risk, tolerance: float, progress: Progress | None) -> Solution:
    if isinstance(risk, MeanVariance | Entropic) and risk.risk_aversion == 0.0:
        return largest_mean(mdp, tolerance)
    polygon = explore(mdp, tolerance)
    if isinstance(risk, VarianceBudget):
        return _best_under_budget(polygon, risk, tolerance, progress)
    if isinstance(risk, MeanVariance):
        return _best_tradeoff(polygon, risk, tolerance, progress)
    if isinstance(risk, Entropic):
        return _best_entropic(polygon, risk, tolerance)
    (centre, scale), solves = polygon.units, polygon.solves
    return DualSearch(mdp, risk, tolerance * scale, progress, solves, centre).run()


@dataclass(frozen=True)
class Tradeoff(Objective):
    """Question: the largest `m - price * variance`, where nothing has less variance than 0."""

    price: float

    def at(self, point: Point) -> float:
        return point.m - self.price * max(point.variance, 0.0)

    def reached(self, gap: Gap) -> float:
        return max(self.at(gap.left.point), self.at(gap.right.point))

    def over(self, outline: list[Point]) -> float:
        """Where the outline has a variance above 0, it is convex: the ends of that part count."""
        return max(Budget(0.0).over(outline), *map(self.at, outline))

    def direction(self, gap: Gap) -> tuple[float, float] | None:
        """An optimum where the bound is reached would be farthest along the gradient there."""
        found = _gradient_direction(self.price, max(gap.outline(), key=self.at).m)
        inside = gap.lines[0].angle < Line(*found, 0.0).angle < gap.lines[-1].angle
        return found if inside else None


class LeastVariance(Objective):
    """Question: the smallest variance (as the largest of its negative)."""

    def reached(self, gap: Gap) -> float:
        return max(-gap.left.point.variance, -gap.right.point.variance)

    def over(self, outline: list[Point]) -> float:
        return min(max(-point.variance for point in outline), 0.0)


@dataclass(frozen=True)
class Budget(Objective):
    """Question: the largest mean with a variance of at most `limit`; -inf where there is none."""

    limit: float

    @classmethod
    def of(cls, variance: float, polygon: Exploration) -> Budget:
        """The question for a limit in the units of the rewards."""
        return cls(variance / polygon.scale / polygon.scale)

    def largest_mean(self, left: Point, right: Point, limit: float) -> float:
        """How far one can go from `left` towards `right` with a variance within `limit`.

        The variance along a segment is concave in the share of the right end.
        """
        if right.variance <= limit:
            return right.m
        spare = limit - left.variance
        if spare < 0.0:
            return -math.inf
        width = right.m - left.m
        slope = right.q - left.q - 2 * left.m * width
        root = math.sqrt(max((1.0 - _ROUNDING) * slope**2 - 4 * width**2 * spare, 0.0))
        return left.m + min(2 * spare / (slope + root), 1.0) * width

    def reached(self, gap: Gap) -> float:
        return self.largest_mean(gap.left.point, gap.right.point, self.limit + _ROUNDING)

    def over(self, outline: list[Point]) -> float:
        limit = self.limit * (1.0 + _ROUNDING)
        return max(self.largest_mean(*ends, limit) for ends in pairwise(outline))


def _gradient_direction(price: float, mean: float) -> tuple[float, float]:
    """The direction `(a, b)` in which `m - price * variance` grows fastest where `m` is `mean`.

    A very steep one is rounded to the vertical.
    """
    slope = 1 / max(price, 1e-300) + 2.0 * mean
    return (1.0, 0.0) if slope > 1e5 else unit(slope)


def _in_own_units(
    polygon: Exploration,
    search: Callable[[Exploration, Levels], tuple[Corner, Sequence[float]]],
    tolerance: float,
) -> tuple[Levels, tuple[float, ...]]:
    """All that `search` finds, which is done again while the units do not suit where it ends.

    Variances are differences of moments, and far away, or where rewards differ by far less, these
    leave few digits of them: then the search is repeated in units of the rewards paid there.
    Returns the levels and the trace of the last search.
    """
    levels = Levels()
    for _ in range(_CHANGES_OF_UNITS):
        corner, trace = search(polygon, levels)
        if len(levels.explored) > 1:
            levels.add(polygon, [polygon.beside(corner)])
        mean, variance = polygon.statistics(corner)
        units = own_units(polygon.mdp, corner.policy, mean, variance)
        if polygon.suits(mean, units):
            break
        solves = polygon.solves
        polygon = Exploration(polygon.mdp, corner.policy, tolerance, units=units, solves=solves)
    return levels, tuple(map(polygon.mean, trace))


def _best_tradeoff(
    polygon: Exploration, risk: MeanVariance, tolerance: float, progress: Progress | None
) -> Solution:
    def search(polygon: Exploration, levels: Levels) -> tuple[Corner, Sequence[float]]:
        question = Tradeoff(risk.risk_aversion * polygon.scale)
        _begin_tradeoff(polygon, question)
        answer = polygon.answer(question, tolerance, _in_rewards(polygon, progress))
        corner = max(polygon.corners(), key=lambda c: question.at(c.point))
        levels.add(polygon, [corner])
        return corner, answer.trace

    def value(candidate: Candidate) -> float:
        return candidate.mean - risk.risk_aversion * candidate.variance

    levels, trace = _in_own_units(polygon, search, tolerance)
    best = max(levels.efficient(), key=value)
    bound = levels.upper_bound(
        lambda level: Tradeoff(risk.risk_aversion * level.scale), value(best)
    )
    certificate = levels.certificate(best, bound, tolerance, trace)
    return describe_moments(*best, value(best), certificate)


def _begin_tradeoff(polygon: Exploration, question: Tradeoff) -> None:
    """The optimum's mean is at least the value of any policy and at most the largest mean.

    From the largest mean, two steps along the gradient give a policy worth comparing with.
    """
    top, top_line = polygon.top
    right = _gradient_direction(question.price, top_line.h)
    end, end_line = polygon.farthest(*right, near=[top])
    known, begun = [polygon.first, top, end], [(end, end_line)]
    inner = _gradient_direction(question.price, end.point.m)
    if inner != right:
        begun.insert(0, polygon.farthest(*inner, near=known))
        known.append(begun[0][0])
    left = _gradient_direction(question.price, max(question.at(c.point) for c in known))
    if left == right:
        left = unit(1e5)
    polygon.begin([polygon.farthest(*left, near=known), *begun])


def _best_under_budget(
    polygon: Exploration, risk: VarianceBudget, tolerance: float, progress: Progress | None
) -> Solution:
    def search(polygon: Exploration, levels: Levels) -> tuple[Corner, Sequence[float]]:
        polygon.begin_from_calmest()
        question = Budget.of(risk.limit, polygon)
        answer = polygon.answer(question, tolerance, _in_rewards(polygon, progress))
        if answer.best == -math.inf:
            polygon.answer(LeastVariance(), tolerance)
            end = min(polygon.corners(), key=lambda corner: corner.point.variance)
        else:
            gap = max(polygon.gaps, key=question.reached)
            near_left = question.reached(gap) - gap.left.point.m <= 0.5 * gap.width
            end = gap.left if near_left else gap.right
        levels.add(polygon, polygon.corners())
        return end, answer.trace

    levels, trace = _in_own_units(polygon, search, tolerance)
    best = most_mean(polygon.mdp, levels.boundary(), risk.limit)
    if best is None:
        raise limit_too_small(risk.limit, levels.calmest.variance)
    bound = levels.upper_bound(lambda level: Budget.of(risk.limit, level), best.mean)
    certificate = levels.certificate(best, bound, tolerance, trace)
    return describe_moments(*best, best.mean, certificate)


def limit_too_small(limit: float, least: float) -> InputError:
    return InputError(
        f"limit must be >= {least:.8g}, the least variance any policy reaches, got {limit:.8g}"
    )


def _in_rewards(polygon: Exploration, progress: Progress | None) -> Progress | None:
    if progress is None:
        return None
    return lambda solves, best, bound: progress(solves, polygon.mean(best), polygon.mean(bound))


def _best_entropic(polygon: Exploration, risk: Entropic, tolerance: float) -> Solution:
    """All `y` have the same best policy; a good `y` only keeps the exponents in range.

    The value of the best policy so far is a good `y`, unless it is so far below the optimum that
    all better policies are the same to arithmetic; then half-way to the bound is tried.
    """
    mdp, scale, beta = polygon.mdp, polygon.scale, risk.risk_aversion
    bound = float(mdp.rewards.max())
    best, policy = -math.inf, polygon.top[0].policy
    y = risk.dual(*mdp.reward_distribution(mdp.occupancy(policy)))
    trace: list[float] = []
    while len(trace) < _ENTROPIC_SOLVES:
        found, upper = _entropic_solve(mdp, risk, y, policy, 0.1 * tolerance * scale)
        bound = min(bound, upper)
        value = risk.dual(*mdp.reward_distribution(mdp.occupancy(found)))
        if value > best:
            best, policy = value, found
        trace.append(best)
        if bound - best <= tolerance * scale or (y == best and beta * (bound - best) < 1.0):
            break
        y = best if y != best else 0.5 * (best + bound)
    solves = polygon.solves + len(trace)
    certificate = Certificate(bound, tolerance * scale, solves, tuple(trace))
    return describe(mdp, policy, risk, certificate)


def _entropic_solve(
    mdp: MDP, risk: Entropic, y: float, policy: Actions, tolerance: float
) -> tuple[Actions, float]:
    """The best policy for `u(r - y)`, and an upper bound on all values.

    With `c` a lower bound on `E[exp(-beta (R - y))]`, no value is above `y - log(c) / beta`. For a
    small risk aversion the exponentials are all near 1, and `u` has the digits that they lose.
    """
    beta = risk.risk_aversion
    if beta * float(np.ptp(mdp.rewards)) < 1.0:
        optimum = solve(mdp, expected_utility(mdp, risk, y), policy=policy, tolerance=tolerance)
        share = beta * (optimum.upper + _ENTROPIC_ROUNDING * float(np.ptp(mdp.rewards)))
        return optimum.policy, y - math.log1p(-share) / beta if share < 1.0 else math.inf
    costs = mdp.expected(lambda r: np.exp(np.minimum(beta * (y - r), _LARGEST_EXPONENT)))
    optimum = solve(mdp, -costs, policy=policy, tolerance=min(beta * tolerance, _ACCURACY))
    least = -optimum.upper - _ENTROPIC_ROUNDING * abs(optimum.upper)
    return optimum.policy, y - math.log(least) / beta if least > 0.0 else math.inf
