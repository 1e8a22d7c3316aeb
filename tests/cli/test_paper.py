"""`mvpi paper`: real short runs through the command line, and what goes wrong."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.experiments import PATIENCE, InProcess, finish, wait_for, workers

from mvpi import cli, stats
from mvpi.experiments import local
from mvpi.paper.grid import Grid
from mvpi.paper.study import find_runs, write_study

TASK = "mvpi/Markowitz-v0"
SHORT = ("--steps", "300", "--evaluation-every", "100", "--evaluation-episodes", "2")


def study(experiment: str, out: Path, *options: str) -> list[str]:
    return [
        "paper", experiment, "--tasks", TASK, "--risk-aversions", "1", "--episodes", "4",
        "--out", str(out), *SHORT, *options,
    ]  # fmt: skip


GRID = Grid(
    (TASK,),
    ("TD3", "MVPI-TD3"),
    (1.0,),
    seeds=2,
    steps=300,
    episodes=4,
    evaluation_every=100,
    evaluation_episodes=2,
)
CHOSEN = ("--methods", *GRID.methods, "--seeds", "2", "--action-noise", "0.1", "--finished-only")


def finish_all(out: Path, in_zone: float | None = None) -> list[Path]:
    """The directories of a study that was not run."""
    return [finish(experiment, out / "runs", in_zone) for experiment in GRID.experiments()]


def lines(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as rows:
        return list(csv.DictReader(rows))


def test_curves_and_table_share_their_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ("--methods", "TD3", "MVPI-TD3", "--seeds", "1")
    cli.main(study("curves", tmp_path, *chosen))
    told = capsys.readouterr()
    assert "2 of 2 done" in told.err
    assert "curves-1.png" in told.out
    found = find_runs(replace(GRID, seeds=1), tmp_path / "runs")
    assert not found.unreadable
    files = sorted(tmp_path.glob("runs/*/evaluation.json"))
    written = [file.stat().st_mtime_ns for file in files]

    cli.main(study("table", tmp_path, *chosen, "--json"))
    told = capsys.readouterr()
    assert told.err == ""  # nothing was run again
    assert [file.stat().st_mtime_ns for file in files] == written
    cells = {cell["statistic"]: cell for cell in json.loads(told.out)["cells"]}
    base, other = (stats.variance(run.returns) for run in found.runs)
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
    tasks = ("--tasks", "helpers.experiments:Broken-v0", TASK)
    with pytest.raises(SystemExit) as stopped:
        cli.main(study("curves", tmp_path, "--methods", "TRVO", "--seeds", "1", *tasks))
    told = capsys.readouterr()
    assert stopped.value.code == 1
    assert "1 of 2 experiments failed" in told.err
    assert "a wheel came off" in told.err
    assert "log.txt" in told.err
    assert "Traceback" not in told.err
    assert (tmp_path / "curves-1.png").exists()


@pytest.mark.parametrize("experiment", ["curves", "table", "risky"])
def test_a_damaged_outcome_is_left_out_and_told_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], experiment: str
) -> None:
    out = tmp_path / "x[" / ("a]" * 60)  # neither markup nor two lines
    _, _, damaged, _ = finish_all(out, in_zone=0.25)
    (damaged / "evaluation.json").write_text("{")
    with pytest.raises(SystemExit) as stopped:
        cli.main(study(experiment, out, *CHOSEN))
    assert stopped.value.code == 1
    told = capsys.readouterr()
    assert f"\nWrote {out}/" in f"\n{told.out}"
    first, last = told.err.splitlines()
    assert first.startswith(f"failed: {damaged.name}: {damaged}/evaluation.json is damaged: ")
    assert last.startswith("mvpi: 1 of 4 experiments failed; ")
    rows = lines(out / ("table-runs.csv" if experiment == "table" else "runs.csv"))
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("TD3", "0"),
        ("MVPI-TD3", "0"),
        ("MVPI-TD3", "1"),
    ]


@pytest.mark.parametrize("metrics", ["", "steps,return_mean\nx,1\n"])
def test_damaged_curves_are_left_out_and_told_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metrics: str
) -> None:
    damaged, *others = finish_all(tmp_path)
    (damaged / "metrics.csv").write_text(metrics)
    with pytest.raises(SystemExit) as stopped:
        cli.main(study("curves", tmp_path, *CHOSEN, "--json"))
    assert stopped.value.code == 1
    told = capsys.readouterr()
    assert len(json.loads(told.out)["rows"]) == 3
    assert told.err.startswith(f"failed: {damaged.name}: {damaged}/metrics.csv is damaged: ")
    assert len(lines(tmp_path / "curves.csv")) == 3
    assert len(lines(tmp_path / "runs.csv")) == 4
    for other in others:
        (other / "metrics.csv").write_text(metrics)
    with pytest.raises(SystemExit):
        cli.main(study("curves", tmp_path, *CHOSEN))
    told = capsys.readouterr()
    assert told.out == "Wrote runs.csv, returns.csv and curves.csv.\n"
    assert "4 of 4 experiments failed" in told.err


def recorded_study(tmp_path: Path) -> tuple[Path, list[str]]:
    """Rows of a whole study, and its options for a machine that has nothing else of it."""
    finish_all(tmp_path / "there")
    write_study(tmp_path / "there", find_runs(GRID, tmp_path / "there" / "runs").runs)
    return tmp_path / "there", [*CHOSEN[:-1], "--recorded", str(tmp_path / "there")]


@pytest.mark.parametrize(
    ("experiment", "files"),
    [
        ("curves", ["runs.csv", "returns.csv", "curves.csv", "curves-1.png"]),
        ("table", ["table.csv", "table.md"]),
    ],
)
def test_recorded_rows_count_like_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], experiment: str, files: list[str]
) -> None:
    """Nothing is run, and everything made of them is the same, byte for byte."""
    there, options = recorded_study(tmp_path)
    cli.main(study(experiment, there, *CHOSEN))
    cli.main(study(experiment, tmp_path / "here", *options))
    assert "done" not in capsys.readouterr().err
    for name in files:
        assert (tmp_path / "here" / name).read_bytes() == (there / name).read_bytes()


def test_what_is_not_recorded_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LocalRunner", InProcess)
    there, options = recorded_study(tmp_path)
    kept, dropped = lines(there / "runs.csv")[:3], lines(there / "runs.csv")[3]
    text = (there / "runs.csv").read_text().splitlines(keepends=True)
    (there / "runs.csv").write_text("".join(text[:4]))
    cli.main(study("curves", tmp_path / "here", *options))
    assert "1 of 1 done" in capsys.readouterr().err
    (run,) = (tmp_path / "here" / "runs").iterdir()
    assert run.name.endswith(dropped["experiment"])
    rows = lines(tmp_path / "here" / "runs.csv")
    assert rows[:3] == kept
    assert rows[3]["experiment"] == dropped["experiment"]
    assert rows[3]["mean"] != dropped["mean"]  # it was made up, and is a real one now


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        ("runs.csv", ",300,", ",301,", "runs.csv is damaged"),
        ("runs.csv", ",TD3,", ",TD4,", "runs.csv is damaged"),
        ("runs.csv", "variance", "varianz", "runs.csv is damaged: column 'variance' is missing"),
        ("runs.csv", ",0.25,", ",-0.25,", "runs.csv must be >= 0, got -0.25"),
        ("runs.csv", ",300,", ",many,", "runs.csv is damaged in line 2"),
        ("runs.csv", "\nmvpi/Markowitz-v0,", "\n,", "runs.csv is damaged in line 2"),
        ("runs.csv", ",300,1.5,", ",300,nan,", "runs.csv must be finite, got nan"),
        ("returns.csv", ",0,0.0\n", ",0,inf\n", "returns.csv must be finite, got inf"),
        ("returns.csv", ",0,0.0\n", "\n", "returns.csv is damaged in line 2"),
        ("curves.csv", ",TD3,", ",TD4,", "curves.csv is damaged"),
        ("curves.csv", ",1.0,2.0,", ",1.0,,", "curves.csv is damaged in line 2"),
    ],
)
def test_damaged_records_are_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    before: str,
    after: str,
    message: str,
) -> None:
    there, options = recorded_study(tmp_path)
    text = (there / file).read_text()
    assert before in text
    (there / file).write_text(text.replace(before, after, 1))
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        cli.main(study("curves", tmp_path / "here", *options))
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "here").exists()


def test_records_of_another_study_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, options = recorded_study(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        cli.main(study("curves", tmp_path / "here", *options, "--steps", "400"))
    assert stopped.value.code == 2
    assert "none of the 4 runs in" in capsys.readouterr().err


def test_records_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With fewer methods: the rows of the others would be gone."""
    there, options = recorded_study(tmp_path)
    before = (there / "runs.csv").read_bytes()
    with pytest.raises(SystemExit) as stopped:
        cli.main(study("curves", there, *options, "--methods", "TD3"))
    assert stopped.value.code == 2
    assert "--recorded and --out must differ" in capsys.readouterr().err
    assert (there / "runs.csv").read_bytes() == before


def test_a_recorded_run_stands_in_for_a_damaged_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, options = recorded_study(tmp_path)
    damaged, *_ = finish_all(tmp_path / "here")
    (damaged / "evaluation.json").write_text("{")
    cli.main(study("table", tmp_path / "here", *options, "--finished-only"))
    assert "failed" not in capsys.readouterr().err
    assert len(lines(tmp_path / "here" / "table-runs.csv")) == 4


def test_a_lost_episode_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there, options = recorded_study(tmp_path)
    text = (there / "returns.csv").read_text().splitlines(keepends=True)
    (there / "returns.csv").write_text("".join(text[:-1]))
    with pytest.raises(SystemExit):
        cli.main(study("curves", tmp_path / "here", *options))
    assert "has 3 episodes of" in capsys.readouterr().err


def test_without_the_baseline_the_rest_is_shown_and_what_is_damaged_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for directory in finish_all(tmp_path):
        if "risk-0.0" in directory.name:
            (directory / "evaluation.json").write_text("{}")
    with pytest.raises(SystemExit) as stopped:
        cli.main(study("table", tmp_path, *CHOSEN))
    assert stopped.value.code == 1
    told = capsys.readouterr()
    assert told.out.count("not compared") == 4
    assert f"missing on {TASK}: TD3 (seed 0, 1)\n" in told.out
    *failed, last = told.err.splitlines()
    assert [line.endswith("log.txt)") for line in failed] == [True, True]
    assert last.startswith("mvpi: 2 of 4 experiments failed")


def test_a_part_of_the_rows_is_a_table_whatever_the_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a clean clone: no run directory, seeds and methods as by default."""
    there, _ = recorded_study(tmp_path)
    text = (there / "runs.csv").read_text().splitlines(keepends=True)
    without_td3 = [line for line in text if ",TD3," not in line]
    (there / "runs.csv").write_text("".join(without_td3))
    capsys.readouterr()
    options = ("--recorded", str(there), "--finished-only", "--json", "--action-noise", "0.1")
    cli.main(study("table", tmp_path / "here", *options))
    shown = json.loads(capsys.readouterr().out)
    assert [(c["value"], c["change"], c["verdict"]) for c in shown["cells"]] == [
        (value, None, "not compared") for value in (0.75, 2.0, 1.25, pytest.approx(2 / 1.25**0.5))
    ]
    lacking = "TD3 (seed 0, 1); TRVO at lam = 1 (seed 0, 1)"
    assert shown["missing"] == [f"missing on {TASK}: {lacking}"]
    assert f"* missing on {TASK}: {lacking}" in (tmp_path / "here" / "table.md").read_text()


def test_recording_is_one_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is recorded makes the same table as the run directories, byte for byte."""
    for directory in finish_all(tmp_path / "there"):
        (directory / "policy.safetensors").write_bytes(directory.name.encode())
    rows = tmp_path / "rows"
    recording = ("--record", str(rows), "--commit", "abc1234", "--processor", "of this test")
    cli.main(study("curves", tmp_path / "there", *CHOSEN, *recording))
    assert f"Added 4 of 4 finished runs to {rows}.\n" in capsys.readouterr().out
    assert {row["commit"] for row in lines(rows / "runs.csv")} == {"abc1234"}
    assert {row["processor"] for row in lines(rows / "runs.csv")} == {"of this test"}
    assert len(list((rows / "policies").iterdir())) == 4
    cli.main(study("table", tmp_path / "there", *CHOSEN))
    cli.main(study("table", tmp_path / "here", *CHOSEN, "--recorded", str(rows)))
    for name in ("table.csv", "table.md"):
        there, here = (tmp_path / where / name for where in ("there", "here"))
        assert there.read_bytes() == here.read_bytes()
    cli.main(study("table", tmp_path / "there", *CHOSEN, *recording))
    assert f"Added 0 of 4 finished runs to {rows}.\n" in capsys.readouterr().out


def test_one_seed_has_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish_all(tmp_path, in_zone=0.25)
    chosen = study("risky", tmp_path, *CHOSEN, "--seeds", "1")
    cli.main(chosen)
    shown = capsys.readouterr().out
    assert "25%" in shown
    assert " to " not in shown
    cli.main([*chosen, "--json"])
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["in_zone"], row["low"], row["high"]) for row in rows] == [(0.25, None, None)] * 2


def test_a_task_without_a_zone_is_refused_before_anything_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["paper", "risky", "--tasks", "InvertedPendulum-v4", "--out", str(tmp_path)])
    assert stopped.value.code == 2
    assert "InvertedPendulum-v4 has no noisy zone" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_ctrl_c_says_that_the_same_command_goes_on(tmp_path: Path) -> None:
    long = ["--methods", "TRVO", "--seeds", "1", "--steps", "10000000"]
    # Started in the background, as by nohup, a process would inherit that Ctrl-C is ignored.
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code = listening + "from mvpi.cli import main; main()"
    command = [sys.executable, "-c", code, *study("curves", tmp_path, *long)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(lambda: list(tmp_path.glob("runs/*/metrics.csv")), "training to begin")
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 130
    assert error == "mvpi: stopped; all that is done is kept, the same command goes on\n"
    assert not workers(tmp_path / "runs")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "SAC"], "methods must be among"),
        (["--methods", "TD3"], "the table needs TD3 and another method, got TD3"),
        (["--methods", "TRVO", "MVP"], "the table needs TD3 and another method, got TRVO, MVP"),
        (["--risk-aversions", "-1"], "risk aversion must be > 0"),
        (["--seeds", "0"], "seeds must be a whole number >= 1, got 0"),
        (["--steps", "0"], "steps must be a whole number >= 1, got 0"),
        (["--workers", "0"], "workers must be a whole number >= 1, got 0"),
        (["--workers", "2", "--ray", "auto"], "either --workers, for this machine, or --ray"),
        (["--action-noise", "-1"], "action_noise must be >= 0"),
        (["--evaluation-every", "0"], "evaluation_every must be a whole number >= 1"),
        (["--tasks", "NoSuchTask-v4"], "environment 'NoSuchTask-v4' cannot be made"),
        (["--finished-only"], "no run of this study is finished"),
        (["--finished-only", "--workers", "2"], "--finished-only runs nothing; leave it out"),
        (["--finished-only", "--ray", "auto"], "--finished-only runs nothing; leave it out"),
        (["--recorded", "nowhere"], "nowhere/runs.csv"),
        (["--record", "rows"], "--record and --commit go together"),
        (["--commit", "abc1234"], "--record and --commit go together"),
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


@pytest.mark.parametrize("name", ["--episodes", "--final-episodes"])
def test_final_episodes_have_the_name_they_have_elsewhere(capsys, name: str) -> None:
    with pytest.raises(SystemExit):
        cli.main(["paper", "table", name, "0"])
    assert capsys.readouterr().err == "mvpi: episodes must be a whole number >= 2, got 0\n"
