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

Moments are those of scaled rewards, in `Units`. What a question is told about
undiscovered points is on the safe side of rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mvpi.tabular.bellman import Actions

Array = npt.NDArray[np.float64]

_VERTICAL = 1e-13
"""A direction with a smaller `b` bounds means only."""
ROUNDING = 1e-14
"""Share of its largest terms by which a sum or difference may be off."""
SMALLEST_SCALE = 1e-12
"""Units are not made smaller than this share of the range of all rewards."""


class Units(NamedTuple):
    """Rewards are measured as `(r - centre) / scale`."""

    centre: float
    scale: float

    @classmethod
    def of(cls, paid: Array, rewards: Array) -> Units:
        """Units in which the rewards that are `paid`, out of all `rewards`, fill [-1, 1].

        Where only one is paid, the nearest other reward is 1 away: the farthest may be the cost
        of an action that is not allowed.
        """
        low, high = float(paid.min()), float(paid.max())
        centre, scale = 0.5 * (low + high), 0.5 * (high - low)
        rounding = ROUNDING * max(abs(low), abs(high))
        if scale <= rounding:
            distances = np.abs(rewards - centre)
            scale = float(distances.min(where=distances > rounding, initial=np.inf))
        if math.isinf(scale):
            return cls(centre, abs(centre) or 1.0)
        return cls(centre, max(scale, SMALLEST_SCALE * float(np.ptp(rewards))))


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

    def seen_in(self, own: Units, other: Units, reach: float) -> Line:
        """The line for moments in other units than its `own`, for means of a size up to `reach`.

        Rounding moves it outwards.
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
        return outline(self.lines, self.left.point.m, self.right.point.m)

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


def outline(lines: Iterable[Line], low: float, high: float) -> list[Point]:
    """What `lines` leave of the lower boundary, from the mean `low` to `high`.

    Nothing achievable lies below the points and the segments between them, rounding included.
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


class Question(Protocol):
    """What is to be maximised over the lower boundary, in scaled units."""

    def reached(self, gap: Gap) -> float:
        """The best value on the segment between the two corners."""

    def bound(self, gap: Gap) -> float:
        """An upper bound on the value of anything in the gap."""

    def direction(self, gap: Gap) -> tuple[float, float] | None:
        """The direction `(a, b)` to explore first in a gap; None for that of the chord."""
        return None


class Objective(Question, Protocol):
    """A question that can be bounded wherever an outline of the lower boundary is known."""

    def over(self, outline: list[Point]) -> float:
        """An upper bound on the value of all that is not below an outline."""

    def bound(self, gap: Gap) -> float:
        return self.over(gap.outline())


class Answer(NamedTuple):
    """The best value reached, an upper bound on all values, the best value after each solve."""

    best: float
    bound: float
    trace: list[float]


def unit(slope: float) -> tuple[float, float]:
    """The direction `(a, b)` in which lines of a slope support, with `a^2 + b^2 = 1`."""
    length = math.hypot(slope, 1.0)
    return slope / length, 1.0 / length
