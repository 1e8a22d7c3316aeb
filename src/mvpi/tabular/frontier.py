"""The efficient frontier of a finite MDP: the best mean for every variance, for all risk aversions.

The lower boundary of the polygon of moments (`mvpi.tabular.exploration`), explored without pruning,
answers every mean-variance question about the MDP:

    best(lam)                 largest  mean - lam * variance          a corner
    with_variance_at_most(v)  largest  mean  with  variance <= v      a corner, or a mix of two
    with_mean_at_least(m)     smallest variance  with  mean >= m      a corner, or a mix of two

A point on an edge is the mixture of the occupancies of its two corners; one stationary,
randomised policy has that occupancy. Along an edge the variance is concave in the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from mvpi.errors import InputError
from mvpi.stats import check_number
from mvpi.tabular.bellman import Actions
from mvpi.tabular.exploration import Exploration, explore
from mvpi.tabular.levels import Candidate, Levels, least_variance, most_mean
from mvpi.tabular.mdp import MDP
from mvpi.tabular.optimize import Budget, LeastVariance, Tradeoff, limit_too_small
from mvpi.tabular.polygon import Corner, Gap, Question
from mvpi.tabular.reachable import Core, reachable_core
from mvpi.tabular.solution import TOLERANCE, Progress, Solution, describe_moments

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = npt.NDArray[np.float64]

_PICTURE_TOLERANCE = 1e-3
"""The dominated part of the boundary is only drawn: to this accuracy, as a share of its width."""
_MOST_LEVELS = 12
"""In how many units the polygon is explored."""


def frontier(
    mdp: MDP, *, tolerance: float = TOLERANCE, progress: Progress | None = None
) -> Frontier:
    """The whole efficient frontier of `mdp`.

    Args:
        mdp: the problem, discounted or average-reward.
        tolerance: how far an undiscovered point may lie below an edge, with the rewards of a
            risk-neutral policy scaled to [-1, 1]. A large MDP has many corners: a coarser
            tolerance finds fewer of them.
        progress: called while the search goes on; its bound says how far below an edge a point
            may still lie, its best value is 0.
    """
    tolerance = check_number(tolerance, "tolerance", at_least=0.0)
    core = reachable_core(mdp)
    levels = Levels()
    polygon = explore(core.mdp, tolerance)
    while True:
        _explore_everything(polygon, levels, tolerance, progress)
        lost = [one for one in levels.boundary() if levels.unit(one) is None]
        if not lost or len(levels.explored) == _MOST_LEVELS:
            return Frontier(core, levels, tolerance)
        units = levels.own_units(lost[0])
        polygon = Exploration(
            core.mdp, lost[0].policy, tolerance, units=units, solves=levels.solves
        )


def _explore_everything(
    polygon: Exploration, levels: Levels, tolerance: float, progress: Progress | None
) -> None:
    """Find all corners, except between two that other levels have looked at in better units."""
    polygon.begin_from_calmest(leftmost=not levels.explored)
    polygon.answer(LeastVariance(), tolerance)
    corners = polygon.corners()
    calmest = min(corners, key=lambda corner: corner.point.variance)
    dominated = calmest.point.m - corners[0].point.m
    question = _Everything(
        calmest.point.m, _PICTURE_TOLERANCE * max(dominated, 1.0), tolerance, levels.settled
    )
    polygon.answer(question, tolerance, progress)
    beside = [c for c in polygon.corners() if c.point.m >= calmest.point.m - polygon.finest]
    if levels.explored:
        beside.append(polygon.beside(calmest))
    levels.add(polygon, beside)


@dataclass(frozen=True)
class _Everything(Question):
    """Question: how deep is the deepest gap? Asked until all are shallow."""

    calmest_mean: float
    picture_tolerance: float
    tolerance: float
    settled: Callable[[Corner], bool]
    """Whether the surroundings of a corner are known."""

    def reached(self, gap: Gap) -> float:
        return 0.0

    def bound(self, gap: Gap) -> float:
        if gap.is_edge or gap.width == 0.0 or (self.settled(gap.left) and self.settled(gap.right)):
            return 0.0
        if gap.right.point.m <= self.calmest_mean:
            return gap.depth() - self.picture_tolerance
        # Far away only a share of the moments there can be told.
        chord, far = gap.chord(), gap.right.point
        size = abs(chord.a * far.m) + abs(chord.b * far.q)
        return gap.depth() - self.tolerance * max(size - 1.0, 0.0)


class Frontier:
    """The efficient policies of an MDP, by increasing mean and variance.

    No policy, randomised or not, has a larger mean and no larger variance than one of these.
    """

    means: Array
    """`E[R]` of the efficient deterministic policies, increasing."""
    variances: Array
    """`Var(R)` of the same policies, increasing."""
    policies: tuple[Actions, ...]
    """The policies, `(S,)` actions each."""
    converged: bool
    """Whether undiscovered points are as near to the frontier as was asked for."""
    solves: int
    """Risk-neutral solves spent."""

    def __init__(self, core: Core, levels: Levels, tolerance: float):
        self._core, self._levels, self._tolerance = core, levels, tolerance
        self._efficient, self._boundary = levels.efficient(), levels.boundary()
        self.means = _read_only([one.mean for one in self._efficient])
        self.variances = _read_only([one.variance for one in self._efficient])
        self.policies = tuple(core.lifted(one.policy) for one in self._efficient)
        self.solves = levels.solves
        self.converged = self._all_found()

    @cached_property
    def risk_aversions(self) -> tuple[tuple[float, float] | None, ...]:
        """For each efficient policy the range of risk aversions at which it is optimal.

        None for a policy that is efficient but optimal for no risk aversion: it is the answer
        to a variance limit only.
        """
        ranges: list[tuple[float, float] | None] = [None] * len(self.means)
        hull: list[int] = []
        for i in reversed(range(len(self.means))):
            while len(hull) > 1 and self._price(hull[-1], i) <= self._price(hull[-2], hull[-1]):
                hull.pop()
            hull.append(i)
        for k, i in enumerate(hull):
            low = self._price(hull[k - 1], i) if k else 0.0
            high = self._price(i, hull[k + 1]) if k + 1 < len(hull) else math.inf
            ranges[i] = (low, high)
        return tuple(ranges)

    def best(self, risk_aversion: float) -> Solution:
        """The policy with the largest `mean - risk_aversion * variance`."""
        price = check_number(risk_aversion, "risk_aversion", at_least=0.0)
        best = max(self._efficient, key=lambda one: one.mean - price * one.variance)
        value = best.mean - price * best.variance
        bound = self._levels.upper_bound(lambda level: Tradeoff(price * level.scale), value)
        return self._solution(best, value, bound)

    def with_variance_at_most(self, limit: float) -> Solution:
        """The policy with the largest mean among those whose variance is at most `limit`."""
        limit = check_number(limit, "limit", at_least=0.0)
        best = most_mean(self._core.mdp, self._boundary, limit)
        if best is None:
            raise limit_too_small(limit, self.variances[0])
        bound = self._levels.upper_bound(lambda level: Budget.of(limit, level), best.mean)
        return self._solution(best, best.mean, bound)

    def with_mean_at_least(self, target: float) -> Solution:
        """The policy with the smallest variance among those whose mean is at least `target`.

        The `value` of the solution is minus its variance, which is what is maximised here. A
        target above the largest mean by no more than the tolerance is taken for that mean.
        """
        target = check_number(target, "target")
        best = least_variance(self._core.mdp, self._boundary, target)
        if best is None:
            best = self._efficient[-1]
            unit = max(self._levels.explored[0].scale, abs(best.mean))
            if target - best.mean > self._tolerance * unit:
                raise InputError(
                    f"target must be <= {best.mean:.8g}, the largest mean any policy reaches, "
                    f"got {target:.8g}"
                )
            target = best.mean
        bound = self._levels.upper_bound(lambda _: LeastVariance(), target, power=2)
        return self._solution(best, 0.0 - best.variance, bound, power=2)

    def curve(self, points_per_edge: int = 20) -> tuple[Array, Array]:
        """Means and variances along the whole boundary, dominated part included, by mean."""
        first = self._levels.explored[0]
        left = [
            Candidate(c.policy, first.mean(c.point.m), first.variance(c.point))
            for c in first.corners()
            if first.mean(c.point.m) < self.means[0]
        ]
        shares = np.linspace(0.0, 1.0, points_per_edge)[:, None]
        along = [*left, *self._boundary]
        m, v = (np.array([one[k] for one in along]) for k in (1, 2))
        start, end, step = m[:-1], m[1:], np.diff(m)
        means = np.clip(start + shares * step, start, end)
        within = v[:-1] + shares * np.diff(v)
        variances = within + shares * (1.0 - shares) * step**2
        if len(along) == 1:
            return m, v
        return means.T.ravel(), variances.T.ravel()

    def plot(
        self,
        path: str | None = None,
        *,
        spread: Literal["variance", "standard deviation"] = "variance",
        axes: Axes | None = None,
    ) -> Axes:
        """Draw the frontier: spread against mean, with the ranges of the risk aversion.

        Args:
            path: where to save the picture; not saved when left out.
            spread: what the horizontal axis shows.
            axes: where to draw; a new figure when left out.
        """
        from mvpi.tabular.frontier_plot import draw

        if spread not in ("variance", "standard deviation"):
            raise InputError(f"spread must be 'variance' or 'standard deviation', got {spread!r}")
        return draw(self, path, spread, axes)

    def __len__(self) -> int:
        return len(self.means)

    def __repr__(self) -> str:
        return (
            f"Frontier({len(self)} efficient deterministic policies, mean {self.means[0]:.6g} to "
            f"{self.means[-1]:.6g}, variance {self.variances[0]:.6g} to {self.variances[-1]:.6g}, "
            f"solves={self.solves})"
        )

    def _price(self, higher: int, lower: int) -> float:
        """The risk aversion at which two efficient policies are equally good."""
        gained = self.means[higher] - self.means[lower]
        return float(gained / (self.variances[higher] - self.variances[lower]))

    def _all_found(self) -> bool:
        """Whether all of the boundary was explored, each part in units that suit it."""
        return all(self._levels.unit(one) is not None for one in self._efficient)

    def _solution(self, answer: Candidate, value: float, bound: float, power: int = 1) -> Solution:
        certificate = self._levels.certificate(answer, bound, self._tolerance, power=power)
        whole = self._core.lifted(answer.policy)
        return describe_moments(whole, answer.mean, answer.variance, value, certificate)


def _read_only(values: list[float]) -> Array:
    array = np.array(values)
    array.flags.writeable = False
    return array
