"""The polygon of achievable moments, explored only where a question needs it.

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

Rewards are centred and scaled inside, to [-1, 1] unless told otherwise, so tolerances have one
meaning and variances of rewards far from zero keep their digits.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count, pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mvpi.tabular.bellman import Actions
from mvpi.tabular.chain import Values
from mvpi.tabular.mdp import MDP
from mvpi.tabular.solution import Progress
from mvpi.tabular.solve import WORST_UTILITY, Optimum, solve

Array = npt.NDArray[np.float64]

_FINEST, _COARSEST = 1e-11, 1e-8
"""Bounds on the difference, of scaled rewards, below which points are not told apart."""
_VERTICAL = 1e-12
"""A direction with a smaller `b` bounds means only."""


class Point(NamedTuple):
    """First and second moment of the scaled reward."""

    m: float
    q: float

    @property
    def variance(self) -> float:
        return self.q - self.m**2


class Units(NamedTuple):
    """Rewards are measured as `(r - centre) / scale`."""

    centre: float
    scale: float

    @classmethod
    def of(cls, rewards: Array) -> Units:
        """Units in which `rewards` fill [-1, 1]."""
        low, high = float(rewards.min()), float(rewards.max())
        return cls(0.5 * (low + high), 0.5 * (high - low) or 1.0)


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
        return (self.a * m - self.h) / self.b

    def meet(self, other: Line) -> float | None:
        """The mean at which two lines cross; None for parallel ones."""
        determinant = self.b * other.a - self.a * other.b
        if determinant == 0.0:
            return None
        return (self.b * other.h - self.h * other.b) / determinant


@dataclass(frozen=True, eq=False)
class Corner:
    """A deterministic policy, its moments, and its values for rewards `r` and `r^2`."""

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
        return [Point(m, max(line.height(m) for line in slanted)) for m in (low, *turns, high)]

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


class Exploration:
    """The part of the lower boundary that has been found so far."""

    def __init__(
        self,
        mdp: MDP,
        tolerance: float,
        progress: Progress | None = None,
        units: Units | None = None,
    ):
        self.mdp = mdp
        self.centre, self.scale = Units.of(mdp.rewards) if units is None else units
        self.finest = min(max(0.01 * tolerance, _FINEST), _COARSEST)
        """Points nearer than this are not told apart; moments are a tenth as uncertain."""
        self.solves = 0
        self.gaps: list[Gap] = []
        """What has been found, by increasing mean, once `begin` was called."""
        self._progress = progress
        self._states = np.arange(mdp.n_states)
        self._first = mdp.expected(lambda r: (r - self.centre) / self.scale)
        self._second = mdp.expected(lambda r: ((r - self.centre) / self.scale) ** 2)

    def begin(self, found: Sequence[tuple[Corner, Line]]) -> None:
        """Start with corners and their lines, from left to right.

        The directions of neighbouring ones must not be opposite. What lies beyond the first and
        the last is not explored.
        """
        self.gaps = [
            Gap(left, right, (left_line, right_line))
            for (left, left_line), (right, right_line) in pairwise(found)
        ]

    def all_farthest(self, *directions: tuple[float, float]) -> list[tuple[Corner, Line]]:
        """The corners farthest in directions `(a, -b)`, and their lines."""
        found: list[tuple[Corner, Line]] = []
        for a, b in directions:
            found.append(self.farthest(a, b, near=[corner for corner, _ in found]))
        return found

    def farthest(
        self, a: float, b: float, near: Sequence[Corner] = (), tolerance: float | None = None
    ) -> tuple[Corner, Line]:
        """The corner that maximises `a m - b q`, and its supporting line.

        The values of policies that are known are known for any `a` and `b`, so the solve starts
        from whichever of those `near` is best, state by state.
        """
        accuracy = self.finest if tolerance is None else tolerance
        rewards = np.maximum(a * self._first - b * self._second, WORST_UTILITY)
        policy = values = None
        for corner in near:
            candidate = a * corner.values[0] - b * corner.values[1]
            if policy is None or values is None:
                policy, values = corner.policy, candidate
            else:
                policy = np.where(candidate > values, corner.policy, policy)
                values = np.maximum(values, candidate)
        optimum = solve(self.mdp, rewards, policy=policy, values=values, tolerance=accuracy)
        self.solves += 1
        line = Line(a, b, optimum.upper)
        for corner in near:
            if np.array_equal(corner.policy, optimum.policy):
                return corner, line
        return self.corner(optimum, (a, b), near[0] if near else None), line

    def answer(self, question: Question, tolerance: float) -> Answer:
        """Explore until the best value reached is within `tolerance` of its upper bound."""
        order = count()
        waiting = [(-question.bound(gap), next(order), gap) for gap in self.gaps]
        heapq.heapify(waiting)
        settled: list[Gap] = []
        best = max(question.reached(gap) for gap in self.gaps)
        trace = [best]
        while waiting and -waiting[0][0] > best + tolerance:
            if self._progress is not None:
                self._progress(self.solves, best, -waiting[0][0])
            _, _, gap = heapq.heappop(waiting)
            for piece in self._refined(gap, question):
                best = max(best, question.reached(piece))
                if not piece.is_edge:
                    heapq.heappush(waiting, (-question.bound(piece), next(order), piece))
                else:
                    settled.append(piece)
            trace.append(best)
        self.gaps = sorted(
            [gap for _, _, gap in waiting] + settled, key=lambda gap: gap.left.point.m
        )
        return Answer(best, max([best, *map(question.bound, self.gaps)]), trace)

    def corners(self) -> list[Corner]:
        """All corners found, by increasing mean."""
        found = {id(corner): corner for gap in self.gaps for corner in (gap.left, gap.right)}
        return sorted(found.values(), key=lambda corner: corner.point.m)

    def mean(self, m: float) -> float:
        """A scaled first moment in the units of the rewards."""
        return self.centre + self.scale * m

    def variance(self, point: Point) -> float:
        """The variance of a point in the units of the rewards."""
        return self.scale**2 * max(point.variance, 0.0)

    def _refined(self, gap: Gap, question: Question) -> list[Gap]:
        """The gap split at a corner found between its ends, or the gap shown to be an edge."""
        if gap.width <= self.finest:
            return [replace(gap, is_edge=True)]
        chord = gap.chord()
        # More than two lines: what the question asked for is not a new corner.
        wanted = question.direction(gap) if len(gap.lines) == 2 else None
        a, b = wanted or (chord.a, chord.b)
        corner, line = self.farthest(a, b, (gap.left, gap.right))
        gap = gap.with_line(line)
        if chord.excess(corner.point) > self.finest:
            return gap.split(corner, line, self.finest)
        return [replace(gap, is_edge=wanted is None)]

    def corner(
        self,
        optimum: Optimum,
        direction: tuple[float, float] = (1.0, 0.0),
        near: Corner | None = None,
    ) -> Corner:
        """The corner of a policy that is optimal in a direction: moments and values.

        `a r - b r^2` is nearly evaluated already, so that and `r` give `r^2` cheaply.
        """
        chain = optimum.chain or self.mdp.chain(optimum.policy)
        first_paid = self._first[self._states, optimum.policy]
        second_paid = self._second[self._states, optimum.policy]
        guess, guess2 = (None, None) if near is None else near.values
        first = chain.evaluate(first_paid, 0.1 * self.finest, guess)
        a, b = direction
        if b > 0.3:
            paid = a * first_paid - b * second_paid
            both = chain.evaluate(paid, 0.1 * self.finest, optimum.values)
            second = Values((a * first.values - both.values) / b, (a * first.gain - both.gain) / b)
        else:
            second = chain.evaluate(second_paid, 0.1 * self.finest, guess2)
        return Corner(Point(first.gain, second.gain), optimum.policy, (first.values, second.values))
