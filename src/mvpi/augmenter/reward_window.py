"""The most recent raw rewards, and how much each of them counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi import stats
from mvpi._types import Array
from mvpi.augmenter.occupancy import discounted

_FEW = 16
"""Rewards that are added faster one by one."""
_SUMMABLE = 1e290
"""The sum of no window of rewards up to this size overflows."""


class RewardWindow:
    """A ring of the last `size` raw rewards, with when in their episodes they were earned.

    With `gamma`, `distribution` weighs them by the discounted occupancy; without, all alike.
    """

    largest = math.inf  # pickles of version 0.1 have no such attribute

    def __init__(self, size: int, gamma: float | None = None) -> None:
        self.gamma = gamma
        self._allocate(size)

    def _allocate(self, size: int) -> None:
        self._ring = np.zeros(size)
        self._times = np.zeros(size, np.int64)
        self._terminated = np.zeros(size, np.bool_)
        self._count = 0
        self.largest = 0.0
        """At least the size of every reward."""

    def add(self, reward: float, time: int = 0, terminated: bool = False) -> None:
        """One reward, after `time` steps of its episode, which `terminated` with it or not."""
        place = self._count % self._ring.size
        self._ring[place] = reward
        if self.gamma is not None:
            self._times[place] = time
            self._terminated[place] = terminated
        self._count += 1
        if not -self.largest <= reward <= self.largest:
            self.largest = abs(reward)

    def extend(
        self, rewards: npt.ArrayLike, times: npt.ArrayLike = 0, terminated: npt.ArrayLike = False
    ) -> None:
        """Add several, the oldest first."""
        new = np.ravel(np.asarray(rewards, np.float64))
        if new.size <= _FEW and self.gamma is None:
            for reward in new.tolist():
                self.add(reward)
            return
        size = self._ring.size
        last = min(new.size, size)
        self.largest = max(self.largest, float(np.abs(new).max(initial=0.0)))
        self._count += new.size
        begin = (self._count - last) % size
        places: Any = slice(begin, begin + last)
        if begin + last > size:
            places = np.arange(begin, begin + last) % size
        for ring, values in (
            (self._ring, new),
            *([(self._times, times), (self._terminated, terminated)] if self.gamma else []),
        ):
            given = np.asarray(values)
            ring[places] = given.ravel()[new.size - last :] if given.ndim else given

    def resize(self, size: int) -> None:
        """Hold `size` rewards from now on; the most recent of those it has stay."""
        if size == self.size:
            return
        oldest_first = [np.roll(ring, -self._count) for ring in self._filled()]
        self._allocate(size)
        self.extend(*oldest_first)

    @property
    def size(self) -> int:
        """How many rewards it can hold."""
        return self._ring.size

    @property
    def count(self) -> int:
        """How many rewards were added so far."""
        return self._count

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
        if self.gamma is None:
            return self.rewards, None
        return discounted(*self._filled(), self.gamma)

    def mean(self) -> float:
        """The mean of `distribution`, with the bits of `stats.mean`.

        It is wanted for every batch, so it takes no longer than the sum where that cannot overflow.
        """
        if self.gamma is None and self.largest < _SUMMABLE and self._count > 0:
            seen = self.rewards
            return float(np.add.reduce(seen) / seen.size)
        return stats.mean(*self.distribution())

    def restore(
        self, rewards: Array, count: int, steps: npt.NDArray[np.int64] | None = None
    ) -> None:
        """What `rewards`, and `steps` if they are known, were when `count` had been added."""
        if rewards.shape != (min(count, self._ring.size),):
            raise ValueError(f"{rewards.shape} rewards in the window after {count} steps")
        self._ring[: rewards.size] = rewards
        self.largest = float(np.abs(rewards).max(initial=0.0))
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
