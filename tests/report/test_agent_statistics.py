"""Statistics of agents and their intervals, against other routes to the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.page import Page, only_section, page_of
from helpers.run_directories import write_run

from mvpi import stats
from mvpi.experiments.outcome import Outcome
from mvpi.report.agent_statistics import COLUMNS, OF_ROWS, efficient, estimates
from mvpi.report.formatting import number

STATISTICS: dict[str, Callable[[Any], float]] = {
    "mean": stats.mean,
    "deviation": lambda x: math.sqrt(stats.variance(x)),
    "sharpe": stats.sharpe,
    "cvar": lambda x: stats.cvar(x, 0.1),
}


def test_numbers_are_means_over_seeds_of_the_statistics_of_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    returns = [rng.normal(100 * s, 10, size=25) for s in range(3)]
    rewards = [rng.normal(s, 1, size=999) for s in range(3)]
    for s in range(3):
        write_run(tmp_path / str(s), seed=s, returns=returns[s].tolist(), rewards=rewards[s])
    (found,) = only_section(tmp_path).estimates.values()
    for name, statistic in STATISTICS.items():
        assert found[name].value == pytest.approx(np.mean([statistic(x) for x in returns]))
    assert found["worst"].value == np.concatenate(returns).min()
    assert found["reward_mean"].value == pytest.approx(np.mean([x.mean() for x in rewards]))
    assert found["reward_variance"].value == pytest.approx(np.mean([x.var() for x in rewards]))
    shown = Page(page_of(tmp_path)).text
    for column in COLUMNS:
        assert number(found[column.name].value) in shown


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_many_samples_are_those_of_each(name: str) -> None:
    rng = np.random.default_rng(5)
    for size in range(2, 42):
        samples = np.concatenate([rng.normal(3, 1, size=(4, size)), np.ones((1, size))])
        each = [STATISTICS[name](sample) for sample in samples]
        assert OF_ROWS[name](samples).tolist() == pytest.approx(each)


def slow_interval(
    returns: list[np.ndarray], statistic: Callable[[Any], float], rng: np.random.Generator
) -> tuple[float, float]:
    """The hierarchical bootstrap as one would write it down."""
    values = []
    for _ in range(1000):
        runs = [returns[i] for i in rng.integers(len(returns), size=len(returns))]
        drawn = [x[rng.integers(len(x), size=len(x))] for x in runs]
        values.append(np.mean([statistic(x) for x in drawn]))
    return tuple(np.quantile(values, [0.025, 0.975]).tolist())


@pytest.mark.parametrize("name", STATISTICS)
def test_intervals_are_those_of_a_plain_bootstrap(name: str) -> None:
    rng = np.random.default_rng(2)
    returns = [rng.gamma(3, 10 + s, size=size) for s, size in enumerate((25, 33, 40))]
    outcomes = [Outcome(1, tuple(x.tolist()), 0.0, 0.0, (0.0, 1.0)) for x in returns]
    ours = estimates(outcomes)[name]
    low, high = slow_interval(returns, STATISTICS[name], rng)
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=0.1 * (high - low))
    assert ours.low < ours.value < ours.high


def test_the_interval_of_a_mean_is_the_textbooks() -> None:
    returns = np.random.default_rng(3).normal(5, 2, size=400)
    ours = estimates([Outcome(1, tuple(returns.tolist()), 0.0, 0.0, (0.0, 1.0))])
    half = 1.96 * returns.std() / math.sqrt(400)
    assert ours["mean"].high - ours["mean"].low == pytest.approx(2 * half, rel=0.1)
    assert math.isnan(ours["worst"].low)
    assert math.isnan(ours["reward_mean"].low)  # one seed


def test_seeds_that_disagree_widen_the_interval() -> None:
    def outcome(centre: float) -> Outcome:
        return Outcome(1, (centre - 1, centre + 1) * 50, centre, 1.0, (0.0, 1.0))

    alike, apart = (
        estimates([outcome(x) for x in c])["mean"] for c in ((0, 0, 0, 0), (-9, -3, 3, 9))
    )
    assert apart.high - apart.low > 10 * (alike.high - alike.low)


@pytest.mark.parametrize(
    ("points", "kept"),
    [
        ([(1, 1)], [0]),
        ([(1, 1), (2, 2), (3, 3)], [0, 1, 2]),
        ([(3, 3), (2, 4), (1, 1)], [2, 1]),
        ([(1, 5), (2, 5), (1, 4)], [0]),  # ties in one of the two
        ([(1, 5), (1, 5)], [0, 1]),  # the same point twice
        ([(0, -1), (0, 0), (5, 0)], [1]),
    ],
)
def test_the_frontier_on_points_made_by_hand(
    points: list[tuple[float, float]], kept: list[int]
) -> None:
    assert efficient(points) == kept


def test_the_frontier_is_that_of_a_sweep() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        points = [(float(d), float(m)) for d, m in rng.integers(0, 6, size=(8, 2))]
        best, swept = -math.inf, set()
        for d, m in sorted(set(points), key=lambda p: (p[0], -p[1])):
            if m > best:
                swept.add((d, m))
                best = m
        assert {points[i] for i in efficient(points)} == swept
        assert sorted(points[i] for i in efficient(points)) == [
            points[i] for i in efficient(points)
        ]


def test_best_values_and_changes(tmp_path: Path) -> None:
    write_run(tmp_path / "a", returns=[10.0, 30.0])
    write_run(tmp_path / "b", risk="1.0", returns=[14.0, 16.0])
    found = only_section(tmp_path)
    neutral, averse = (agent.key for agent in found.section.agents)
    assert [found.best(column) for column in COLUMNS[:2]] == [{neutral}, {averse}]
    text = Page(page_of(tmp_path)).text
    assert "\N{MINUS SIGN}25%" in text  # the mean, from 20 to 15
    assert "\N{MINUS SIGN}90%" in text  # the deviation, from 10 to 1
    assert "lowered the standard deviation of the return by 90% (from 10.00 to 1.000)" in text
    assert "With one seed" in text


def test_the_share_in_the_noisy_zone_is_shown_where_there_is_one(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "0", in_zone=0.25)
    write_run(tmp_path / "a" / "1", seed=1, in_zone=0.5)
    text = Page(page_of(tmp_path / "a")).text
    assert "in noisy zone" in text
    assert "37.5%" in text
    assert "25.0% to 50.0%" in text
    write_run(tmp_path / "b")
    assert "in noisy zone" not in Page(page_of(tmp_path / "b")).text


def test_rewards_and_returns_that_never_change(tmp_path: Path) -> None:
    for risk in ("0.0", "1.0"):
        write_run(tmp_path / risk, risk=risk, returns=[1000.0] * 9, rewards=[1.0, 1.0])
    text = Page(page_of(tmp_path)).text
    assert "∞" in text
    assert "left the standard deviation of the return unchanged (0)" in text
    assert "do not distinguish the two" in text


def test_a_change_too_small_to_show_is_none(tmp_path: Path) -> None:
    write_run(tmp_path / "a", returns=[9_000.0, 11_000.0])
    write_run(tmp_path / "b", risk="1.0", returns=[8_999.0, 11_000.0])
    text = Page(page_of(tmp_path)).text
    assert "left its mean unchanged (10,000)" in text
    assert "0.0%" not in text


def test_runs_may_differ_in_the_number_of_their_episodes(tmp_path: Path) -> None:
    write_run(tmp_path / "a", returns=[0.0, 2.0])
    write_run(tmp_path / "b", seed=1, returns=[3.0, 6.0, 9.0])
    (found,) = only_section(tmp_path).estimates.values()
    assert found["mean"].value == (1.0 + 6.0) / 2
    assert found["deviation"].value == pytest.approx((1.0 + math.sqrt(6.0)) / 2)
    assert "judged by 2 to 3 final episodes per seed" in Page(page_of(tmp_path)).text
