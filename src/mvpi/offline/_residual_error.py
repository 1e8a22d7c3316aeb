"""The estimate of a policy's `y`, and how far it may be off by its Bellman residuals.

An estimate `y` comes with action values `q` of the reward `r - y` whose mean at starts is 0. The
sum of discounted residuals along the policy's own episodes telescopes, so that

    true mean - y  =  E[r - y + gamma q(s', a') - q(s, a)]     over the policy's own steps

for any `q`, right or wrong: the error of `y` is the mean residual where the policy goes. Where it
goes is not known, but stretches of the data are where policies went. In each of 16 stretches the
residual is averaged over the quarter of the rows whose actions are closest to the policy's. If `q`
is right these means are 0 but for noise; the root of their mean square is the scale of the error.

Several estimates with errors of different scales are combined as a mixture of distributions, each
with a weight of one over its variance. The variance of the mixture is the mean of their variances
plus that of their centres: estimates that share an error do not make each other more certain, and
those that disagree make it wider.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvpi._types import Array
from mvpi.errors import warn
from mvpi.offline.density_ratio import SMALLEST_SHARE, CoverageWarning, warn_if_few

Interval = tuple[float, float]
Indices = npt.NDArray[np.int64]

_CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.96
"""Standard deviations from the centre of a 95% interval to its ends."""
_STRETCHES = 16
_CLOSEST = 0.25
_SMALLEST = 1e-100
"""Scales of errors below this count as this: weights stay finite."""
_NEGLIGIBLE = 0.05
"""Estimates may differ by this share of the rewards' standard deviation without a warning."""


class Estimate(NamedTuple):
    """`y` by one ratio, with the ends of intervals of `y` and of the mean by resampling."""

    y: float
    ratio: Array
    ends: Interval
    mean_ends: Interval
    bias: float
    """Scale of the error of the mean by the residuals."""

    @property
    def sampling(self) -> float:
        """Standard deviation of `y` by resampling."""
        return 0.5 * (self.ends[1] - self.ends[0]) / NORMAL_QUANTILE

    @property
    def sensitivity(self) -> float:
        """How much `y` changes where the mean changes by 1, in the resamples."""
        change = self.mean_ends[1] - self.mean_ends[0]
        return (self.ends[1] - self.ends[0]) / change if change > 0.0 else 1.0

    @property
    def error(self) -> float:
        """Of sampling and of the features."""
        return float(np.hypot(self.sampling, self.sensitivity * self.bias))

    def within(self, low: float, high: float) -> Interval:
        """The interval of sampling within what the data can support."""
        first, last = np.clip(self.ends, low, high).tolist()
        return first, last


def ends_of(values: list[float]) -> Interval:
    """Of the 95% interval by resampled values."""
    tail = 0.5 * (1.0 - _CONFIDENCE)
    low, high = np.quantile(values, [tail, 1.0 - tail]).tolist()
    return low, high


def closest_rows(distance: npt.NDArray[Any]) -> tuple[Indices, ...]:
    """Per stretch of the data, the rows with the smallest distances between the actions.

    >>> closest_rows(np.array([3.0, 1.0, 2.0]))
    (array([0]), array([1]), array([2]))
    """
    stretches = np.array_split(np.arange(len(distance)), min(_STRETCHES, len(distance)))
    return tuple(
        np.sort(
            rows[np.argsort(distance[rows], kind="stable")[: max(1, int(_CLOSEST * len(rows)))]]
        )
        for rows in stretches
    )


def means_of_rows(values: Array, rows: tuple[Indices, ...]) -> Array:
    """The mean of the values of each set of rows."""
    return np.stack([values[some].mean(axis=0) for some in rows])


def root_mean_square(values: Array) -> float:
    """About 0, not about their mean.

    >>> root_mean_square(np.array([3.0, -3.0]))
    3.0
    """
    return float(np.sqrt(np.mean(np.square(values))))


def mixture(estimates: npt.ArrayLike, errors: npt.ArrayLike) -> tuple[float, float]:
    """Centre and standard deviation of the mixture of estimates with errors of such scales.

    >>> mixture([0.0, 2.0], [1.0, 1.0])
    (1.0, 1.4142135623730951)
    >>> mixture([5.0], [0.5])
    (5.0, 0.5)
    """
    centres, scales = np.asarray(estimates, np.float64), np.maximum(errors, _SMALLEST)
    weights = np.square(scales.min() / scales)
    weights /= weights.sum()
    centre = float(weights @ centres)
    spread = float(weights @ (np.square(scales) + np.square(centres - centre)))
    return centre, spread**0.5


@dataclass(frozen=True)
class PolicyDual:
    """`y` of a policy as estimated from data, for steps before the end of an episode."""

    y: float
    """The median of `estimates`, within what the data can support; of two, the one with the larger
    effective size."""
    interval: Interval
    """Two standard deviations of the mixture of all estimates, with errors of sampling and of
    their features, widened to `y` where it is outside."""
    estimates: tuple[float, ...]
    """Those with a density ratio that is not degenerate."""
    intervals: tuple[Interval, ...]
    """One for each of the estimates: the error of sampling."""
    fitted_q_mean: float
    """The mean reward as the network of fitted-Q evaluation says, without the closed form."""
    reward_mean: float
    """Mean reward by the density ratio that `y` is of."""
    reward_variance: float
    """Variance of the reward by that ratio."""
    effective_size: float
    """As many rewards of the policy itself would be as informative; 0 without an estimate."""
    rows: int
    """Number of rows of the data."""
    supported: bool
    """Whether no estimate had to be moved to within what the data can support."""
    data_deviation: float = 0.0
    """Standard deviation of the rewards in the data."""
    variance_interval: Interval = (0.0, np.inf)
    """Of the variance: the error of sampling of all estimates, if it was asked for; else all that
    the range of the data allows."""

    @property
    def disagree(self) -> bool:
        """Whether no number lies in all the intervals of the estimates, nor nearly so."""
        highest_low = max((low for low, _ in self.intervals), default=-np.inf)
        lowest_high = min((high for _, high in self.intervals), default=np.inf)
        return bool(highest_low > lowest_high + _NEGLIGIBLE * self.data_deviation)

    def warn(self) -> None:
        """A `CoverageWarning` if `y` rests on few rows or goes beyond them, or estimates differ."""
        warn_if_few(self.effective_size, self.rows)
        shown, (low, high) = ", ".join(f"{y:.4g}" for y in self.estimates), self.interval
        remedy = "give y, or data closer to the policy"
        if not self.supported:
            what = f"estimates of y are beyond the best or worst {SMALLEST_SHARE:.0%} of the data"
            warn(f"{what}, and were moved there, {shown}; {remedy}", CoverageWarning)
        elif self.disagree:
            what = f"estimates of y disagree beyond their intervals, {shown}"
            where = f"y = {self.y:.4g} may be anything from {low:.4g} to {high:.4g}"
            warn(f"{what}: {where}; {remedy}", CoverageWarning)
