"""`y` as a function of the risk aversion: a monotone regression of rewards.

The mean of the best policy falls as the risk aversion rises: of two policies, each the best at its
own risk aversion, the one for the larger has the smaller mean (and the smaller variance). So
`y(lam) = E[R | lam]` is estimated by an isotonic, non-increasing regression: rewards are averaged
in bins of the coordinate of `lam`, neighbours that rise are pooled (the pool-adjacent-violators
algorithm, Barlow 1972), and values between bins are interpolated. Beyond the outermost bins it is
constant, so it cannot run away from the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi._types import Array
from mvpi.risk.extended import BEYOND

_WIDTH = 0.1
_BELOW = math.ceil((BEYOND - 1.0) / _WIDTH - 1e-9)
"""Bins below the low end of the range, and as many above the high end."""
BINS = round(2.0 / _WIDTH) + 2 * _BELOW + 1
"""One of them is for the low end of the range alone: a risk aversion of 0 is drawn often."""


@dataclass(frozen=True)
class MonotoneFit:
    """A non-increasing, piecewise linear function of a coordinate in a range."""

    knots: Array
    values: Array

    def __call__(self, coordinate: npt.ArrayLike) -> Array:
        return np.asarray(np.interp(np.asarray(coordinate, np.float64), self.knots, self.values))


def bin_of(coordinate: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The bin that a coordinate in [-BEYOND, BEYOND] falls into."""
    x = np.asarray(coordinate, np.float64)
    place = np.floor((x + 1.0) / _WIDTH).astype(np.int64) + _BELOW + (x > -1.0)
    return np.asarray(np.clip(place, 0, BINS - 1))


def monotone_fit(
    coordinates: Array, values: Array, bins: npt.NDArray[np.int64] | None = None
) -> MonotoneFit:
    """The non-increasing regression of `values` on `coordinates`.

    `bins` are those of the coordinates, if they are known already.
    """
    return fit_of_sums(bin_sums(coordinates, values, bin_of(coordinates) if bins is None else bins))


def bin_sums(coordinates: Array, values: Array, bins: npt.NDArray[np.int64]) -> Array:
    """Of every bin: how many, the sum of their coordinates, and of their values."""
    weights = (None, coordinates, values)
    return np.array([np.bincount(bins, w, minlength=BINS) for w in weights], np.float64)


def fit_of_sums(sums: Array) -> MonotoneFit:
    """The regression of what was summed by `bin_sums`."""
    counts, coordinates, values = sums[:, sums[0] > 0.0]
    return MonotoneFit(coordinates / counts, non_increasing(values / counts, counts))


def standard_errors(
    fit: MonotoneFit, coordinates: Array, values: Array, episodes: npt.NDArray[Any]
) -> Array:
    """Of the values at the knots: values of one episode are not taken for independent.

    The residuals of a bin are summed by episode, and the sums count as independent (the
    cluster-robust standard error). Where a bin has one episode it is not a number.
    """
    places = bin_of(coordinates)
    knot = (np.cumsum(np.bincount(places, minlength=BINS) > 0) - 1)[places]
    residuals = values - fit.values[knot]
    found = np.full(fit.values.size, np.nan)
    for k in range(found.size):
        inside = knot == k
        _, member = np.unique(episodes[inside], return_inverse=True)
        sums = np.bincount(member, residuals[inside])
        if sums.size > 1:
            correction = sums.size / (sums.size - 1.0)
            found[k] = np.sqrt(correction * np.square(sums).sum()) / inside.sum()
    return found


def non_increasing(means: Array, weights: Array) -> Array:
    """The closest non-increasing sequence in weighted least squares."""
    level: list[float] = []
    weight: list[float] = []
    size: list[int] = []
    for m, w in zip(means.tolist(), weights.tolist(), strict=True):
        level.append(m)
        weight.append(w)
        size.append(1)
        while len(level) > 1 and level[-2] < level[-1]:
            total = weight[-2] + weight[-1]
            level[-2] = (weight[-2] * level[-2] + weight[-1] * level[-1]) / total
            weight[-2] = total
            size[-2] += size[-1]
            del level[-1], weight[-1], size[-1]
    return np.asarray(np.repeat(level, size), np.float64)
