"""The interface of risk measures to solvers and learners, with the usual defaults.

`utility` and `dual` make a measure (see `mvpi.risk`). The rest has defaults; a measure overrides
what is different for it, so that no solver and no learner has a case for a particular measure.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from mvpi import stats
from mvpi._checks import check_number, finite, finite_array, real_array
from mvpi._types import Array
from mvpi.risk.text import WithText

RISK_AVERSION, RETURN_SO_FAR = "risk_aversion", "return_so_far"
"""Columns that a measure may add to observations, see `mvpi.risk.extended`."""
_DEVIATIONS, _NODES = 9.0, 20_001
"""Range, in standard deviations, and number of points of the quadrature of a Gaussian."""

Search = Literal["dual", "moments", "exponential", "constrained", "quantile", "return", "none"]
"""How `mvpi.optimize` finds the best policy of a finite MDP:

dual            search over `y`, for any concave utility
moments         the value is `E[R] - price Var(R)`: vertices of the moment polytope
exponential     the value is `-log(E exp(-price R)) / price`: one solve, the same for all `y`
constrained     the largest `E[R]` with a variance of at most `variance_limit`
quantile        the largest `x` with `P(R >= x) >= required_probability`: bisection over the rewards
return          backward induction over time, state and return so far: it needs a horizon
none            it is not one measure
"""


class Risk(WithText, ABC):
    """A risk measure of the per-step reward: a concave `utility` and its best `y`."""

    search: ClassVar[Search] = "dual"
    """How the exact optimum on a finite MDP is found."""
    has_unit: ClassVar[bool] = False
    """Whether `price` is a risk aversion in one over the unit of rewards, chosen by the user."""

    dual_is_mean: ClassVar[bool] = False
    """Whether `dual` is the mean of the rewards; False in subclasses with another `dual`."""

    of_return: ClassVar[bool] = False
    """Whether it is of the return of an episode; otherwise of the reward of a step."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "dual" in vars(cls):
            cls.dual_is_mean = vars(cls).get("dual_is_mean", False)

    @abstractmethod
    def utility(self, t: npt.ArrayLike) -> Array:
        """`u(t)`: concave, with `u(0) = 0` and slopes `u'(0+) <= 1 <= u'(0-)` around 0."""

    @abstractmethod
    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        """The `y` that maximises `E[y + u(R - y)]`."""

    def slope(self, t: npt.ArrayLike) -> Array:
        """The left derivative of `u`; the default takes a difference quotient.

        That is the slope of a secant, which is exact at a kink. Further to the left it lies above
        the concave `u`, so bounds that are built on it are too low by no more than the square of
        the step.
        """
        t = real_array(t, "t")
        step = 1e-7 * (1.0 + np.abs(t))
        return np.asarray((self.utility(t) - self.utility(t - step)) / step)

    def augment(self, rewards: npt.ArrayLike, y: npt.ArrayLike) -> Array:
        """`u(r - y) - u(-y)`: the reward a risk-neutral method should maximise.

        `y` is a number, or one for every reward.
        """
        return self._augment(finite_array(rewards, "rewards"), finite(y, "y"))

    def _augment(self, r: Array, y: Array | float) -> Array:
        """The formula of `augment`, whose arguments are known to be finite.

        Override it to compute the same with less rounding.
        """
        y = np.asarray(y)  # a utility may use what numbers of numpy have
        return self.utility(r - y) - self.utility(-y)

    def _may_overflow(self, largest: float, y: float) -> bool:
        """Whether `_augment(r, y)` could overflow for some `r` of at most this size."""
        return True

    @property
    def columns(self) -> tuple[str, ...]:
        """What its policies must see beside the observation: `RISK_AVERSION`, `RETURN_SO_FAR`."""
        return ()

    def augment_extended(
        self, rewards: npt.ArrayLike, y: npt.ArrayLike, seen: Mapping[str, Array]
    ) -> Array:
        """`augment` with the values of `columns` that every reward was earned or drawn with."""
        return self.augment(rewards, y)

    def value(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        """`max over y of E[y + u(R - y)]`: how good the rewards are at this risk aversion."""
        y = self.dual(rewards, weights)
        return y + stats.mean(self.utility(real_array(rewards, "rewards") - y), weights)

    def gaussian_value(self, mean: float, std: float) -> float:
        """The value of a Gaussian reward; the default is a quadrature."""
        z = np.linspace(-_DEVIATIONS, _DEVIATIONS, _NODES)
        return mean + self.value(std * z, np.exp(-0.5 * z**2))

    @property
    def is_neutral(self) -> bool:
        """Whether the value is the mean."""
        return False

    @property
    def price(self) -> float | None:
        """The current `risk_aversion`, of a measure that has one."""
        return getattr(self, "risk_aversion", None)

    @property
    def needs_price(self) -> bool:
        """Whether the risk aversion is yet to be found, so that rewards cannot be augmented."""
        return False

    @property
    def variance_limit(self) -> float | None:
        """The largest variance a policy may have; None: any."""
        return None

    @property
    def required_probability(self) -> float | None:
        """The probability with which a quantile is to be reached; None: it is no quantile."""
        return None

    @property
    def utility_floor(self) -> float:
        """Utilities below this may be raised to it: no good policy has any."""
        return -math.inf

    def learnable(self) -> Risk:
        """The measure to begin learning with, or an `InputError` if it cannot be learned."""
        return self

    def repriced(self, variance: float, rate: float) -> Self:
        """The measure after a policy was seen to have a variance; most do not change."""
        return self

    def with_price(self, price: float) -> Self:
        """The measure at a risk aversion found while learning; a fixed one stays as it is."""
        return self


@dataclass(frozen=True)
class WithRiskAversion(Risk):
    """A measure with one number, a risk aversion in one over the unit of rewards; 0: the mean."""

    risk_aversion: float

    has_unit = True

    def __post_init__(self) -> None:
        keep(self, risk_aversion=check_number(self.risk_aversion, "risk_aversion", at_least=0.0))

    @property
    def is_neutral(self) -> bool:
        return self.risk_aversion == 0.0


def keep(risk: Risk, **numbers: float) -> None:
    """Keep checked numbers as plain floats, whatever kind of number was given."""
    for name, number in numbers.items():
        object.__setattr__(risk, name, number)
