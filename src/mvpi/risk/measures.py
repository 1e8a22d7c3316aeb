"""Mean-variance, CVaR, the entropic measure and variance budgets; numbers and texts as measures."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from mvpi import stats
from mvpi._checks import check_number, real_array, shown
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.risk.base import Risk, WithRiskAversion, keep
from mvpi.risk.text import exact, parsed
from mvpi.stats import check_level

_LARGEST_EXPONENT = 700.0
"""`exp` of more than this overflows; utilities saturate there instead."""
_LEAST_EXPONENTIAL = -1e13
"""Lower bound of exponential utilities: outcomes this bad have an occupancy below rounding."""


@dataclass(frozen=True)
class MeanVariance(WithRiskAversion):
    """`E[R] - risk_aversion * Var(R)`; 0 is risk-neutral.

    >>> MeanVariance(0.5).value([1, 3])
    1.5
    """

    search = "moments"
    dual_is_mean = True

    def utility(self, t: npt.ArrayLike) -> Array:
        t = real_array(t, "t")
        return np.asarray(t - self.risk_aversion * t**2)

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        return stats.mean(rewards, weights)

    def _augment(self, r: Array, y: Array | float) -> Array:
        """`r - lam r^2 + 2 lam r y`, the paper's form, which avoids cancellation for large y."""
        return np.asarray(r * (1.0 + self.risk_aversion * (2.0 * y - r)))

    def _may_overflow(self, largest: float, y: float) -> bool:
        return not (largest < 1e100 and abs(y) < 1e100 and self.risk_aversion < 1e100)

    def value(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        """`E[R] - lam Var(R)`, the maximum over `y`."""
        variance = stats.variance(rewards, weights)
        return stats.mean(rewards, weights) - self.risk_aversion * variance

    def gaussian_value(self, mean: float, std: float) -> float:
        return mean - self.risk_aversion * std**2

    @property
    def text(self) -> str:
        return repr(self.risk_aversion)

    @property
    def label(self) -> str:
        return f"λ = {exact(self.risk_aversion)}"

    @property
    def value_label(self) -> str:
        return f"mean - {self.risk_aversion:g} variance"


@dataclass(frozen=True)
class CVaR(Risk):
    """`(1 - weight) E[R] + weight CVaR_level(R)`: care for the worst `level` share of steps.

    >>> CVaR(level=0.5).value([1, 2, 3, 4])
    1.5
    """

    level: float
    weight: float = 1.0

    name = "cvar"
    form = "cvar:LEVEL[:WEIGHT]"

    def __post_init__(self) -> None:
        weight = check_number(self.weight, "weight", at_least=0.0, at_most=1.0)
        keep(self, level=check_level(self.level), weight=weight)

    def utility(self, t: npt.ArrayLike) -> Array:
        t = real_array(t, "t")
        shortfall = np.maximum(-t, 0.0) / self.level
        return np.asarray((1.0 - self.weight) * t - self.weight * shortfall)

    def slope(self, t: npt.ArrayLike) -> Array:
        falling = real_array(t, "t") <= 0.0
        return np.asarray((1.0 - self.weight) + self.weight / self.level * falling)

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        return stats.quantile(rewards, self.level, weights)

    def gaussian_value(self, mean: float, std: float) -> float:
        if self.is_neutral:
            return mean
        normal = NormalDist()
        return mean - self.weight * normal.pdf(normal.inv_cdf(self.level)) / self.level * std

    @property
    def is_neutral(self) -> bool:
        return self.weight == 0.0 or self.level == 1.0

    @property
    def label(self) -> str:
        weight = f" of weight {exact(self.weight)}" if self.weight != 1.0 else ""
        return f"CVaR {exact(self.level)}{weight}"


@dataclass(frozen=True)
class Entropic(WithRiskAversion):
    """`-log(E[exp(-risk_aversion * R)]) / risk_aversion`; 0 is risk-neutral.

    >>> round(Entropic(1.0).value([0, 1000]), 6)
    0.693147
    """

    name = "entropic"
    form = "entropic:BETA"
    search = "exponential"

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

    def gaussian_value(self, mean: float, std: float) -> float:
        return mean - 0.5 * self.risk_aversion * std**2

    @property
    def utility_floor(self) -> float:
        return _LEAST_EXPONENTIAL / self.risk_aversion if self.risk_aversion else -math.inf

    @property
    def label(self) -> str:
        return f"entropic {exact(self.risk_aversion)}"


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

    name = "budget"
    form = "budget:LIMIT"
    search = "constrained"
    dual_is_mean = True

    def __post_init__(self) -> None:
        limit = check_number(self.limit, "limit", at_least=0.0)
        price = check_number(self.risk_aversion, "risk_aversion", at_least=0.0)
        keep(self, limit=limit, risk_aversion=price)

    def utility(self, t: npt.ArrayLike) -> Array:
        return MeanVariance(self.risk_aversion).utility(t)

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        return stats.mean(rewards, weights)

    def _augment(self, r: Array, y: Array | float) -> Array:
        return MeanVariance(self.risk_aversion)._augment(r, y)

    def _may_overflow(self, largest: float, y: float) -> bool:
        return MeanVariance(self.risk_aversion)._may_overflow(largest, y)

    def value(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        lagrangian = MeanVariance(self.risk_aversion).value(rewards, weights)
        return lagrangian + self.risk_aversion * self.limit

    def gaussian_value(self, mean: float, std: float) -> float:
        return mean

    @property
    def needs_price(self) -> bool:
        return self.risk_aversion == 0.0

    @property
    def variance_limit(self) -> float:
        return self.limit

    @property
    def label(self) -> str:
        return f"variance ≤ {exact(self.limit)}"

    @property
    def value_label(self) -> str:
        return f"mean, where the variance is at most {self.limit:g}"

    def learnable(self) -> VarianceBudget:
        """The limit must be above 0. A budget without a price begins with `1 / (2 sqrt(limit))`.

        That is the price of a policy which just keeps to the limit where every unit of standard
        deviation brings one of mean. Started at 0, learning first approaches the riskiest
        policy, from which it recovers slowly.
        """
        if self.limit <= 0:
            raise InputError(f"learning needs a variance limit > 0, got {self.limit:g}")
        return self.with_price(self.risk_aversion or 0.5 / math.sqrt(self.limit))

    def with_price(self, price: float) -> VarianceBudget:
        return replace(self, risk_aversion=price)

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
        return self.with_price(max(0.0, price))


def as_risk(risk: Risk | float) -> Risk:
    """`risk` itself, or `MeanVariance(x)` for a plain number `x`.

    >>> as_risk(1)
    MeanVariance(risk_aversion=1.0)
    """
    if isinstance(risk, Risk):
        return risk
    given: object = risk
    if given is None or isinstance(given, str | type):
        raise InputError(
            "a risk must be a number, which means mean-variance, or a measure such as "
            f"mvpi.CVaR(0.1), got {shown(given)}{_meant(given)}"
        )
    return MeanVariance(check_number(risk, "risk_aversion", at_least=0.0))


def _meant(given: object) -> str:
    """The measure that a text of the command line names in Python."""
    if not isinstance(given, str):
        return ""
    try:
        risk = parse_risk(given)
    except InputError:
        return ""
    return f"; that is {given.strip() if type(risk) is MeanVariance else f'mvpi.{risk!r}'}"


def learnable(risk: Risk | float) -> Risk:
    """`as_risk(risk)` as learning begins with it, or an `InputError` if it cannot be learned."""
    return as_risk(risk).learnable()


def risk_text(risk: Risk) -> str:
    """The text that `parse_risk` reads; of a measure without a `name`, its `repr`.

    >>> risk_text(MeanVariance(0.5)), risk_text(CVaR(0.1, 0.5))
    ('0.5', 'cvar:0.1:0.5')
    """
    return risk.text


def parse_risk(text: str) -> Risk:
    """The risk measure a text names: a number, or a measure and its numbers behind colons.

    >>> parse_risk("0.5"), parse_risk("cvar:0.1")
    (MeanVariance(risk_aversion=0.5), CVaR(level=0.1, weight=1.0))
    """
    return as_risk(parsed(text))
