"""Rewards as they come in: `y` measured on recent ones, any of them augmented with it.

    augment(rewards, risk)    a whole rollout, with its own `y`
    Augmenter(risk, window)   a stream: `observe` raw rewards, `augment` those that are drawn

Both are meant for training loops of any library. Keep raw rewards in a replay buffer and augment
the batch: what was augmented long ago used the `y` of another policy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count, check_number, real_array
from mvpi.errors import InputError
from mvpi.risk import Risk, VarianceBudget, as_risk, learnable
from mvpi.stats import mean, variance

Array = npt.NDArray[np.float64]


def augment(rewards: npt.ArrayLike, risk: Risk | float, y: float | None = None) -> Array:
    """The rewards a risk-neutral method should see, in the shape they came in.

    `y` is measured on `rewards` themselves if it is not given: for a rollout of the current policy.

    >>> augment([1.0, 3.0], risk=0.5)
    array([2.5, 4.5])
    """
    measure = as_risk(risk)
    if isinstance(measure, VarianceBudget) and measure.risk_aversion == 0.0:
        raise InputError(
            f"the risk aversion of {measure} is found while rewards come in: keep an "
            "mvpi.Augmenter(risk), have it observe them, and call its augment"
        )
    return _augmented(measure, rewards, measure.dual(rewards) if y is None else y)


def _augmented(risk: Risk, rewards: npt.ArrayLike, y: float) -> Array:
    """`risk.augment`, or an `InputError` where numbers are too large to be squared."""
    with np.errstate(over="ignore", invalid="ignore"):
        augmented = risk.augment(rewards, y)
    if not np.isfinite(augmented).all():
        raise InputError(
            f"{risk} at y = {y:g} augments rewards to numbers that are not finite: lower the risk "
            "aversion or scale rewards down"
        )
    return augmented


class RewardWindow:
    """A ring of the last `size` raw rewards."""

    def __init__(self, size: int) -> None:
        self._ring = np.zeros(size)
        self._count = 0

    def add(self, reward: float) -> None:
        self._ring[self._count % self._ring.size] = reward
        self._count += 1

    def extend(self, rewards: npt.ArrayLike) -> None:
        """Add several, the oldest first."""
        new = np.ravel(np.asarray(rewards, np.float64))
        last = new[-self._ring.size :]
        self._count += new.size
        self._ring[np.arange(self._count - last.size, self._count) % self._ring.size] = last

    def resize(self, size: int) -> None:
        """Hold `size` rewards from now on; the most recent of those it has stay."""
        oldest_first = np.roll(self.rewards, -self._count)
        self._ring, self._count = np.zeros(size), 0
        self.extend(oldest_first)

    @property
    def size(self) -> int:
        """How many rewards it can hold."""
        return self._ring.size

    @property
    def rewards(self) -> Array:
        """The rewards, in no particular order."""
        return self._ring[: self._count]

    def restore(self, rewards: Array, count: int) -> None:
        """What `rewards` was when `count` had been added."""
        if rewards.shape != (min(count, self._ring.size),):
            raise ValueError(f"{rewards.shape} rewards in the window after {count} steps")
        self._ring[: rewards.size] = rewards
        self._count = count


class Augmenter:
    """A risk measure with a `y` that follows the most recent raw rewards.

    Show it every reward of the environment with `observe`; `augment` gives those to learn from:

    >>> augmenter = Augmenter(risk=0.5, window=1_000)
    >>> augmenter.observe([1.0, 3.0])
    >>> augmenter.y, augmenter.augment([2.0])
    (2.0, array([4.]))

    A `VarianceBudget` has its risk aversion adapted every `budget_every` rewards, by `budget_rate`.
    """

    def __init__(
        self,
        risk: Risk | float,
        window: int = 10_000,
        budget_every: int = 1_000,
        budget_rate: float = 0.05,
    ) -> None:
        self.risk = learnable(risk)
        self.budget_every = check_count(budget_every, "budget_every")
        self.budget_rate = check_number(budget_rate, "budget_rate", above=0.0)
        self._window = RewardWindow(check_count(window, "window"))
        self._y: float | None = None
        self._since_budget = 0

    @property
    def window(self) -> int:
        """How many rewards `y` is measured on at most."""
        return self._window.size

    @property
    def rewards(self) -> Array:
        """The most recent raw rewards, in no particular order."""
        return self._window.rewards

    @property
    def y(self) -> float:
        """The dual of the recent rewards; for mean-variance, their mean."""
        if self._y is None:
            if self.rewards.size == 0:
                raise InputError("y is measured on rewards, and none was observed yet")
            self._y = self.risk.dual(self.rewards)
        return self._y

    def resize(self, window: int) -> None:
        """Measure `y` on this many rewards from now on, beginning with the recent ones."""
        self._window.resize(check_count(window, "window"))
        self._y = None

    def observe(self, rewards: npt.ArrayLike) -> None:
        """Take note of raw rewards, one or several, the oldest first."""
        new = real_array(rewards, "rewards")
        odd = new[~np.isfinite(new)]
        if odd.size > 0:
            raise InputError(f"rewards must be finite, the environment gave {odd[0]}")
        if new.size == 1:  # the way of most training loops
            self._window.add(new.item())
        else:
            self._window.extend(new)
        self._y = None
        self._since_budget += new.size
        if isinstance(self.risk, VarianceBudget) and self._since_budget >= self.budget_every:
            self.risk = self.risk.repriced(variance(self.rewards), self.budget_rate)
            self._since_budget = 0

    def augment(self, rewards: npt.ArrayLike) -> Array:
        """`risk.augment(rewards, y)`, in the shape the rewards came in."""
        return _augmented(self.risk, rewards, self.y)

    def metrics(self) -> dict[str, float]:
        """What is worth plotting: `y`, the risk aversion, mean and variance of raw rewards."""
        price = getattr(self.risk, "risk_aversion", None)
        return {
            "y": self.y,
            **({} if price is None else {"risk_aversion": price}),
            "reward_mean": mean(self.rewards),
            "reward_variance": variance(self.rewards),
        }
