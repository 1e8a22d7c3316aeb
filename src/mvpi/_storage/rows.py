"""Rows of float32 in a file that is mapped into memory: a ring that survives any kill.

    replay.rows         the ring; row i is transition i, i + size, i + 2 size, ...
    replaced-N.journal  rows that were overwritten after the checkpoint at count N

A checkpoint needs no copy of the ring: rows written later lie beyond its count, and rows that a
full ring overwrites are first written to the journal, from which resuming puts them back. They are
written some thousand at a time, with a checksum, and synced before the first of them is
overwritten, so that a power failure loses none. A journal of format 1, `replaced-N.rows`, has
neither.

The checksum of the ring is that of the checksums of its blocks. Only blocks that were written to
since the last checkpoint are read again for the next one.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mvpi._storage import files
from mvpi._storage.names import REPLAY, REPLAY_JOURNALS
from mvpi.errors import InputError

Rows = npt.NDArray[np.float32]
Checksum = npt.NDArray[np.uint8]

_RESERVED = 1 << 22
"""Bytes of disk reserved at a time, before they are written."""
_HASHED = 1 << 16
"""Bytes of a block that has a checksum of its own, about."""
_AHEAD = 1 << 20
"""Bytes written to the journal at a time, about."""
_DIGEST = 16
_HEADER = struct.Struct(f"<QQ{_DIGEST}s")
"""Of a part of the journal: the first transition, how many rows, the checksum of both and them."""


class RowFile:
    """The mapped file of a ring, and its journal."""

    def __init__(
        self, directory: Path, shape: tuple[int, int], count: int, checksum: Checksum | None
    ) -> None:
        """`count` rows had been added at the last checkpoint, with that `checksum`; None for one
        of format 1, which records none."""
        self._directory = directory
        self._size, width = shape
        self._row_bytes = 4 * width
        self._total = self._size * self._row_bytes
        path = directory / REPLAY
        replaced: Rows | None = None
        if count == 0:
            for old in (
                found for pattern in (REPLAY, *REPLAY_JOURNALS) for found in directory.glob(pattern)
            ):
                old.unlink(missing_ok=True)
        else:
            _, replaced, self._blocks = _verified(directory, shape, count, checksum)
        self._file = files.open_file(path, "x+" if count == 0 else "r+")
        self._journal: io.FileIO | None = None
        try:
            self._file.truncate(self._total)
            memory = mmap.mmap(self._file.fileno(), self._total)
            self._reserved = 0
            self._reserve(min(count, self._size))
            self._memory = memory
            self.rows: Rows = np.frombuffer(memory, np.float32).reshape(shape)
            if replaced is None:
                self._blocks = _Blocks(shape)
            else:
                self._put_back(replaced, count)
            self._start_journal(count)
        except BaseException:
            self._file.close()
            raise

    def prepare(self, count: int) -> None:
        """Before the row of transition `count` is written: journal the old one, reserve disk."""
        if count >= self._size:
            if self._journaled_to <= count < self._count + self._size:
                self._journal_from(count)
        elif (count + 1) * self._row_bytes > self._reserved:
            self._reserve(count + 1)

    def flush(self, count: int) -> None:
        """Make the ring durable; called before the checkpoint that records `count`."""
        self._memory.flush()
        self._blocks.update(self.rows, count)
        self._close_journal()
        self._journal_path(count).unlink(missing_ok=True)  # of a process killed before now
        self._start_journal(count)

    def prune(self, count: int) -> None:
        """Remove journals of earlier checkpoints; called after one is written."""
        for pattern in REPLAY_JOURNALS:
            for path in self._directory.glob(pattern):
                if path != self._journal_path(count):
                    path.unlink()

    @property
    def checksum(self) -> Checksum:
        """Of the ring when it was last flushed, or opened."""
        return self._blocks.checksum

    def close(self) -> None:
        self._close_journal()
        self._file.close()

    def _put_back(self, replaced: Rows, count: int) -> None:
        """What was overwritten after the checkpoint; only then can the journals go."""
        start = max(count, self._size)
        self.rows[(start + np.arange(len(replaced))) % self._size] = replaced
        self._memory.flush()
        for path in _journals(self._directory, count):
            path.unlink(missing_ok=True)

    def _reserve(self, rows: int) -> None:
        """Allocate disk before it is written through the mapping: a full disk is then an OSError
        here, not a signal that kills the process."""
        blocks = -(-rows * self._row_bytes // _RESERVED)
        wanted = min(blocks * _RESERVED, self._total)
        if wanted > self._reserved:
            os.posix_fallocate(self._file.fileno(), self._reserved, wanted - self._reserved)
            self._reserved = wanted

    def _start_journal(self, count: int) -> None:
        self._count = count
        self._journaled_to = max(count, self._size)
        self._journal_end = 0

    def _journal_from(self, first: int) -> None:
        """Write the rows that `first` and the transitions after it will overwrite."""
        ahead = max(1, _AHEAD // self._row_bytes)
        end = min(first + ahead, self._count + self._size)
        data = self.rows[np.arange(first, end) % self._size].tobytes()
        numbers = struct.pack("<QQ", first, end - first)
        if self._journal is None:
            self._journal = files.open_file(self._journal_path(self._count), "x")
            files.sync_directory(self._directory)
        self._journal.seek(self._journal_end)  # a write that failed may have left a part
        files.write_all(self._journal, numbers + _digest(numbers, data) + data)
        os.fsync(self._journal.fileno())
        self._journal_end += _HEADER.size + len(data)
        self._journaled_to = end

    def _close_journal(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _journal_path(self, count: int) -> Path:
        return next(_journals(self._directory, count))


class _Blocks:
    """Checksums of the blocks of a ring."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._size, width = shape
        self._rows = max(1, _HASHED // (4 * width))
        self._width = width
        self._digests = bytearray(-(-self._size // self._rows) * _DIGEST)
        self._count = 0

    def update(self, rows: Rows, count: int) -> None:
        """Take in the rows that were added since the last time, `count` in all."""
        filled = min(count, self._size)
        for block in self._touched(count):
            first = block * self._rows
            data = rows[first : min(first + self._rows, filled)].data.cast("B")
            self._digests[block * _DIGEST : (block + 1) * _DIGEST] = _digest(data)
        self._count = count

    @property
    def checksum(self) -> Checksum:
        filled = min(self._count, self._size)
        used = -(-filled // self._rows) * _DIGEST
        numbers = struct.pack("<QQQ", self._size, self._width, self._count)
        return np.frombuffer(_digest(numbers, bytes(self._digests[:used])), np.uint8)

    def _touched(self, count: int) -> Iterator[int]:
        if count - self._count >= self._size:
            yield from range(-(-self._size // self._rows))
        elif count > self._count:
            first, last = (i % self._size // self._rows for i in (self._count, count - 1))
            if self._count % self._size <= (count - 1) % self._size:
                yield from range(first, last + 1)
            else:
                yield from range(last + 1)
                yield from range(max(first, last + 1), -(-self._size // self._rows))


def read_rows(
    directory: Path, shape: tuple[int, int], count: int, checksum: Checksum | None
) -> Rows:
    """The ring as it was at the checkpoint, mapped; nothing in the directory is changed."""
    return _verified(directory, shape, count, checksum)[0]


def _verified(
    directory: Path, shape: tuple[int, int], count: int, checksum: Checksum | None
) -> tuple[Rows, Rows, _Blocks]:
    """The ring at the checkpoint, changed in memory only, the rows that were put back, and the
    checksums of its blocks, which are as the checkpoint says."""
    path = directory / REPLAY
    ring = _mapped(path, shape)
    replaced = _replaced(directory, shape, count, checksum is None)
    ring[(max(count, len(ring)) + np.arange(len(replaced))) % len(ring)] = replaced
    blocks = _Blocks(shape)
    blocks.update(ring, count)
    if checksum is not None and not np.array_equal(blocks.checksum, checksum):
        raise InputError(
            f"{path} or its journal is damaged: the rows do not match the checkpoint; the run "
            "cannot be resumed: remove the directory, or choose another"
        )
    return ring, replaced, blocks


def _mapped(path: Path, shape: tuple[int, int]) -> Rows:
    try:
        with files.open_file(path, "r") as file:
            if os.fstat(file.fileno()).st_size != 4 * shape[0] * shape[1]:
                raise InputError("of another size")
            return np.memmap(file, np.float32, "c", shape=shape)
    except InputError:
        raise InputError(
            f"{path} is missing or has another size than the checkpoint says; the run cannot "
            "be resumed: remove the directory, or choose another"
        ) from None


def _replaced(directory: Path, shape: tuple[int, int], count: int, unverified: bool) -> Rows:
    """The rows that were overwritten after the checkpoint, from the first on."""
    size, width = shape
    found = [np.zeros((0, width), np.float32)]
    for journal in _journals(directory, count):
        if journal.exists() and (unverified or journal.suffix == ".journal"):
            data = files.read_bytes(journal)
            if journal.suffix == ".journal":
                data = b"".join(_parts(data, max(count, size), 4 * width))
            whole = len(data) // (4 * width) * (4 * width)
            found.append(np.frombuffer(data[:whole], np.float32).reshape(-1, width)[:size])
    return max(found, key=len)


def _journals(directory: Path, count: int) -> Iterator[Path]:
    """Where that of a checkpoint is, in the format of today, then in format 1."""
    return (directory / pattern.replace("*", str(count)) for pattern in REPLAY_JOURNALS)


def _parts(data: bytes, first: int, row_bytes: int) -> Iterator[memoryview]:
    """The rows in a journal as far as it is whole: a kill may have left half a part at its end."""
    rest = memoryview(data)
    while len(rest) >= _HEADER.size:
        start, rows, digest = _HEADER.unpack(rest[: _HEADER.size])
        end = _HEADER.size + rows * row_bytes
        if start != first or rows == 0 or end > len(rest):
            return
        if digest != _digest(rest[: _HEADER.size - _DIGEST], rest[_HEADER.size : end]):
            return
        yield rest[_HEADER.size : end]
        first, rest = start + rows, rest[end:]


def _digest(*parts: bytes | memoryview) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for part in parts:
        digest.update(part)
    return digest.digest()
