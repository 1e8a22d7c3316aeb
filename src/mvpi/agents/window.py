"""The most recent rewards: what `y` is measured on while the policy changes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class RewardWindow:
    """A ring of the last `size` raw rewards."""

    def __init__(self, size: int) -> None:
        self._ring = np.zeros(size)
        self._count = 0

    def add(self, reward: float) -> None:
        self._ring[self._count % self._ring.size] = reward
        self._count += 1

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
