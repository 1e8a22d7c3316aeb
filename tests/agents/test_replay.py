"""The replay against a plain list: what it holds, what it draws, and what a kill leaves."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.examples import examples
from helpers.mounts import small_disk
from hypothesis import given
from hypothesis import strategies as st

from mvpi import InputError
from mvpi._storage import files, rows
from mvpi.agents.replay import Replay

# Fast where there is memory to be had: the tests below make thousands of small directories.
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
WIDTH = 5


@contextmanager
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FAST) as name:
        yield Path(name)


def row(i: int, attempt: int = 0) -> list[float]:
    """Transition `i` as the replay stores it; attempts differ, which must not matter."""
    return [i, attempt, i + 0.5, float(i % 3 != 0), i + 1]


def add(replay: Replay, i: int, attempt: int = 0) -> None:
    o, a, r, continues, following = row(i, attempt)
    vectors = (np.array([x], np.float32) for x in (o, a, following))
    first, action, second = vectors
    replay.add(first, action, r, not continues, second)


def holds(replay: Replay, model: list[list[float]]) -> bool:
    """Whether the ring is the end of the list, each transition in its place."""
    wanted = model[-replay.size :]
    places = (np.arange(len(model) - len(wanted), len(model))) % replay.size
    return len(replay) == len(wanted) and np.array_equal(
        replay.rows[places], np.array(wanted, np.float32).reshape(-1, WIDTH)
    )


def open_again(path: Path, size: int, count: int, checksum: Any = None) -> Replay:
    return Replay(size, 1, 1, path, count, checksum)


@contextmanager
def block_sizes(hashed: int, ahead: int) -> Iterator[None]:
    """Bytes of a block with a checksum, and of a part of the journal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_HASHED", hashed)
        patch.setattr(rows, "_AHEAD", ahead)
        yield


@given(st.integers(1, 9), st.integers(1, 40), st.booleans(), st.integers(0, 99))
def test_holds_and_draws_the_most_recent(size: int, count: int, disk: bool, seed: int) -> None:
    with directory() as path:
        replay = Replay(size, 1, 1, path if disk else None)
        for i in range(count):
            add(replay, i)
        model = [row(i) for i in range(count)]
        assert holds(replay, model)
        assert replay.count == count
        drawn = replay.draw(np.random.default_rng(seed), 3, 50)
        assert drawn.shape == (3, 50, WIDTH)
        there = {tuple(r) for r in np.array(model[-size:], np.float32).tolist()}
        assert {tuple(r) for r in drawn.reshape(-1, WIDTH).tolist()} <= there
        drawn[:] = -1.0
        assert holds(replay, model)  # what was drawn is a copy
        replay.close()


def test_draws_every_row_equally_often() -> None:
    replay = Replay(7, 1, 1)
    for i in range(10):
        add(replay, i)
    drawn = replay.draw(np.random.default_rng(0), 1, 70_000)[0, :, 0]
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == list(range(3, 10))
    assert np.abs(counts - 10_000).max() < 500  # five standard deviations


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 25)),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.just("kill after keep"), st.just(0)),
        st.tuples(st.just("kill before forget"), st.just(0)),
        st.tuples(st.just("kill in add"), st.integers(0, 4 * WIDTH - 1)),
        st.tuples(st.just("kill"), st.just(0)),
    ),
    max_size=30,
)


@examples(400)
@given(st.integers(1, 12), OPERATIONS, st.integers(1, 200), st.integers(1, 200))
def test_killed_at_any_moment(
    size: int, operations: list[tuple[str, int]], hashed: int, ahead: int
) -> None:
    """A copy of the directory is what a kill leaves; it is opened at the last checkpoint."""
    with directory() as top, block_sizes(hashed, ahead):
        path, attempt, kept, checksum = top / "0", 0, 0, None
        path.mkdir()
        replay = open_again(path, size, 0)
        model: list[list[float]] = []
        for what, n in operations:
            if what == "add":
                for _ in range(n):
                    add(replay, len(model), attempt)
                    model.append(row(len(model), attempt))
                continue
            if what == "kill in add":
                replay._files.prepare(len(model))  # type: ignore[union-attr]
                replay.rows[len(model) % size].view(np.uint8)[:n] = 0x55
            elif what != "kill":
                replay.flush()
                if what != "kill after keep":
                    kept, checksum = len(model), replay.checksum()
                if what == "checkpoint":
                    replay.prune()
                    assert not list(path.glob("replaced-*"))
                    continue
            attempt += 1
            shutil.copytree(path, top / str(attempt))
            replay.close()
            path = top / str(attempt)
            replay = open_again(path, size, kept, checksum)
            model = model[:kept]
            assert holds(replay, model)
        assert holds(replay, model)
        replay.close()


@pytest.mark.parametrize("ahead", [1, 50, 1_000])
@pytest.mark.parametrize(("size", "kept"), [(1, 3), (4, 3), (4, 4), (4, 10), (7, 4), (7, 10)])
def test_a_journal_torn_at_any_byte(
    tmp_path: Path, size: int, kept: int, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry is written before its row is replaced: a kill in between loses neither."""
    monkeypatch.setattr(rows, "_AHEAD", ahead)
    replay = open_again(tmp_path, size, 0)
    for i in range(kept):
        add(replay, i)
    replay.flush()
    replay.prune()
    checksum = replay.checksum()
    moments: list[tuple[bytes, bytes]] = []
    journal = tmp_path / f"replaced-{kept}.journal"
    for i in range(kept, kept + 2 * size + 2):
        before = (tmp_path / "replay.rows").read_bytes()
        length = journal.stat().st_size if journal.exists() else 0
        add(replay, i)
        written = journal.read_bytes() if journal.exists() else b""
        moments += [(before, written[:end]) for end in range(length, len(written) + 1)]
    replay.close()
    for at, (ring, entries) in enumerate(moments):
        with directory() as path:
            (path / "replay.rows").write_bytes(ring)
            (path / journal.name).write_bytes(entries)
            with closing(open_again(path, size, kept, checksum)) as again:
                assert holds(again, [row(i) for i in range(kept)]), f"moment {at}"
                for i in range(kept, kept + 3 * size):
                    add(again, i, 1)
            with closing(open_again(path, size, kept, checksum)) as again:
                assert holds(again, [row(i) for i in range(kept)]), f"moment {at}, later"


class ShortOfSpace:
    """A journal on a disk with room for some bytes more: writes are cut short, then fail."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self._room = file, room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, data: memoryview) -> int:
        if self._room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        part = data[: self._room]
        self._room -= len(part)
        return int(self._file.write(part))


@pytest.mark.parametrize("room", [0, 1, 19, 31, 32, 33, 52, 151])
def test_a_disk_that_is_full_in_the_middle_of_an_entry(
    tmp_path: Path, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A raw write may write less than it was given and raise nothing."""
    replay = open_again(tmp_path, 6, 0)
    for i in range(8):
        add(replay, i)
    replay.flush()
    replay.prune()
    checksum, open_file = replay.checksum(), files.open_file
    short = lambda path, mode: ShortOfSpace(open_file(path, mode), room)  # noqa: E731
    monkeypatch.setattr(files, "open_file", short)

    def until_it_fails() -> None:
        for i in range(8, 20):
            add(replay, i)

    with pytest.raises(OSError, match="No space left"):
        until_it_fails()
    monkeypatch.undo()
    replay.close()
    with closing(open_again(tmp_path, 6, 8, checksum)) as again:
        assert holds(again, [row(i) for i in range(8)])


FILL = """
import sys
import numpy as np
from pathlib import Path
from mvpi.agents.replay import Replay

path, size, checkpoint = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
start = int(sys.argv[4]) if len(sys.argv) > 4 else 0
replay = Replay(size, 1, 1, path, start)
one = np.ones(1, np.float32)
try:
    for i in range(start, 10 * size):
        replay.add(i * one, 0 * one, i + 0.5, i % 3 == 0, (i + 1) * one)
        if i + 1 == checkpoint:
            replay.flush()
            replay.prune()
            print("kept", replay.checksum().tobytes().hex())
except OSError as error:
    print("OSError", error.errno)
"""


def fill(path: Path, size: int, checkpoint: int) -> str:
    """Fill a replay in a process of its own; what it says of errors."""
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(path), str(size), str(checkpoint)],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, (signal.Signals(-done.returncode), done.stderr)
    return done.stdout.strip()


def add_all(replay: Replay, numbers: Iterable[int]) -> None:
    for i in numbers:
        add(replay, i)


@pytest.mark.parametrize("limit", [1_000, 1_010, 1_990])
def test_a_limit_on_file_sizes_in_a_journal(tmp_path: Path, limit: int) -> None:
    # A journal of 100 entries of 20 bytes needs 2000.
    replay = open_again(tmp_path, 100, 0)
    for i in range(150):
        add(replay, i)
    replay.flush()
    replay.prune()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            add_all(replay, range(150, 400))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
        replay.close()
    with closing(open_again(tmp_path, 100, 150)) as again:
        assert holds(again, [row(i) for i in range(150)])


@pytest.mark.parametrize(
    ("size", "checkpoint", "full"),
    [
        (3_000, 2_000, False),
        (40_000, 2_000, False),  # a journal of 2,000 rows will do
        (40_000, 30_000, True),
        (200_000, 2_000, True),
    ],
)
def test_a_full_disk_is_an_error_and_no_signal(
    tmp_path: Path, size: int, checkpoint: int, full: bool
) -> None:
    with small_disk(tmp_path / "disk", kilobytes=1_024) as disk:
        told = fill(disk, size, checkpoint).splitlines()
        assert (f"OSError {errno.ENOSPC}" in told) == full
        if told[0].startswith("kept "):
            checksum = np.frombuffer(bytes.fromhex(told[0].removeprefix("kept ")), np.uint8)
            with closing(open_again(disk, size, checkpoint, checksum)) as again:
                assert holds(again, [row(i) for i in range(checkpoint)])


def test_before_the_first_checkpoint_there_is_no_journal(tmp_path: Path) -> None:
    """There is nothing to go back to; what an earlier attempt left is removed."""
    with small_disk(tmp_path / "disk", kilobytes=512) as disk:
        (disk / "replaced-0.rows").write_bytes(bytes(20 * 20_000))
        assert fill(disk, 20_000, checkpoint=0) == ""
        assert [path.name for path in disk.iterdir()] == ["replay.rows"]


def flipped(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    changed[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def half_zeros(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: len(data) // 2] + bytes(len(data) - len(data) // 2)


def others(data: bytes, rng: np.random.Generator) -> bytes:
    return rng.bytes(len(data))


@pytest.mark.parametrize("damage", [flipped, half_zeros, others])
@pytest.mark.parametrize("kept", [6, 10, 25])
def test_damaged_rows_are_refused_and_left_alone(
    tmp_path: Path, damage: Any, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the ring or the journal lost: it is seen, and nothing is written over it."""
    monkeypatch.setattr(rows, "_HASHED", 50)
    monkeypatch.setattr(rows, "_AHEAD", 1)  # a longer one would repair rows of the ring
    replay = open_again(tmp_path, 10, 0)
    for i in range(kept):
        add(replay, i)
    replay.flush()
    checksum = replay.checksum()
    for i in range(kept, kept + 7):
        add(replay, i)
    replay.close()
    rng = np.random.default_rng(kept)
    journal = tmp_path / f"replaced-{kept}.journal"
    whole = {path: path.read_bytes() for path in (tmp_path / "replay.rows", journal)}
    overwritten = {i % 10 for i in range(kept, kept + 7)}
    at = rng.choice([i for i in range(min(kept, 10)) if i not in overwritten]) * 4 * WIDTH
    ring = whole[tmp_path / "replay.rows"]
    damaged = {
        tmp_path / "replay.rows": ring[:at] + damage(ring[at : at + 20], rng) + ring[at + 20 :],
        journal: damage(whole[journal], rng),
    }
    for path, data in damaged.items():
        path.write_bytes(data)
        with pytest.raises(InputError, match="do not match the checkpoint"):
            open_again(tmp_path, 10, kept, checksum)
        assert path.read_bytes() == data
        path.write_bytes(whole[path])
    with closing(open_again(tmp_path, 10, kept, checksum)) as again:
        assert holds(again, [row(i) for i in range(kept)])


def test_a_journal_is_durable_before_what_it_holds_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every sync the rows that were synced so far are still those of the checkpoint."""
    replay = open_again(tmp_path, 10, 0)
    for i in range(13):
        add(replay, i)
    replay.flush()
    monkeypatch.setattr(rows, "_AHEAD", 60)
    journal, synced, fsync = tmp_path / "replaced-13.journal", [0], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (fsync(file), synced.append(journal.stat().st_size))
    )
    before = replay.rows.copy()
    for i in range(13, 30):
        add(replay, i)
        changed = int((replay.rows != before).any(axis=1).sum())
        parts, rest = divmod(synced[-1], 32 + 60)
        assert changed <= 3 * parts + max(0, rest - 32) // 20
    replay.close()


@pytest.mark.parametrize("damage", ["missing", "shorter", "longer", "directory", "other size"])
def test_rows_that_do_not_fit_the_checkpoint(tmp_path: Path, damage: str) -> None:
    replay = open_again(tmp_path, 10, 0)
    for i in range(5):
        add(replay, i)
    replay.flush()
    replay.close()
    ring = tmp_path / "replay.rows"
    content = ring.read_bytes()
    match damage:
        case "missing":
            ring.unlink()
        case "shorter":
            ring.write_bytes(content[:-1])
        case "longer":
            ring.write_bytes(content + b"\0")
        case "directory":
            ring.unlink()
            ring.mkdir()
    with pytest.raises(InputError, match="remove the directory, or choose another") as caught:
        open_again(tmp_path, 11 if damage == "other size" else 10, 5)
    assert str(ring) in str(caught.value)
