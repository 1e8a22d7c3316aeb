"""Samples of returns, one a run: their statistics, and the bootstrap over runs and episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
OfRows = Callable[[Array], Array]
"""A statistic of every row at once: `mvpi.stats` takes one sample at a time, too slow here."""

CONFIDENCE = 0.95
_ROUNDING = 1e-12
"""A deviation of less than this share of the mean is rounding: 0.1 a hundred times has 3e-16."""
_AT_ONCE = 2**18
"""How many values are drawn together: a bootstrap of many episodes must not fill the memory."""


def means(rows: Array) -> Array:
    return np.asarray(rows.mean(axis=1))


def variances(rows: Array) -> Array:
    """0 where the values of a row differ by nothing but rounding."""
    return without_rounding(means(rows), rows.var(axis=1))


def without_rounding(means: Array, variances: Array) -> Array:
    """The variances, 0 where they are nothing but rounding."""
    return np.where(variances < (_ROUNDING * means) ** 2, 0.0, variances)


def sharpe_ratio(mean: Array, variance: Array) -> Array:
    """`mean / sqrt(variance)`; infinite without variance, and not a number if the mean is 0 too."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(mean / np.sqrt(variance))


def of_each(samples: Sequence[Array], statistics: Sequence[OfRows]) -> Array:
    """The statistics of every sample, (statistics, samples); samples may differ in size."""
    return np.array([[of_rows(x[np.newaxis])[0] for x in samples] for of_rows in statistics])


def draw_runs(runs: int, resamples: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Runs drawn again, as many as there are: (resamples, runs)."""
    return rng.integers(runs, size=(resamples, runs))


def of_drawn(
    samples: Sequence[Array],
    drawn: npt.NDArray[np.int64],
    statistics: Sequence[OfRows],
    rng: np.random.Generator,
) -> Array:
    """The statistics of every drawn run after its episodes are drawn again too.

    `drawn` says which sample is whose; the result is (statistics, *drawn.shape), and not a number
    where the sample is empty.
    """
    found = np.full((len(statistics), *drawn.shape), np.nan)
    for run, sample in enumerate(samples):
        if not len(sample):
            continue
        places = np.argwhere(drawn == run)
        step = max(1, _AT_ONCE // len(sample))
        for start in range(0, len(places), step):
            some = places[start : start + step]
            rows = sample[rng.integers(len(sample), size=(len(some), len(sample)))]
            found[:, some[:, 0], some[:, 1]] = [of_rows(rows) for of_rows in statistics]
    return found


def interval(values: Array) -> tuple[float, float]:
    """Where the middle 95% of bootstrap values are; not numbers if one of them is none."""
    if np.isnan(values).any():
        return math.nan, math.nan
    tail = 0.5 * (1.0 - CONFIDENCE)
    # Infinite ratios must not be interpolated.
    low, high = np.quantile(values, [tail, 1.0 - tail], method="inverted_cdf")
    return float(low), float(high)
