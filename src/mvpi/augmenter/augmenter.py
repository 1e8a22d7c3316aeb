"""A stream of rewards: `y` is measured on recent ones, and drawn ones are augmented with it.

    augment(rewards, risk)    a whole rollout, with its own `y`
    Augmenter(risk, window)   a stream: `observe` raw rewards, `augment` those that are drawn

Both are meant for training loops of any library. Keep raw rewards in a replay buffer and augment
the batch: what was augmented long ago used the `y` of another policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi._checks import (
    all_finite,
    check_count,
    check_number,
    finite_array,
    plain_array,
    real_array,
    shown,
)
from mvpi._types import Array
from mvpi.augmenter.columns import Columns
from mvpi.augmenter.dual_estimates import ExtendedDual
from mvpi.augmenter.occupancy import LATE, Occupancy, check_gamma, check_occupancy
from mvpi.augmenter.reward_window import RewardWindow
from mvpi.augmenter.risk_warnings import Advice
from mvpi.errors import InputError
from mvpi.risk import Risk, learnable, range_of
from mvpi.risk.extended import check_per_step
from mvpi.stats import mean, variance

_LARGEST_WINDOW = 10**8
"""A window that a `state` may ask for: one from a damaged file must not fill the memory."""


def augment(rewards: npt.ArrayLike, risk: Risk | float, y: float | None = None) -> Array:
    """The rewards a risk-neutral method should see, in the shape they came in.

    `y` is measured on `rewards` themselves if it is not given: for a rollout of the current policy.

    >>> augment([1.0, 3.0], risk=0.5)
    array([2.5, 4.5])
    """
    measure = check_per_step(risk, "augment without columns")
    if measure.needs_price:
        raise InputError(
            f"the risk aversion of {measure} is found while rewards come in: keep an "
            "mvpi.Augmenter(risk), have it observe them, and call its augment"
        )
    return _augmented(measure, rewards, measure.dual(rewards) if y is None else y)


def _augmented(risk: Risk, rewards: npt.ArrayLike, y: float) -> Array:
    """`risk.augment`, or an `InputError` where numbers are too large to be squared."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _finite(risk.augment(rewards, y), risk, y)


def _finite(augmented: Array, risk: Risk, y: float | None = None) -> Array:
    if not all_finite(augmented):
        where = "" if y is None else f" at y = {y:g}"
        raise InputError(
            f"{risk}{where} augments rewards to numbers that are not finite: lower the risk "
            "aversion or scale rewards down"
        )
    return augmented


def check_rewards(rewards: Array) -> None:
    """Rewards that an environment gave are finite."""
    if not all_finite(rewards):
        odd = rewards[~np.isfinite(rewards)][0]
        raise InputError(
            f"rewards must be finite, the environment gave {odd}: correct it there or in a wrapper"
        )


def _is_one_step(reward: Any, time: Any, terminated: Any) -> bool:
    """Whether they are valid plain numbers: to make arrays of them would take most of the time."""
    plain = type(reward) is float and type(time) is int and type(terminated) is bool
    return plain and math.isfinite(reward) and 0 <= time <= LATE


class Augmenter:
    """A risk measure with a `y` that follows the most recent raw rewards.

    Pass every reward of the environment to `observe`; `augment` returns those to learn from:

    >>> augmenter = Augmenter(risk=0.5, window=1_000)
    >>> augmenter.observe([1.0, 3.0])
    >>> augmenter.y, augmenter.augment([2.0])
    (2.0, array([4.]))

    With `occupancy="discounted"`, `y` and the variance are those of the discounted occupancy, in
    which a finished episode pays 0 for ever: for tasks that terminate and cost something per step.
    It needs `gamma`, the discount of the algorithm, and `observe` then needs `times` and
    `terminated`:

    >>> augmenter = Augmenter(risk=0.5, occupancy="discounted", gamma=0.9)
    >>> augmenter.observe([-1.0, -1.0], times=[0, 1], terminated=[False, True])
    >>> round(augmenter.y, 6)
    -0.19

    A `VarianceBudget` has its risk aversion adapted every `budget_every` rewards, by `budget_rate`.

    `OfReturn` and `RiskRange` need `columns`: what the policy saw beside the observation, one entry
    of the last axis for each name in `augmenter.columns`. Both `observe` and `augment` take them;
    the return of an episode is counted when `terminated` or `truncated` says that it ended.

    >>> from mvpi import OfReturn
    >>> augmenter = Augmenter(OfReturn(0.5))
    >>> augmenter.columns
    ('return_so_far',)
    >>> augmenter.observe([1.0, 2.0], terminated=[False, True], columns=[[0.0], [1.0]])
    >>> augmenter.y, augmenter.augment([2.0], columns=[[1.0]])
    (3.0, array([4.]))
    """

    # Pickles of version 0.1 have no such attributes.
    _extended: ExtendedDual | None = None
    _repriced_at = 0
    """How many rewards had been observed when the risk aversion of a budget was last adapted."""
    _next_due = 0
    """How many rewards must have been observed before anything but to keep them is due."""

    def __init__(
        self,
        risk: Risk | float,
        window: int = 10_000,
        budget_every: int = 1_000,
        budget_rate: float = 0.05,
        occupancy: Occupancy = "undiscounted",
        gamma: float | None = None,
    ) -> None:
        self.risk = learnable(risk)
        self.budget_every = check_count(budget_every, "budget_every")
        self.budget_rate = check_number(budget_rate, "budget_rate", above=0.0)
        self.occupancy = check_occupancy(occupancy)
        weighing = check_gamma(gamma) if self.occupancy == "discounted" else None
        self._window = RewardWindow(check_count(window, "window"), weighing)
        self._advice = Advice(self.occupancy)
        self._extended = ExtendedDual(self.risk, window) if self.risk.columns else None
        if self._extended is not None and weighing is not None:
            raise InputError(
                f"the discounted occupancy is of rewards of one risk aversion, not for {self.risk}"
            )
        self._y: float | None = None
        self._observed = 0

    @property
    def window(self) -> int:
        """How many rewards `y` is measured on at most."""
        return self._window.size

    @property
    def rewards(self) -> Array:
        """The most recent raw rewards, in no particular order."""
        return self._window.rewards

    @property
    def ready(self) -> bool:
        """Whether `y` can be measured: rewards were observed, or an episode that ended."""
        return self._window.count > 0 if self._extended is None else self._extended.ready

    @property
    def y(self) -> float:
        """The dual of the recent rewards; for mean-variance, their mean."""
        if self._y is None:
            self._y = self._measured()
        return self._y

    def _measured(self) -> float:
        if self._extended is None:
            if self._window.count == 0:
                raise InputError("y is measured on rewards, and none was observed yet")
            if self.risk.dual_is_mean:
                return self._window.mean()
            return self.risk.dual(*self._window.distribution())
        if range_of(self.risk) is not None:
            raise InputError(f"{self.risk} has a y for every risk aversion: y_at(risk_aversion)")
        return float(self._extended.y(np.zeros((1, len(self.columns))))[0])

    def y_at(self, risk_aversion: npt.ArrayLike) -> Array:
        """`y(lam)` of a `RiskRange`, for any number of risk aversions."""
        if self._extended is None or range_of(self.risk) is None:
            raise InputError(f"{self.risk} has one y: see y")
        return self._extended.y_at(risk_aversion)

    def best_of_range(self, risk_aversion: float) -> float:
        """The risk aversion of a `RiskRange` to act with where `risk_aversion` is wanted.

        It is the same one, unless the policy of another one has done better at it in recent
        episodes by more than chance.
        """
        known = range_of(self.risk)
        if self._extended is None or known is None:
            raise InputError(f"{self.risk} is no range of risk aversions")
        return self._extended.best_of_range(known, known.at(risk_aversion).risk_aversion)

    @property
    def columns(self) -> tuple[str, ...]:
        """What the policy must see beside the observation, by name."""
        return self.risk.columns

    def resize(self, window: int) -> None:
        """Measure `y` on this many rewards from now on, beginning with the recent ones."""
        self._window.resize(check_count(window, "window"))
        self._y = None

    def observe(
        self,
        rewards: npt.ArrayLike,
        times: npt.ArrayLike | None = None,
        terminated: npt.ArrayLike | None = None,
        *,
        truncated: npt.ArrayLike | None = None,
        columns: npt.ArrayLike | None = None,
    ) -> None:
        """Take note of raw rewards, one or several, the oldest first.

        `times` are how many steps of its episode came before each, `terminated` whether its
        episode ended there other than by truncation: needed for the discounted occupancy.
        `truncated` and `columns` are needed by measures with `columns`.
        """
        given: tuple[Any, Any, Any] = (rewards, times, terminated)
        if self._extended is None and _is_one_step(*given):
            self._observe_one(*given)
            return
        new = real_array(rewards, "rewards")
        t = self._steps("times", times, new, np.dtype(np.int64))
        ends = self._steps("terminated", terminated, new, np.dtype(np.bool_))
        if t.min(initial=0) < 0:
            raise InputError(f"times must be >= 0, got {t.min()}")
        if self._extended is not None:
            check_rewards(new)
            cut = self._steps("truncated", truncated, new, np.dtype(np.bool_))
            self._extended.observe(new, self._seen(columns, new.shape), ends | cut)
        self._observe_arrays(new, t, ends)

    def _observe_arrays(
        self, rewards: Array, times: npt.NDArray[np.int64] | int, terminated: npt.NDArray[np.bool_]
    ) -> None:
        """`observe` of arrays of one shape, by a measure without columns: no checks but one."""
        check_rewards(rewards)
        self._window.extend(rewards, times, terminated)
        self._y = None
        self._observed += rewards.size
        self._noted(bool(np.count_nonzero(terminated)))

    def _observe_one(self, reward: float, time: int, terminated: bool) -> None:
        """`observe` of a step known to be valid, by a measure without columns: no checks."""
        self._window.add(reward, time, terminated)
        self._y = None
        self._observed += 1
        if terminated or self._observed >= self._next_due:
            self._noted(terminated)

    def _noted(self, terminated: bool) -> None:
        """Do what is due after new rewards, of which some may have ended an episode."""
        if terminated:
            self._advice.terminates = True
        if self._observed - self._repriced_at >= self.budget_every:
            self._reprice()
        if self._observed >= self._advice.due and self._extended is None:
            seen = self._window.distribution()
            self._advice.give(self._observed, self.risk, self.y, *seen)
        self._next_due = min(self._repriced_at + self.budget_every, self._advice.due)

    def _reprice(self) -> None:
        """Raise the risk aversion of a budget while the variance is above its limit."""
        if self.risk.variance_limit is None:
            self._repriced_at = self._observed
            return
        if self._extended is None:
            seen = variance(*self._window.distribution())
        elif self._extended.ready:
            seen = variance(self._extended.samples()[0])
        else:
            return
        self.risk = self.risk.repriced(seen, self.budget_rate)
        self._repriced_at = self._observed

    def _seen(self, columns: npt.ArrayLike | None, shape: tuple[int, ...]) -> Array:
        """The columns of rewards of a shape, checked."""
        wanted = (*shape, len(self.columns))
        names = ", ".join(self.columns)
        if columns is None:
            raise InputError(f"{self.risk} needs columns of shape {wanted}: {names}")
        values = finite_array(columns, "columns")
        if values.shape != wanted:
            raise InputError(f"columns must be of shape {wanted} ({names}), got {values.shape}")
        return values

    def _steps(
        self, name: str, given: npt.ArrayLike | None, rewards: Array, kind: np.dtype[Any]
    ) -> npt.NDArray[Any]:
        """What was said of every step, or zeros where nothing needs to be."""
        if given is None:
            if self._window.gamma is not None:
                raise InputError(f"the discounted occupancy needs {name} of the rewards")
            return np.zeros(rewards.shape, kind)
        values = plain_array(given, name)
        if values.shape != rewards.shape:
            raise InputError(
                f"{name} must be of the shape of rewards, {rewards.shape}, got {values.shape}"
            )
        if not np.can_cast(values.dtype, kind, "same_kind"):
            raise InputError(f"{name} must be of type {kind}, got {shown(given)}")
        return values.astype(kind, copy=False)

    def augment(self, rewards: npt.ArrayLike, columns: npt.ArrayLike | None = None) -> Array:
        """`risk.augment(rewards, y)`, in the shape the rewards came in.

        A measure with `columns` needs those of the rewards, which may differ from those that they
        were earned with: a risk aversion can be drawn anew.
        """
        y = self.y if self._extended is None else None
        r = finite_array(rewards, "rewards")
        with np.errstate(over="ignore", invalid="ignore"):
            augmented = self._augment_unchecked(r, columns)
        return _finite(augmented, self.risk, y)

    def _augment_unchecked(self, r: Array, columns: npt.ArrayLike | None = None) -> Array:
        """The same, for a caller who silences numpy and sees to it that the result is finite."""
        if self._extended is None:
            if columns is not None:
                raise InputError(f"{self.risk} sees no columns: leave them out")
            checked = type(self.risk).augment is not Risk.augment  # a measure of the user's own
            return self.risk.augment(r, self.y) if checked else self.risk._augment(r, self.y)
        raw = self._seen(columns, r.shape)
        seen = Columns(self.risk).named(raw)
        return self.risk.augment_extended(r, self._extended.y(raw), seen)

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Arrays and plain numbers from which `restore` goes on, bit for bit."""
        arrays = {"rewards": self._window.rewards.copy(), "steps": self._window.steps}
        if self._extended is not None:
            arrays |= self._extended.arrays()
        limit = self.risk.variance_limit
        budget = None if limit is None else [limit, self.risk.price]
        numbers = {
            "window": self.window,
            "count": self._window.count,
            "observed": self._observed,
            "since_budget": self._observed - self._repriced_at,
            "budget": budget,
        }
        return arrays, numbers

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], numbers: Mapping[str, Any]) -> None:
        """Go on from a `state`, its window included; the risk measure stays that of this one.

        The risk aversion of a budget is taken over if the limit is the same.
        """
        window = check_count(numbers["window"], "window", at_most=max(self.window, _LARGEST_WINDOW))
        count = check_count(numbers["count"], "count", at_least=0)
        observed = check_count(numbers["observed"], "observed", at_least=0)
        since_budget = check_count(numbers["since_budget"], "since_budget", at_least=0)
        limit, price = numbers["budget"] or (None, None)
        rewards, steps = finite_array(arrays["rewards"], "rewards"), arrays["steps"]
        restored = RewardWindow(window, self._window.gamma)
        try:
            restored.restore(rewards, count, steps.astype(np.int64, casting="safe"))
            if self._extended is not None:
                self._extended.restore(arrays)
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(f"this is no state of an Augmenter: {error}") from None
        self._window, self._y = restored, None
        self._observed, self._repriced_at = observed, observed - since_budget
        self._next_due = 0
        if limit is not None and limit == self.risk.variance_limit:
            self.risk = self.risk.with_price(
                check_number(price or 0.0, "risk_aversion", at_least=0.0)
            )

    def metrics(self) -> dict[str, float]:
        """What is worth plotting: `y`, the risk aversion, mean and variance of raw rewards."""
        price = self.risk.price
        seen = self._window.distribution()
        return {
            **self._y_metrics(),
            **({} if price is None else {"risk_aversion": price}),
            "reward_mean": self._window.mean(),
            "reward_variance": variance(*seen),
            **self._return_metrics(),
        }

    def _y_metrics(self) -> dict[str, float]:
        known = range_of(self.risk)
        if known is None:
            return {"y": self.y}
        low, high = self.y_at([known.low, known.high])
        return {"y_low": float(low), "y_high": float(high)}

    def _return_metrics(self) -> dict[str, float]:
        if self._extended is None or not self.risk.of_return:
            return {}
        returns, _ = self._extended.samples()
        return {"return_mean": mean(returns), "return_variance": variance(returns)}
