"""Risk measures whose policies see more than the observation.

    RiskRange(low, high)   mean-variance at every risk aversion of a range, which it sees
    OfReturn(risk)         a risk of the return of an episode; sees the return so far

**Every risk aversion in one training run.** Rewards are augmented when they are drawn, so the risk
aversion can be drawn too. The policy and its critics see `lam`; an episode is acted with a random
one; every second transition of a batch gets a fresh one. `y(lam)` is a regression of recent rewards
on the risk aversion they were acted with.

**The return of an episode.** With `G_t` the return before step `t`, the augmented rewards

    augment(r_t, y - G_t) = u(G_t + r_t - y) - u(G_t - y)

sum to `u(G - y) - u(-y)` over an episode of return `G`: the augmented return. So the risk of the
return is mean-variance policy iteration with `y` the dual of recent returns, on observations that
contain `G_t`; without it the problem is not Markov (Bauerle and Ott 2011).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_number
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.risk.base import RETURN_SO_FAR, RISK_AVERSION, Risk
from mvpi.risk.measures import MeanVariance, as_risk
from mvpi.risk.text import exact, parsed

BEYOND = 1.2
"""Risk aversions are drawn up to this coordinate, beyond both ends: what is fitted at the border of
the data is fitted worst, and the ends of the range must not be there."""


@dataclass(frozen=True)
class RiskRange(Risk):
    """`E[R] - lam Var(R)` at every risk aversion `lam` in `[low, high]`, in one training run.

    The agent that comes out has no single policy: `agent.at(lam)` is one. Risk aversions are drawn
    on a logarithmic scale if `low` is above 0, more often near both ends, and a little beyond them,
    but never below 0. A range of one value is `MeanVariance`.

    >>> RiskRange(0.5, 2.0).at(1.0)
    MeanVariance(risk_aversion=1.0)
    """

    low: float
    high: float

    name = "range"
    form = "range:LOW:HIGH"
    search = "none"

    def __post_init__(self) -> None:
        low = check_number(self.low, "low", at_least=0.0)
        high = check_number(self.high, "high", at_least=0.0)
        if high < low:
            raise InputError(f"high must be >= low, got the range {low:g} to {high:g}")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def columns(self) -> tuple[str, ...]:
        return (RISK_AVERSION,)

    @property
    def label(self) -> str:
        return f"λ from {exact(self.low)} to {exact(self.high)}"

    @property
    def value_label(self) -> str:
        return "mean - λ variance"

    def at(self, risk_aversion: float) -> MeanVariance:
        """The measure at one risk aversion of the range."""
        lam = check_number(risk_aversion, "risk_aversion")
        if not self.low <= lam <= self.high:
            raise InputError(
                f"risk_aversion must be in the range of training, {self.low:g} to {self.high:g}, "
                f"got {lam:g}"
            )
        return MeanVariance(lam)

    def learnable(self) -> Risk:
        return MeanVariance(self.low) if self.low == self.high else self

    def coordinate(self, risk_aversion: npt.ArrayLike) -> Array:
        """Where in the range a risk aversion is: what networks see of it.

        From -1 at the low end to 1 at the high end, and a little further outside the range.
        """
        lam = np.asarray(risk_aversion, np.float64)
        if self.low > 0.0:
            share = np.log(lam / self.low) / math.log(self.high / self.low)
        else:
            share = lam / self.high
        return np.asarray(2.0 * share - 1.0)

    def from_coordinate(self, coordinate: npt.ArrayLike) -> Array:
        """The risk aversion at a place in the range; the inverse of `coordinate`."""
        share = 0.5 * (np.asarray(coordinate, np.float64) + 1.0)
        factor = self.high / self.low if self.low > 0.0 else 0.0
        lam = self.low * factor**share if factor else self.high * share
        return np.asarray(np.maximum(lam, 0.0))

    def grid(self, count: int) -> Array:
        """Risk aversions at equal distances in the range, both ends included."""
        lam = self.from_coordinate(np.linspace(-1.0, 1.0, count))
        return np.asarray(np.clip(lam, self.low, self.high))

    def draw(self, rng: np.random.Generator, size: int | tuple[int, ...] = ()) -> Array:
        """Random risk aversions of the range and a little beyond both ends; 0 where below it.

        Their coordinates have the arcsine density, that of Chebyshev's nodes: it is larger towards
        both ends, where a fit to equally spread points would be worst.
        """
        return self.from_coordinate(BEYOND * np.sin(rng.uniform(-0.5 * np.pi, 0.5 * np.pi, size)))

    def balance(self, risk_aversion: npt.ArrayLike) -> Array:
        """What rewards augmented at a risk aversion are multiplied by: `2 m / (m + lam)`.

        `m` is the middle of the range. The best policy of a risk aversion stays what it is. Without
        it, errors of the critics at large risk aversions would outweigh all others.
        """
        middle = float(self.from_coordinate(0.0))
        return np.asarray(2.0 * middle / (middle + np.asarray(risk_aversion, np.float64)))

    def augment_extended(
        self, rewards: npt.ArrayLike, y: npt.ArrayLike, seen: Mapping[str, Array]
    ) -> Array:
        """`r - lam r^2 + 2 lam r y` with a risk aversion and a `y` for every reward."""
        r, lam = np.asarray(rewards, np.float64), seen[RISK_AVERSION]
        return np.asarray(r * (1.0 + lam * (2.0 * np.asarray(y, np.float64) - r)))

    def utility(self, t: npt.ArrayLike) -> Array:
        raise self._of_many()

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        raise self._of_many()

    def _of_many(self) -> InputError:
        return InputError(
            f"{self} stands for many measures: choose one of them with at(risk_aversion), or, for "
            "a finite MDP, mvpi.frontier(mdp).best(risk_aversion)"
        )


@dataclass(frozen=True)
class OfReturn(Risk):
    """A risk measure of the return of an episode instead of the reward of a step.

    `risk` is any measure, a number for mean-variance, or a `RiskRange`. Agents trained with it see
    the return so far beside the observation; `mvpi.optimize(mdp, OfReturn(risk), horizon=T)` is
    exact on finite MDPs.

    >>> OfReturn(0.5).value([1.0, 3.0])  # of two episodes
    1.5
    """

    risk: Risk

    name = "return"
    form = "return:RISK"
    search = "return"
    of_return = True

    def __post_init__(self) -> None:
        inner = as_risk(self.risk)
        if inner.of_return:
            raise InputError(f"the risk is of the return already: {inner}")
        object.__setattr__(self, "risk", inner)

    @classmethod
    def from_text(cls, arguments: str) -> Self:
        return cls(as_risk(parsed(arguments)))

    @property
    def text(self) -> str:
        return f"{self.name}:{self.risk.text}"

    @property
    def label(self) -> str:
        return f"{self.risk.label} of the return"

    @property
    def value_label(self) -> str:
        return f"{self.risk.value_label} of the return"

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.risk.columns, RETURN_SO_FAR)

    def utility(self, t: npt.ArrayLike) -> Array:
        return self.risk.utility(t)

    def slope(self, t: npt.ArrayLike) -> Array:
        return self.risk.slope(t)

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        return self.risk.dual(rewards, weights)

    def value(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        """The value of a sample of returns."""
        return self.risk.value(rewards, weights)

    def gaussian_value(self, mean: float, std: float) -> float:
        return self.risk.gaussian_value(mean, std)

    def augment(self, rewards: npt.ArrayLike, y: npt.ArrayLike) -> Array:
        """`augment(r, y)` of the inner measure: pass `y - G_t` for a step, `y` for a return."""
        return self.risk.augment(rewards, y)

    def augment_extended(
        self, rewards: npt.ArrayLike, y: npt.ArrayLike, seen: Mapping[str, Array]
    ) -> Array:
        """`augment(r, y - G_t)` with the return so far of every reward."""
        left = np.asarray(y, np.float64) - seen[RETURN_SO_FAR]
        return self.risk.augment_extended(rewards, left, seen)

    @property
    def is_neutral(self) -> bool:
        return self.risk.is_neutral

    @property
    def price(self) -> float | None:
        return self.risk.price

    @property
    def needs_price(self) -> bool:
        return self.risk.needs_price

    @property
    def variance_limit(self) -> float | None:
        return self.risk.variance_limit

    @property
    def required_probability(self) -> float | None:
        return self.risk.required_probability

    @property
    def utility_floor(self) -> float:
        return self.risk.utility_floor

    def learnable(self) -> OfReturn:
        return replace(self, risk=self.risk.learnable())

    def repriced(self, variance: float, rate: float) -> OfReturn:
        return replace(self, risk=self.risk.repriced(variance, rate))

    def with_price(self, price: float) -> OfReturn:
        return replace(self, risk=self.risk.with_price(price))


def range_of(risk: Risk) -> RiskRange | None:
    """The range of risk aversions that one training run is for, if it is for one."""
    inner = risk.risk if isinstance(risk, OfReturn) else risk
    return inner if isinstance(inner, RiskRange) else None


def at(risk: Risk, risk_aversion: float) -> Risk:
    """The measure at one risk aversion of its range; `InputError` if it has none."""
    known = range_of(risk)
    if known is None:
        raise InputError(f"{risk} is no range of risk aversions: at() needs a mvpi.RiskRange")
    one = known.at(risk_aversion)
    return OfReturn(one) if risk.of_return else one


def simplified(risk: Risk) -> Risk:
    """A range of one value as the measure at that value; any other measure as it is."""
    known = range_of(risk)
    return at(risk, known.low) if known is not None and known.low == known.high else risk


def check_per_step(risk: Risk | float, what: str) -> Risk:
    """The measure, or an `InputError` if it sees columns, which `what` has no place for."""
    measure = as_risk(risk)
    if measure.columns:
        raise InputError(
            f"{what} is for measures of the per-step reward at one risk aversion, got {measure}; "
            "mvpi.TD3, mvpi.PPO, mvpi.Augmenter and mvpi.sb3 take it"
        )
    return measure
