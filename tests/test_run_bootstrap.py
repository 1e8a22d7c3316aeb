"""Statistics of many samples at once, and the bootstrap over runs and episodes."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from mvpi import _bootstrap, stats

RETURNS = [np.random.default_rng(s).normal(3, 1, size=size) for s, size in enumerate((40, 25, 33))]


def of_drawn(resamples: int = 50, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    drawn = _bootstrap.draw_runs(len(RETURNS), resamples, rng)
    return _bootstrap.of_drawn(RETURNS, drawn, (_bootstrap.means, _bootstrap.variances), rng)


def test_a_resample_is_of_drawn_runs_and_their_drawn_episodes() -> None:
    """Runs of one value each, told apart by it: only drawing runs can change anything."""
    constant = [np.full(5, 1.0), np.full(3, 2.0)]
    rng = np.random.default_rng(0)
    drawn = _bootstrap.draw_runs(2, 100, rng)
    means, variances = _bootstrap.of_drawn(
        constant, drawn, (_bootstrap.means, _bootstrap.variances), rng
    )
    np.testing.assert_array_equal(means, drawn + 1.0)
    assert not variances.any()


def test_the_spread_of_resampled_means_is_the_standard_error() -> None:
    returns = [np.random.default_rng(9).normal(5, 2, size=100)]
    rng = np.random.default_rng(0)
    drawn = _bootstrap.draw_runs(1, 4_000, rng)
    (means,) = _bootstrap.of_drawn(returns, drawn, (_bootstrap.means,), rng)
    assert means.mean() == pytest.approx(returns[0].mean(), abs=0.02)
    assert means.std() == pytest.approx(returns[0].std() / 10, rel=0.05)


@pytest.mark.parametrize("at_once", [1, 100, 10**9])
def test_it_does_not_matter_how_many_are_drawn_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = of_drawn()
    monkeypatch.setattr("mvpi._bootstrap._AT_ONCE", at_once)
    np.testing.assert_array_equal(of_drawn(), expected)
    assert (of_drawn(seed=1) != expected).any()


def test_many_episodes_do_not_fill_the_memory() -> None:
    returns = [np.arange(50_000.0)] * 2
    rng = np.random.default_rng(0)
    drawn = _bootstrap.draw_runs(2, 100, rng)
    tracemalloc.start()
    _bootstrap.of_drawn(returns, drawn, (_bootstrap.means, _bootstrap.variances), rng)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2e7  # all resamples at once have 160 MB


def test_rounding_is_no_variance() -> None:
    rows = np.array([[0.1] * 100, [-1e6 / 3] * 100, [1.0, 1.0 + 1e-9] * 50, [0.0] * 100])
    assert _bootstrap.variances(rows).tolist() == pytest.approx([0, 0, 0.25e-18, 0], rel=1e-6)
    assert _bootstrap.variances(rows)[:2].tolist() == [0, 0]


def test_ratios_without_variance() -> None:
    found = stats.sharpe_ratio(np.array([6.0, 1.0, -1.0, 0.0]), np.array([4.0, 0.0, 0.0, 0.0]))
    assert found.tolist() == pytest.approx([3.0, math.inf, -math.inf, math.nan], nan_ok=True)


def test_an_interval_holds_the_middle() -> None:
    assert _bootstrap.interval(np.arange(1_000.0)) == pytest.approx((25, 975), abs=1)
    assert _bootstrap.interval(np.full(10, math.inf)) == (math.inf, math.inf)
    assert all(map(math.isnan, _bootstrap.interval(np.array([1.0, math.nan]))))
