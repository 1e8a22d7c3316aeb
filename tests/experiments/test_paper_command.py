"""`mvpi paper`: real short runs through the command line, and what goes wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small import PATIENCE, wait_for, workers

from mvpi import cli, stats
from mvpi.experiments.paper import Grid
from mvpi.report.rows import finished

TASK = "mvpi/Markowitz-v0"
SHORT = ("--steps", "300", "--evaluation-every", "100", "--evaluation-episodes", "2")


def study(experiment: str, out: Path, *options: str) -> list[str]:
    return [
        "paper", experiment, "--tasks", TASK, "--final-episodes", "4", "--out", str(out),
        *SHORT, *options,
    ]  # fmt: skip


def test_curves_and_table_share_their_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ("--methods", "TD3", "MVPI-TD3", "--seeds", "1")
    cli.main(study("curves", tmp_path, *chosen))
    told = capsys.readouterr()
    assert "2 of 2 done" in told.err
    assert "curves-1.png" in told.out
    settings = {"evaluation_every": 100, "evaluation_episodes": 2}
    grid = Grid((TASK,), ("TD3", "MVPI-TD3"), seeds=1, steps=300, episodes=4, settings=settings)
    runs = finished(grid, tmp_path / "runs")
    written = [(run.directory / "evaluation.json").stat().st_mtime_ns for run in runs]

    cli.main(study("table", tmp_path, *chosen, "--json"))
    told = capsys.readouterr()
    assert told.err == ""  # nothing was run again
    assert [(run.directory / "evaluation.json").stat().st_mtime_ns for run in runs] == written
    cells = {cell["statistic"]: cell for cell in json.loads(told.out)["cells"]}
    base, other = (stats.variance(run.outcome.returns) for run in runs)
    assert cells["variance"]["change"] == pytest.approx((other - base) / base)
    assert {cell["verdict"] for cell in cells.values()} == {"not in the paper"}

    cli.main(study("table", tmp_path, *chosen, "--finished-only"))
    shown = capsys.readouterr().out
    assert TASK in shown
    assert f"| {TASK} | MVPI-TD3 | 1 |" in (tmp_path / "table.md").read_text()
    # What is left of a finished run: no replay, no checkpoint.
    assert not list(tmp_path.rglob("*.rows"))
    assert not list(tmp_path.rglob("checkpoint*"))

    with pytest.raises(SystemExit) as stopped:
        cli.main(study("risky", tmp_path, *chosen, "--action-noise", "0.1", "--finished-only"))
    assert stopped.value.code == 2
    assert "has no noisy zone" in capsys.readouterr().err


def test_a_failure_is_told_at_the_end_and_the_rest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["paper", "curves", "--methods", "TRVO", "--seeds", "1", "--final-episodes", "2"]
    tasks = ["--tasks", "small:Broken-v0", TASK, "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as stopped:
        cli.main([*options, *tasks, *SHORT])
    told = capsys.readouterr()
    assert stopped.value.code == 1
    assert "1 of 2 experiments failed" in told.err
    assert "a wheel came off" in told.err
    assert "log.txt" in told.err
    assert "Traceback" not in told.err
    assert (tmp_path / "curves-1.png").exists()


def test_ctrl_c_says_that_the_same_command_goes_on(tmp_path: Path) -> None:
    long = ["--methods", "TRVO", "--seeds", "1", "--steps", "10000000"]
    command = [sys.executable, "-m", "mvpi.cli", *study("curves", tmp_path, *long)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: list(tmp_path.glob("runs/*/metrics.csv")), "training to begin")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert error == "mvpi: stopped; all that is done is kept, the same command goes on\n"
    assert not workers(tmp_path / "runs")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "SAC"], "methods must be among"),
        (["--risk-aversions", "-1"], "risk aversion must be > 0"),
        (["--seeds", "0"], "seeds must be a whole number >= 1, got 0"),
        (["--steps", "0"], "steps must be a whole number >= 1, got 0"),
        (["--workers", "0"], "workers must be a whole number >= 1, got 0"),
        (["--workers", "2", "--ray", "auto"], "either --workers, for this machine, or --ray"),
        (["--action-noise", "-1"], "action_noise must be >= 0"),
        (["--evaluation-every", "0"], "evaluation_every must be a whole number >= 1"),
        (["--tasks", "NoSuchTask-v4"], "environment 'NoSuchTask-v4' cannot be made"),
        (["--finished-only"], "no run of this study is finished"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["paper", "table", "--out", str(tmp_path), *options])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
