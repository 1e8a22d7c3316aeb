"""The efficient frontier of a finite MDP: the best mean for every variance, for all risk aversions.

The lower boundary of the polygon of moments (`mvpi.tabular.exploration`), explored without pruning,
answers every mean-variance question about the MDP:

    best(lam)                 largest  mean - lam * variance          a corner
    with_variance_at_most(v)  largest  mean  with  variance <= v      a corner, or a mix of two
    with_mean_at_least(m)     smallest variance  with  mean >= m      a corner, or a mix of two

A point on an edge is the mixture of the occupancies of its two corners; one stationary,
randomised policy has that occupancy. Along an edge the variance is concave in the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_callback, check_choice, check_count, check_number
from mvpi.errors import InputError
from mvpi.tabular.bellman import Actions
from mvpi.tabular.exploration import Exploration, explore
from mvpi.tabular.mdp import MDP
from mvpi.tabular.optimize import TOLERANCE, Budget, LeastVariance, Tradeoff, blend
from mvpi.tabular.polygon import Corner, Gap, Point, Question
from mvpi.tabular.reachable import Core, reachable_core
from mvpi.tabular.solution import Certificate, Progress, Solution, describe_moments

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = npt.NDArray[np.float64]

_INDISTINCT = 1e-12
"""Scaled second moments are not known better than to this share."""
_PICTURE_TOLERANCE = 1e-3
"""The dominated part of the boundary is only drawn: to this accuracy, as a share of its width."""
_MOST_POINTS = 10**6
"""Of an edge, in a curve."""


def frontier(
    mdp: MDP, *, tolerance: float = TOLERANCE, progress: Progress | None = None
) -> Frontier:
    """The whole efficient frontier of `mdp`.

    Args:
        mdp: the problem, discounted or average-reward.
        tolerance: how far an undiscovered point may lie below an edge, with the rewards of a
            risk-neutral policy scaled to [-1, 1]. A large MDP has many corners: a coarser
            tolerance finds fewer of them.
        progress: called while the search goes on; its bound says how far below an edge a point
            may still lie, its best value is 0.
    """
    tolerance = check_number(tolerance, "tolerance", at_least=0.0)
    check_callback(progress, "progress")
    core = reachable_core(mdp)
    polygon = explore(core.mdp, tolerance)
    polygon.begin_from_calmest(leftmost=True)
    polygon.answer(LeastVariance(), tolerance)
    corners = polygon.corners()
    calmest = min(corners, key=lambda corner: corner.point.variance)
    dominated = calmest.point.m - corners[0].point.m
    question = _Everything(calmest.point.m, _PICTURE_TOLERANCE * max(dominated, 1.0))
    polygon.answer(question, tolerance, progress)
    return Frontier(core, polygon, tolerance)


@dataclass(frozen=True)
class _Everything(Question):
    """Question: how deep is the deepest gap? Asked until all are shallow."""

    calmest_mean: float
    picture_tolerance: float

    def reached(self, gap: Gap) -> float:
        return 0.0

    def bound(self, gap: Gap) -> float:
        if gap.is_edge or gap.width == 0.0:
            return 0.0
        only_drawn = gap.right.point.m <= self.calmest_mean
        return gap.depth() - (self.picture_tolerance if only_drawn else 0.0)


class Frontier:
    """The efficient policies of an MDP, by increasing mean and variance.

    No policy, randomised or not, has a larger mean and no larger variance than one of these.
    """

    means: Array
    """`E[R]` of the efficient deterministic policies, increasing."""
    variances: Array
    """`Var(R)` of the same policies, increasing."""
    policies: tuple[Actions, ...]
    """The policies, `(S,)` actions each."""
    solves: int
    """Risk-neutral solves spent."""

    def __init__(self, core: Core, polygon: Exploration, tolerance: float):
        self._core, self._polygon, self._tolerance = core, polygon, tolerance
        self._corners = polygon.corners()
        efficient: list[Corner] = []
        for corner in reversed(self._corners):
            if not efficient or _calmer(corner.point, efficient[-1].point):
                efficient.append(corner)
        efficient.reverse()
        self.means = _read_only([polygon.mean(c.point.m) for c in efficient])
        self.variances = _read_only([polygon.variance(c.point) for c in efficient])
        self.policies = tuple(core.lifted(c.policy) for c in efficient)
        self.solves = polygon.solves

    @cached_property
    def risk_aversions(self) -> tuple[tuple[float, float] | None, ...]:
        """For each efficient policy the range of risk aversions at which it is optimal.

        None for a policy that is efficient but optimal for no risk aversion: it is the answer
        to a variance limit only.
        """
        ranges: list[tuple[float, float] | None] = [None] * len(self.means)
        hull: list[int] = []
        for i in reversed(range(len(self.means))):
            while len(hull) > 1 and self._price(hull[-1], i) <= self._price(hull[-2], hull[-1]):
                hull.pop()
            hull.append(i)
        for k, i in enumerate(hull):
            low = self._price(hull[k - 1], i) if k else 0.0
            high = self._price(i, hull[k + 1]) if k + 1 < len(hull) else math.inf
            ranges[i] = (low, high)
        return tuple(ranges)

    def best(self, risk_aversion: float) -> Solution:
        """The policy with the largest `mean - risk_aversion * variance`."""
        price = check_number(risk_aversion, "risk_aversion", at_least=0.0)
        polygon, question = self._polygon, Tradeoff(price * self._polygon.scale)
        corner = max(self._corners, key=lambda c: question.at(c.point))
        bound = max(question.bound(gap) for gap in polygon.gaps)
        mean, variance = polygon.statistics(corner)
        certificate = self._certificate(polygon.upper_mean(bound), polygon.scale)
        value = mean - price * variance
        policy = self._core.lifted(corner.policy)
        return describe_moments(policy, mean, variance, value, certificate)

    def with_variance_at_most(self, limit: float) -> Solution:
        """The policy with the largest mean among those whose variance is at most `limit`."""
        limit = check_number(limit, "limit", at_least=0.0)
        polygon, question = self._polygon, Budget.of(limit, self._polygon)
        gap = max(polygon.gaps, key=question.reached)
        share = question.share(gap.left.point, gap.right.point)
        if share is None:
            raise InputError(
                f"limit must be >= {self.variances[0]:.8g}, the least variance any policy "
                f"reaches, got {limit:.8g}"
            )
        bound = max(question.bound(gap) for gap in polygon.gaps)
        policy, mean, variance = blend(polygon, gap.left, gap.right, share)
        certificate = self._certificate(polygon.upper_mean(bound), polygon.scale)
        return describe_moments(self._core.lifted(policy), mean, variance, mean, certificate)

    def with_mean_at_least(self, target: float) -> Solution:
        """The policy with the smallest variance among those whose mean is at least `target`.

        The `value` of the solution is minus its variance, which is what is maximised here.
        """
        target = check_number(target, "target")
        polygon = self._polygon
        m = (target - polygon.centre) / polygon.scale
        slack = 1e-12 + 4 * np.finfo(np.float64).eps * abs(polygon.centre) / polygon.scale
        if m > self._corners[-1].point.m + slack:
            raise InputError(
                f"target must be <= {self.means[-1]:.8g}, the largest mean any policy reaches, "
                f"got {target:.8g}"
            )
        corner = min(
            (corner for corner in self._corners if corner.point.m >= m - slack),
            key=lambda corner: corner.point.variance,
        )
        candidates = [blend(polygon, corner, corner, 0.0)]
        for gap in polygon.gaps:
            if gap.left.point.m < m < gap.right.point.m:
                share = (m - gap.left.point.m) / gap.width
                candidates.append(blend(polygon, gap.left, gap.right, share))
        policy, mean, variance = min(candidates, key=lambda candidate: candidate[2])
        bound = min(max(_least_variance_from(gap, m) for gap in polygon.gaps), 0.0)
        certificate = self._certificate(polygon.scale**2 * bound, polygon.scale**2)
        whole = self._core.lifted(policy)
        return describe_moments(whole, mean, variance, 0.0 - variance, certificate)

    def curve(self, points_per_edge: int = 20) -> tuple[Array, Array]:
        """Means and variances along the whole boundary, dominated part included, by mean."""
        points = check_count(points_per_edge, "points_per_edge", at_most=_MOST_POINTS)
        shares = np.linspace(0.0, 1.0, points)
        m = np.concatenate([_between(g.left.point.m, g.right.point.m, shares) for g in self._gaps])
        q = np.concatenate([_between(g.left.point.q, g.right.point.q, shares) for g in self._gaps])
        polygon = self._polygon
        return polygon.centre + polygon.scale * m, polygon.scale**2 * np.maximum(q - m**2, 0.0)

    def plot(
        self,
        path: str | PathLike[str] | None = None,
        *,
        spread: Literal["variance", "standard deviation"] = "variance",
        axes: Axes | None = None,
    ) -> Axes:
        """Draw the frontier: spread against mean, with the ranges of the risk aversion.

        Args:
            path: where to save the picture; not saved when left out.
            spread: what the horizontal axis shows.
            axes: where to draw; a new figure when left out.
        """
        from mvpi.tabular.frontier_plot import draw

        check_choice(spread, "spread", ("variance", "standard deviation"))
        return draw(self, path, spread, axes)

    def __len__(self) -> int:
        return len(self.means)

    def __repr__(self) -> str:
        return (
            f"Frontier({len(self)} efficient deterministic policies, mean {self.means[0]:.6g} to "
            f"{self.means[-1]:.6g}, variance {self.variances[0]:.6g} to {self.variances[-1]:.6g}, "
            f"solves={self.solves})"
        )

    @property
    def _gaps(self) -> list[Gap]:
        return self._polygon.gaps

    def _price(self, higher: int, lower: int) -> float:
        """The risk aversion at which two efficient policies are equally good."""
        gained = self.means[higher] - self.means[lower]
        return float(gained / (self.variances[higher] - self.variances[lower]))

    def _certificate(self, bound: float, unit: float) -> Certificate:
        return Certificate(bound, self._tolerance * unit, self.solves)


def _calmer(left: Point, right: Point) -> bool:
    """Whether the variance of a point is less, beyond rounding: far from 0, `q - m^2` cancels."""
    return left.variance < right.variance - _INDISTINCT * max(1.0, left.q)


def _least_variance_from(gap: Gap, m: float) -> float:
    """An upper bound on minus the variance in a gap, where the mean is at least `m`."""
    outline = gap.outline()
    bound = max((-p.variance for p in outline if p.m >= m), default=-math.inf)
    for left, right in pairwise(outline):
        if left.m < m < right.m:
            share = (m - left.m) / (right.m - left.m)
            bound = max(bound, m**2 - (left.q + share * (right.q - left.q)))
    return bound


def _between(start: float, end: float, shares: Array) -> Array:
    # Rounding must not lead beyond an end.
    return np.clip(start + shares * (end - start), min(start, end), max(start, end))


def _read_only(values: list[float]) -> Array:
    array = np.array(values)
    array.flags.writeable = False
    return array
