"""The efficient frontier of a finite MDP: the best mean for every variance, for all risk aversions.

The lower boundary of the moment polytope (`mvpi.tabular._vertex_search`), explored without pruning,
answers every mean-variance objective about the MDP:

    best(lam)                 largest  mean - lam * variance          a vertex
    with_variance_at_most(v)  largest  mean  with  variance <= v      a vertex, or a mix of two
    with_mean_at_least(m)     smallest variance  with  mean >= m      a vertex, or a mix of two
    max_sharpe(f)             largest  (mean - f) / std               a vertex

A point on an edge is the mixture of the occupancies of its two vertices; one stationary,
randomised policy has that occupancy. Along an edge the variance is concave in the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mvpi import stats
from mvpi._checks import check_callback, check_choice, check_count, check_number
from mvpi._text import rounded_down
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.tabular._objectives import Budget, LeastVariance, LimitTooSmall, Sharpe, Tradeoff
from mvpi.tabular._problem import Problem
from mvpi.tabular._reachable import reachable_core
from mvpi.tabular._scales import Candidate, MultiScaleSearch, least_variance, most_mean
from mvpi.tabular._step_problem import StepProblem
from mvpi.tabular._stored_mdp import Policy
from mvpi.tabular._vertex_search import VertexSearch, start_search
from mvpi.tabular._vertices import Interval, Objective, Vertex
from mvpi.tabular.labels import Labels
from mvpi.tabular.mdp import MDP
from mvpi.tabular.return_problem import checked_horizon, explore_returns
from mvpi.tabular.solution import TOLERANCE, Progress, Solution, describe_moments

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_Lift = Callable[[Any], Any]

_PICTURE_TOLERANCE = 1e-3
"""Accuracy of the dominated part of the boundary, which is only drawn: a share of its width."""
_MOST_POINTS = 10**6
"""Of an edge, in a curve."""
_MOST_SCALES = 12
"""Largest number of scales at which the polytope is searched."""


def frontier(
    mdp: MDP,
    *,
    horizon: int | None = None,
    tolerance: float = TOLERANCE,
    progress: Progress | None = None,
) -> Frontier:
    """The whole efficient frontier of `mdp`.

    Args:
        mdp: the problem, discounted or average-reward.
        horizon: with a number of steps, the frontier is that of the return of so many steps, the
            sum of `discount^t r_t`, and policies look at the time and the return so far
            (`mvpi.tabular.ReturnPolicy`). Otherwise it is that of the reward of a step.
        tolerance: how far an undiscovered point may lie below an edge, with the rewards of a
            risk-neutral policy scaled to [-1, 1]; 1e-9 when left out. A large MDP has many
            vertices: a coarser tolerance finds fewer of them.
        progress: called while the search goes on; its bound says how far below an edge a point
            may still lie, its best value is 0.
    """
    tolerance = check_number(tolerance, "tolerance", at_least=0.0)
    check_callback(progress, "progress")
    core = reachable_core(mdp)
    problem: Problem = StepProblem(core.mdp)
    lifted: _Lift = core.lifted
    if horizon is not None:
        steps = checked_horizon(horizon, "mvpi.frontier(mdp, horizon=20)")
        problem = returns = explore_returns(core, steps)
        lifted = returns.lifted
    scales = _explored(problem, tolerance, progress)
    return Frontier(problem, scales, tolerance, mdp.labels, (lifted,))


def _explored(problem: Problem, tolerance: float, progress: Progress | None) -> MultiScaleSearch:
    """The lower boundary of the moment polytope, at all scales that its vertices need."""
    scales = MultiScaleSearch()
    polytope = start_search(problem, tolerance)
    while True:
        _explore_everything(polytope, scales, tolerance, progress)
        unresolved = [one for one in scales.boundary() if scales.unit(one) is None]
        if not unresolved or len(scales.explored) == _MOST_SCALES:
            return scales
        first = unresolved[0]
        units = scales.own_units(first)
        polytope = VertexSearch(problem, first.policy, tolerance, units=units, solves=scales.solves)


def _explore_everything(
    polytope: VertexSearch, scales: MultiScaleSearch, tolerance: float, progress: Progress | None
) -> None:
    """Find all vertices, except between two that were found at a better scale."""
    polytope.begin_at_least_variance(leftmost=not scales.explored)
    polytope.answer(LeastVariance(), tolerance)
    vertices = polytope.vertices()
    least = min(vertices, key=lambda vertex: vertex.point.variance)
    dominated = least.point.m - vertices[0].point.m
    objective = _Everything(
        least.point.m, _PICTURE_TOLERANCE * max(dominated, 1.0), tolerance, scales.is_resolved
    )
    polytope.answer(objective, tolerance, progress)
    beside = [c for c in polytope.vertices() if c.point.m >= least.point.m - polytope.finest]
    if scales.explored:
        beside.append(polytope.beside(least))
    scales.add(polytope, beside)


@dataclass(frozen=True)
class _Everything(Objective):
    """Objective: the largest depth of an interval; bounded by 0 once all are within tolerance."""

    least_variance_mean: float
    picture_tolerance: float
    tolerance: float
    is_resolved: Callable[[Vertex], bool]
    """Whether a vertex was found at a better scale."""

    def reached(self, interval: Interval) -> float:
        return 0.0

    def bound(self, interval: Interval) -> float:
        if (
            interval.is_edge
            or interval.width == 0.0
            or (self.is_resolved(interval.left) and self.is_resolved(interval.right))
        ):
            return 0.0
        if interval.right.point.m <= self.least_variance_mean:
            return interval.depth() - self.picture_tolerance
        # The tolerance is relative for moments larger than 1.
        chord, far = interval.chord(), interval.right.point
        size = abs(chord.a * far.m) + abs(chord.b * far.q)
        return interval.depth() - self.tolerance * max(size - 1.0, 0.0)


class Frontier:
    """The efficient policies of an MDP, by increasing mean and variance.

    No policy, randomised or not, has a larger mean and no larger variance than one of these.
    """

    means: Array
    """`E[R]` of the efficient deterministic policies, increasing."""
    variances: Array
    """`Var(R)` of the same policies, increasing."""
    policies: tuple[Any, ...]
    """The policies, `(S,)` actions each, or a `ReturnPolicy` each."""
    converged: bool
    """Whether undiscovered points are within the tolerance of the frontier: every efficient policy
    was found in units that suit it."""
    quantity: str
    """What the mean and variance are of: the reward of a step, or the return."""
    solves: int
    """Risk-neutral solves spent."""

    def __init__(
        self,
        problem: Problem,
        scales: MultiScaleSearch,
        tolerance: float,
        labels: Labels,
        lifts: tuple[_Lift, ...],
    ):
        """`lifts`, one after the other, bring a policy of the problem into terms of the user."""
        self._problem, self._scales, self._tolerance = problem, scales, tolerance
        self._labels, self._lifts, self.quantity = labels, lifts, problem.quantity
        self._efficient, self._boundary = scales.efficient(), scales.boundary()
        self.means = _read_only([one.mean for one in self._efficient])
        self.variances = _read_only([one.variance for one in self._efficient])
        self.policies = tuple(self._lifted(one.policy) for one in self._efficient)
        self.solves = scales.solves
        self.converged = all(scales.unit(one) is not None for one in self._efficient)

    def mapped(self, function: Callable[[Any], Any]) -> Frontier:
        """The same frontier with every policy put through a function, such as into other terms."""
        lifts = (*self._lifts, function)
        return Frontier(self._problem, self._scales, self._tolerance, self._labels, lifts)

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
        bound = self._scales.upper_bound(lambda search: Tradeoff(price * search.scale), value)
        return self._solution(best, value, bound)

    def with_variance_at_most(self, limit: float) -> Solution:
        """The policy with the largest mean among those whose variance is at most `limit`."""
        limit = check_number(limit, "limit", at_least=0.0)
        best = most_mean(self._problem, self._boundary, limit)
        if best is None:
            raise LimitTooSmall(limit, self.variances[0])
        bound = self._scales.upper_bound(lambda search: Budget.of(limit, search.scale), best.mean)
        return self._solution(best, best.mean, bound)

    def with_mean_at_least(self, target: float) -> Solution:
        """The policy with the smallest variance among those whose mean is at least `target`.

        The `value` of the solution is minus its variance, which is what is maximised here. A
        target above the largest mean by no more than the tolerance is taken for that mean.
        """
        target = check_number(target, "target")
        best = least_variance(self._problem, self._boundary, target)
        if best is None:
            best = self._efficient[-1]
            unit = max(self._scales.explored[0].scale, abs(best.mean))
            if target - best.mean > self._tolerance * unit:
                raise InputError(
                    f"target must be <= {rounded_down(best.mean)}, the largest mean any policy "
                    f"reaches, got {target}"
                )
            target = best.mean
        bound = self._scales.upper_bound(lambda _: LeastVariance(), target, power=2)
        return self._solution(best, 0.0 - best.variance, bound, power=2)

    def max_sharpe(self, risk_free: float = 0.0) -> Solution:
        """The policy with the largest Sharpe ratio, `(mean - risk_free) / std`: its `value`.

        A policy without variance and with a mean above `risk_free` has an infinite ratio; of these
        it is the one with the largest mean. Some mean must be above `risk_free`: below it more
        variance would be better, and the ratio is meaningless.
        """
        risk_free = check_number(risk_free, "risk_free")
        most = self._efficient[-1].mean
        if most <= risk_free:
            raise InputError(
                f"risk_free must be < {rounded_down(most)}, the largest mean any policy reaches, "
                f"got {risk_free}"
            )

        def ratio(one: Candidate) -> float:
            return float(stats.sharpe_ratio(one.mean - risk_free, one.variance))

        above = (one for one in self._efficient if one.mean > risk_free)
        best = max(above, key=lambda one: (ratio(one), one.mean))
        value = ratio(best)
        if math.isinf(value):
            return self._solution(best, value, value, power=0)
        bound = self._scales.upper_bound(
            lambda search: Sharpe((risk_free - search.centre) / search.scale), risk_free, power=0
        )
        # How far the ratio moves when both moments do by the tolerance.
        unit = self._scales.unit(best) or self._scales.explored[0].scale
        unit /= math.sqrt(best.variance)
        return self._solution(best, value, bound, power=0, factor=unit + 0.5 * value * unit**2)

    def curve(self, points_per_edge: int = 20) -> tuple[Array, Array]:
        """Means and variances along the whole boundary, dominated part included, by mean."""
        points = check_count(points_per_edge, "points_per_edge", at_most=_MOST_POINTS)
        first = self._scales.explored[0]
        left = [
            Candidate(c.policy, first.mean(c.point.m), first.variance(c.point))
            for c in first.vertices()
            if first.mean(c.point.m) < self.means[0]
        ]
        shares = np.linspace(0.0, 1.0, points)[:, None]
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
        path: str | PathLike[str] | None = None,
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
        from mvpi.tabular._frontier_plot import draw

        check_choice(spread, "spread", ("variance", "standard deviation"))
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

    def _solution(
        self, answer: Candidate, value: float, bound: float, power: int = 1, factor: float = 1.0
    ) -> Solution:
        tolerance = factor * self._tolerance
        certificate = self._scales.certificate(answer, bound, tolerance, power=power)
        found = describe_moments(*answer, value, certificate)
        return found.having(policy=self._lifted(found.policy), labels=self._labels)

    def _lifted(self, policy: Policy) -> Any:
        for lift in self._lifts:
            policy = lift(policy)
        return policy


def _read_only(values: list[float]) -> Array:
    array = np.array(values)
    array.flags.writeable = False
    return array
