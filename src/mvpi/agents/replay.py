"""The replay: the most recent transitions, one row of float32 each, raw rewards.

    row = observation | action | reward | continues | next observation

`continues` is 0 after a terminal step and 1 otherwise, also at a time limit. A row is contiguous,
so that a batch is one gather. Kept in a file, the replay needs no copy at a checkpoint; see
`mvpi._storage.rows`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from mvpi._storage.rows import Checksum, RowFile, Rows

Vector = npt.NDArray[np.float32]


class Replay:
    """A ring of `size` transitions, in memory or in `directory`."""

    def __init__(
        self,
        size: int,
        observation_size: int,
        action_size: int,
        directory: Path | None = None,
        count: int = 0,
        checksum: Checksum | None = None,
    ) -> None:
        """`count` transitions were stored before, when the last checkpoint was written, and had
        that checksum; those of a checkpoint of format 1 have none."""
        o, a = observation_size, action_size
        self.size = size
        self.count = count
        self.width = 2 * o + a + 2
        self._action = slice(o, o + a)
        self.reward = o + a
        self._continues = o + a + 1
        self._next = slice(o + a + 2, self.width)
        self._first = slice(0, o)
        self._files: RowFile | None = None
        if directory is None:
            self.rows: Rows = np.zeros((size, self.width), np.float32)
        else:
            self._files = RowFile(directory, (size, self.width), count, checksum)
            self.rows = self._files.rows

    def __len__(self) -> int:
        return min(self.count, self.size)

    def add(
        self, observation: Vector, action: Vector, reward: float, terminal: bool, following: Vector
    ) -> None:
        """Store a transition in the place of the oldest."""
        if self._files is not None:
            self._files.prepare(self.count)
        row = self.rows[self.count % self.size]
        row[self._first] = observation
        row[self._action] = action
        row[self.reward] = reward
        row[self._continues] = not terminal
        row[self._next] = following
        self.count += 1

    def draw(self, rng: np.random.Generator, batches: int, batch_size: int) -> Rows:
        """Independent rows, each as likely as any other: `(batches, batch_size, width)`."""
        return self.rows[rng.integers(len(self), size=(batches, batch_size))]

    def keep(self) -> None:
        """Make what is stored durable; called before the checkpoint that records `count`."""
        if self._files is not None:
            self._files.keep(self.count)

    def checksum(self) -> Checksum:
        """Of what was stored when it was last kept, or opened."""
        return np.zeros(0, np.uint8) if self._files is None else self._files.checksum

    def forget(self) -> None:
        """Remove what only earlier checkpoints need; called after a checkpoint is written."""
        if self._files is not None:
            self._files.forget(self.count)

    def close(self) -> None:
        """Let go of the files; the rows stay readable until the object is gone."""
        if self._files is not None:
            self._files.close()
