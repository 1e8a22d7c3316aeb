"""Rounding errors are shown as zeros, the same everywhere, and nothing else is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvpi._rounding import Rounding
from mvpi.cli.evaluate import _without_rounding
from mvpi.experiments.outcome import Outcome
from mvpi.report.agent_statistics import estimates

sizes = st.floats(1e-100, 1e100)


@given(sizes, st.floats(-1.0, 1.0), st.floats(0.0, 1.0))
def test_the_unit_of_rewards_does_not_matter(unit: float, mean: float, deviation: float) -> None:
    """What is zero in one unit is zero in every other, and everything else stays as it is."""
    one = Rounding(mean, deviation**2, least=0.5)
    other = Rounding(unit * mean, (unit * deviation) ** 2, least=0.5 * unit)
    for value, of in ((mean, "level"), (deviation, "deviation")):
        first, second = getattr(one, of)(value), getattr(other, of)(unit * value)
        assert first in (0.0, value)
        if abs(value) not in (1e-9, 1e-7):  # exactly at the border rounding decides
            assert (first == 0.0) == (second == 0.0)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e8])
def test_deviation_and_variance_vanish_together(size: float) -> None:
    for share, kept in ((1e-8, False), (0.9e-7, False), (1.2e-7, True), (1e-3, True)):
        rounding = Rounding(size, (share * size) ** 2)
        assert (rounding.deviation(share * size) > 0.0) == kept
        assert (rounding.variance((share * size) ** 2) > 0.0) == kept


def test_arrays_are_cut_one_by_one() -> None:
    rounding = Rounding(np.array([1.0, 1e-12]), np.array([0.0, 0.0]))
    np.testing.assert_array_equal(rounding.level(np.array([1e-12, 1e-12])), [0.0, 1e-12])


def statistics(mean: float, variance: float) -> dict[str, Any]:
    unknown = (math.nan, math.nan)
    deviation = math.sqrt(variance)
    return {
        "mean": (mean, (mean, mean)),
        "variance": (variance, (0.0, variance)),
        "deviation": (deviation, (0.0, deviation)),
        "sharpe": (mean / deviation, (0.0, 1e16)),
        "cvar": (mean, (mean, mean)),
        "worst": (mean, unknown),
        "reward_mean": (mean, unknown),
        "reward_variance": (variance, unknown),
    }


def test_an_evaluation_without_spread_has_none_and_an_infinite_ratio() -> None:
    shown = _without_rounding(statistics(500.0, 1e-24))
    assert shown["variance"] == shown["deviation"] == (0.0, (0.0, 0.0))
    assert shown["sharpe"][0] == math.inf
    assert shown["reward_variance"][0] == 0.0
    assert math.isnan(shown["worst"][1][0])
    whole = statistics(500.0, 1.0)
    assert _without_rounding(whole)["sharpe"] == whole["sharpe"]


def test_the_report_has_no_rounding_errors() -> None:
    returns = tuple(0.1 + 0.2 + 1e-16 * k for k in range(10))
    outcome = Outcome(1, returns, reward_mean=1.0, reward_variance=9.7e-16, reward_quantiles=())
    found = estimates([outcome])
    assert found["deviation"].value == 0.0
    assert found["sharpe"].value == math.inf
    assert found["reward_variance"].value == 0.0
    assert found["mean"].value == pytest.approx(0.3)
