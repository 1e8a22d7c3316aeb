"""Learning curves of a study: means, standard errors, and their figures."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from mvpi.paper import curves
from mvpi.paper.grid import Grid
from mvpi.paper.rows import CurveRow

PNG = b"\x89PNG\r\n\x1a\n"
GRID = Grid(("Hopper-v4", "Ant-v4"), ("TD3", "MVPI-TD3"), (0.5, 1.0), seeds=2, steps=20, episodes=2)


def row(steps: int, value: float, *, seed: int = 0, method: str = "TD3") -> CurveRow:
    return CurveRow("Hopper-v4", method, 0.0, seed, steps, value, 0.0, 1.0, 0.25, "")


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
