"""What `risk_averse` was asked for, as driver, learners and env runners need it."""

from __future__ import annotations

from dataclasses import dataclass

from mvpi.augmenter.columns import Columns
from mvpi.augmenter.occupancy import Occupancy
from mvpi.risk import RISK_AVERSION, Risk


@dataclass(frozen=True)
class Settings:
    """Checked arguments of `risk_averse`, and which kind of algorithm they are for."""

    risk: Risk
    window: int | None
    occupancy: Occupancy
    on_policy: bool
    return_scale: float

    @property
    def columns(self) -> Columns:
        """What observations are extended by."""
        return Columns(self.risk, self.return_scale)

    @property
    def redraws(self) -> bool:
        """Whether learners see other risk aversions than those that were acted with."""
        return not self.on_policy and RISK_AVERSION in self.columns
