"""Small and read-only disks, where the system allows it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")


@contextmanager
def small_disk(path: Path, kilobytes: int) -> Iterator[Path]:
    """A disk of that size, or the test is skipped."""
    path.mkdir()
    try:
        _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(path))
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def read_only(path: Path) -> None:
    """Nothing can be written to the disk any more."""
    _mount("-o", "remount,ro", str(path))


def writable(path: Path) -> None:
    _mount("-o", "remount,rw", str(path))
