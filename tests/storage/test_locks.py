"""Locks: exclusive or shared, and readers write nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from mvpi import InputError
from mvpi._storage.locks import lock, open_lock


def test_locks_are_exclusive_or_shared_and_keep_what_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("mine")
    with open_lock(path) as first, open_lock(path) as second:
        assert lock(first, shared=True)
        assert lock(second, shared=True)
        assert not lock(first)
        second.close()
        assert lock(first)
    assert path.read_text() == "mine"


def test_a_shared_lock_makes_no_file_and_keeps_writers_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(InputError, match="does not exist"):
        open_lock(path, shared=True)
    assert not path.exists()
    with open_lock(path) as writer, open_lock(path, shared=True) as reader:
        assert lock(reader, shared=True)
        assert not lock(writer)
