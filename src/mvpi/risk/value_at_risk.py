"""The value at risk, a quantile of the reward: no expected utility, exact on finite MDPs."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from mvpi import stats
from mvpi._checks import check_number
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.risk.base import Risk, keep
from mvpi.risk.text import exact

_ROUNDING = 1e-12
"""A probability is not known better than to this."""


@dataclass(frozen=True)
class VaR(Risk):
    """The value at risk: the largest `x` with `P(R >= x) >= 1 - level`. For finite MDPs only.

    It is no expected utility, so rewards cannot be augmented for it. `mvpi.optimize` finds the
    best policy of a finite MDP; a probability counts as reached if it is within 1e-12.

    >>> VaR(level=0.25).value([4, 3, 2, 1])
    2.0
    """

    level: float

    name = "var"
    form = "var:LEVEL"
    search = "quantile"

    def __post_init__(self) -> None:
        level = check_number(self.level, "level", above=0.0, at_most=1.0)
        if level == 1.0:
            raise InputError("level must be > 0 and < 1, got 1: every x has a probability >= 0")
        keep(self, level=level)

    @property
    def required_probability(self) -> float:
        """The required probability of `R >= x`, less the rounding error."""
        return 1.0 - self.level - _ROUNDING

    def utility(self, t: npt.ArrayLike) -> Array:
        raise self._no_utility()

    def augment(self, rewards: npt.ArrayLike, y: npt.ArrayLike) -> Array:
        raise self._no_utility()

    def learnable(self) -> VaR:
        raise self._no_utility()

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        """The quantile itself."""
        r, w = stats.distribution(rewards, weights)
        order = np.argsort(-r, kind="stable")
        reached = (
            np.cumsum(np.full(r.size, 1.0 / r.size) if w is None else w[order])
            >= self.required_probability
        )
        return float(r[order[int(np.argmax(reached))]] if reached.any() else r.min())

    def value(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        return self.dual(rewards, weights)

    def gaussian_value(self, mean: float, std: float) -> float:
        return mean + std * NormalDist().inv_cdf(self.level)

    @property
    def label(self) -> str:
        return f"VaR {exact(self.level)}"

    def _no_utility(self) -> InputError:
        return InputError(
            f"{self} is for finite MDPs only (mvpi.optimize): a quantile is no expected utility; "
            f"CVaR({self.level:g}) can be learned"
        )
