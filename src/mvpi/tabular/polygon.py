"""The polygon of achievable moments, as far as it is known.

The achievable points `(m, q) = (E[R], E[R^2])` of an MDP form a convex polygon whose corners are
deterministic policies. One risk-neutral solve with reward `a r - b r^2` finds the corner
farthest in the direction `(a, -b)`, and proves that everything lies under the supporting line
`a m - b q <= h`. Only the lower boundary (least `q` for a mean) matters for mean and variance:

    q |  left o
      |        \\ .              Between two neighbouring corners all that is not yet known lies
      |         \\  .            in the triangle of the chord and the two supporting lines. Its
      |          \\    . chord    apex bounds any question that improves downwards; a solve along
      |      apex +------o right  the chord finds the corner in between, or proves there is none.
      |______________________ m

Moments are those of scaled rewards (`mvpi.tabular.exploration`). What a question is told about
undiscovered points is on the safe side of rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mvpi.tabular.bellman import Actions

Array = npt.NDArray[np.float64]

_VERTICAL = 1e-13
"""A direction with a smaller `b` bounds means only."""
ROUNDING = 1e-14
"""Share of its largest terms by which a sum or difference may be off."""


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
        """How far a point lies beyond the line, in units of `a m - b q`."""
        return self.a * point.m - self.b * point.q - self.h

    def height(self, m: float) -> float:
        """The least `q` that the line allows at the mean `m`."""
        rounding = ROUNDING * (abs(self.a * m) + abs(self.h))
        return (self.a * m - self.h - rounding) / self.b

    def meet(self, other: Line) -> float | None:
        """The mean at which two lines cross; None for parallel ones."""
        determinant = self.b * other.a - self.a * other.b
        if determinant == 0.0:
            return None
        return (self.b * other.h - self.h * other.b) / determinant


@dataclass(frozen=True, eq=False)
class Corner:
    """A deterministic policy, its moments, and its relative values for rewards `r` and `r^2`."""

    point: Point
    policy: Actions
    values: tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Gap:
    """Two neighbouring corners and the supporting lines that close what lies between."""

    left: Corner
    right: Corner
    lines: tuple[Line, ...]
    """By direction, from that of the left corner to that of the right one."""
    is_edge: bool = False
    """Whether a solve has shown that no corner lies between."""

    @property
    def width(self) -> float:
        return self.right.point.m - self.left.point.m

    def outline(self) -> list[Point]:
        """The outer boundary above which the gap lies, from the left corner to the right one."""
        slanted = [line for line in self.lines if line.b > _VERTICAL]
        low, high = self.left.point.m, self.right.point.m
        crossings = [one.meet(other) for one, other in combinations(slanted, 2)]
        turns = sorted(m for m in crossings if m is not None and low < m < high)
        return [
            Point(m, max(line.height(m) for line in slanted) - ROUNDING * max(1.0, m**2))
            for m in (low, *turns, high)
        ]

    def chord(self) -> Line:
        """The line through both corners, with `a^2 + b^2 = 1`."""
        left, right = self.left.point, self.right.point
        a, b = right.q - left.q, right.m - left.m
        length = math.hypot(a, b)
        a, b = a / length, b / length
        return Line(a, b, max(a * left.m - b * left.q, a * right.m - b * right.q))

    def with_line(self, line: Line) -> Gap:
        """The gap with one more line known."""
        lines = sorted((*self.lines, line), key=lambda line: line.angle)
        return replace(self, lines=tuple(lines))

    def split(self, corner: Corner, line: Line, finest: float) -> list[Gap]:
        """The parts on both sides of a corner that was found beyond the chord, on `line`.

        A part narrower than `finest` is left out, but the other part keeps its lines.
        """
        if corner.point.m <= self.left.point.m + finest:
            return [replace(self, left=corner)]
        if corner.point.m >= self.right.point.m - finest:
            return [replace(self, right=corner)]
        at = self.lines.index(line)
        return [
            Gap(self.left, corner, self.lines[: at + 1]),
            Gap(corner, self.right, self.lines[at:]),
        ]

    def depth(self) -> float:
        """How far beyond the chord an undiscovered point could be."""
        chord = self.chord()
        return max(chord.excess(p) for p in self.outline())


class Question(Protocol):
    """What is to be maximised over the lower boundary, in scaled units."""

    def reached(self, gap: Gap) -> float:
        """The best value on the segment between the two corners."""

    def bound(self, gap: Gap) -> float:
        """An upper bound on the value of anything in the gap."""

    def direction(self, gap: Gap) -> tuple[float, float] | None:
        """The direction `(a, b)` to explore first in a gap; None for that of the chord."""
        return None


class Answer(NamedTuple):
    """The best value reached, an upper bound on all values, the best value after each solve."""

    best: float
    bound: float
    trace: list[float]


def unit(slope: float) -> tuple[float, float]:
    """The direction `(a, b)` in which lines of a slope support, with `a^2 + b^2 = 1`."""
    length = math.hypot(slope, 1.0)
    return slope / length, 1.0 / length
