"""The paper's table: changes, intervals and verdicts against numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvpi import stats
from mvpi.experiments.outcome import Outcome
from mvpi.experiments.paper import PUBLISHED, TASKS, published
from mvpi.report.rows import Finished, compared_at
from mvpi.report.table import (
    STATISTICS,
    cells,
    change,
    described,
    markdown,
    percent,
    statistics,
    summary,
    verdict,
)

FINITE = st.floats(-1e6, 1e6)


def run(
    method: str, seed: int, returns: list[float], *, lam: float = 1.0, task: str = "Hopper-v4"
) -> Finished:
    outcome = Outcome(1_000, tuple(returns), 0.0, 1.0, (0.0, 1.0))
    return Finished(task, method, 0.0 if method == "TD3" else lam, seed, outcome, Path())


def test_a_table_worked_out_by_hand() -> None:
    runs = [
        run("TD3", 0, [8.0, 12.0]),  # mean 10, variance 4, J 6, SR 5
        run("TD3", 1, [19.0, 21.0]),  # mean 20, variance 1, J 19, SR 20
        run("MVPI-TD3", 0, [9.0, 11.0]),  # mean 10, variance 1, J 9, SR 10
        run("MVPI-TD3", 1, [9.0, 11.0]),
    ]
    found = {cell.statistic: cell for cell in cells(runs, 1.0)}
    assert found["J"].change == pytest.approx((9 - 12.5) / 12.5)
    assert found["mean"].change == pytest.approx((10 - 15) / 15)
    assert found["variance"].change == pytest.approx((1 - 2.5) / 2.5)
    assert found["SR"].change == pytest.approx((10 - 12.5) / 12.5)
    assert [found[name].published for name in STATISTICS] == [0.72, -0.03, -0.71, 0.81]
    assert all(cell.seeds == 2 and cell.low <= cell.change <= cell.high for cell in found.values())


@given(st.lists(st.lists(FINITE, min_size=5, max_size=5), min_size=1, max_size=4), st.floats(0, 9))
def test_statistics_are_those_of_each_seed_averaged(returns: list[list[float]], lam: float) -> None:
    j, mean, variance, _ = statistics(np.array(returns), lam)
    assert mean == pytest.approx(np.mean([stats.mean(r) for r in returns]), rel=1e-9, abs=1e-6)
    expected = np.mean([stats.variance(r) for r in returns])
    assert variance == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert j == pytest.approx(mean - lam * variance, rel=1e-9, abs=1e-3)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Twelve seeds of a normal law each: the mean changes by +50%."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(60):
        runs = [
            run(method, seed, list(mean + rng.normal() + rng.normal(size=20)))
            for method, mean in (("TD3", 10.0), ("TRVO", 15.0))
            for seed in range(12)
        ]
        cell = next(cell for cell in cells(runs, 1.0) if cell.statistic == "mean")
        covered += cell.low <= 0.5 <= cell.high
    assert 50 <= covered <= 60


@pytest.mark.parametrize(
    ("x", "base", "expected"),
    [
        (3.0, 2.0, 0.5),
        (1.0, -2.0, 1.5),
        (0.0, 0.0, 0.0),
        (math.inf, math.inf, 0.0),
        (5.0, math.inf, -1.0),
        (5.0, 0.0, math.inf),
        (-5.0, 0.0, -math.inf),
        (math.inf, 5.0, math.inf),
    ],
)
def test_changes_from_nothing_and_from_infinity(x: float, base: float, expected: float) -> None:
    assert change(x, base) == expected


def test_returns_that_never_vary_change_nothing() -> None:
    runs = [
        run(method, seed, [1_000.0] * 5, task="InvertedPendulum-v4")
        for method in ("TD3", "MVPI-TD3")
        for seed in (0, 1)
    ]
    found = cells(runs, 1.0)
    assert [(cell.change, cell.low, cell.high) for cell in found] == [(0.0, 0.0, 0.0)] * 4
    assert {cell.verdict for cell in found} == {"agrees"}  # the paper has 0% four times


@pytest.mark.parametrize(
    ("paper", "low", "high", "seeds", "expected"),
    [
        (0.5, 0.1, 0.9, 3, "agrees"),
        (-0.5, -0.9, -0.1, 3, "agrees"),
        (0.5, -0.9, -0.1, 3, "disagrees"),
        (-0.5, 0.1, 0.9, 3, "disagrees"),
        (0.5, -0.1, 0.9, 3, "undecided"),
        (0.5, 0.0, 0.9, 3, "undecided"),
        (0.5, 0.1, 0.9, 1, "undecided"),
        (0.0, 0.0, 0.004, 3, "agrees"),
        (0.0, -0.1, 0.1, 3, "undecided"),
        (0.0, 0.01, 0.1, 3, "disagrees"),
        (0.0, -0.1, -0.01, 3, "disagrees"),
        (0.5, math.nan, math.nan, 3, "undecided"),
        (None, 0.1, 0.9, 3, "not in the paper"),
    ],
)
def test_verdicts(paper: float | None, low: float, high: float, seeds: int, expected: str) -> None:
    assert verdict(paper, low, high, seeds) == expected


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.5, "+50%"),
        (-0.004, "0%"),
        (0.0, "0%"),
        (3e5, "+3e7%"),
        (math.inf, "+inf"),
        (-1, "-100%"),
        (math.nan, "?"),
    ],
)
def test_percentages(share: float, text: str) -> None:
    assert percent(share) == text


def test_methods_are_compared_at_their_risk_aversion_and_with_td3_at_all() -> None:
    runs = [run("TD3", 0, [1.0, 2.0]), *(run("TRVO", 0, [1.0, 3.0], lam=x) for x in (0.5, 1.0))]
    assert [(r.method, r.risk_aversion) for r in compared_at(0.5, runs)] == [
        ("TD3", 0.0),
        ("TRVO", 0.5),
    ]


def test_ratios_of_both_infinite_signs_are_undecided() -> None:
    """Returns that do not vary within a seed, above zero in one seed and below in the other."""
    runs = [
        run(method, seed, [1.0, 1.0] if seed else [-1.0, -1.0])
        for method in ("TD3", "MVPI-TD3")
        for seed in (0, 1)
    ]
    found = {cell.statistic: cell for cell in cells(runs, 1.0)}
    assert found["SR"].verdict == "undecided"
    assert "nan" not in markdown(list(found.values()), 1_000)


def test_tasks_the_paper_does_not_have_are_not_counted_as_its() -> None:
    runs = [run(method, 0, [1.0, 2.0], task="My-v0") for method in ("TD3", "MVPI-TD3", "TRVO")]
    lines = summary(cells(runs, 1.0))
    assert lines
    assert not any("paper" in line for line in lines)


def test_without_td3_there_is_no_table() -> None:
    assert cells([run("TRVO", 0, [1.0, 2.0])], 1.0) == []


def test_the_paper_has_every_cell() -> None:
    """The sentences of the paper, counted from its table at lam = 1."""
    table = PUBLISHED[1.0]
    assert sum(row["MVPI-TD3"][0] > 0 for row in table.values()) == 6
    assert sum(row["MVPI-TD3"][0] > row["TRVO"][0] for row in table.values()) == 7
    assert sum(row["MVPI-TD3"][3] > 0 for row in table.values()) == 6
    assert sum(row["MVPI-TD3"][3] > row["TRVO"][3] for row in table.values()) == 7
    assert all(
        published(task, m, x) for task in TASKS for m in ("TRVO", "MVPI-TD3") for x in PUBLISHED
    )
    assert published("Hopper-v5", "TRVO", 1.0) == published("Hopper-v4", "TRVO", 1.0)
    assert published("Humanoid-v4", "TRVO", 1.0) is None
    assert published("Hopper-v4", "TRVO", 3.0) is None


def test_the_document_says_what_the_cells_say() -> None:
    runs = [
        *(run("TD3", seed, [8.0, 12.0]) for seed in range(3)),
        *(run("MVPI-TD3", seed, [9.0, 11.0]) for seed in range(3)),
        *(run("TRVO", seed, [1.0, 3.0]) for seed in range(3)),
    ]
    found = cells(runs, 1.0)
    text = markdown(found, 1_000)
    assert "| Hopper-v4 | TRVO | 3 |" in text
    assert all(described(cell) in text for cell in found)
    assert "lam = 1: MVPI-TD3 has a higher J than TD3 in 1 of 1 tasks (paper: 1 of 1)" in summary(
        found
    )
    assert "lam = 1: MVPI-TD3 has a higher J than TRVO in 1 of 1 tasks (paper: 1 of 1)" in summary(
        found
    )
    assert math.isfinite(found[0].low)
