"""Rows and curves of a study, and the share of steps in a noisy zone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from mvpi.errors import InputError
from mvpi.experiments.outcome import Outcome
from mvpi.experiments.paper import Grid
from mvpi.report import curves, risky
from mvpi.report.rows import CurveRow, RunRow
from mvpi.report.study import find_runs

PNG = b"\x89PNG\r\n\x1a\n"
GRID = Grid(("Hopper-v4", "Ant-v4"), ("TD3", "MVPI-TD3"), (0.5, 1.0), seeds=2, steps=20, episodes=2)


def row(steps: int, value: float, *, seed: int = 0, method: str = "TD3") -> CurveRow:
    return CurveRow("Hopper-v4", method, 0.0, seed, steps, value, 0.0, 1.0, 0.25, "")


def run_row(task: str, method: str, seed: int, in_zone: float | None) -> RunRow:
    risk = float(method != "TD3")
    return RunRow(task, method, risk, seed, 20, 4.0, 1.0, 4.0, 0.5, 0.25, in_zone, "")


def finish(grid: Grid, root: Path, *, metrics: str | None = None) -> None:
    """As if every experiment of the grid had been run."""
    lines = (
        "steps,return_mean,return_variance,reward_mean,reward_variance\n10,1,2,3,4\n20,5,6,7,8\n"
    )
    for i, experiment in enumerate(grid.experiments()):
        directory = root / experiment.name
        directory.mkdir(parents=True)
        Outcome(20, (float(i), i + 2.0), 0.5, 0.25, (0.0, 1.0)).write(directory)
        (directory / "metrics.csv").write_text(metrics if metrics is not None else lines)


def test_a_band_is_the_mean_and_its_standard_error() -> None:
    rows = [row(10, 1.0), row(10, 4.0, seed=1), row(20, 2.0), row(20, 2.0, seed=1)]
    np.testing.assert_allclose(
        curves.band(rows, curves.mean_return),
        [[10, 2.5, math.sqrt(4.5 / 2)], [20, 2.0, 0.0]],  # variance of 1 and 4 is 4.5
    )


def test_one_seed_has_no_band() -> None:
    assert curves.band([row(10, 1.0)], curves.mean_return).tolist() == [[10, 1.0, 0.0]]


def test_curves_are_averaged_over_the_seeds_that_got_so_far() -> None:
    rows = [row(10, 1.0), row(20, 3.0), row(30, 5.0), row(20, 3.0, seed=1), row(10, 3.0, seed=1)]
    expected = [[10, 2.0, 1.0], [20, 3.0, 0.0], [30, 5.0, 0.0]]
    assert curves.band(rows, curves.mean_return).tolist() == expected


def test_seeds_may_be_evaluated_at_other_steps() -> None:
    """The second is at 2 halfway between its evaluations."""
    rows = [row(20, 4.0), row(10, 1.0, seed=1), row(30, 3.0, seed=1)]
    assert curves.band(rows, curves.mean_return).tolist() == [[10, 1, 0], [20, 3, 1], [30, 3, 0]]


@pytest.mark.parametrize("count", [400, 401, 1_000, 1_003])
def test_long_curves_are_averaged_to_their_very_end(count: int) -> None:
    at = np.arange(count, dtype=float)
    found = curves.smoothed(np.column_stack([at, 2 * at, np.ones(count)]))
    every = max(1, count // len(found))
    assert len(found) in range(200, 401)
    assert found[-1].tolist() == pytest.approx([at[-every:].mean(), 2 * at[-every:].mean(), 1.0])


def test_the_objective_of_a_step() -> None:
    assert curves.reward_objective(2.0)(row(10, 0.0)) == 1.0 - 2.0 * 0.25


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


@pytest.mark.parametrize("tasks", [1, 3, 8])
def test_curves_are_drawn_for_any_number_of_tasks(tmp_path: Path, tasks: int) -> None:
    rows = [
        CurveRow(f"Task{t}-v0", method, 0.0, seed, 10 * s, float(s), 0.0, 1.0, 0.25, "")
        for t in range(tasks)
        for method in ("TD3", "MVP")
        for seed in range(2)
        for s in range(600)
    ]
    curves.draw(rows, curves.mean_return, "return", "A title", tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(PNG)


def test_the_share_in_the_zone_is_averaged_over_seeds(tmp_path: Path) -> None:
    shares = {"TD3": [0.5, 0.7], "MVPI-TD3": [0.0, 0.0]}
    runs = [
        run_row("mvpi/NoisyAnt-v0", method, seed, x)
        for method, both in shares.items()
        for seed, x in enumerate(both)
    ]
    neutral, averse = risky.zone_rows(runs)
    assert (neutral.in_zone, neutral.seeds) == (pytest.approx(0.6), 2)
    assert 0.5 <= neutral.low <= 0.6 <= neutral.high <= 0.7
    assert (averse.in_zone, averse.low, averse.high) == (0.0, 0.0, 0.0)
    assert (averse.mean_return, averse.return_deviation) == (4.0, 1.0)
    risky.draw([neutral, averse], tmp_path / "zone.png")
    assert (tmp_path / "zone.png").read_bytes().startswith(PNG)


def test_a_task_without_a_zone_is_refused() -> None:
    run = run_row("Hopper-v4", "TD3", 0, None)
    with pytest.raises(InputError, match="Hopper-v4 has no noisy zone"):
        risky.zone_rows([run])
