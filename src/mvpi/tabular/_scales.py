"""The moment polytope searched at several scales of the rewards.

A policy of small variance may receive rewards far smaller than those of the largest mean. In units
of the latter its variance is lost to rounding, so the polytope is searched again in units of the
smaller rewards. A supporting line found at one scale bounds the achievable points at all of them,
and policies are compared by mean and variance, recomputed from the rewards they receive.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvpi.tabular._problem import Problem
from mvpi.tabular._vertex_search import VertexSearch, own_units
from mvpi.tabular._vertices import BoundedObjective, Line, Units, Vertex, outline
from mvpi.tabular.solution import Certificate

_SAME = 1e-12
"""Relative error of a variance; error of a mean as a share of the standard deviation."""
_EPS = float(np.finfo(np.float64).eps)
_TRIES = 5
"""Corrections of a mixture that rounding errors put beyond a limit."""


class Candidate(NamedTuple):
    """A policy and its mean and variance, in the units of the rewards."""

    policy: npt.NDArray[Any]
    mean: float
    variance: float

    def towards(self, other: Candidate, share: float) -> tuple[float, float]:
        """Mean and variance of a mixture of both occupancies."""
        step = other.mean - self.mean
        within = (1.0 - share) * self.variance + share * other.variance
        return self.mean + share * step, within + share * (1.0 - share) * step**2


class MultiScaleSearch:
    """The searches of one moment polytope, each at its own scale, and the vertices found."""

    def __init__(self) -> None:
        self.explored: list[VertexSearch] = []
        self._found: dict[bytes, Candidate] = {}
        self._units: dict[bytes, Units] = {}

    def add(self, polytope: VertexSearch, vertices: Iterable[Vertex]) -> None:
        """Add a search and some of its vertices."""
        if polytope not in self.explored:
            self.explored.append(polytope)
        for vertex in vertices:
            if vertex.policy.tobytes() not in self._found:
                candidate = Candidate(vertex.policy, *polytope.statistics(vertex))
                self._found[vertex.policy.tobytes()] = candidate

    def is_resolved(self, vertex: Vertex) -> bool:
        """Whether a vertex was found in units that suit it."""
        found = self._found.get(vertex.policy.tobytes())
        return found is not None and self.unit(found) is not None

    @property
    def solves(self) -> int:
        """Number of risk-neutral solves, at all scales."""
        return self.explored[-1].solves

    @property
    def least_variance(self) -> Candidate:
        """The policy of least variance; of several, the one with the largest mean."""
        return min(self._found.values(), key=lambda one: (one.variance, -one.mean))

    def boundary(self) -> list[Candidate]:
        """The vertices of the lower boundary from the least variance on, by increasing mean.

        Some may have more variance than a vertex with a larger mean; a mixture with one of them
        may still be better than all others.
        """
        kept: list[Candidate] = []
        for one in sorted(self._found.values(), key=lambda one: (one.mean, -one.variance)):
            while kept and _same_mean(kept[-1], one) and kept[-1].variance > one.variance:
                kept.pop()
            if kept and _same_mean(kept[-1], one):
                continue
            while len(kept) > 1 and not _is_below(kept[-1], kept[-2], one):
                kept.pop()
            kept.append(one)
        least = min(one.variance for one in kept)
        ties = [i for i, one in enumerate(kept) if one.variance <= (1.0 + _SAME) * least]
        return kept[ties[-1] :]

    def efficient(self) -> list[Candidate]:
        """The vertices that no policy dominates in mean and variance, by increasing mean."""
        kept: list[Candidate] = []
        for one in reversed(self.boundary()):
            if not kept or one.variance < (1.0 - _SAME) * kept[-1].variance:
                kept.append(one)
        return kept[::-1]

    def unit(self, candidate: Candidate) -> float | None:
        """The largest scale that suits a policy; None if none does."""
        own = self.own_units(candidate)
        suiting = (one.scale for one in self.explored if one.units.suit(candidate.mean, own))
        return max(suiting, default=None)

    def own_units(self, candidate: Candidate) -> Units:
        """The units of the rewards that a policy receives."""
        key = candidate.policy.tobytes()
        if key not in self._units:
            self._units[key] = own_units(self.explored[0].problem, *candidate)
        return self._units[key]

    def certificate(
        self,
        answer: Candidate,
        bound: float,
        tolerance: float,
        trace: tuple[float, ...] = (),
        power: int = 1,
    ) -> Certificate:
        """For an answer and its bound; the tolerated gap is relative to units that suit it."""
        unit = self.unit(answer) or min(search.scale for search in self.explored)
        return Certificate(bound, tolerance * unit**power, self.solves, trace)

    def upper_bound(
        self, objective: Callable[[VertexSearch], BoundedObjective], reached: float, power: int = 1
    ) -> float:
        """An upper bound on the objective over policies with a mean of at least `reached`.

        In units of the rewards to the given `power`: 2 for a variance, 0 for a ratio.
        """
        bounds = []
        for search in self.explored:
            lines, low, top = self._lines_in_units_of(search)
            known = (reached - search.centre) / search.scale
            low = min(max(low, known - 4 * _EPS * abs(known)), top)
            bound = objective(search).over(outline(lines, low, top))
            if power == 0:
                bounds.append(bound * (1.0 + 4 * _EPS))
            elif power == 2:
                bounds.append(min(search.scale**2 * bound * (1.0 - 4 * _EPS), 0.0))
            else:
                bound = max(bound, known)
                rounding = 4 * _EPS * (abs(search.centre) + abs(search.scale * bound))
                bounds.append(search.mean(bound) + rounding)
        return min(bounds)

    def _lines_in_units_of(self, search: VertexSearch) -> tuple[list[Line], float, float]:
        """All supporting lines in the units of one search; the range of means they allow."""
        low, top = search.lowest, max(search.top[1].h, search.top[0].point.m)
        reach = max(abs(low), abs(top))
        lines = list(search.lines)
        for other in self.explored:
            if other is not search:
                lines += (line.in_units(other.units, search.units, reach) for line in other.lines)
        low = max([low, *(-line.h for line in lines if line.b == 0.0 and line.a < 0.0)])
        return lines, low, top


def _same_mean(one: Candidate, other: Candidate) -> bool:
    """Whether two means differ by rounding errors only."""
    spread = math.sqrt(max(one.variance, other.variance))
    return abs(other.mean - one.mean) <= _SAME * spread + 4 * _EPS * abs(one.mean)


def _is_below(one: Candidate, left: Candidate, right: Candidate) -> bool:
    """Whether a policy has less variance than the mixture of two others with the same mean."""
    share = (one.mean - left.mean) / (right.mean - left.mean)
    return one.variance <= (1.0 - _SAME) * left.towards(right, share)[1]


def most_mean(problem: Problem, boundary: list[Candidate], limit: float) -> Candidate | None:
    """The largest mean with a variance of at most `limit`: a vertex, or a mixture of neighbours."""
    inside = [i for i, one in enumerate(boundary) if one.variance <= (1.0 + _SAME) * limit]
    if not inside:
        return None
    left = boundary[inside[-1]]
    if inside[-1] == len(boundary) - 1:
        return left
    right = boundary[inside[-1] + 1]
    step, spare = (right.mean - left.mean) ** 2, max(limit - left.variance, 0.0)
    slope = right.variance - left.variance + step
    part = spare / slope
    share = 2.0 * part / (1.0 + math.sqrt(max(1.0 - 4.0 * part * (step / slope), 0.0)))
    for attempt in range(_TRIES):
        if left.towards(right, share)[0] <= left.mean:
            break
        found = _mixed(problem, left, right, share)
        if found.variance <= limit:
            return found
        share = max(share - 2.0**attempt * 1.01 * (found.variance - limit) / slope, 0.0)
    return left


def least_variance(problem: Problem, boundary: list[Candidate], target: float) -> Candidate | None:
    """The least variance with a mean of at least `target`: a vertex, or a mixture of neighbours."""
    at = bisect_left(boundary, target - 4 * _EPS * abs(target), key=lambda one: one.mean)
    if at == len(boundary):
        return None
    best = min(boundary[at:], key=lambda one: one.variance)
    if at == 0:
        return best
    left, right = boundary[at - 1], boundary[at]
    width = right.mean - left.mean
    share = (target - left.mean) / width
    for attempt in range(_TRIES):
        if share >= 1.0 or left.towards(right, share)[1] >= best.variance:
            break
        found = _mixed(problem, left, right, share)
        if found.mean >= target:
            return found
        share += 2.0**attempt * 1.01 * (target - found.mean) / width
    return best


def _mixed(problem: Problem, left: Candidate, right: Candidate, share: float) -> Candidate:
    policy = problem.mixed((left.policy, right.policy), (1.0 - share, share))
    return Candidate(policy, *problem.moments(policy))
