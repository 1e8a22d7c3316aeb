"""The estimate of a policy's `y` from data: its interval, its diagnostics and its warnings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mvpi.errors import warn
from mvpi.offline._residual_error import Interval
from mvpi.offline.density_ratio import SMALLEST_SHARE, CoverageWarning, warn_if_few

_NEGLIGIBLE = 0.05
"""Estimates may differ by this share of the rewards' standard deviation without a warning."""


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
    """Mean and variance by the ratio that `y` is of."""
    reward_variance: float
    effective_size: float
    """As many rewards of the policy itself would be as informative; 0 without an estimate."""
    rows: int
    """Of the data."""
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
