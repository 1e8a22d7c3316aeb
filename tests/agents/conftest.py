"""Runs are written in memory, where it costs nothing to make a file durable."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory of the test's own, in memory where there is such a disk."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="mvpi-", dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Starts training processes."""
    from helpers.victims import serving

    yield from serving(tmp_path_factory.mktemp("server"))
