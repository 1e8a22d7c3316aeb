"""Commands as a user gives them: in this process, or in a shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mvpi import cli


def mistaken(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line that says what is wrong with the arguments of a command."""
    with pytest.raises(SystemExit) as caught:
        cli.main([str(argument) for argument in arguments])
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mvpi: ")
    assert captured.err.count("\n") == 1
    return captured.err.strip()


def in_a_shell(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with warnings as errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "mvpi", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=cwd,
    )
