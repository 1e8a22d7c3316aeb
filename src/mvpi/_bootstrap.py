"""The bootstrap: a statistic of resamples of a sample, and the interval of its values.

For runs with episodes in each of them both are resampled, a two-level bootstrap: `draw_runs` draws
the runs, `of_drawn` their episodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from mvpi._types import Array

OfRows = Callable[[Array], Array]
"""A statistic of every row at once."""

CONFIDENCE = 0.95
_AT_ONCE = 2**18
"""How many values are drawn together: a bootstrap of many episodes must not fill the memory."""
_ROUNDING = 1e-12
"""A deviation of less than this share of the mean is rounding: 0.1 a hundred times has 3e-16."""


def interval(values: npt.ArrayLike, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The interval of the middle `confidence` share of bootstrap values; NaN if one of them is.

    >>> interval(range(1, 101), confidence=0.9)
    (5.0, 95.0)
    """
    found = np.asarray(values, np.float64)
    if np.isnan(found).any():
        return math.nan, math.nan
    tail = 0.5 * (1.0 - confidence)
    # Sharpe ratios may be infinite: they must not be interpolated.
    low, high = np.quantile(found, [tail, 1.0 - tail], method="inverted_cdf")
    return float(low), float(high)


def draw_runs(runs: int, resamples: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Resampled runs, as many as there are: (resamples, runs)."""
    return rng.integers(runs, size=(resamples, runs))


def of_drawn(
    samples: Sequence[Array],
    drawn: npt.NDArray[np.int64],
    statistics: Sequence[OfRows],
    rng: np.random.Generator,
) -> Array:
    """The statistics of every drawn run, its episodes resampled.

    `drawn` holds indices of `samples`; the result is (statistics, *drawn.shape), and NaN where the
    sample is empty.
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


def means(rows: Array) -> Array:
    return np.asarray(rows.mean(axis=1))


def variances(rows: Array) -> Array:
    """0 where the values of a row differ by nothing but rounding."""
    return without_rounding(means(rows), rows.var(axis=1))


def without_rounding(means: Array, variances: Array) -> Array:
    """The variances, 0 where they are nothing but rounding."""
    return np.where(variances < (_ROUNDING * means) ** 2, 0.0, variances)


def of_each(samples: Sequence[Array], statistics: Sequence[OfRows]) -> Array:
    """The statistics of every sample, (statistics, samples); samples may differ in size."""
    return np.array([[of_rows(x[np.newaxis])[0] for x in samples] for of_rows in statistics])
