"""Objectives as columns: one measure for all rows, of returns and of rewards of a step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.page import only_section
from helpers.run_directories import write_range_run, write_run

import mvpi
from mvpi.report.objectives import Objective


def test_every_row_is_valued_with_the_same_measures(tmp_path: Path) -> None:
    write_run(tmp_path / "a", risk="0.0", returns=(1.0, 3.0), rewards=(0.0, 2.0))
    write_run(tmp_path / "b", risk="2.0", returns=(1.0, 2.0), rewards=(0.0, 1.0))
    write_run(tmp_path / "c", risk="return:2.0", returns=(0.0, 2.0), rewards=(1.0, 1.0))
    section = only_section(tmp_path)
    of_returns, of_rewards = section.objectives
    found = {
        agent.risk: [section.estimates[agent.key][o.name].value for o in (of_returns, of_rewards)]
        for agent in section.section.judged
    }
    assert found == {
        "0.0": [2.0 - 2.0 * 1.0, 1.0 - 2.0 * 1.0],
        "2.0": [1.5 - 2.0 * 0.25, 0.5 - 2.0 * 0.25],
        "return:2.0": [1.0 - 2.0 * 1.0, 1.0],
    }
    titles = [c.title for c in section.columns]
    assert titles[-2:] == [
        "mean \N{MINUS SIGN} 2 variance of returns",
        "mean \N{MINUS SIGN} 2 variance of rewards",
    ]


def test_agents_without_one_measure_add_no_column(tmp_path: Path) -> None:
    write_run(tmp_path / "a", risk="0.0")
    write_run(tmp_path / "b", risk="budget:0.5")
    write_range_run(tmp_path / "c")
    assert only_section(tmp_path).objectives == ()


@pytest.mark.parametrize(
    "measure", [mvpi.MeanVariance(0.7), mvpi.CVaR(0.25), mvpi.Entropic(0.3)], ids=repr
)
def test_rows_are_valued_as_samples_are(measure: mvpi.risk.Risk) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 30))
    values = Objective(measure, of_return=True).of_rows(rows)
    np.testing.assert_allclose(values, [measure.value(row) for row in rows], rtol=1e-12)
