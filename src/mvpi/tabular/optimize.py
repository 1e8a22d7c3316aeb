"""The global optimum of a risk measure over all policies of a finite MDP, with a certificate.

Mean-variance, and the mean under a variance budget, are answered on the polygon of moments
(`mvpi.tabular.exploration`): `m - lam (q - m^2)` is convex in `(m, q)`, so a corner is optimal.

Any other measure is a search over its dual variable (`mvpi.tabular.dual_search`). For the
entropic measure the best policy is the same for all `y`: one solve.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_callback, check_number
from mvpi.errors import InputError
from mvpi.risk import Entropic, MeanVariance, Risk, VarianceBudget, as_risk
from mvpi.tabular.dual_search import DualSearch
from mvpi.tabular.exploration import Exploration, explore
from mvpi.tabular.mdp import MDP
from mvpi.tabular.polygon import Answer, Corner, Gap, Line, Point, Question, unit
from mvpi.tabular.reachable import reachable_core
from mvpi.tabular.solution import (
    Certificate,
    Progress,
    Solution,
    describe,
    describe_moments,
    mixture,
)
from mvpi.tabular.solve import expected_utility, solve

Array = npt.NDArray[np.float64]
T = TypeVar("T")

TOLERANCE = 1e-9
"""Default largest gap between value and bound, as a share of half the range of the rewards."""

_ROUNDING = 1e-13
"""A variance this little above its limit, in scaled units, is within it."""
_EXCESS = 1e-9
"""Share of a limit by which the variance of an answer may exceed it."""
_CHANGES_OF_UNITS = 3
"""How often a policy with rewards far from those of the largest mean is looked at in its units."""
_ENTROPIC_ROUNDING = 1e-12
"""`1 - beta h` is not known better than this, which matters when it is small."""


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
    polygon = explore(mdp, tolerance)
    if isinstance(risk, VarianceBudget):
        return _best_under_budget(polygon, risk, tolerance, progress)
    if isinstance(risk, MeanVariance | Entropic) and risk.risk_aversion == 0:
        return _risk_neutral(polygon, tolerance)
    if isinstance(risk, MeanVariance):
        return _best_tradeoff(polygon, risk, tolerance, progress)
    if isinstance(risk, Entropic):
        return _best_entropic(polygon, risk, tolerance)
    return DualSearch(mdp, risk, tolerance * polygon.scale, progress, polygon.solves).run()


@dataclass(frozen=True)
class Tradeoff(Question):
    """Question: the largest `m - price * variance`, where nothing has less variance than 0."""

    price: float

    def at(self, point: Point) -> float:
        return point.m - self.price * max(point.variance, 0.0)

    def reached(self, gap: Gap) -> float:
        return max(self.at(gap.left.point), self.at(gap.right.point))

    def bound(self, gap: Gap) -> float:
        """Where the outline has a variance above 0, it is convex: the ends of that part count."""
        outline = gap.outline()
        steady = max(Budget(0.0, slack=0.0).largest_mean(*ends) for ends in pairwise(outline))
        return max(steady, *map(self.at, outline))

    def direction(self, gap: Gap) -> tuple[float, float] | None:
        """An optimum where the bound is reached would be farthest along the gradient there."""
        found = _gradient_direction(self.price, max(gap.outline(), key=self.at).m)
        inside = gap.lines[0].angle < Line(*found, 0.0).angle < gap.lines[-1].angle
        return found if inside else None


class LeastVariance(Question):
    """Question: the smallest variance (as the largest of its negative)."""

    def reached(self, gap: Gap) -> float:
        return max(-gap.left.point.variance, -gap.right.point.variance)

    def bound(self, gap: Gap) -> float:
        return min(max(-point.variance for point in gap.outline()), 0.0)


@dataclass(frozen=True)
class Budget(Question):
    """Question: the largest mean with a variance of at most `limit`; -inf where there is none."""

    limit: float
    slack: float = _ROUNDING

    @classmethod
    def of(cls, variance: float, polygon: Exploration) -> Budget:
        """The question for a limit in the units of the rewards."""
        return cls(variance / polygon.scale / polygon.scale)

    def share(self, left: Point, right: Point) -> float | None:
        """How far one can go from `left` towards `right` within the limit; None: not at all.

        The variance along a segment is concave in the share of the right end.
        """
        if right.variance <= self.limit + self.slack:
            return 1.0
        spare = self.limit - left.variance
        if spare < -self.slack:
            return None
        spare = max(spare, 0.0)
        width = right.m - left.m
        slope = right.q - left.q - 2 * left.m * width
        return 2 * spare / (slope + math.sqrt(max(slope**2 - 4 * width**2 * spare, 0.0)))

    def largest_mean(self, left: Point, right: Point) -> float:
        share = self.share(left, right)
        return -math.inf if share is None else left.m + share * (right.m - left.m)

    def reached(self, gap: Gap) -> float:
        return self.largest_mean(gap.left.point, gap.right.point)

    def bound(self, gap: Gap) -> float:
        outline = gap.outline()
        return max(self.largest_mean(*ends) for ends in pairwise(outline))


def _gradient_direction(price: float, mean: float) -> tuple[float, float]:
    """The direction `(a, b)` in which `m - price * variance` grows fastest where `m` is `mean`.

    A very steep one is rounded to the vertical.
    """
    slope = 1 / max(price, 1e-300) + 2.0 * mean
    return (1.0, 0.0) if slope > 1e5 else unit(slope)


def blend(
    polygon: Exploration, left: Corner, right: Corner, share: float
) -> tuple[npt.NDArray[Any], float, float]:
    """The policy that is `share` of the way between two corners, its mean and its variance."""
    if share <= 1e-12:
        return left.policy, *polygon.statistics(left)
    if share >= 1 - 1e-12:
        return right.policy, *polygon.statistics(right)
    (start, start_variance), (end, end_variance) = map(polygon.statistics, (left, right))
    within = (1 - share) * start_variance + share * end_variance
    between = share * (1 - share) * (end - start) ** 2
    policy = mixture(polygon.mdp, (left.policy, right.policy), (1 - share, share))
    return policy, start + share * (end - start), within + between


def _risk_neutral(polygon: Exploration, tolerance: float) -> Solution:
    corner, _ = polygon.top
    answer = Answer(corner.point.m, corner.point.m, [corner.point.m])
    mean, variance = polygon.statistics(corner)
    certificate = _certificate(polygon, answer, tolerance)
    return describe_moments(corner.policy, mean, variance, mean, certificate)


def _in_own_units(
    polygon: Exploration, search: Callable[[Exploration], tuple[T, Corner]], tolerance: float
) -> list[T]:
    """What `search` finds, once, or again and again while the units do not suit where it ends.

    Variances are differences of moments, and far away, or where rewards differ by far less, these
    leave few digits of them: then the search is repeated in units of the rewards paid there.
    """
    found: list[T] = []
    for _ in range(_CHANGES_OF_UNITS):
        result, corner = search(polygon)
        found.append(result)
        if polygon.suits(corner):
            break
        polygon = Exploration(polygon.mdp, corner.policy, tolerance, solves=polygon.solves)
    return found


def _best_tradeoff(
    polygon: Exploration, risk: MeanVariance, tolerance: float, progress: Progress | None
) -> Solution:
    def search(polygon: Exploration) -> tuple[tuple[Certificate, Corner, float, float], Corner]:
        question = Tradeoff(risk.risk_aversion * polygon.scale)
        _begin_tradeoff(polygon, question)
        answer = polygon.answer(question, tolerance, _in_rewards(polygon, progress))
        corner = max(polygon.corners(), key=lambda c: question.at(c.point))
        certificate = _certificate(polygon, answer, tolerance)
        return (certificate, corner, *polygon.statistics(corner)), corner

    def value(mean: float, variance: float) -> float:
        return mean - risk.risk_aversion * variance

    found = _in_own_units(polygon, search, tolerance)
    bound = min(certificate.upper_bound for certificate, *_ in found)
    certificate = replace(found[-1][0], upper_bound=bound)
    _, corner, mean, variance = max(found, key=lambda one: value(*one[2:]))
    return describe_moments(corner.policy, mean, variance, value(mean, variance), certificate)


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
    def search(polygon: Exploration) -> tuple[_Blend | InputError, Corner]:
        polygon.begin_from_calmest()
        question = Budget.of(risk.limit, polygon)
        answer = polygon.answer(question, tolerance, _in_rewards(polygon, progress))
        if answer.best == -math.inf:
            return _budget_too_small(polygon, risk.limit, tolerance)
        gap = max(polygon.gaps, key=question.reached)
        share = question.share(gap.left.point, gap.right.point) or 0.0
        found = _Blend(
            *blend(polygon, gap.left, gap.right, share), _certificate(polygon, answer, tolerance)
        )
        return found, gap.right if share > 0.5 else gap.left

    found = _in_own_units(polygon, search, tolerance)
    blends = [one for one in found if isinstance(one, _Blend)]
    within = risk.limit * (1.0 + _EXCESS) + _ROUNDING * polygon.scale**2
    kept = [one for one in blends if one.variance <= within]
    for error in (one for one in found if isinstance(one, InputError) and not kept):
        raise error
    best = max(kept or blends, key=lambda one: one.mean)
    bound = min(one.certificate.upper_bound for one in blends)
    certificate = replace(best.certificate, upper_bound=bound)
    return describe_moments(best.policy, best.mean, best.variance, best.mean, certificate)


class _Blend(NamedTuple):
    """A policy within a variance budget, or what was taken for one."""

    policy: npt.NDArray[Any]
    mean: float
    variance: float
    certificate: Certificate


def _budget_too_small(
    polygon: Exploration, limit: float, tolerance: float
) -> tuple[InputError, Corner]:
    polygon.answer(LeastVariance(), tolerance)
    calmest = min(polygon.corners(), key=lambda corner: corner.point.variance)
    error = InputError(
        f"limit must be >= {polygon.variance(calmest.point):.8g}, the least variance any policy "
        f"reaches, got {limit:.8g}"
    )
    return error, calmest


def _in_rewards(polygon: Exploration, progress: Progress | None) -> Progress | None:
    if progress is None:
        return None
    return lambda solves, best, bound: progress(solves, polygon.mean(best), polygon.mean(bound))


def _certificate(polygon: Exploration, answer: Answer, tolerance: float) -> Certificate:
    return Certificate(
        upper_bound=polygon.upper_mean(answer.bound),
        tolerance=tolerance * polygon.scale,
        solves=polygon.solves,
        trace=tuple(map(polygon.mean, answer.trace)),
    )


def _best_entropic(polygon: Exploration, risk: Entropic, tolerance: float) -> Solution:
    """All `y` have the same best policy; a good `y` only keeps the exponents in range.

    With `h` an upper bound on `E[u(R - y)]`, the value is at most `y - log(1 - beta h) / beta`.
    """
    mdp, scale, beta = polygon.mdp, polygon.scale, risk.risk_aversion
    y = float(mdp.rewards.min())
    accuracy = 0.1 * tolerance * min(scale, 1.0 / beta)
    rounding = _ENTROPIC_ROUNDING * min(1.0, beta * float(np.ptp(mdp.rewards)))
    bound, policy = math.inf, None
    trace: list[float] = []
    while len(trace) < 30:
        rewards = expected_utility(mdp, risk, y)
        optimum = solve(mdp, rewards, policy=policy, tolerance=accuracy)
        policy = optimum.policy
        share = beta * optimum.upper + rounding
        if share < 1.0:
            bound = min(bound, y - math.log1p(-share) / beta)
        value = risk.dual(*mdp.reward_distribution(mdp.occupancy(policy)))
        trace.append(value)
        if beta * abs(value - y) < 1.0:
            break
        y = value
    assert policy is not None
    solves = polygon.solves + len(trace)
    certificate = Certificate(bound, tolerance * scale, solves, tuple(trace))
    return describe(mdp, policy, risk, certificate)
