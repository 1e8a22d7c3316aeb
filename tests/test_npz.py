"""Files of arrays: who may read them, and that none is left half-written."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from mvpi.npz import read_npz, write_npz


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
