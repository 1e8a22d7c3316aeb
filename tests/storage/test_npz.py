"""Files of arrays: who may read them, and that none is left half-written."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mvpi import InputError
from mvpi._storage.npz import read_npz, write_npz


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600)])
def test_the_umask_says_who_may_read(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_npz(tmp_path / "x.npz", {"x": [1, 2]})
    finally:
        os.umask(before)
    assert (tmp_path / "x.npz").stat().st_mode & 0o777 == mode


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    write_npz(path, {"x": [1, 2]})
    with pytest.raises(ValueError, match="inhomogeneous"):
        write_npz(path, {"x": [1, [2, 3]]})
    assert list(tmp_path.iterdir()) == [path]
    np.testing.assert_array_equal(read_npz(path, {"x"}, written_by="this test")["x"], [1, 2])


def _bomb(path: Path, shape: tuple[int, ...], size: int) -> None:
    """A file with the header of an array of `shape`, and `size` zeros, well compressed."""
    header = io.BytesIO()
    facts = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, facts)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w") as member,
    ):
        member.write(header.getvalue())
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))


@pytest.mark.parametrize(
    ("shape", "size"),
    [((1 << 28,), 1 << 31), ((1 << 28,), 0), ((1 << 60, 1 << 60), 0), ((10,), 1 << 31)],
)
def test_what_unpacks_to_gigabytes_is_refused_before_it_is_unpacked(
    tmp_path: Path, shape: tuple[int, ...], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.npz"
    scale = 1 << 6  # the same with a sixty-fourth of everything, to be quick
    monkeypatch.setattr("mvpi._storage.npz._ALWAYS_UNPACKED", (1 << 30) // scale)
    _bomb(path, shape, size // scale)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"bytes, more than .* are not unpacked; write it with"):
        read_npz(path, {"x"}, written_by="this test")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_what_compresses_well_is_read(tmp_path: Path) -> None:
    path, zeros = tmp_path / "x.npz", np.zeros((1000, 1000))
    np.savez_compressed(path, x=zeros)
    assert path.stat().st_size < zeros.nbytes / 500
    np.testing.assert_array_equal(read_npz(path, {"x"}, written_by="this test")["x"], zeros)


@pytest.mark.parametrize("shape", [(-1,), (-(1 << 40), -(1 << 40)), (3,)])
def test_a_header_that_lies_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    _bomb(tmp_path / "x.npz", shape, 0)
    with pytest.raises(InputError, match="cannot be read"):
        read_npz(tmp_path / "x.npz", {"x"}, written_by="this test")


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", None, b"x.npz", 3, Path(), "x" * 5000])
def test_what_is_no_file_is_refused(path: Any) -> None:
    with pytest.raises(InputError) as caught:
        read_npz(path, {"x"}, written_by="this test")
    assert "\n" not in str(caught.value)
    with pytest.raises((InputError, OSError)):
        write_npz(path, {"x": [1]})
