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

from mvpi.tabular.exploration import Exploration
from mvpi.tabular.mdp import MDP
from mvpi.tabular.polygon import Corner, Line, Objective, outline
from mvpi.tabular.solution import Certificate, mixture, moments

_SAME = 1e-12
"""Share of itself by which a variance, and of the standard deviation by which a mean, may be off."""
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
    def mdp(self) -> MDP:
        return self.explored[0].mdp

    @property
    def solves(self) -> int:
        """Risk-neutral solves spent, in all levels."""
        return self.explored[-1].solves

    @property
    def calmest(self) -> Candidate:
        return min(self._found.values(), key=lambda one: (one.variance, -one.mean))

    def efficient(self) -> list[Candidate]:
        """The policies that no other, and no mixture of two, is better than; by increasing mean."""
        kept: list[Candidate] = []
        for one in sorted(self._found.values(), key=lambda one: (one.mean, -one.variance)):
            while kept and not _is_calmer(kept[-1], one):
                kept.pop()
            while len(kept) > 1 and not _is_below(kept[-1], kept[-2], one):
                kept.pop()
            kept.append(one)
        return kept

    def unit(self, candidate: Candidate) -> float | None:
        """The coarsest scale that suits a policy; None if none does."""
        suiting = (
            one.scale for one in self.explored if one.suits(candidate.policy, candidate.mean)
        )
        return max(suiting, default=None)

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


def _is_calmer(one: Candidate, other: Candidate) -> bool:
    """Whether `one`, whose mean is smaller, has less variance, and a mean that really is smaller."""
    really = other.mean - one.mean > _SAME * math.sqrt(other.variance) + 4 * _EPS * abs(one.mean)
    return really and one.variance < (1.0 - _SAME) * other.variance


def _is_below(one: Candidate, left: Candidate, right: Candidate) -> bool:
    """Whether a policy has less variance than the mixture of two others with the same mean."""
    share = (one.mean - left.mean) / (right.mean - left.mean)
    return one.variance <= (1.0 - _SAME) * left.towards(right, share)[1]


def most_mean(mdp: MDP, efficient: list[Candidate], limit: float) -> Candidate | None:
    """The largest mean with a variance of at most `limit`: a policy, or a mixture of neighbours."""
    inside = [one.variance <= (1.0 + _SAME) * limit for one in efficient]
    if not inside[0]:
        return None
    at = inside.index(False) if False in inside else len(inside)
    left = efficient[at - 1]
    if at == len(efficient):
        return left
    right = efficient[at]
    step, spare = (right.mean - left.mean) ** 2, max(limit - left.variance, 0.0)
    slope = right.variance - left.variance + step
    share = 2.0 * spare / (slope + math.sqrt(max(slope**2 - 4.0 * step * spare, 0.0)))
    for attempt in range(_TRIES):
        if left.towards(right, share)[0] <= left.mean:
            break
        found = _mixed(mdp, left, right, share)
        if found.variance <= limit:
            return found
        share = max(share - 2.0**attempt * 1.01 * (found.variance - limit) / slope, 0.0)
    return left


def least_variance(mdp: MDP, efficient: list[Candidate], target: float) -> Candidate | None:
    """The least variance with a mean of at least `target`: a policy, or a mixture of neighbours."""
    at = bisect_left(efficient, target - 4 * _EPS * abs(target), key=lambda one: one.mean)
    if at == len(efficient):
        return None
    right = efficient[at]
    if at == 0:
        return right
    left = efficient[at - 1]
    width = right.mean - left.mean
    share = (target - left.mean) / width
    for attempt in range(_TRIES):
        if share >= 1.0 or left.towards(right, share)[1] >= right.variance:
            break
        found = _mixed(mdp, left, right, share)
        if found.mean >= target:
            return found
        share += 2.0**attempt * 1.01 * (target - found.mean) / width
    return right


def _mixed(mdp: MDP, left: Candidate, right: Candidate, share: float) -> Candidate:
    policy = mixture(mdp, (left.policy, right.policy), (1.0 - share, share))
    return Candidate(policy, *moments(mdp, policy))
