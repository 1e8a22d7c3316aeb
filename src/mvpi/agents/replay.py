"""The replay: the most recent transitions, one row of float32 each, with raw rewards.

`mvpi._storage.row_layout` says how a row is laid out. Stored in a file, the replay needs no copy at
a checkpoint; see `mvpi._storage.rows`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mvpi._storage.row_layout import RowLayout
from mvpi._storage.rows import Checksum, RowFile, Rows
from mvpi._types import Vector


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
        self.size = size
        self.count = count
        self.layout = RowLayout(observation_size, action_size)
        self._files: RowFile | None = None
        if directory is None:
            self.rows: Rows = np.zeros((size, self.layout.width), np.float32)
        else:
            self._files = RowFile(directory, (size, self.layout.width), count, checksum)
            self.rows = self._files.rows

    def __len__(self) -> int:
        return min(self.count, self.size)

    def add(self, s: Vector, a: Vector, r: float, terminated: bool, next_s: Vector) -> None:
        """Store a transition in the place of the oldest."""
        if self._files is not None:
            self._files.prepare(self.count)
        row, layout = self.rows[self.count % self.size], self.layout
        row[layout.s] = s
        row[layout.a] = a
        row[layout.r] = r
        row[layout.continues] = not terminated
        row[layout.next_s] = next_s
        self.count += 1

    def draw(self, rng: np.random.Generator, batches: int, batch_size: int) -> Rows:
        """Independent rows, each as likely as any other: `(batches, batch_size, width)`."""
        return self.rows[rng.integers(len(self), size=(batches, batch_size))]

    def flush(self) -> None:
        """Make what is stored durable; called before the checkpoint that records `count`."""
        if self._files is not None:
            self._files.flush(self.count)

    def checksum(self) -> Checksum:
        """Of what was stored when it was last flushed, or opened."""
        return np.zeros(0, np.uint8) if self._files is None else self._files.checksum

    def prune(self) -> None:
        """Remove what only earlier checkpoints need; called after a checkpoint is written."""
        if self._files is not None:
            self._files.prune(self.count)

    def close(self) -> None:
        """Close the files; the rows stay readable as long as the object exists."""
        if self._files is not None:
            self._files.close()
