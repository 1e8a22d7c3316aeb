"""Objectives over the moment polytope: tradeoff, variance, mean in a budget, Sharpe ratio.

In scaled units; see `mvpi.tabular._vertices`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from mvpi._text import rounded_up
from mvpi.errors import InputError
from mvpi.stats import sharpe_ratio
from mvpi.tabular._vertices import BoundedObjective, Interval, Line, Point, unit

_ROUNDING = 1e-13
"""Tolerated excess over a variance limit, in scaled units: rounding."""


class LimitTooSmall(InputError):
    """No policy has a variance within a limit; `least` is what some policy has."""

    def __init__(self, limit: float, least: float, hint: str = ""):
        self.limit, self.least = limit, least
        super().__init__(
            f"limit must be >= {rounded_up(least)}, the least variance any policy reaches{hint}, "
            f"got {limit}"
        )


@dataclass(frozen=True)
class Tradeoff(BoundedObjective):
    """Objective: the largest `m - price * variance`, where nothing has less variance than 0."""

    price: float

    def at(self, point: Point) -> float:
        return point.m - self.price * max(point.variance, 0.0)

    def reached(self, interval: Interval) -> float:
        return max(self.at(interval.left.point), self.at(interval.right.point))

    def over(self, outline: list[Point]) -> float:
        """Where the outline has a variance above 0, it is convex: the ends of that part count."""
        return max(Budget(0.0).over(outline), *map(self.at, outline))

    def direction(self, interval: Interval) -> tuple[float, float] | None:
        """An optimum where the bound is reached would be farthest along the gradient there."""
        found = gradient_direction(self.price, max(interval.outline(), key=self.at).m)
        inside = interval.lines[0].angle < Line(*found, 0.0).angle < interval.lines[-1].angle
        return found if inside else None


class LeastVariance(BoundedObjective):
    """Objective: the smallest variance (as the largest of its negative)."""

    def reached(self, interval: Interval) -> float:
        return max(-interval.left.point.variance, -interval.right.point.variance)

    def over(self, outline: list[Point]) -> float:
        return min(max(-point.variance for point in outline), 0.0)


@dataclass(frozen=True)
class Budget(BoundedObjective):
    """Objective: the largest mean with a variance of at most `limit`; -inf where there is none."""

    limit: float

    @classmethod
    def of(cls, variance: float, scale: float) -> Budget:
        """The objective for a limit in the units of the rewards."""
        return cls(variance / scale / scale)

    def largest_mean(self, left: Point, right: Point, limit: float) -> float:
        """The largest mean between `left` and `right` with a variance within `limit`.

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

    def reached(self, interval: Interval) -> float:
        return self.largest_mean(interval.left.point, interval.right.point, self.limit + _ROUNDING)

    def over(self, outline: list[Point]) -> float:
        limit = self.limit * (1.0 + _ROUNDING)
        return max(self.largest_mean(*ends, limit) for ends in pairwise(outline))


@dataclass(frozen=True)
class Sharpe(BoundedObjective):
    """Objective: the largest Sharpe ratio, `(m - risk_free) / std`, which has no unit.

    The points `(m, q)` with `m > risk_free` whose ratio is at least `t > 0` are those below a
    parabola, `q <= m^2 + (m - risk_free)^2 / t^2`. The right side minus `q` is convex, so over a
    polytope it is largest at a vertex: no mixture on an edge has a larger ratio than both of its
    ends, and a deterministic policy is optimal.
    """

    risk_free: float
    """In scaled units."""

    def reached(self, interval: Interval) -> float:
        return self.over([interval.left.point, interval.right.point])

    def over(self, outline: list[Point]) -> float:
        """Where an outline has no variance and is above `risk_free`, there is no bound."""
        return max(self._along(*ends) for ends in pairwise(outline))

    def _along(self, left: Point, right: Point) -> float:
        if right.m <= self.risk_free:
            return -math.inf
        if min(left.variance, right.variance) <= 0.0:
            return math.inf
        return max(float(sharpe_ratio(p.m - self.risk_free, p.variance)) for p in (left, right))


def gradient_direction(price: float, mean: float) -> tuple[float, float]:
    """The direction `(a, b)` in which `m - price * variance` grows fastest where `m` is `mean`.

    A very steep one is rounded to the vertical.
    """
    slope = 1 / max(price, 1e-300) + 2.0 * mean
    return (1.0, 0.0) if slope > 1e5 else unit(slope)
