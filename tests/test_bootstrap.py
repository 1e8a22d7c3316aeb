"""The bootstrap: its interval, and that it covers what it should."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mvpi import _bootstrap as bootstrap


def test_an_interval_holds_the_middle() -> None:
    assert bootstrap.interval(np.arange(1, 1025), confidence=0.9375) == (32.0, 992.0)
    assert bootstrap.interval(np.arange(1, 1001), confidence=0.5) == (250.0, 750.0)
    assert bootstrap.interval([3.0]) == (3.0, 3.0)


def test_infinite_values_are_not_interpolated() -> None:
    assert bootstrap.interval([1.0, math.inf]) == (1.0, math.inf)
    assert bootstrap.interval([-math.inf, math.inf]) == (-math.inf, math.inf)


def test_values_that_are_no_numbers_have_no_interval() -> None:
    assert all(map(math.isnan, bootstrap.interval([1.0, math.nan, 2.0])))


def test_an_interval_of_the_mean_covers_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(300):
        runs = list(rng.normal(size=(20, 1)) + 0.1 * rng.normal(size=(20, 10)))
        drawn = bootstrap.draw_runs(20, 200, rng)
        (means,) = bootstrap.of_drawn(runs, drawn, (lambda rows: rows.mean(axis=1),), rng)
        low, high = bootstrap.interval(means.mean(axis=1))
        covered += low <= 0.0 <= high
    assert covered / 300 == pytest.approx(0.93, abs=0.04)
