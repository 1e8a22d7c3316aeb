"""Long work can be watched: on a terminal of 80 columns, and in a log."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numba
import pytest

from mvpi import cli
from mvpi._compiled import while_compiling
from mvpi.cli.progress import COMPILING, Pace

TRAIN = ["train", "td3", "--env", "Pendulum-v1", "--steps", "6000", "--learning-starts", "200"]
TRAIN += ["--evaluation-every", "2000", "--evaluation-episodes", "2", "--hidden", "16", "16"]
"""More than a second of work on any machine: shorter work shows no bar."""


def on_a_terminal(*arguments: str, columns: int = 80, **environment: str) -> list[str]:
    """What a command draws on a terminal: each state of each line, in order, without colours."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", "mvpi", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=kept | {"TERM": "xterm"} | environment,
    ) as process:
        os.close(follower)
        drawn = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            drawn += piece
            if not piece:
                break
        assert process.wait(timeout=60) == 0, drawn.decode()
    os.close(leader)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode())
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


def test_bar_count_and_time_left_survive_an_evaluation(tmp_path: Path) -> None:
    lines = on_a_terminal(*TRAIN, "--out", str(tmp_path / "run"))
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    steps = [i for i, line in enumerate(lines) if line.startswith("step 2000: ")]
    assert len(steps) == 1
    bars = [line for line in lines[steps[0] :] if "━" in line]
    assert bars
    for bar in bars:
        assert re.fullmatch(r"[━╸╺ ]{10,} [\d,]+/6,000(, [\d.,]+ steps/s, [\d:]+ left)?", bar)
    assert "6,000/6,000" in bars[-1]


@pytest.mark.slow
def test_compiling_is_told_while_it_lasts(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "run"), "--steps", "400"]
    cache = str(tmp_path / "numba")
    lines = on_a_terminal(*TRAIN, *out, NUMBA_CACHE_DIR=cache)
    assert any(COMPILING in line and "━" in line for line in lines)
    assert "400/400" in [line for line in lines if "━" in line][-1]
    again = [*TRAIN, "--out", str(tmp_path / "another"), "--steps", "400"]
    assert not any(COMPILING in line for line in on_a_terminal(*again, NUMBA_CACHE_DIR=cache))


def test_compilation_is_told_when_it_begins_and_ends() -> None:
    @numba.njit
    def half(x: float) -> float:
        return 0.5 * x

    @numba.njit
    def quarter(x: float) -> float:
        return half(half(x))

    told: list[bool] = []
    with while_compiling(told.append):
        assert quarter(1.0) == 0.25
        assert told == [True, False]
        quarter(2.0)
    assert told == [True, False]
    half(1)
    assert told == [True, False]


def test_a_log_has_a_line_an_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main([*TRAIN, "--out", str(tmp_path / "run")])
    told = [line for line in capsys.readouterr().err.splitlines() if line != COMPILING]
    assert len(told) == 3
    for line, steps in zip(told, ("2,000", "4,000", "6,000"), strict=True):
        assert line.startswith(f"step {steps.replace(',', '')}: return ")
        assert f"({steps}/6,000, " in line
        assert re.search(r"[\d.,]+ steps/s, [\d:]+ left\)$", line)


@pytest.mark.parametrize("steps", ["0", "-1"])
def test_no_bar_before_a_mistake(capsys, tmp_path: Path, steps: str) -> None:
    with pytest.raises(SystemExit):
        cli.main([*TRAIN, "--out", str(tmp_path / "run"), f"--steps={steps}"])
    assert capsys.readouterr() == ("", f"mvpi: steps must be a whole number >= 1, got {steps}\n")
    assert not (tmp_path / "run").exists()


def test_the_time_that_is_left_counts_from_where_a_run_goes_on() -> None:
    pace = Pace(total=1_000)
    pace.update(0.0, 900)
    assert str(pace) == "900/1,000"
    pace.update(10.0, 910)
    assert str(pace) == "910/1,000, 1 steps/s, 0:01:30 left"
    for now in range(11, 200):  # a long evaluation
        pace.update(float(now), 910)
    assert str(pace) == "910/1,000, 1 steps/s, 0:01:30 left"
    pace.begin_again(200.0)
    pace.update(202.0, 930)
    assert str(pace) == "930/1,000, 10 steps/s, 0:00:07 left"


def test_old_speeds_are_forgotten() -> None:
    pace = Pace(total=10_000)
    for now in range(10):
        pace.update(float(now), 100 * now)
    for now in range(10, 200):
        pace.update(float(now), 900 + now)
    assert re.search(r", 1 steps/s, ", str(pace))
