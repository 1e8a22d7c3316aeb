"""Files: regular ones only, never through a link, and checksums that cover everything."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from helpers.victims import in_time

from mvpi import InputError
from mvpi._storage.arrays import read_arrays, write_arrays
from mvpi._storage.files import checksum, open_file, read_bytes, write_file


def test_kinds_of_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("fifo", "directory", "device"):
        for mode in ("r", "r+", "a"):
            with pytest.raises(InputError, match="is not a regular file"):
                in_time(lambda name=name, mode=mode: open_file(tmp_path / name, mode))
    assert read_bytes(tmp_path / "link") == b"x"
    for mode in ("r+", "a"):
        with pytest.raises(InputError, match="is not a regular file"):
            open_file(tmp_path / "link", mode)  # type: ignore[arg-type]
    write_file(tmp_path / "link", b"y")  # in its place
    assert (tmp_path / "file").read_bytes() == b"x"
    assert not (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("part", ["record", "array"])
def test_a_checksum_covers_the_record_and_the_arrays(tmp_path: Path, part: str) -> None:
    path = tmp_path / "x.safetensors"
    write_arrays(path, "policy", {"a": np.arange(3.0)}, {"steps": 123_456})
    data = path.read_bytes()
    changed = data.replace(b"123456", b"123457") if part == "record" else data[:-1] + b"\1"
    assert changed != data
    path.write_bytes(changed)
    with pytest.raises(InputError, match="does not match its checksum"):
        read_arrays(path, "policy")


def test_what_was_written_has_the_checksum_that_writing_returned(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    told = write_arrays(path, "policy", {"a": np.arange(3.0)}, {"steps": 1})
    assert told == checksum(path.read_bytes())
