"""Inner and outer approximation of the moment polytope: vertices and supporting lines.

The achievable points `(m, q) = (E[R], E[R^2])` of an MDP form a convex polytope whose vertices are
deterministic policies. One risk-neutral solve with reward `a r - b r^2` finds the vertex
farthest in the direction `(a, -b)`, and proves that everything lies under the supporting line
`a m - b q <= h`. Only the lower boundary (least `q` for a mean) matters for mean and variance:

    q |  left o
      |        \\ .              Between two neighbouring vertices all that is not yet known lies
      |         \\  .            in the triangle of the chord and the two supporting lines. Its
      |          \\    . chord    apex bounds any objective that improves downwards; a solve along
      |      apex +------o right  the chord finds the vertex in between, or proves there is none.
      |______________________ m

Moments are those of scaled rewards, in `Units`. Bounds on undiscovered points include rounding
errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from mvpi._types import Array
from mvpi.tabular._engines.backups import Actions

_VERTICAL = 1e-13
"""A direction with a smaller `b` bounds means only."""
ROUNDING = 1e-14
"""Error of a sum or difference, as a share of its largest term."""
SMALLEST_SCALE = 1e-12
"""Units are not made smaller than this share of the range of all rewards."""
RAISE = 8 * float(np.finfo(np.float64).eps)
"""Relative error of the moments of one state-action pair."""
COARSE = 10.0
"""Units so many times those of a policy do not suit it."""
FAR = 100.0
"""Scaled means beyond this need units, or a supporting line, of their own."""


class Units(NamedTuple):
    """Rewards are measured as `(r - centre) / scale`."""

    centre: float
    scale: float

    @classmethod
    def of(cls, paid: Array, rewards: Array, spread: float | None = None) -> Units:
        """Units in which the rewards that are `paid`, out of all `rewards`, fill [-1, 1].

        If only one is paid, the distance to the nearest other reward is the unit: the farthest may
        be a penalty that no policy pays. `spread` is the range of all rewards, if it is known.
        """
        low, high = float(paid.min()), float(paid.max())
        centre, scale = 0.5 * (low + high), 0.5 * (high - low)
        rounding = ROUNDING * max(abs(low), abs(high))
        if scale <= rounding:
            distances = np.abs(rewards - centre)
            scale = float(distances.min(where=distances > rounding, initial=np.inf))
        if math.isinf(scale):
            return cls(centre, abs(centre) or 1.0)
        spread = float(np.ptp(rewards)) if spread is None else spread
        return cls(centre, max(scale, SMALLEST_SCALE * spread))

    def suit(self, mean: float, own: Units) -> bool:
        """Whether they suit a policy with this mean and these units of its own."""
        return abs(mean - self.centre) <= FAR * self.scale <= FAR * COARSE * own.scale


class Point(NamedTuple):
    """First and second moment of the scaled reward."""

    m: float
    q: float

    @property
    def variance(self) -> float:
        return self.q - self.m**2


class Line(NamedTuple):
    """All achievable points satisfy `a m - b q <= h`."""

    a: float
    b: float
    h: float

    @property
    def angle(self) -> float:
        """By which lines are ordered from left to right."""
        return math.atan2(self.a, self.b)

    def excess(self, point: Point) -> float:
        """`a m - b q - h`: positive for a point that violates the line."""
        return self.a * point.m - self.b * point.q - self.h

    def height(self, m: float) -> float:
        """The least `q` that the line allows at the mean `m`."""
        rounding = ROUNDING * (abs(self.a * m) + abs(self.h))
        return (self.a * m - self.h - rounding) / self.b

    def in_units(self, own: Units, other: Units, reach: float) -> Line:
        """The line for moments in `other` units than its `own`, valid for means up to `reach`.

        It is moved outwards by the rounding error.
        """
        step, zoom = (other.centre - own.centre) / own.scale, other.scale / own.scale
        a, b = (self.a - 2.0 * self.b * step) * zoom, self.b * zoom**2
        terms = self.h, -self.a * step, self.b * step**2
        turn = (abs(self.a) + 2.0 * abs(self.b * step)) * zoom * reach
        rounding = ROUNDING * (turn + sum(map(abs, terms)))
        length = math.hypot(a, b)
        return Line(a / length, b / length, (sum(terms) + rounding) / length)

    def meet(self, other: Line) -> float | None:
        """The mean at which two lines cross; None for parallel ones."""
        determinant = self.b * other.a - self.a * other.b
        if determinant == 0.0:
            return None
        return (self.b * other.h - self.h * other.b) / determinant


@dataclass(frozen=True, eq=False)
class Vertex:
    """A deterministic policy, its moments, and its relative values for rewards `r` and `r^2`."""

    point: Point
    policy: Actions
    values: tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Interval:
    """Two neighbouring vertices and the supporting lines that bound the region between them."""

    left: Vertex
    right: Vertex
    lines: tuple[Line, ...]
    """By direction, from that of the left vertex to that of the right one."""
    is_edge: bool = False
    """Whether a solve has proved that no vertex lies between."""

    @property
    def width(self) -> float:
        return self.right.point.m - self.left.point.m

    def outline(self) -> list[Point]:
        """The outer approximation of the lower boundary, from left to right."""
        return outline(self.lines, self.left.point.m, self.right.point.m)

    def chord(self) -> Line:
        """The line through both vertices, with `a^2 + b^2 = 1`."""
        left, right = self.left.point, self.right.point
        a, b = right.q - left.q, right.m - left.m
        length = math.hypot(a, b)
        a, b = a / length, b / length
        return Line(a, b, max(a * left.m - b * left.q, a * right.m - b * right.q))

    def with_line(self, line: Line) -> Interval:
        """The interval with one more line known."""
        lines = sorted((*self.lines, line), key=lambda line: line.angle)
        return replace(self, lines=tuple(lines))

    def split(self, vertex: Vertex, line: Line, finest: float) -> list[Interval]:
        """The parts on both sides of a vertex that was found beyond the chord, on `line`.

        A part narrower than `finest` is left out, but the other part keeps its lines.
        """
        if vertex.point.m <= self.left.point.m + finest:
            return [replace(self, left=vertex)]
        if vertex.point.m >= self.right.point.m - finest:
            return [replace(self, right=vertex)]
        at = self.lines.index(line)
        return [
            Interval(self.left, vertex, self.lines[: at + 1]),
            Interval(vertex, self.right, self.lines[at:]),
        ]

    def depth(self) -> float:
        """Largest distance of an undiscovered point from the chord."""
        chord = self.chord()
        return max(chord.excess(p) for p in self.outline())


def outline(lines: Iterable[Line], low: float, high: float) -> list[Point]:
    """The upper envelope of `lines` over the means from `low` to `high`, as a polygonal chain.

    No achievable point lies below it; rounding errors are included.
    """
    highest: list[tuple[Line, float]] = []
    """From left to right, with the mean from which on each is the highest."""
    slanted = (line for line in lines if line.b > _VERTICAL)
    for line in sorted(slanted, key=lambda line: line.a / line.b):  # angles of steep ones are equal
        start: float | None = low
        while highest:
            last, begin = highest[-1]
            start = last.meet(line)
            if start is None and last.height(begin) >= line.height(begin):
                break
            if start is not None and start > begin:
                break
            highest.pop()
            start = low
        if not highest or (start is not None and start < high):
            highest.append((line, low if start is None else start))
    ends = [low, *(start for _, start in highest[1:]), high]
    beside = [highest[max(i - 1, 0) : i + 1] for i in range(len(ends))]
    return [
        Point(
            m,
            max((line.height(m) for line, _ in pair), default=-math.inf)
            - ROUNDING * max(1.0, m**2),
        )
        for m, pair in zip(ends, beside, strict=True)
    ]


class Objective(Protocol):
    """What is to be maximised over the lower boundary, in scaled units."""

    def reached(self, interval: Interval) -> float:
        """The best value on the segment between the two vertices."""

    def bound(self, interval: Interval) -> float:
        """An upper bound on the value of anything in the interval."""

    def direction(self, interval: Interval) -> tuple[float, float] | None:
        """The direction `(a, b)` to explore first in an interval; None for that of the chord."""
        return None


class BoundedObjective(Objective, Protocol):
    """An objective that can be bounded wherever an outline of the lower boundary is known."""

    def over(self, outline: list[Point]) -> float:
        """An upper bound on the value of all points on or above an outline."""

    def bound(self, interval: Interval) -> float:
        return self.over(interval.outline())


class Answer(NamedTuple):
    """The best value reached, an upper bound on all values, the best value after each solve."""

    best: float
    bound: float
    trace: list[float]


def unit(slope: float) -> tuple[float, float]:
    """The direction `(a, b)` in which lines of a slope support, with `a^2 + b^2 = 1`."""
    length = math.hypot(slope, 1.0)
    return slope / length, 1.0 / length
