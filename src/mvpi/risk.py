"""The idea: risk measures of the per-step reward, and the reward that optimises them.

A concave utility `u` with `u(0) = 0` makes a risk measure, the optimized certainty equivalent

    value(R) = max over y of  E[y + u(R - y)]

so that "maximise value over policies" is "maximise over policies and one number y". For a fixed
`y` that is an ordinary, risk-neutral problem with the augmented reward

    augment(r, y) = u(r - y) - u(-y)

whose shift makes `augment(0, y) = 0`, so a finished episode keeps the value 0. Mean-variance
policy iteration alternates: `y <- dual(R)`, then improve the policy on `augment(r, y)`. Both
steps can only increase `value`.

    measure              u(t)                                  dual, the best y
    MeanVariance(lam)    t - lam t^2                           E[R]
    CVaR(level, w)       (1 - w) t - w max(-t, 0) / level      the level-quantile of R
    Entropic(beta)       (1 - exp(-beta t)) / beta             -log(E exp(-beta R)) / beta

A new measure is a subclass with a `utility` and a `dual`; no other file changes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mvpi import stats
from mvpi._checks import check_kind, check_number, finite_array, real_array, shown
from mvpi.descriptions import lasting
from mvpi.errors import InputError
from mvpi.stats import check_level

Array = npt.NDArray[np.float64]

_LARGEST_EXPONENT = 700.0
"""`exp` of more than this overflows; utilities saturate there instead."""


class Risk(ABC):
    """A risk measure of the per-step reward: a concave `utility` and its best `y`."""

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

    def augment(self, rewards: npt.ArrayLike, y: float) -> Array:
        """`u(r - y) - u(-y)`: the reward a risk-neutral method should maximise."""
        r, y = finite_array(rewards, "rewards"), check_number(y, "y")
        return self.utility(r - y) - self.utility(-y)

    def value(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        """`max over y of E[y + u(R - y)]`: how good the rewards are at this risk aversion."""
        y = self.dual(rewards, weights)
        return y + stats.mean(self.utility(real_array(rewards, "rewards") - y), weights)


@dataclass(frozen=True)
class MeanVariance(Risk):
    """`E[R] - risk_aversion * Var(R)`; 0 is risk-neutral.

    >>> MeanVariance(0.5).value([1, 3])
    1.5
    """

    risk_aversion: float

    def __post_init__(self) -> None:
        _store(self, risk_aversion=check_number(self.risk_aversion, "risk_aversion", at_least=0.0))

    def utility(self, t: npt.ArrayLike) -> Array:
        t = real_array(t, "t")
        return np.asarray(t - self.risk_aversion * t**2)

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        return stats.mean(rewards, weights)

    def augment(self, rewards: npt.ArrayLike, y: float) -> Array:
        """`r - lam r^2 + 2 lam r y`, as the paper writes it: nothing cancels when y is large."""
        r, y = finite_array(rewards, "rewards"), check_number(y, "y")
        return np.asarray(r * (1.0 + self.risk_aversion * (2.0 * y - r)))

    def value(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        """`E[R] - lam Var(R)`: what the maximum over `y` comes to."""
        variance = stats.variance(rewards, weights)
        return stats.mean(rewards, weights) - self.risk_aversion * variance


@dataclass(frozen=True)
class CVaR(Risk):
    """`(1 - weight) E[R] + weight CVaR_level(R)`: care for the worst `level` share of steps.

    >>> CVaR(level=0.5).value([1, 2, 3, 4])
    1.5
    """

    level: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        weight = check_number(self.weight, "weight", at_least=0.0, at_most=1.0)
        _store(self, level=check_level(self.level), weight=weight)

    def utility(self, t: npt.ArrayLike) -> Array:
        t = real_array(t, "t")
        shortfall = np.maximum(-t, 0.0) / self.level
        return np.asarray((1.0 - self.weight) * t - self.weight * shortfall)

    def slope(self, t: npt.ArrayLike) -> Array:
        falling = real_array(t, "t") <= 0.0
        return np.asarray((1.0 - self.weight) + self.weight / self.level * falling)

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        return stats.quantile(rewards, self.level, weights)


@dataclass(frozen=True)
class Entropic(Risk):
    """`-log(E[exp(-risk_aversion * R)]) / risk_aversion`; 0 is risk-neutral.

    >>> round(Entropic(1.0).value([0, 1000]), 6)
    0.693147
    """

    risk_aversion: float

    def __post_init__(self) -> None:
        _store(self, risk_aversion=check_number(self.risk_aversion, "risk_aversion", at_least=0.0))

    def utility(self, t: npt.ArrayLike) -> Array:
        t = real_array(t, "t")
        if self.risk_aversion == 0.0:
            return t
        exponent = np.minimum(-self.risk_aversion * t, _LARGEST_EXPONENT)
        return np.asarray(-np.expm1(exponent) / self.risk_aversion)

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        r, w = stats.distribution(rewards, weights)
        beta = self.risk_aversion
        if beta * float(np.ptp(r)) < 1e-8:
            return stats.mean(r, w) - 0.5 * beta * stats.variance(r, w)
        worst = float(r.min() if w is None else r[w > 0].min())
        exponent = -beta * np.maximum(r - worst, 0.0)
        total = stats.mean(np.exp(exponent), w)
        # Two forms of one logarithm: the first keeps the digits of a small risk aversion.
        log = math.log1p(stats.mean(np.expm1(exponent), w)) if total > 0.5 else math.log(total)
        return worst - log / beta

    def value(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        """The same number as `dual`: at the best `y` the expected utility is 0."""
        return self.dual(rewards, weights)


@dataclass(frozen=True)
class VarianceBudget(Risk):
    """The largest `E[R]` with `Var(R) <= limit`: mean-variance at a risk aversion to be found.

    `risk_aversion` is the current price of variance, 0 as long as there is none; whoever optimises
    raises it while the variance is above the limit, and agents begin with `1 / (2 sqrt(limit))`.
    Rewards are augmented as for `MeanVariance(risk_aversion)`. `value` is the Lagrangian
    `E[R] - risk_aversion * (Var(R) - limit)`, which at the optimum is the mean.
    """

    limit: float
    risk_aversion: float = 0.0

    def __post_init__(self) -> None:
        limit = check_number(self.limit, "limit", at_least=0.0)
        price = check_number(self.risk_aversion, "risk_aversion", at_least=0.0)
        _store(self, limit=limit, risk_aversion=price)

    def utility(self, t: npt.ArrayLike) -> Array:
        return MeanVariance(self.risk_aversion).utility(t)

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        return stats.mean(rewards, weights)

    def augment(self, rewards: npt.ArrayLike, y: float) -> Array:
        return MeanVariance(self.risk_aversion).augment(rewards, y)

    def value(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        lagrangian = MeanVariance(self.risk_aversion).value(rewards, weights)
        return lagrangian + self.risk_aversion * self.limit

    def repriced(self, variance: float, rate: float) -> VarianceBudget:
        """One step of dual ascent: a higher risk aversion while `variance` is above the limit.

        `rate` is in the risk aversion's natural unit, one over the standard deviation that is
        allowed; a measurement of twice the limit or more moves it by that much. The limit must be
        above 0.
        """
        variance = check_number(variance, "variance", at_least=0.0)
        rate = check_number(rate, "rate", above=0.0)
        if self.limit <= 0:
            raise InputError(f"the limit must be > 0 to be repriced, got {self.limit:g}")
        excess = min(max(variance / self.limit - 1.0, -1.0), 1.0)
        price = self.risk_aversion + rate * excess / math.sqrt(self.limit)
        return replace(self, risk_aversion=max(0.0, price))


def _store(risk: Risk, **numbers: float) -> None:
    """Keep checked numbers as plain floats, whatever kind of number was given."""
    for name, number in numbers.items():
        object.__setattr__(risk, name, number)


def as_risk(risk: Risk | float) -> Risk:
    """`risk` itself, or `MeanVariance(x)` for a plain number `x`.

    >>> as_risk(1)
    MeanVariance(risk_aversion=1.0)
    """
    if isinstance(risk, Risk):
        return risk
    return MeanVariance(check_number(risk, "risk_aversion", at_least=0.0))


def learnable(risk: Risk | float) -> Risk:
    """`as_risk(risk)`, ready for dual ascent: the limit of a budget must be above 0.

    A budget without a price gets one to begin with, `1 / (2 sqrt(limit))`: that of a policy which
    just keeps to the limit where every unit of standard deviation brings one of mean. Begun at 0,
    learning runs to the riskiest policy first, and the way back from there is long.
    """
    measure = as_risk(risk)
    if not isinstance(measure, VarianceBudget):
        return measure
    if measure.limit <= 0:
        raise InputError(f"learning needs a variance limit > 0, got {measure.limit:g}")
    return replace(measure, risk_aversion=measure.risk_aversion or 0.5 / math.sqrt(measure.limit))


def risk_text(risk: Risk) -> str:
    """The text that `parse_risk` reads; of a measure it does not know, its `repr`.

    >>> risk_text(MeanVariance(0.5)), risk_text(CVaR(0.1, 0.5))
    ('0.5', 'cvar:0.1:0.5')
    """
    match risk:
        case MeanVariance(risk_aversion=lam):
            return repr(lam)
        case CVaR(level=level, weight=weight):
            return f"cvar:{level!r}:{weight!r}"
        case Entropic(risk_aversion=beta):
            return f"entropic:{beta!r}"
        case VarianceBudget(limit=limit, risk_aversion=price):
            return f"budget:{limit!r}:{price!r}"
    return lasting(repr(risk))


def parse_risk(text: str) -> Risk:
    """The risk measure a text names: a number, or a measure and its numbers behind colons.

    >>> parse_risk("0.5"), parse_risk("cvar:0.1")
    (MeanVariance(risk_aversion=0.5), CVaR(level=0.1, weight=1.0))
    """
    makers: dict[str, Callable[..., Risk]] = {
        "cvar": CVaR,
        "entropic": Entropic,
        "budget": VarianceBudget,
    }
    check_kind(text, str, "risk", "a text")
    name, *numbers = text.split(":")
    try:
        if not numbers:
            return as_risk(float(name))
        return makers[name](*map(float, numbers))
    except (KeyError, TypeError):
        pass
    except ValueError as error:
        if isinstance(error, InputError):
            raise
    raise InputError(
        "risk must be a number (mean-variance), cvar:LEVEL, cvar:LEVEL:WEIGHT, entropic:BETA or "
        f"budget:LIMIT, got {shown(text)}"
    )
