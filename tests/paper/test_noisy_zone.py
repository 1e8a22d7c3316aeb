"""The share of steps in a noisy zone: means and intervals over seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from mvpi.errors import InputError
from mvpi.paper import noisy_zone
from mvpi.paper.grid import Grid
from mvpi.paper.rows import RunRow

PNG = b"\x89PNG\r\n\x1a\n"
GRID = Grid(("Hopper-v4", "Ant-v4"), ("TD3", "MVPI-TD3"), (0.5, 1.0), seeds=2, steps=20, episodes=2)


def run_row(task: str, method: str, seed: int, in_zone: float | None) -> RunRow:
    risk = float(method != "TD3")
    return RunRow(task, method, risk, seed, 20, 4.0, 1.0, 4.0, 0.5, 0.25, in_zone, "")


def test_the_share_in_the_zone_is_averaged_over_seeds(tmp_path: Path) -> None:
    shares = {"TD3": [0.5, 0.7], "MVPI-TD3": [0.0, 0.0]}
    runs = [
        run_row("mvpi/NoisyAnt-v0", method, seed, x)
        for method, both in shares.items()
        for seed, x in enumerate(both)
    ]
    neutral, averse = noisy_zone.zone_rows(runs)
    assert (neutral.in_zone, neutral.seeds) == (pytest.approx(0.6), 2)
    assert 0.5 <= neutral.low <= 0.6 <= neutral.high <= 0.7
    assert (averse.in_zone, averse.low, averse.high) == (0.0, 0.0, 0.0)
    assert (averse.mean_return, averse.return_deviation) == (4.0, 1.0)
    noisy_zone.draw([neutral, averse], tmp_path / "zone.png")
    assert (tmp_path / "zone.png").read_bytes().startswith(PNG)


def test_a_task_without_a_zone_is_refused() -> None:
    run = run_row("Hopper-v4", "TD3", 0, None)
    with pytest.raises(InputError, match="Hopper-v4 has no noisy zone"):
        noisy_zone.zone_rows([run])
