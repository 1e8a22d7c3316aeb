"""Vertex enumeration of the moment polytope, only where an objective needs it.

A sandwich algorithm: supporting lines bound the polytope from outside, vertices from inside; the
open interval with the largest bound is refined next by a solve along its chord (as in Dinkelbach's
method) until both bounds meet.

Rewards are centred and scaled so that those of one policy fill [-1, 1]. Tolerances are then
relative, variances of rewards far from zero do not cancel, and a reward that no policy receives,
such as a huge penalty for a forbidden action, causes no rounding errors.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, pairwise

import numpy as np

from mvpi.tabular._engines.backups import Actions
from mvpi.tabular._problem import Problem
from mvpi.tabular._stored_mdp import Policy
from mvpi.tabular._vertices import (
    COARSE,
    FAR,
    SMALLEST_SCALE,
    Answer,
    Interval,
    Line,
    Objective,
    Point,
    Units,
    Vertex,
    unit,
)
from mvpi.tabular.chain import Chain
from mvpi.tabular.solution import Progress

_FINEST, _COARSEST = 1e-11, 1e-8
"""Bounds on the distance, in scaled rewards, below which two points count as one."""


class VertexSearch:
    """The part of the lower boundary found so far, starting with the largest mean, `top`."""

    first: Vertex
    """The vertex of the initial policy."""
    top: tuple[Vertex, Line]
    """The largest mean."""
    intervals: list[Interval]
    """Between the vertices found, by increasing mean; set by `begin`."""
    lines: list[Line]
    """All supporting lines of the achievable points."""

    def __init__(
        self,
        problem: Problem,
        policy: Actions,
        tolerance: float,
        *,
        units: Units | None = None,
        chain: Chain | None = None,
        solves: int = 0,
    ):
        """In units of the rewards that `policy` is paid, unless others are given."""
        self.problem = problem
        self.units = units or Units.of(problem.paid_by(policy), problem.rewards)
        self.centre, self.scale = self.units
        self.finest = min(max(0.01 * tolerance, _FINEST), _COARSEST)
        """Points nearer than this count as one; moments are accurate to a tenth of it."""
        self.solves = solves
        self.lines = []
        self._oracle = problem.moment_oracle(self.units, self.finest)
        self.first = self._oracle.vertex(policy, chain)
        self.top = self.farthest(1.0, 0.0, near=[self.first])

    @property
    def lowest(self) -> float:
        """No mean is below this."""
        return (float(self.problem.rewards.min()) - self.centre) / self.scale

    def begin(self, found: Sequence[tuple[Vertex, Line]]) -> None:
        """Start with vertices and their lines, from left to right.

        The directions of neighbouring ones must not be opposite. What lies beyond the first and
        the last is not explored.
        """
        self.intervals = [
            Interval(left, right, (left_line, right_line))
            for (left, left_line), (right, right_line) in pairwise(found)
        ]

    def begin_at_least_variance(self, *, leftmost: bool = False) -> None:
        """Start with the boundary from the vertex of least variance to the largest mean.

        A vertex of least variance with the mean `m` is farthest along the slope `2 m`, so it is
        not left of the vertex farthest along twice the lowest mean. If that mean is far away, such
        as the penalty of a forbidden action, one more slope finds a nearby vertex of small
        variance: the line between the two would be a poor bound close to the optimum.
        """
        directions = [unit(2.0 * min(self.lowest, -1.0))]
        if self.lowest < -FAR:
            directions.insert(0, unit(-2.0 * FAR))
        if leftmost:
            directions.append((-1.0, 0.0))
        found = [self.top]
        for a, b in directions:
            found.insert(0, self.farthest(a, b, near=[vertex for vertex, _ in found]))
        self.begin(found)

    def farthest(self, a: float, b: float, near: Sequence[Vertex]) -> tuple[Vertex, Line]:
        """The vertex that maximises `a m - b q`, and its supporting line.

        The solve starts from the best of the vertices `near`.
        """
        vertex, upper = self._oracle.farthest(a, b, near)
        self.solves += 1
        line = Line(a, b, upper)
        self.lines.append(line)
        return vertex, line

    def beside(self, vertex: Vertex) -> Vertex:
        """The vertex farthest along a slope somewhat steeper than those that support `vertex`.

        Its supporting line bounds the region to the right, where other vertices may be too far
        away to give an accurate bound.
        """
        chords = [
            interval.chord()
            for interval in self.intervals
            if interval.right is vertex and interval.width > 0.0
        ]
        slope = max([2.0 * vertex.point.m, *(chord.a / chord.b for chord in chords)])
        return self.farthest(*unit(slope + 1.0 + abs(slope)), near=[vertex])[0]

    def answer(
        self, objective: Objective, tolerance: float, progress: Progress | None = None
    ) -> Answer:
        """Refine intervals until the best value is within `tolerance` of its upper bound."""
        order = count()
        waiting = [
            (-objective.bound(interval), next(order), interval) for interval in self.intervals
        ]
        heapq.heapify(waiting)
        settled: list[Interval] = []
        best = max(objective.reached(interval) for interval in self.intervals)
        trace = [best]
        while waiting and -waiting[0][0] > best + tolerance:
            if progress is not None:
                progress(self.solves, best, -waiting[0][0])
            _, _, interval = heapq.heappop(waiting)
            for piece in self._refined(interval, objective):
                best = max(best, objective.reached(piece))
                if not piece.is_edge:
                    heapq.heappush(waiting, (-objective.bound(piece), next(order), piece))
                else:
                    settled.append(piece)
            trace.append(best)
        self.intervals = sorted(
            [interval for _, _, interval in waiting] + settled,
            key=lambda interval: interval.left.point.m,
        )
        return Answer(best, max([best, *map(objective.bound, self.intervals)]), trace)

    def vertices(self) -> list[Vertex]:
        """All vertices found, by increasing mean."""
        found = {
            id(vertex): vertex
            for interval in self.intervals
            for vertex in (interval.left, interval.right)
        }
        return sorted(found.values(), key=lambda vertex: vertex.point.m)

    def mean(self, m: float) -> float:
        """A scaled first moment in the units of the rewards."""
        return self.centre + self.scale * m

    def variance(self, point: Point) -> float:
        """The variance of a point in the units of the rewards."""
        return self.scale**2 * max(point.variance, 0.0)

    def statistics(self, vertex: Vertex) -> tuple[float, float]:
        """Mean and variance of a vertex in the units of the rewards."""
        return self._oracle.statistics(vertex)

    def _refined(self, interval: Interval, objective: Objective) -> list[Interval]:
        """The open interval split at a vertex between its ends, or shown to be an edge."""
        if interval.width <= self.finest:
            return [replace(interval, is_edge=True)]
        chord = interval.chord()
        # With more than two lines the direction of the objective was tried: no new vertex.
        wanted = objective.direction(interval) if len(interval.lines) == 2 else None
        a, b = wanted or (chord.a, chord.b)
        vertex, line = self.farthest(a, b, (interval.left, interval.right))
        interval = interval.with_line(line)
        if chord.excess(vertex.point) > self.finest:
            return interval.split(vertex, line, self.finest)
        return [replace(interval, is_edge=wanted is None)]


def own_units(problem: Problem, policy: Policy, mean: float, variance: float) -> Units:
    """Units of the rewards a policy is paid; of its standard deviation if that is far smaller."""
    units, spread = Units.of(problem.paid_by(policy), problem.rewards), math.sqrt(variance)
    if 0.0 < FAR * spread < units.scale:
        return Units(mean, max(spread, SMALLEST_SCALE * float(np.ptp(problem.rewards))))
    return units


def start_search(problem: Problem, tolerance: float) -> VertexSearch:
    """A search that starts at the largest mean, in units of the rewards paid there."""
    half_range = 0.5 * float(np.ptp(problem.rewards))
    optimum = problem.solve(problem.expected(lambda r: r), tolerance=tolerance * half_range)
    found = VertexSearch(problem, optimum.policy, tolerance, chain=optimum.chain, solves=1)
    while True:
        policy = found.top[0].policy
        if found.scale <= COARSE * Units.of(problem.paid_by(policy), problem.rewards).scale:
            return found
        # The initial policy paid a huge penalty, which made the units too large.
        found = VertexSearch(problem, policy, tolerance, solves=found.solves)
