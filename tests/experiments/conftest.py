"""Fixtures of experiments that run in worker processes, on this machine or on a cluster."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.experiments import GATE, TESTS, Gate, ppo, td3, told

from mvpi.experiments.local import LocalRunner


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory of the test's own, in memory where there is such a disk."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="mvpi-", dir=memory) as name:
        yield Path(name)


@pytest.fixture(autouse=True, scope="module")
def gate_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What workers find in their environment variables, on a cluster that lasts for the module."""
    directory = tmp_path_factory.mktemp("gate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", TESTS, prepend=os.pathsep)
        patch.setenv(GATE, str(directory))
        yield directory


@pytest.fixture
def gate(gate_directory: Path) -> Iterator[Any]:
    """Closed only if a test does so."""
    gate = Gate(gate_directory)
    gate.forget()
    yield gate
    gate.open()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `td3()` and `ppo()` were run with nothing in their way."""
    root = tmp_path_factory.mktemp("undisturbed")
    experiments = [td3(), ppo()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", TESTS, prepend=os.pathsep)
        events = list(LocalRunner(2)(experiments, root))
    assert told(events) == {e.name: ["running", "done"] for e in experiments}
    return root


@pytest.fixture
def finished(undisturbed: Path, tmp_path: Path) -> Path:
    """A copy of that for a test to play with."""
    return Path(shutil.copytree(undisturbed, tmp_path / "finished"))
