"""Which policy of a range to use at a risk aversion: its own, unless another one did better.

What one training run learns is a family of policies, one for each risk aversion of the range. The
one that was learned for `lam` need not be the best of them at `lam`: where good policies are far
apart, the networks change from one to the other a little too early or too late. What was measured
of the family tells. With the episodes of every policy,

    J(policy) = mean - lam variance

is estimated for all of them, and another policy is taken if it is better by more than chance: by a
one-sided t-test of the difference, at the level 0.05 over the number of policies (Bonferroni).
Neighbouring policies are pooled, and standard errors clustered by episode (the delta method).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mvpi._types import Array
from mvpi.augmenter.monotone_regression import bin_of
from mvpi.risk.extended import RiskRange

_LEVEL = 0.05


def best_of_range(known: RiskRange, risk_aversion: float, episodes: Array) -> float:
    """The risk aversion of the range whose policy to use at `risk_aversion`.

    `episodes` are rows: the risk aversion that an episode was acted with, and number, sum and sum
    of squares of its rewards; for the risk of the return 1, the return, and its square.
    """
    x = known.coordinate(episodes[:, 0])
    _, group = np.unique(bin_of(x), return_inverse=True)
    size = np.bincount(group)
    known_well = np.flatnonzero(size > 1)
    if len(known_well) < 2:
        return risk_aversion
    inside = np.isin(group, known_well)
    group = np.searchsorted(known_well, group[inside])
    place = np.bincount(group, x[inside]) / size[known_well]
    value, error, freedom = _objectives(risk_aversion, episodes[inside, 1:], group)
    own_place = known.coordinate(risk_aversion)
    own = np.interp(own_place, place, value)
    own_error = np.interp(own_place, place, error)
    needed = _t_quantile(1.0 - _LEVEL / len(value), freedom) * np.hypot(error, own_error)
    better = np.flatnonzero(value - own > needed)
    if not better.size:
        return risk_aversion
    best = better[np.argmax(value[better])]
    return float(np.clip(known.from_coordinate(place[best]), known.low, known.high))


def _objectives(
    lam: float, episodes: Array, group: npt.NDArray[np.intp]
) -> tuple[Array, Array, Array]:
    """`mean - lam variance` of every group with its neighbours, the standard error, and its degrees
    of freedom."""
    count = np.bincount(group).astype(np.float64)
    steps, total, squares = (np.asarray(np.bincount(group, c), np.float64) for c in episodes.T)
    mean, square = total / steps, squares / steps
    n, s, q = episodes.T
    # What an episode adds to the error of the estimate: the objective is (1 + lam mean) mean - lam
    # square, and its slope in the mean is 1 + 2 lam mean.
    residual = (1.0 + 2.0 * lam * mean[group]) * (s - mean[group] * n)
    residual -= lam * (q - square[group] * n)
    squared = _with_neighbours(np.asarray(np.bincount(group, np.square(residual)), np.float64))
    per_step = squared / _with_neighbours(steps * (count - 1.0) / count)
    value = mean - lam * (square - np.square(mean))
    together = _with_neighbours(steps)
    smoothed = _with_neighbours(value * steps) / together
    return smoothed, np.sqrt(per_step / together), _with_neighbours(count - 1.0)


def _with_neighbours(values: Array) -> Array:
    """Every entry plus those beside it."""
    around = np.pad(values, 1)
    return np.asarray(around[:-2] + values + around[2:], np.float64)


def _t_quantile(probability: float, freedom: Array) -> Array:
    from scipy.special import stdtrit

    return np.asarray(stdtrit(freedom, probability), np.float64)
