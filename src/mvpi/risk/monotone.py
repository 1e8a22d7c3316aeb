"""Monotone mean-variance: mean-variance without a penalty on large rewards."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mvpi import stats
from mvpi._checks import real_array
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.risk.base import WithRiskAversion
from mvpi.risk.text import exact


@dataclass(frozen=True)
class MonotoneMeanVariance(WithRiskAversion):
    """Monotone mean-variance: large rewards are not penalised (Maccheroni and others, 2009).

    The utility is that of `MeanVariance` up to its top, at `t = 1 / (2 lam)`, and constant beyond.
    So more reward is never worse, and where no reward is above `E[R] + 1 / (2 lam)` the value is
    `E[R] - lam Var(R)`.

    >>> MonotoneMeanVariance(0.25).value([0, 0, 0, 0, 100])  # the mean is 20, the variance 1600
    0.25
    """

    name = "monotone"
    form = "monotone:LAM"

    @property
    def top(self) -> float:
        """Where the utility ceases to grow."""
        return 0.5 / self.risk_aversion if self.risk_aversion > 0.0 else math.inf

    def utility(self, t: npt.ArrayLike) -> Array:
        t = np.minimum(real_array(t, "t"), self.top)
        return np.asarray(t * (1.0 - self.risk_aversion * t))

    def slope(self, t: npt.ArrayLike) -> Array:
        return np.asarray(np.maximum(1.0 - 2.0 * self.risk_aversion * real_array(t, "t"), 0.0))

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        """With `z = y + top`, `E[max(z - R, 0)] = top`: piecewise linear in `z`, one sort."""
        r, w = stats.distribution(rewards, weights)
        if not math.isfinite(2.0 * (float(r.max()) - float(r.min()))):
            raise InputError(f"rewards up to {np.abs(r).max():g} are too large: scale them")
        order = np.argsort(r)
        low, above = float(r[order[0]]), r[order] - r[order[0]]
        share = np.cumsum(np.full(r.size, 1.0 / r.size) if w is None else w[order])
        paid = np.cumsum(above / r.size if w is None else above * w[order])
        # The expectation at z = r, for every r; it is 0 at the smallest and never falls.
        at = int(np.searchsorted(share * above - paid, self.top)) - 1
        if at == r.size - 1:
            return stats.mean(r, w)
        return low + (float(paid[at]) + self.top) / float(share[at]) - self.top

    def _augment(self, r: Array, y: Array | float) -> Array:
        """`u(r - y) - u(-y)` as `(a - b) (1 - lam (a + b))`, without cancellation for large y.

        `a = r - y` and `b = -y`, cut at the top of the utility.
        """
        b = np.minimum(-y, self.top)
        step = np.minimum(r, self.top + y) - np.minimum(0.0, self.top + y)
        return np.asarray(step * (1.0 - self.risk_aversion * (step + 2.0 * b)))

    @property
    def label(self) -> str:
        return f"monotone λ = {exact(self.risk_aversion)}"
