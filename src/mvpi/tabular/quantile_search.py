"""The largest quantile of the reward over all policies of a finite MDP, with a certificate.

    maximise   x   such that some policy has   P(R >= x) >= share

`P(R >= x)` is linear in the occupancy, so a deterministic policy has the largest, and one
risk-neutral solve with the reward `1[r >= x]` finds it. It decreases in `x`: bisection over the
values of the rewards. A policy proves that `x` is reached; an upper bound of a solve below `share`
proves that it is not. If rounding leaves neither proof, the upper bound of the solution stays above
its value.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mvpi.risk import Risk
from mvpi.tabular._engines.backups import Actions
from mvpi.tabular._problem import Problem
from mvpi.tabular.solution import Certificate, Progress, Solution, describe
from mvpi.tabular.solve import Best

_ACCURACY = 1e-13
"""Of probabilities; `solve` stops earlier if only rounding errors are left."""


class QuantileSearch:
    """Bisection; `run` returns the optimum with its bound."""

    def __init__(
        self,
        problem: Problem,
        risk: Risk,
        share: float,
        tolerance: float,
        progress: Progress | None,
    ) -> None:
        self.problem, self.risk, self.share, self.progress = problem, risk, share, progress
        self.accuracy = min(tolerance, _ACCURACY)
        self.values = np.unique(problem.rewards)
        self.best = 0
        """Index of the largest value known to be reached; the smallest always is."""
        self.policy: Actions | None = None
        self.trace: list[float] = []
        self._solved: dict[int, Best] = {}

    def run(self) -> Solution:
        self._solve(0)
        self._last(self._reached, self.best)
        open_up_to = self._last(self._not_refuted, self.best)
        assert self.policy is not None
        bound = float(self.values[open_up_to])
        certificate = Certificate(bound, 0.0, len(self._solved), tuple(self.trace))
        return describe(self.policy, self.problem.distribution(self.policy), self.risk, certificate)

    def _last(self, holds: Callable[[int], bool], first: int) -> int:
        """The last index at which `holds` is true, by bisection; it is true at `first`."""
        low, high = first, len(self.values)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return low

    def _reached(self, place: int) -> bool:
        if place > self.best:
            self._solve(place)
        return place <= self.best

    def _not_refuted(self, place: int) -> bool:
        return self._solve(place).upper >= self.share

    def _solve(self, place: int) -> Best:
        """The policy that is most often paid `values[place]` or more."""
        if place not in self._solved:
            x = self.values[place]
            rewards = self.problem.expected(lambda r: (r >= x).astype(np.float64))
            optimum = self.problem.solve(rewards, policy=self.policy, tolerance=self.accuracy)
            self._solved[place] = optimum
            self._compare(optimum.policy)
            if self.progress is not None:
                refuted = [p for p in self._solved if not self._not_refuted(p)]
                bound = float(self.values[min(refuted, default=len(self.values)) - 1])
                self.progress(len(self._solved), self.trace[-1], bound)
        return self._solved[place]

    def _compare(self, policy: Actions) -> None:
        """Keep a policy if its quantile is the largest so far."""
        quantile = self.risk.value(*self.problem.distribution(policy))
        place = int(np.searchsorted(self.values, quantile))
        if self.policy is None or place > self.best:
            self.best, self.policy = place, policy
        self.trace.append(float(self.values[self.best]))
