"""The global optimum of any optimized certainty equivalent, by a search over its dual `y`.

With `phi_r(y) = y + u(r - y)`,

    F(y) = max over policies of E[phi_R(y)],      optimum = max over y of F(y)

and each `F(y)` is one risk-neutral solve. `phi_r` is concave, so on an interval `[y1, y2]` it
lies under its tangent at `y1`. The best expected tangent is convex in `y`, hence largest at an
end: at `y1` it is `F(y1)`, at `y2` it takes one more solve. That bounds `F` on the interval with
an error of second order in its width (none at all where `u` is linear), so few intervals need
to be split.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import NamedTuple

import numpy as np

from mvpi._types import Array
from mvpi.risk import Risk
from mvpi.tabular._engines.backups import Actions
from mvpi.tabular._problem import Problem
from mvpi.tabular.solution import Certificate, Progress, Solution, describe
from mvpi.tabular.solve import Best

_NEGLIGIBLE = 1e-3
"""Intervals of `y` narrower than this share of the tolerance are not split further."""


class _Solved(NamedTuple):
    """`F(y)`: an upper bound on it, and the solve it came from."""

    y: float
    upper: float
    optimum: Best


class DualSearch:
    """Branch and bound over `y`; `run` returns the optimum with its bound."""

    def __init__(
        self,
        problem: Problem,
        risk: Risk,
        tolerance: float,
        progress: Progress | None = None,
        solves: int = 0,
        centre: float | None = None,
    ):
        self.problem, self.risk, self.progress = problem, risk, progress
        low, high = float(problem.rewards.min()), float(problem.rewards.max())
        self.centre = 0.5 * (low + high) if centre is None else centre
        """All numbers inside are relative to this."""
        self.low, self.high = low - self.centre, high - self.centre
        self.tolerance = tolerance
        self.solves = solves
        self.best = -np.inf
        self.best_dual = self.low
        self.best_policy: Actions | None = None
        self.trace: list[float] = []

    def run(self) -> Solution:
        order = count()
        left, right = self._solved(self.low), self._solved(self.high)
        waiting = [(-self._bound(left, right), next(order), left, right)]
        bound = max(left.upper, right.upper)
        while waiting:
            top = -waiting[0][0]
            if top <= max(self.best, bound) + self.tolerance:
                break
            if self.progress is not None:
                self.progress(self.solves, self.centre + self.best, self.centre + top)
            _, _, left, right = heapq.heappop(waiting)
            if right.y - left.y <= _NEGLIGIBLE * self.tolerance:
                bound = max(bound, top)
                continue
            middle = self._solved(self._split_point(left, right))
            bound = max(bound, middle.upper)
            for ends in ((left, middle), (middle, right)):
                heapq.heappush(waiting, (-self._bound(*ends), next(order), *ends))
        upper = max([bound, *(-item[0] for item in waiting[:1])])
        assert self.best_policy is not None
        trace = tuple(self.centre + value for value in self.trace)
        certificate = Certificate(self.centre + upper, self.tolerance, self.solves, trace)
        return describe(
            self.best_policy, self.problem.distribution(self.best_policy), self.risk, certificate
        )

    def _solved(self, y: float) -> _Solved:
        """Solve for `F(y)`; remember the policy if it is the best so far at its own best `y`."""
        rewards = y + self.problem.expected_utility(self.risk, self.centre + y)
        optimum = self._solve(rewards, self.best_policy)
        if optimum.upper > self.best - self.tolerance or self.best_policy is None:
            values, weights = self.problem.distribution(optimum.policy)
            value = self.risk.value(values - self.centre, weights)
            if value > self.best:
                self.best, self.best_policy = value, optimum.policy
                self.best_dual = self.risk.dual(values - self.centre, weights)
        self.trace.append(self.best)
        return _Solved(y, optimum.upper, optimum)

    def _bound(self, left: _Solved, right: _Solved) -> float:
        """An upper bound on `F` between two values of `y`."""
        y, width = left.y, right.y - left.y
        t = np.array([self.low - y, self.high - y])
        rise = 1.0 - float(self.risk.slope(t).min())
        fall = 1.0 - float(self.risk.slope(t - width).max())
        if rise <= 0.0:
            return left.upper
        if fall < rise:
            # Lines of the steepest rise from the left and the steepest fall to the right.
            apex = (right.upper - left.upper - fall * width) / (rise - fall)
            cheap = left.upper + rise * min(max(apex, 0.0), width)
            if cheap <= self.best + self.tolerance:
                return cheap
        tangents = self.problem.expected(lambda r: self._tangents(r - self.centre - y, width)) + y
        return max(left.upper, self._solve(tangents, right.optimum.policy).upper)

    def _tangents(self, t: Array, width: float) -> Array:
        """The tangents of `u(t - w) + w` at `w = 0`, evaluated at `w = width`."""
        return self.risk.utility(t) + (1.0 - self.risk.slope(t)) * width

    def _split_point(self, left: _Solved, right: _Solved) -> float:
        """The best `y` known if it lies well inside, else the middle."""
        margin = 1e-6 * (right.y - left.y)
        if left.y + margin < self.best_dual < right.y - margin:
            return self.best_dual
        return 0.5 * (left.y + right.y)

    def _solve(self, rewards: Array, policy: Actions | None) -> Best:
        self.solves += 1
        return self.problem.solve(rewards, policy=policy, tolerance=0.05 * self.tolerance)
