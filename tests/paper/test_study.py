"""The finished runs of a grid, found in run directories and recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mvpi.errors import InputError
from mvpi.experiments import Experiment
from mvpi.experiments.outcome import Outcome
from mvpi.experiments.runner import Event
from mvpi.paper.grid import Grid
from mvpi.paper.rows import RunRow, read_rows
from mvpi.paper.study import complete, find_runs, processor_name, read_study, record, write_study

GRID = Grid(("Hopper-v4", "Ant-v4"), ("TD3", "MVPI-TD3"), (0.5, 1.0), seeds=2, steps=20, episodes=2)


def finish(grid: Grid, root: Path, *, metrics: str | None = None, only: int | None = None) -> None:
    """As if every experiment of the grid had been run, or only one."""
    lines = (
        "steps,return_mean,return_variance,reward_mean,reward_variance\n10,1,2,3,4\n20,5,6,7,8\n"
    )
    for i, experiment in enumerate(grid.experiments()):
        if only not in (None, i):
            continue
        directory = root / experiment.name
        directory.mkdir(parents=True)
        Outcome(20, (float(i), i + 2.0), 0.5, 0.25, (0.0, 1.0)).write(directory)
        (directory / "metrics.csv").write_text(metrics if metrics is not None else lines)


def test_finished_runs_come_once_each(tmp_path: Path) -> None:
    finish(GRID, tmp_path)
    found = find_runs(GRID, tmp_path)
    rows = [run.row for run in found.runs]
    assert len(rows) == len(GRID.experiments()) == 2 * (1 + 2) * 2
    assert {row.experiment for row in rows} == {e.identity for e in GRID.experiments()}
    assert {row.risk_aversion for row in rows if row.method == "TD3"} == {0.0}
    assert [row.variance for row in rows] == [1.0] * len(rows)
    assert [row.mean for row in rows] == [run.returns[0] + 1.0 for run in found.runs]
    for run in found.runs:
        last = run.curve[1]
        assert (last.steps, last.return_mean, last.reward_variance) == (20, 5.0, 8.0)


@pytest.mark.parametrize("text", ["steps,return_mean\n10,x\n", "steps,return_mean\n10,1\n"])
def test_damaged_metrics_are_told_by_name(tmp_path: Path, text: str) -> None:
    finish(GRID, tmp_path, metrics=text)
    found = find_runs(GRID, tmp_path)
    assert all("metrics.csv is damaged" in why for why in found.without_curve.values())
    assert len(found.without_curve) == len(found.runs) == len(GRID.experiments())


def test_recording_adds_runs_and_never_changes_those_that_are_there(tmp_path: Path) -> None:
    """Two studies, one after the other, in either order: the same runs are recorded."""
    root, rows = tmp_path / "runs", tmp_path / "rows"
    finish(GRID, root)
    hopper, ant = (replace(GRID, tasks=(task,)) for task in GRID.tasks)
    first = find_runs(hopper, root).runs
    assert record(rows, first, root, "abc1234", "a processor") == len(first) == 6
    before = {path.name: path.read_text() for path in rows.glob("*.csv")}
    second = find_runs(ant, root).runs
    assert record(rows, [*first, *second], root, "def5678", "another") == 6
    for name, text in before.items():
        assert (rows / name).read_text().startswith(text)
    known = read_study(rows, GRID)
    for run in find_runs(GRID, root).runs:
        made = ("abc1234", "a processor") if run.row.task == "Hopper-v4" else ("def5678", "another")
        recorded = known[run.row.experiment]
        assert (recorded.row.commit, recorded.row.processor) == made
        assert replace(recorded, row=replace(recorded.row, commit="", processor="")) == run
    assert record(rows, first, root, "x", "y") == 0
    assert read_study(rows, GRID) == known


def test_recorded_policies_are_those_of_the_methods_in_the_tables(tmp_path: Path) -> None:
    grid = replace(GRID, tasks=("Ant-v4",), methods=("TD3", "MVPI-TD3", "TRVO", "MVP"), seeds=1)
    finish(grid, tmp_path / "runs")
    for experiment in grid.experiments():
        policy = tmp_path / "runs" / experiment.name / "policy.safetensors"
        policy.write_bytes(experiment.name.encode())
    record(tmp_path / "rows", find_runs(grid, tmp_path / "runs").runs, tmp_path / "runs", "a", "b")
    kept = {path.name: path.read_bytes() for path in (tmp_path / "rows" / "policies").iterdir()}
    assert kept == {
        f"{e.name}.safetensors": e.name.encode()
        for e in grid.experiments()
        if e.algorithm in ("td3", "ppo")
    }


def test_rows_of_before_name_no_commit(tmp_path: Path) -> None:
    finish(GRID, tmp_path / "runs")
    runs = find_runs(GRID, tmp_path / "runs").runs
    write_study(tmp_path, runs)
    path = tmp_path / "runs.csv"
    path.write_text(path.read_text().replace(",commit,processor", "").replace(",,\n", "\n"))
    assert read_rows(path, RunRow) == [run.row for run in runs]
    assert (runs[0].row.commit, runs[0].row.processor) == ("", "")


def test_a_row_that_ends_too_soon_is_damaged(tmp_path: Path) -> None:
    finish(GRID, tmp_path / "runs")
    write_study(tmp_path, find_runs(GRID, tmp_path / "runs").runs)
    path = tmp_path / "runs.csv"
    path.write_text(path.read_text().removesuffix(",\n"))
    with pytest.raises(InputError, match=r"runs.csv is damaged in line 13"):
        read_rows(path, RunRow)


def test_the_processor_of_this_machine_has_a_name() -> None:
    models = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    }
    assert {processor_name()} == models


def test_runs_are_kept_as_they_finish(tmp_path: Path) -> None:
    """A study that is stopped has the rows of what had finished."""
    order = GRID.experiments()

    def stopped(experiments: Sequence[Experiment], root: Path) -> Iterator[Event]:
        for i, experiment in enumerate(experiments[:3]):
            yield Event(experiment, "running")
            finish(GRID, root, only=i)
            yield Event(experiment, "done")
        raise KeyboardInterrupt

    rows = tmp_path / "rows"
    with pytest.raises(KeyboardInterrupt):
        complete(
            GRID,
            tmp_path / "runs",
            stopped,
            quiet=True,
            keep=lambda runs: record(rows, runs, tmp_path / "runs", "a", "b"),
        )
    kept = {row.experiment for row in read_rows(rows / "runs.csv", RunRow)}
    assert kept == {experiment.identity for experiment in order[:3]}
