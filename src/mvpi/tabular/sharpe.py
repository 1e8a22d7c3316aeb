"""The largest Sharpe ratio of a finite MDP, `(m - f) / sqrt(q - m^2)` for a risk-free reward `f`.

The points `(m, q)` with `m > f` whose ratio is at least `t > 0` are those below a parabola,

    q <= m^2 + (m - f)^2 / t^2

The right side minus `q` is convex, so over a polytope it is largest at a vertex: no mixture on an
edge has a larger ratio than both of its ends, and a deterministic policy is optimal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from mvpi.stats import sharpe_ratio
from mvpi.tabular._scales import Candidate
from mvpi.tabular._vertices import BoundedObjective, Interval, Point


def largest_ratio(efficient: list[Candidate], risk_free: float) -> Candidate:
    """The policy of the largest ratio, where some mean is above `risk_free`.

    Without variance the ratio is infinite: of these, the one with the largest mean.
    """
    above = (one for one in efficient if one.mean > risk_free)

    def order(one: Candidate) -> tuple[float, float]:
        return float(sharpe_ratio(one.mean - risk_free, one.variance)), one.mean

    return max(above, key=order)


@dataclass(frozen=True)
class Sharpe(BoundedObjective):
    """Objective: the largest `(m - risk_free) / std`, which has no unit."""

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
