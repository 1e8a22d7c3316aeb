"""The paper's table: changes, intervals and verdicts against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mvpi import stats
from mvpi.paper.grid import TASKS, Grid
from mvpi.paper.published import PUBLISHED, published
from mvpi.paper.rows import RunRow
from mvpi.paper.study import Finished, compared_at
from mvpi.paper.table import (
    STATISTICS,
    Cell,
    cells,
    described,
    markdown,
    missing,
    summary,
    table_of,
    verdict,
)


def run(
    method: str, seed: int, returns: list[float], *, lam: float = 1.0, task: str = "Hopper-v4"
) -> Finished:
    risk = 0.0 if method == "TD3" else lam
    statistics = stats.mean(returns), stats.variance(returns), stats.sharpe(returns), 0.0, 1.0
    row = RunRow(task, method, risk, seed, 1_000, *statistics, None, f"{task}-{method}-{seed}")
    return Finished(row, tuple(returns))


def by_statistic(runs: list[Finished], method: str = "MVPI-TD3") -> dict[str, Cell]:
    return {cell.statistic: cell for cell in cells(runs, 1.0) if cell.method == method}


def test_a_table_worked_out_by_hand() -> None:
    """J and SR are of the averages: mean 15 and variance 2.5 of TD3, 10 and 1 of MVPI-TD3."""
    runs = [
        run("TD3", 0, [8.0, 12.0]),  # mean 10, variance 4
        run("TD3", 1, [19.0, 21.0]),  # mean 20, variance 1
        run("MVPI-TD3", 0, [9.0, 11.0]),  # mean 10, variance 1
        run("MVPI-TD3", 1, [9.0, 11.0]),
    ]
    found = by_statistic(runs)
    assert [found[name].value for name in STATISTICS] == [9.0, 10.0, 1.0, 10.0]
    assert found["J"].change == pytest.approx((9 - 12.5) / 12.5)
    assert found["mean"].change == pytest.approx((10 - 15) / 15)
    assert found["variance"].change == pytest.approx((1 - 2.5) / 2.5)
    ratio = 15 / math.sqrt(2.5)
    assert found["SR"].change == pytest.approx((10 - ratio) / ratio)
    assert [found[name].published for name in STATISTICS] == [0.72, -0.03, -0.71, 0.81]
    for cell in found.values():
        assert cell.seeds == 2
        assert cell.low <= cell.change <= cell.high
        assert cell.value_low <= cell.value <= cell.value_high


def test_the_papers_sharpe_ratios_are_those_of_its_means_and_variances() -> None:
    """The change of SR follows from those of mean and variance, all of them rounded."""
    checked = 0
    for task, methods in (pair for table in PUBLISHED.values() for pair in table.items()):
        base = -1.0 if task == "Reacher" else 1.0  # of the means only Reacher's is below 0
        for _, mean, variance, sharpe in methods.values():
            if variance >= 1e6:  # rounded to one digit
                continue
            corners = [
                (base + (mean + a) / 100) / math.sqrt(1 + (variance + b) / 100)
                for a in (-0.5, 0.5)
                for b in (-0.5, 0.5)
            ]
            low, high = (100 * (corner - base) for corner in (min(corners), max(corners)))
            assert low - 0.5 <= sharpe <= high + 0.5
            checked += 1
    assert checked == 45


def slow_changes(sides: list[list[np.ndarray]]) -> list[dict[str, float]]:
    """The bootstrap of changes as one would write it down, at lam = 1."""
    rng = np.random.default_rng(7)
    changes = []
    for _ in range(1_000):
        values = []
        for seeds in sides:
            runs = [seeds[i] for i in rng.integers(len(seeds), size=len(seeds))]
            drawn = [x[rng.integers(len(x), size=len(x))] for x in runs]
            mean, variance = np.mean([x.mean() for x in drawn]), np.mean([x.var() for x in drawn])
            values.append({"J": mean - variance, "SR": mean / math.sqrt(variance)})
        base, ours = values
        changes.append({name: (ours[name] - base[name]) / abs(base[name]) for name in base})
    return changes


def test_intervals_are_those_of_a_plain_bootstrap() -> None:
    """Also of seeds that differ in the number of their episodes."""
    rng = np.random.default_rng(1)
    sides = [
        [rng.normal(centre + s, 3, size=size) for s, size in enumerate((20, 30, 25, 20))]
        for centre in (20, 30)
    ]
    runs = [
        run(method, seed, returns.tolist())
        for method, seeds in zip(("TD3", "MVPI-TD3"), sides, strict=True)
        for seed, returns in enumerate(seeds)
    ]
    found = by_statistic(runs)
    slow = slow_changes(sides)
    for name in ("J", "SR"):
        low, high = np.quantile([changes[name] for changes in slow], [0.025, 0.975])
        ours = found[name].low, found[name].high
        assert ours == pytest.approx((low, high), abs=0.1 * (high - low))


def test_runs_without_returns_count_with_their_row() -> None:
    """Their episodes cannot be drawn again: what is left is which of the seeds are drawn."""
    bare = [
        Finished(run(method, seed, returns).row)
        for method, both in (("TD3", ([8.0, 12.0], [19.0, 21.0])), ("TRVO", ([9.0, 11.0],) * 2))
        for seed, returns in enumerate(both)
    ]
    found = by_statistic(bare, "TRVO")
    assert found["mean"].change == pytest.approx((10 - 15) / 15)
    assert (found["mean"].low, found["mean"].high) == pytest.approx((-0.5, 0.0))  # TD3: 20 or 10
    assert (found["variance"].low, found["variance"].high) == pytest.approx((-0.75, 0.0))
    assert found["J"].seeds == 2
    # One of the seeds with its returns: the interval is at least as wide.
    mixed = by_statistic([run("TD3", 0, [8.0, 12.0]), *bare[1:]], "TRVO")
    assert mixed["mean"].change == found["mean"].change
    assert mixed["mean"].high > found["mean"].high


def test_a_method_has_the_same_interval_whatever_else_is_in_the_table() -> None:
    runs = [
        run(method, seed, [1.0, 2.0 + seed]) for method in ("TD3", "MVPI-TD3") for seed in (0, 1)
    ]
    more = [*runs, *(run("TRVO", seed, [3.0, 5.0]) for seed in (0, 1))]
    assert by_statistic(runs) == by_statistic(more)


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


def test_returns_that_never_vary_change_nothing() -> None:
    runs = [
        run(method, seed, [1_000.0] * 5, task="InvertedPendulum-v4")
        for method in ("TD3", "MVPI-TD3")
        for seed in (0, 1)
    ]
    found = cells(runs, 1.0)
    assert [(cell.change, cell.low, cell.high) for cell in found] == [(0.0, 0.0, 0.0)] * 4
    assert {cell.verdict for cell in found} == {"agrees"}  # the paper has 0% four times


def test_rounding_is_no_variance() -> None:
    """The mean of a hundred times 0.1 is not 0.1, and the variance of them not 0."""
    assert np.full(100, 0.1).var() > 0
    runs = [run("TD3", 0, [0.0, 1.0]), run("MVPI-TD3", 0, [0.1] * 100)]
    found = by_statistic(runs)
    assert (found["variance"].value, found["SR"].value) == (0.0, math.inf)
    assert (found["variance"].change, found["SR"].change) == (-1.0, math.inf)


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


def test_methods_are_compared_at_their_risk_aversion_and_with_td3_at_all() -> None:
    runs = [run("TD3", 0, [1.0, 2.0]), *(run("TRVO", 0, [1.0, 3.0], lam=x) for x in (0.5, 1.0))]
    assert [(r.method, r.risk_aversion) for r in compared_at(0.5, runs)] == [
        ("TD3", 0.0),
        ("TRVO", 0.5),
    ]


def test_a_ratio_of_nothing_and_nothing_is_undecided() -> None:
    """Returns that do not vary within a seed, above zero in one seed and below in the other."""
    runs = [
        run(method, seed, [1.0, 1.0] if seed else [-1.0, -1.0])
        for method in ("TD3", "MVPI-TD3")
        for seed in (0, 1)
    ]
    found = by_statistic(runs)
    assert math.isnan(found["SR"].change)
    assert found["SR"].verdict == "undecided"
    text = markdown(list(found.values()), 1_000)
    assert "nan" not in text
    assert "higher SR" not in text  # there is no task to count


def told(runs: list[Finished], statistic: str, other: str) -> str:
    """What the summary says of MVPI-TD3 against another method."""
    said = f"lam = 1: MVPI-TD3 has a higher {statistic} than {other} in "
    (line,) = [line for line in summary(cells(runs, 1.0)) if line.startswith(said)]
    return line.removeprefix(said)


def test_counts_say_how_many_are_beyond_chance() -> None:
    """J is 9 without MVPI-TD3, between 9 and 11 in resamples; with it 20, 10 and 1 at least."""
    runs = []
    for task, ours in (("A-v0", [20.0, 21.0]), ("B-v0", [10.0, 11.5]), ("C-v0", [1.0, 2.0])):
        for seed in (0, 1):
            runs += [
                run("TD3", seed, [9.0, 11.0], task=task),
                run("TRVO", seed, [9.0, 11.0], task=task),
                run("MVPI-TD3", seed, ours, task=task),
            ]
    one_seed = [r for r in runs if r.row.seed == 0]
    for other in ("TD3", "TRVO"):
        assert told(runs, "J", other) == "2 of 3 tasks, 1 of them beyond the 95% intervals"
        assert told(one_seed, "J", other) == "2 of 3 tasks, 0 of them beyond the 95% intervals"


def test_what_is_no_number_does_not_count() -> None:
    """In B all returns are 0, of which there is no Sharpe ratio."""
    runs = []
    for task, scale in (("A-v0", 1.0), ("B-v0", 0.0)):
        for seed in (0, 1):
            runs += [
                run("TD3", seed, [9 * scale, 11 * scale], task=task),
                run("TRVO", seed, [9 * scale, 11 * scale], task=task),
                run("MVPI-TD3", seed, [19 * scale, 20 * scale], task=task),
            ]
    assert told(runs, "SR", "TD3").startswith("1 of 1 tasks")
    assert told(runs, "SR", "TRVO").startswith("1 of 1 tasks")
    assert told(runs, "J", "TRVO").startswith("1 of 2 tasks")


def test_methods_are_compared_by_their_own_values() -> None:
    """TD3 never varies: changes of its Sharpe ratio are the same for all, the ratios are not."""
    runs = [
        run("TD3", 0, [1.0, 1.0]),
        run("TRVO", 0, [1.0, 3.0]),
        run("MVPI-TD3", 0, [2.0, 3.0]),
    ]
    assert by_statistic(runs)["SR"].change == by_statistic(runs, "TRVO")["SR"].change == -1.0
    assert told(runs, "SR", "TRVO").startswith("1 of 1 tasks")


def test_tasks_the_paper_does_not_have_are_not_counted_as_its() -> None:
    runs = [run(method, 0, [1.0, 2.0], task="My-v0") for method in ("TD3", "MVPI-TD3", "TRVO")]
    lines = summary(cells(runs, 1.0))
    assert lines
    assert not any("paper" in line for line in lines)


@pytest.mark.parametrize("method", ["TRVO", "TD3"])
def test_alone_a_method_has_statistics_but_no_changes(method: str) -> None:
    """[1, 3]: mean 2, variance 1."""
    found = cells([run(method, 0, [1.0, 3.0])], 1.0)
    assert [(cell.method, cell.value) for cell in found] == [(method, v) for v in (1, 2, 1, 2)]
    for cell in found:
        assert math.isnan(cell.change)
        assert math.isnan(cell.low)
        assert math.isnan(cell.high)
        assert cell.verdict == "not compared"
        assert described(cell) == f"{cell.value:g}, not compared"
    assert summary(found) == []


def test_a_task_without_td3_changes_nothing_about_the_others() -> None:
    both = [run("TD3", 0, [1.0, 2.0]), run("TRVO", 0, [2.0, 4.0])]
    lonely = run("TRVO", 0, [1.0, 3.0], task="Ant-v4")
    whole = cells([*both, lonely], 1.0)
    assert whole[:4] == cells(both, 1.0)
    assert {(cell.task, cell.verdict) for cell in whole[4:]} == {("Ant-v4", "not compared")}


def test_risk_aversions_without_runs_are_not_in_the_table() -> None:
    runs = [run("TD3", 0, [1.0, 2.0]), run("TRVO", 0, [2.0, 4.0])]
    assert {cell.risk_aversion for cell in table_of(runs, (0.5, 1.0, 2.0))} == {1.0}
    assert {cell.risk_aversion for cell in table_of(runs[:1], (0.5, 1.0))} == {0.5}


def test_what_is_missing_is_told_by_task_method_and_seed() -> None:
    grid = Grid(("Hopper-v4", "Ant-v4", "Swimmer-v4"), ("TD3", "TRVO"), (0.5, 1.0))
    runs = [
        run("TD3", 0, [1.0, 2.0]),
        run("TRVO", 0, [2.0, 4.0]),
        run("TRVO", 3, [2.0, 4.0]),
        run("TRVO", 0, [1.0, 3.0], task="Ant-v4"),
    ]
    assert missing(grid, runs) == [
        "missing on Hopper-v4: TD3 (seed 3)",
        "missing on Ant-v4: TD3 (seed 0, 3); TRVO at lam = 1 (seed 3)",
        "no run yet on Swimmer-v4",
        "no run yet at lam = 0.5",
    ]


def test_tasks_that_lack_the_same_are_told_together_and_a_whole_study_lacks_nothing() -> None:
    grid = Grid(("Hopper-v4", "Ant-v4"), ("TD3", "TRVO"), (1.0,))
    runs = [
        run(method, 0, [1.0, 3.0], task=task) for task in grid.tasks for method in ("TRVO", "TD3")
    ]
    assert missing(grid, runs) == []
    assert missing(grid, runs[::2]) == ["missing on Hopper-v4, Ant-v4: TD3 (seed 0)"]
    only_td3 = ["missing on Hopper-v4, Ant-v4: TRVO at lam = 1 (seed 0)", "no run yet at lam = 1"]
    assert missing(grid, runs[1::2]) == only_td3


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
    for other, sure in (("TD3", 0), ("TRVO", 1)):
        counted = f"1 of 1 tasks, {sure} of them beyond the 95% intervals (paper: 1 of 1)"
        assert told(runs, "J", other) == counted
        assert counted in text
    assert math.isfinite(found[0].low)
