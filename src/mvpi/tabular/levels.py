"""One polygon of moments in several units, and the policies that were found in all of them.

Calm policies may be paid rewards far smaller than those of the largest mean. In the units of the
latter their variances are lost in rounding, so the polygon is explored again in theirs: a level.
What is known in one level is known in all: a line that bounds the achievable points bounds them in
any units, and policies are compared by mean and variance, recomputed from what they are paid.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvpi.tabular.exploration import Exploration, own_units
from mvpi.tabular.mdp import MDP
from mvpi.tabular.polygon import Corner, Line, Objective, Units, outline
from mvpi.tabular.solution import Certificate, mixture, moments

_SAME = 1e-12
"""Share of itself by which a variance may be off, and of its root by which a mean may be."""
_EPS = float(np.finfo(np.float64).eps)
_TRIES = 5
"""How often a mixture is corrected that rounding put beyond a limit."""


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


class Levels:
    """All that has been explored of one polygon."""

    def __init__(self) -> None:
        self.explored: list[Exploration] = []
        self._found: dict[bytes, Candidate] = {}
        self._units: dict[bytes, Units] = {}

    def add(self, polygon: Exploration, corners: Iterable[Corner]) -> None:
        """One more level, and those of its corners that count."""
        if polygon not in self.explored:
            self.explored.append(polygon)
        for corner in corners:
            if corner.policy.tobytes() not in self._found:
                candidate = Candidate(corner.policy, *polygon.statistics(corner))
                self._found[corner.policy.tobytes()] = candidate

    def settled(self, corner: Corner) -> bool:
        """Whether a corner was found in units that suit it."""
        found = self._found.get(corner.policy.tobytes())
        return found is not None and self.unit(found) is not None

    @property
    def solves(self) -> int:
        """Risk-neutral solves spent, in all levels."""
        return self.explored[-1].solves

    @property
    def calmest(self) -> Candidate:
        return min(self._found.values(), key=lambda one: (one.variance, -one.mean))

    def boundary(self) -> list[Candidate]:
        """The corners of the lower boundary from the least variance on, by increasing mean.

        Some may have more variance than a corner with a larger mean; a mixture with one of them
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
        calm = [i for i, one in enumerate(kept) if one.variance <= (1.0 + _SAME) * least]
        return kept[calm[-1] :]

    def efficient(self) -> list[Candidate]:
        """The corners that no policy is better than in mean and variance; by increasing mean."""
        kept: list[Candidate] = []
        for one in reversed(self.boundary()):
            if not kept or one.variance < (1.0 - _SAME) * kept[-1].variance:
                kept.append(one)
        return kept[::-1]

    def unit(self, candidate: Candidate) -> float | None:
        """The coarsest scale that suits a policy; None if none does."""
        own = self.own_units(candidate)
        suiting = (one.scale for one in self.explored if one.suits(candidate.mean, own))
        return max(suiting, default=None)

    def own_units(self, candidate: Candidate) -> Units:
        """Units of its own for a policy."""
        key = candidate.policy.tobytes()
        if key not in self._units:
            self._units[key] = own_units(self.explored[0].mdp, *candidate)
        return self._units[key]

    def certificate(
        self,
        answer: Candidate,
        bound: float,
        tolerance: float,
        trace: tuple[float, ...] = (),
        power: int = 1,
    ) -> Certificate:
        """For an answer and its bound; the gap to be tolerated is small in units that suit it."""
        unit = self.unit(answer) or min(level.scale for level in self.explored)
        return Certificate(bound, tolerance * unit**power, self.solves, trace)

    def upper_bound(
        self, question: Callable[[Exploration], Objective], reached: float, power: int = 1
    ) -> float:
        """What no policy with a mean of at least `reached` can be above.

        In the units of the rewards; with `power` 2, in those of variances.
        """
        bounds = []
        for level in self.explored:
            lines, low, top = self._seen_in(level)
            known = (reached - level.centre) / level.scale
            low = min(max(low, known - 4 * _EPS * abs(known)), top)
            bound = question(level).over(outline(lines, low, top))
            if power == 2:
                bounds.append(min(level.scale**2 * bound * (1.0 - 4 * _EPS), 0.0))
            else:
                bound = max(bound, known)
                rounding = 4 * _EPS * (abs(level.centre) + abs(level.scale * bound))
                bounds.append(level.mean(bound) + rounding)
        return min(bounds)

    def _seen_in(self, level: Exploration) -> tuple[list[Line], float, float]:
        """All lines in the units of one level; the least and the largest mean they allow."""
        low, top = level.lowest, max(level.top[1].h, level.top[0].point.m)
        reach = max(abs(low), abs(top))
        lines = list(level.lines)
        for other in self.explored:
            if other is not level:
                lines += (line.seen_in(other.units, level.units, reach) for line in other.lines)
        low = max([low, *(-line.h for line in lines if line.b == 0.0 and line.a < 0.0)])
        return lines, low, top


def _same_mean(one: Candidate, other: Candidate) -> bool:
    """Whether rounding alone may be the difference between two means."""
    spread = math.sqrt(max(one.variance, other.variance))
    return abs(other.mean - one.mean) <= _SAME * spread + 4 * _EPS * abs(one.mean)


def _is_below(one: Candidate, left: Candidate, right: Candidate) -> bool:
    """Whether a policy has less variance than the mixture of two others with the same mean."""
    share = (one.mean - left.mean) / (right.mean - left.mean)
    return one.variance <= (1.0 - _SAME) * left.towards(right, share)[1]


def most_mean(mdp: MDP, boundary: list[Candidate], limit: float) -> Candidate | None:
    """The largest mean with a variance of at most `limit`: a corner, or a mixture of neighbours."""
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
        found = _mixed(mdp, left, right, share)
        if found.variance <= limit:
            return found
        share = max(share - 2.0**attempt * 1.01 * (found.variance - limit) / slope, 0.0)
    return left


def least_variance(mdp: MDP, boundary: list[Candidate], target: float) -> Candidate | None:
    """The least variance with a mean of at least `target`: a corner, or a mixture of neighbours."""
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
        found = _mixed(mdp, left, right, share)
        if found.mean >= target:
            return found
        share += 2.0**attempt * 1.01 * (target - found.mean) / width
    return best


def _mixed(mdp: MDP, left: Candidate, right: Candidate, share: float) -> Candidate:
    policy = mixture(mdp, (left.policy, right.policy), (1.0 - share, share))
    return Candidate(policy, *moments(mdp, policy))
