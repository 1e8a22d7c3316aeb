"""Rewards as they come in: `y` measured on recent ones, any of them augmented with it.

    augment(rewards, risk)    a whole rollout, with its own `y`
    Augmenter(risk, window)   a stream: `observe` raw rewards, `augment` those that are drawn

Both are meant for training loops of any library. Keep raw rewards in a replay buffer and augment
the batch: what was augmented long ago used the `y` of another policy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count, check_number, real_array
from mvpi.advice import Advice
from mvpi.errors import InputError
from mvpi.occupancy import Occupancy, check_gamma, check_occupancy, discounted
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
    """A ring of the last `size` raw rewards, with when in their episodes they were earned.

    With `gamma`, `distribution` weighs them by the discounted occupancy; without, all alike.
    """

    def __init__(self, size: int, gamma: float | None = None) -> None:
        self.gamma = gamma
        self._allocate(size)

    def _allocate(self, size: int) -> None:
        self._ring = np.zeros(size)
        self._times = np.zeros(size, np.int64)
        self._terminated = np.zeros(size, np.bool_)
        self._count = 0

    def add(self, reward: float, time: int = 0, terminated: bool = False) -> None:
        """One reward, after `time` steps of its episode, which `terminated` with it or not."""
        place = self._count % self._ring.size
        self._ring[place] = reward
        self._times[place] = time
        self._terminated[place] = terminated
        self._count += 1

    def extend(
        self, rewards: npt.ArrayLike, times: npt.ArrayLike = 0, terminated: npt.ArrayLike = False
    ) -> None:
        """Add several, the oldest first."""
        new = np.ravel(np.asarray(rewards, np.float64))
        last = min(new.size, self._ring.size)
        self._count += new.size
        places = np.arange(self._count - last, self._count) % self._ring.size
        for ring, values in (
            (self._ring, new),
            (self._times, times),
            (self._terminated, terminated),
        ):
            given = np.ravel(np.asarray(values))
            ring[places] = np.broadcast_to(given, new.shape)[new.size - last :]

    def resize(self, size: int) -> None:
        """Hold `size` rewards from now on; the most recent of those it has stay."""
        oldest_first = [np.roll(ring, -self._count) for ring in self._filled()]
        self._allocate(size)
        self.extend(*oldest_first)

    @property
    def size(self) -> int:
        """How many rewards it can hold."""
        return self._ring.size

    @property
    def rewards(self) -> Array:
        """The rewards, in no particular order."""
        return self._ring[: self._count]

    @property
    def steps(self) -> npt.NDArray[np.int64]:
        """The time of every reward, and 1 where its episode terminated, else 0."""
        return np.array(self._filled()[1:], np.int64)

    def distribution(self) -> tuple[Array, Array | None]:
        """Values of the per-step reward and their weights; None: all count alike."""
        return weighed(*self._filled(), self.gamma)

    def restore(
        self, rewards: Array, count: int, steps: npt.NDArray[np.int64] | None = None
    ) -> None:
        """What `rewards`, and `steps` if they are known, were when `count` had been added."""
        if rewards.shape != (min(count, self._ring.size),):
            raise ValueError(f"{rewards.shape} rewards in the window after {count} steps")
        self._ring[: rewards.size] = rewards
        if steps is not None:
            if steps.shape != (2, rewards.size) or steps.min(initial=0) < 0:
                raise ValueError(f"{steps.shape} times and ends of {rewards.size} rewards")
            self._times[: rewards.size], self._terminated[: rewards.size] = steps
        self._count = count

    def _filled(self) -> tuple[Array, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        last = self._count
        return self._ring[:last], self._times[:last], self._terminated[:last]


def weighed(
    rewards: Array,
    times: npt.NDArray[np.int64],
    terminated: npt.NDArray[np.bool_],
    gamma: float | None,
) -> tuple[Array, Array | None]:
    """Rewards and their weights: of the discounted occupancy, or None without a `gamma`."""
    return (rewards, None) if gamma is None else discounted(rewards, times, terminated, gamma)


class Augmenter:
    """A risk measure with a `y` that follows the most recent raw rewards.

    Show it every reward of the environment with `observe`; `augment` gives those to learn from:

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
    """

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
        self._y: float | None = None
        self._since_budget = 0
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
    def y(self) -> float:
        """The dual of the recent rewards; for mean-variance, their mean."""
        if self._y is None:
            if self.rewards.size == 0:
                raise InputError("y is measured on rewards, and none was observed yet")
            self._y = self.risk.dual(*self._window.distribution())
        return self._y

    def resize(self, window: int) -> None:
        """Measure `y` on this many rewards from now on, beginning with the recent ones."""
        self._window.resize(check_count(window, "window"))
        self._y = None

    def observe(
        self,
        rewards: npt.ArrayLike,
        times: npt.ArrayLike | None = None,
        terminated: npt.ArrayLike | None = None,
    ) -> None:
        """Take note of raw rewards, one or several, the oldest first.

        `times` are how many steps of its episode came before each, `terminated` whether its
        episode ended there other than by truncation: needed for the discounted occupancy.
        """
        new = real_array(rewards, "rewards")
        odd = new[~np.isfinite(new)]
        if odd.size > 0:
            raise InputError(f"rewards must be finite, the environment gave {odd[0]}")
        t = self._steps("times", times, new, np.dtype(np.int64))
        ends = self._steps("terminated", terminated, new, np.dtype(np.bool_))
        if t.min(initial=0) < 0:
            raise InputError(f"times must be >= 0, got {t.min()}")
        if new.size == 1:  # the way of most training loops
            self._window.add(new.item(), t.item(), ends.item())
        else:
            self._window.extend(new, t, ends)
        self._y = None
        self._since_budget += new.size
        if isinstance(self.risk, VarianceBudget) and self._since_budget >= self.budget_every:
            seen = variance(*self._window.distribution())
            self.risk = self.risk.repriced(seen, self.budget_rate)
            self._since_budget = 0
        self._advice.terminates |= bool(ends.any())
        self._observed += new.size
        if self._advice.due(self._observed):
            self._advice.give(self.risk, self.y, *self._window.distribution())

    def _steps(
        self, name: str, given: npt.ArrayLike | None, rewards: Array, kind: np.dtype[Any]
    ) -> npt.NDArray[Any]:
        """What was said of every step, or zeros where nothing needs to be."""
        if given is None:
            if self._window.gamma is not None:
                raise InputError(f"the discounted occupancy needs {name} of the rewards")
            return np.zeros(rewards.shape, kind)
        values = np.asarray(given)
        if values.shape != rewards.shape:
            raise InputError(
                f"{name} must be of the shape of rewards, {rewards.shape}, got {values.shape}"
            )
        if not np.can_cast(values.dtype, kind, "same_kind"):
            raise InputError(f"{name} must be of type {kind}, got {values.dtype}")
        return values.astype(kind)

    def augment(self, rewards: npt.ArrayLike) -> Array:
        """`risk.augment(rewards, y)`, in the shape the rewards came in."""
        return _augmented(self.risk, rewards, self.y)

    def metrics(self) -> dict[str, float]:
        """What is worth plotting: `y`, the risk aversion, mean and variance of raw rewards."""
        price = getattr(self.risk, "risk_aversion", None)
        seen = self._window.distribution()
        return {
            "y": self.y,
            **({} if price is None else {"risk_aversion": price}),
            "reward_mean": mean(*seen),
            "reward_variance": variance(*seen),
        }
