"""The global optimum of a risk measure over all policies of a finite MDP, with a certificate.

Mean-variance, and the mean under a variance budget, are answered on the polygon of moments
(`mvpi.tabular.polygon`): `m - lam (q - m^2)` is convex in `(m, q)`, so a corner is optimal.

Any other measure is a search over its dual variable (`mvpi.tabular.dual_search`). For the
entropic measure the best policy is the same for all `y`: one solve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi.errors import InputError
from mvpi.risk import Entropic, MeanVariance, Risk, VarianceBudget, as_risk
from mvpi.tabular.dual_search import DualSearch
from mvpi.tabular.mdp import MDP
from mvpi.tabular.polygon import Answer, Corner, Exploration, Gap, Line, Point, Question, Units
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

TOLERANCE = 1e-9
"""Default largest gap between value and bound, as a share of half the range of the rewards."""

_ROUNDING = 1e-13
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
            the rewards.
        progress: called after each risk-neutral solve; see `mvpi.tabular.Progress`.

    >>> import mvpi
    >>> mdp = mvpi.examples.four_state()
    >>> solution = mvpi.optimize(mdp, risk=4.0)
    >>> round(solution.value, 6), round(solution.upper_bound, 6), int(solution.policy[0])
    (-1.380623, -1.380623, 1)
    """
    core = reachable_core(mdp)
    solution = _optimum(core.mdp, as_risk(risk), tolerance, progress)
    return replace(solution, policy=core.lifted(solution.policy))


def _optimum(mdp: MDP, risk: Risk, tolerance: float, progress: Progress | None) -> Solution:
    if isinstance(risk, VarianceBudget):
        return _best_under_budget(mdp, risk.limit, tolerance, progress)
    if isinstance(risk, MeanVariance | Entropic) and risk.risk_aversion == 0:
        return _risk_neutral(mdp, tolerance)
    if isinstance(risk, MeanVariance):
        return _best_tradeoff(mdp, risk.risk_aversion, tolerance, progress)
    if isinstance(risk, Entropic):
        return _best_entropic(mdp, risk, tolerance)
    scale = _neutral_corner(mdp, tolerance)[0].scale
    return DualSearch(mdp, risk, tolerance, scale, progress).run()


@dataclass(frozen=True)
class Tradeoff(Question):
    """Question: the largest `m - price * variance`."""

    price: float

    def at(self, point: Point) -> float:
        return point.m - self.price * point.variance

    def reached(self, gap: Gap) -> float:
        return max(self.at(gap.left.point), self.at(gap.right.point))

    def bound(self, gap: Gap) -> float:
        return max(self.at(point) for point in gap.outline())

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
        return max(-point.variance for point in gap.outline())


@dataclass(frozen=True)
class Budget(Question):
    """Question: the largest mean with a variance of at most `limit`; -inf where there is none."""

    limit: float

    def share(self, left: Point, right: Point) -> float | None:
        """How far one can go from `left` towards `right` within the limit; None: not at all.

        The variance along a segment is concave in the share of the right end.
        """
        if right.variance <= self.limit + _ROUNDING:
            return 1.0
        spare = self.limit - left.variance
        if spare < -_ROUNDING:
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
    return (1.0, 0.0) if slope > 1e5 else _unit(slope)


def _unit(slope: float) -> tuple[float, float]:
    length = math.hypot(slope, 1.0)
    return slope / length, 1.0 / length


def blend(mdp: MDP, left: Corner, right: Corner, share: float) -> tuple[npt.NDArray[Any], Point]:
    """The policy that is `share` of the way from one corner to the next, and its moments."""
    if share <= 1e-12:
        return left.policy, left.point
    if share >= 1 - 1e-12:
        return right.policy, right.point
    point = Point(
        left.point.m + share * (right.point.m - left.point.m),
        left.point.q + share * (right.point.q - left.point.q),
    )
    return mixture(mdp, (left.policy, right.policy), (1 - share, share)), point


def _neutral_corner(
    mdp: MDP, tolerance: float, progress: Progress | None = None
) -> tuple[Exploration, Corner, Line]:
    """The largest mean, in units of the rewards that a risk-neutral policy is paid.

    Rewards it never sees, such as the huge cost of an action that is not allowed, would make
    units in which nothing else could be told apart.
    """
    rewards = mdp.expected(lambda r: r)
    optimum = solve(mdp, rewards, tolerance=tolerance * Units.of(mdp.rewards).scale)
    values, shares = mdp.reward_distribution(mdp.pairs_of(optimum.policy))
    polygon = Exploration(mdp, tolerance, progress, Units.of(values[shares > 0]))
    corner, line = polygon.farthest(1.0, 0.0, near=[polygon.corner(optimum)], tolerance=tolerance)
    return polygon, corner, line


def _risk_neutral(mdp: MDP, tolerance: float) -> Solution:
    polygon, corner, line = _neutral_corner(mdp, tolerance)
    mean = polygon.mean(corner.point.m)
    certificate = Certificate(polygon.mean(line.h), trace=(mean,), solves=1)
    return describe_moments(corner.policy, mean, polygon.variance(corner.point), 0.0, certificate)


def _best_tradeoff(
    mdp: MDP, risk_aversion: float, tolerance: float, progress: Progress | None
) -> Solution:
    """The optimum's mean is at least the value of any policy and at most the largest mean.

    From the largest mean, two steps along the gradient give a policy worth comparing with.
    """
    polygon, top, top_line = _neutral_corner(mdp, tolerance, progress)
    question = Tradeoff(risk_aversion * polygon.scale)
    right = _gradient_direction(question.price, top_line.h)
    end, end_line = polygon.farthest(*right, near=[top])
    known, begun = [top, end], [(end, end_line)]
    inner = _gradient_direction(question.price, end.point.m)
    if inner != right:
        begun.insert(0, polygon.farthest(*inner, near=known))
        known.append(begun[0][0])
    left = _gradient_direction(question.price, max(question.at(c.point) for c in known))
    if left == right:
        left = _unit(1e5)
    polygon.begin([polygon.farthest(*left, near=known), *begun])
    answer = polygon.answer(question, tolerance)
    corner = max(polygon.corners(), key=lambda c: question.at(c.point))
    return describe_moments(
        corner.policy,
        polygon.mean(corner.point.m),
        polygon.variance(corner.point),
        risk_aversion,
        _certificate(polygon, answer, tolerance),
    )


def _best_under_budget(
    mdp: MDP, limit: float, tolerance: float, progress: Progress | None
) -> Solution:
    polygon = Exploration(mdp, tolerance, progress)
    polygon.begin(polygon.all_farthest(_unit(-2.0), (1.0, 0.0)))
    question = Budget(limit / polygon.scale**2)
    answer = polygon.answer(question, tolerance)
    if answer.best == -math.inf:
        least = -polygon.answer(LeastVariance(), tolerance).best * polygon.scale**2
        raise InputError(
            f"limit must be >= {least:.8g}, the least variance any policy reaches, got {limit:.8g}"
        )
    gap = max(polygon.gaps, key=question.reached)
    share = question.share(gap.left.point, gap.right.point) or 0.0
    policy, point = blend(mdp, gap.left, gap.right, share)
    return describe_moments(
        policy,
        polygon.mean(point.m),
        polygon.variance(point),
        0.0,
        _certificate(polygon, answer, tolerance),
    )


def _certificate(polygon: Exploration, answer: Answer, tolerance: float) -> Certificate:
    return Certificate(
        upper_bound=polygon.mean(answer.bound + _ROUNDING),
        converged=answer.bound - answer.best <= 10 * tolerance,
        trace=tuple(map(polygon.mean, answer.trace)),
        solves=polygon.solves,
    )


def _best_entropic(mdp: MDP, risk: Entropic, tolerance: float) -> Solution:
    """All `y` have the same best policy; a good `y` only keeps the exponents in range.

    With `h` an upper bound on `E[u(R - y)]`, the value is at most `y - log(1 - beta h) / beta`.
    """
    beta = risk.risk_aversion
    y = float(mdp.rewards.min())
    scale = _neutral_corner(mdp, tolerance)[0].scale
    bound, policy = math.inf, None
    trace: list[float] = []
    while len(trace) < 30:
        rewards = expected_utility(mdp, risk, y)
        optimum = solve(mdp, rewards, policy=policy, tolerance=0.1 * tolerance * scale)
        policy = optimum.policy
        rest = 1.0 - beta * optimum.upper - _ENTROPIC_ROUNDING
        if rest > 0:
            bound = min(bound, y - math.log(rest) / beta)
        value = risk.dual(*mdp.reward_distribution(mdp.occupancy(policy)))
        trace.append(value)
        if beta * abs(value - y) < 1.0:
            break
        y = value
    assert policy is not None
    converged = bound - value <= 10 * tolerance * scale
    certificate = Certificate(bound, converged, tuple(trace), len(trace))
    return describe(mdp, policy, risk, certificate)
