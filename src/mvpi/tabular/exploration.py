"""The polygon of achievable moments, explored only where a question needs it.

Rewards are centred and scaled inside, so that those of one policy fill [-1, 1]: tolerances have one
meaning, variances of rewards far from zero keep their digits, and rewards that nobody is paid, such
as the huge cost of an action that is not allowed, blur nothing.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, pairwise

import numpy as np
import numpy.typing as npt

from mvpi.tabular.bellman import Actions
from mvpi.tabular.chain import DIRECT_UP_TO, Chain, Values
from mvpi.tabular.mdp import MDP, Policy
from mvpi.tabular.polygon import (
    SMALLEST_SCALE,
    Answer,
    Corner,
    Gap,
    Line,
    Point,
    Question,
    Units,
    unit,
)
from mvpi.tabular.solution import Progress, moments
from mvpi.tabular.solve import WORST_UTILITY, solve

Array = npt.NDArray[np.float64]

_FINEST, _COARSEST = 1e-11, 1e-8
"""Bounds on the difference, of scaled rewards, below which points are not told apart."""
_RAISE = 8 * float(np.finfo(np.float64).eps)
"""Share of itself by which a moment of a pair may be off."""
_COARSE = 10.0
"""Units so many times those of a policy do not suit it."""
FAR = 100.0
"""Scaled means beyond this are in need of units, or of a look, of their own."""


class Exploration:
    """The part of the lower boundary that has been found so far, beginning with its `top`."""

    first: Corner
    """That of the policy it began with."""
    top: tuple[Corner, Line]
    """The largest mean."""
    gaps: list[Gap]
    """What has been found, by increasing mean, once `begin` was called."""
    lines: list[Line]
    """All that is known to bound the achievable points."""

    def __init__(
        self,
        mdp: MDP,
        policy: Actions,
        tolerance: float,
        *,
        units: Units | None = None,
        chain: Chain | None = None,
        solves: int = 0,
    ):
        """In units of the rewards that `policy` is paid, unless there are better ones."""
        self.mdp = mdp
        self.units = units or self._paid(policy)
        self.centre, self.scale = self.units
        self.finest = min(max(0.01 * tolerance, _FINEST), _COARSEST)
        """Points nearer than this are not told apart; moments are a tenth as uncertain."""
        self.solves = solves
        self.lines = []
        self._states = np.arange(mdp.n_states)
        self._first = mdp.expected(lambda r: (r - self.centre) / self.scale)
        self._second = mdp.expected(lambda r: ((r - self.centre) / self.scale) ** 2)
        self.first = self._corner(policy, chain or mdp.chain(policy))
        self.top = self.farthest(1.0, 0.0, near=[self.first])

    @property
    def lowest(self) -> float:
        """No mean is below this."""
        return (float(self.mdp.rewards.min()) - self.centre) / self.scale

    def begin(self, found: Sequence[tuple[Corner, Line]]) -> None:
        """Start with corners and their lines, from left to right.

        The directions of neighbouring ones must not be opposite. What lies beyond the first and
        the last is not explored.
        """
        self.gaps = [
            Gap(left, right, (left_line, right_line))
            for (left, left_line), (right, right_line) in pairwise(found)
        ]

    def begin_from_calmest(self, *, leftmost: bool = False) -> None:
        """Start with all that has less variance than everything to the left of it.

        A corner of least variance at the mean `m` is farthest along the slope `2 m`, so it is
        not left of the one farthest along twice the lowest mean. Where that is far away, as the
        cost of an action that is not allowed, one more slope finds what is calm and not far: the
        line between the two is a poor bound on what lies nearby.
        """
        directions = [unit(2.0 * min(self.lowest, -1.0))]
        if self.lowest < -FAR:
            directions.insert(0, unit(-2.0 * FAR))
        if leftmost:
            directions.append((-1.0, 0.0))
        found = [self.top]
        for a, b in directions:
            found.insert(0, self.farthest(a, b, near=[corner for corner, _ in found]))
        self.begin(found)

    def farthest(self, a: float, b: float, near: Sequence[Corner]) -> tuple[Corner, Line]:
        """The corner that maximises `a m - b q`, and its supporting line.

        The values of policies that are known are known for any `a` and `b`, so the solve starts
        from whichever of those `near` is best, state by state.
        """
        terms = a * self._first, -b * self._second
        # Raised by what rounding may have taken: the bound holds for the real moments.
        rewards = terms[0] + terms[1] + _RAISE * (np.abs(terms[0]) + np.abs(terms[1]))
        rewards = np.maximum(rewards, WORST_UTILITY)
        policy, values = self._best_known(a, b, near)
        optimum = solve(self.mdp, rewards, policy=policy, values=values, tolerance=self.finest)
        self.solves += 1
        line = Line(a, b, optimum.upper)
        self.lines.append(line)
        for corner in near:
            if np.array_equal(corner.policy, optimum.policy):
                return corner, line
        chain = optimum.chain or self.mdp.chain(optimum.policy)
        nearest = min(near, key=lambda c: np.count_nonzero(c.policy != optimum.policy))
        return self._corner(optimum.policy, chain, nearest, (a, b, optimum.values)), line

    def beside(self, corner: Corner) -> Corner:
        """What is farthest along a slope a little steeper than where a corner begins to be.

        Lines to corners that are far away are known no better than these.
        """
        chords = [gap.chord() for gap in self.gaps if gap.right is corner and gap.width > 0.0]
        slope = max([2.0 * corner.point.m, *(chord.a / chord.b for chord in chords)])
        return self.farthest(*unit(slope + 1.0 + abs(slope)), near=[corner])[0]

    def answer(
        self, question: Question, tolerance: float, progress: Progress | None = None
    ) -> Answer:
        """Explore until the best value reached is within `tolerance` of its upper bound."""
        order = count()
        waiting = [(-question.bound(gap), next(order), gap) for gap in self.gaps]
        heapq.heapify(waiting)
        settled: list[Gap] = []
        best = max(question.reached(gap) for gap in self.gaps)
        trace = [best]
        while waiting and -waiting[0][0] > best + tolerance:
            if progress is not None:
                progress(self.solves, best, -waiting[0][0])
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

    def statistics(self, corner: Corner) -> tuple[float, float]:
        """Mean and variance of a corner in the units of the rewards.

        Both are those of its occupancy, unless that takes long and the units suit the policy. Then
        the variance is evaluated around the mean, so that nothing cancels; it is between the
        squares that are paid. Less of it than the accuracy of the mean makes by itself is none.
        """
        m, policy = corner.point.m, corner.policy
        if self.mdp.n_states <= DIRECT_UP_TO or not self.suits(self.mean(m), self._paid(policy)):
            return moments(self.mdp, policy)
        squares = self.mdp.expected(lambda r: ((r - self.centre) / self.scale - m) ** 2)
        chain, guess = self.mdp.chain(policy), corner.values[1] - 2.0 * m * corner.values[0]
        paid = squares[self._states, policy]
        spread = chain.evaluate_relative(paid, 0.1 * self.finest, guess).gain
        spread = min(max(spread, float(paid.min())), float(paid.max()))
        return self.mean(m), self.scale**2 * spread if spread > self.finest**2 else 0.0

    def suits(self, mean: float, own: Units) -> bool:
        """Whether the units suit a policy with this mean and these units of its own."""
        return abs(mean - self.centre) <= FAR * self.scale <= FAR * _COARSE * own.scale

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

    def _paid(self, policy: Actions) -> Units:
        return Units.of(self.mdp.rewards_paid_by(policy), self.mdp.rewards)

    def _best_known(self, a: float, b: float, near: Sequence[Corner]) -> tuple[Actions, Values]:
        """State by state the best of some policies for `a r - b r^2`, and its values."""
        gains = [a * corner.point.m - b * corner.point.q for corner in near]
        highest = max(gains)
        policy, values = near[0].policy, np.full(self.mdp.n_states, -np.inf)
        for corner, gain in zip(near, gains, strict=True):
            candidate = a * corner.values[0] - b * corner.values[1]
            if self.mdp.discount < 1.0:
                candidate += (gain - highest) / (1.0 - self.mdp.discount)
            policy = np.where(candidate > values, corner.policy, policy)
            values = np.maximum(values, candidate)
        return policy, Values(values, highest)

    def _corner(
        self,
        policy: Actions,
        chain: Chain,
        near: Corner | None = None,
        solved: tuple[float, float, Array] | None = None,
    ) -> Corner:
        """The corner of a policy: moments and values.

        Where it is `solved` for `a r - b r^2`, that is nearly evaluated, and with `r` it gives
        `r^2` cheaply.
        """
        first_paid = self._first[self._states, policy]
        second_paid = self._second[self._states, policy]
        guess, guess2 = (None, None) if near is None else near.values
        first = chain.evaluate_relative(first_paid, 0.1 * self.finest, guess)
        a, b, values = solved or (1.0, 0.0, None)
        if b > 0.3:
            paid = a * first_paid - b * second_paid
            both = chain.evaluate_relative(paid, 0.1 * self.finest, values)
            second = Values((a * first.values - both.values) / b, (a * first.gain - both.gain) / b)
        else:
            second = chain.evaluate_relative(second_paid, 0.1 * self.finest, guess2)
        return Corner(Point(first.gain, second.gain), policy, (first.values, second.values))


def own_units(mdp: MDP, policy: Policy, mean: float, variance: float) -> Units:
    """Units for a policy: of all rewards that it is paid or, if most are far nearer, of most."""
    units, spread = Units.of(mdp.rewards_paid_by(policy), mdp.rewards), math.sqrt(variance)
    if 0.0 < FAR * spread < units.scale:
        return Units(mean, max(spread, SMALLEST_SCALE * float(np.ptp(mdp.rewards))))
    return units


def explore(mdp: MDP, tolerance: float) -> Exploration:
    """From the largest mean on, in units of the rewards that are paid there."""
    half_range = 0.5 * float(np.ptp(mdp.rewards))
    optimum = solve(mdp, mdp.expected(lambda r: r), tolerance=tolerance * half_range)
    found = Exploration(mdp, optimum.policy, tolerance, chain=optimum.chain, solves=1)
    while True:
        policy = found.top[0].policy
        if found.scale <= _COARSE * Units.of(mdp.rewards_paid_by(policy), mdp.rewards).scale:
            return found
        # A huge cost was not avoided at once, and made the units too large.
        found = Exploration(mdp, policy, tolerance, solves=found.solves)
