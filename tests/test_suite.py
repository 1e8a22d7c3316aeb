"""The test suite itself: it leaves nothing in the project."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_STRAY = """
from pathlib import Path

def test_that_writes_in_its_working_directory():
    Path("config.json").write_text("{}")

def test_that_writes_in_the_project():
    Path(__file__).with_name(NAME).write_text("{}")
"""


@pytest.mark.parametrize(("name", "status"), [("config.json", 1), (".coverage", 0)])
def test_a_session_that_leaves_files_in_the_project_fails(
    tmp_path: Path, name: str, status: int
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]")
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_stray.py").write_text(f"NAME = {name!r}{_STRAY}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "2 passed" in done.stdout
    assert done.returncode == status, done.stdout
    assert (f"left in {tmp_path}: {name}" in done.stdout) == bool(status)
