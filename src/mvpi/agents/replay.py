"""The replay: the most recent transitions, one row of float32 each, raw rewards.

    row = observation | action | reward | continues | next observation

`continues` is 0 after a terminal step and 1 otherwise, also at a time limit. A row is contiguous,
so that a batch is one gather. Kept in a file, the replay needs no copy at a checkpoint: rows
written later lie beyond the checkpoint's count, and rows that a full ring overwrites are first
appended to a journal, from which resuming puts them back.
"""

from __future__ import annotations

import io
import mmap
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mvpi.errors import InputError

Vector = npt.NDArray[np.float32]
Rows = npt.NDArray[np.float32]

_BLOCK = 1 << 22
"""Bytes of disk reserved at a time, before they are written."""


class Replay:
    """A ring of `size` transitions, in memory or in `directory`."""

    def __init__(
        self,
        size: int,
        observation_size: int,
        action_size: int,
        directory: Path | None = None,
        count: int = 0,
    ) -> None:
        """`count` transitions were stored before, when the last checkpoint was written."""
        o, a = observation_size, action_size
        self.size = size
        self.count = count
        self.width = 2 * o + a + 2
        self._action = slice(o, o + a)
        self.reward = o + a
        self._continues = o + a + 1
        self._next = slice(o + a + 2, self.width)
        self._first = slice(0, o)
        self._files: _Files | None = None
        if directory is None:
            self.rows: Rows = np.zeros((size, self.width), np.float32)
        else:
            self._files = _Files(directory, (size, self.width), count)
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

    def forget(self) -> None:
        """Remove what only earlier checkpoints need; called after a checkpoint is written."""
        if self._files is not None:
            self._files.forget(self.count)

    def close(self) -> None:
        """Let go of the files; the rows stay readable until the object is gone."""
        if self._files is not None:
            self._files.close()


class _Files:
    """The mapped file of the rows, and the journal of those overwritten since a checkpoint.

    Entry `i` of the journal is the row that the `i`-th transition after the checkpoint replaced,
    or after the ring was full. `replaced-N.rows` belongs to the checkpoint at count `N`.
    """

    def __init__(self, directory: Path, shape: tuple[int, int], count: int) -> None:
        self._directory = directory
        self._size, width = shape
        self._row_bytes = 4 * width
        self._total = self._size * self._row_bytes
        path = directory / "replay.rows"
        if count == 0:
            for old in (path, *directory.glob("replaced-*.rows")):
                old.unlink(missing_ok=True)
        elif not path.is_file() or path.stat().st_size != self._total:
            raise InputError(
                f"{path} is missing or has another size than the checkpoint says; the run cannot "
                "be resumed: remove the directory, or choose another"
            )
        self._file = path.open("w+b" if count == 0 else "r+b")
        self._file.truncate(self._total)
        self._memory = mmap.mmap(self._file.fileno(), self._total)
        self.rows = np.frombuffer(self._memory, np.float32).reshape(shape)
        self._reserved = 0
        self._journal_start = self._journaled_to = 0
        self._reserve(min(count, self._size))
        self._resume_journal(count)

    def prepare(self, count: int) -> None:
        """Before the row of transition `count` is written: journal the old one, reserve disk."""
        if count >= self._size:
            if self._journaled_to <= count < self._journal_start + self._size:
                _write_all(self._journal, self.rows[count % self._size].tobytes())
                self._journaled_to = count + 1
        elif (count + 1) * self._row_bytes > self._reserved:
            self._reserve(count + 1)

    def keep(self, count: int) -> None:
        self._memory.flush()
        self._journal.close()
        self._start_journal(count)

    def forget(self, count: int) -> None:
        for path in self._directory.glob("replaced-*.rows"):
            if path != self._journal_path(count):
                path.unlink()

    def close(self) -> None:
        self._journal.close()
        self._file.close()

    def _reserve(self, rows: int) -> None:
        """Allocate disk before it is written through the mapping: a full disk is then an OSError
        here, not a signal that kills the process."""
        blocks = -(-rows * self._row_bytes // _BLOCK)
        wanted = min(blocks * _BLOCK, self._total)
        if wanted > self._reserved:
            os.posix_fallocate(self._file.fileno(), self._reserved, wanted - self._reserved)
            self._reserved = wanted

    def _start_journal(self, count: int) -> None:
        self._journal = self._journal_path(count).open("wb", buffering=0)
        self._journal_start = self._journaled_to = max(count, self._size)

    def _resume_journal(self, count: int) -> None:
        """Put back what was overwritten after the checkpoint, and go on behind it."""
        path = self._journal_path(count)
        if not path.exists():
            self._start_journal(count)
            return
        width = self._row_bytes // 4
        entries = np.fromfile(path, np.float32)
        entries = entries[: entries.size // width * width].reshape(-1, width)[: self._size]
        start = max(count, self._size)
        self.rows[(start + np.arange(len(entries))) % self._size] = entries
        self._journal = path.open("r+b", buffering=0)
        # A kill may have left half an entry at the end.
        self._journal.truncate(len(entries) * self._row_bytes)
        self._journal.seek(0, os.SEEK_END)
        self._journal_start = start
        self._journaled_to = start + len(entries)

    def _journal_path(self, count: int) -> Path:
        return self._directory / f"replaced-{count}.rows"


def _write_all(file: io.FileIO, data: bytes) -> None:
    """A short write is not an error to the system, but half an entry here: go on until it is."""
    while data:
        data = data[file.write(data) :]
