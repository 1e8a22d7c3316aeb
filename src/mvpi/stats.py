"""Statistics of a sample or of a discrete distribution.

Most functions take `values` and optional `weights`, probabilities up to a factor. Without
weights all values count the same, and variances divide by `n`: they describe the sample itself.
"""

from __future__ import annotations

import math
from typing import overload

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count, check_number, finite_array, real_array
from mvpi._types import Array
from mvpi.errors import InputError

__all__ = [
    "check_count",
    "check_level",
    "check_number",
    "cvar",
    "distribution",
    "mean",
    "quantile",
    "relative_change",
    "sharpe",
    "sharpe_ratio",
    "variance",
]


_LARGEST_WEIGHT = 1e150


def distribution(
    values: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> tuple[Array, Array | None]:
    """`values` and `weights`, checked and flat; weights are scaled to sum to one.

    Raises `InputError` for an empty sample, values that are not finite, and weights that are
    negative, not finite, all zero, or not one per value.
    """
    x = real_array(values, "values").ravel()
    if x.size == 0:
        raise InputError("values must not be empty: a statistic needs at least one")
    if not np.isfinite(x).all():
        at = int(np.argmin(np.isfinite(x)))
        raise InputError(f"values must be finite, values[{at}] is {x[at]}")
    if weights is None:
        return x, None
    w = real_array(weights, "weights").ravel()
    if w.shape != x.shape:
        raise InputError(f"weights must be one per value: {x.size} values, {w.size} weights")
    if not (np.isfinite(w) & (w >= 0)).all():
        at = int(np.argmin(np.isfinite(w) & (w >= 0)))
        raise InputError(f"weights must be finite and >= 0, weights[{at}] is {w[at]}")
    largest = float(w.max())
    if largest <= 0:
        raise InputError("weights must not all be zero")
    if largest > _LARGEST_WEIGHT:  # their sum might overflow
        w = w / largest
    return x, w / float(w.sum())


def mean(values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """`E[X]`.

    >>> mean([1, 2, 6], weights=[1, 1, 0])
    1.5
    """
    x = real_array(values, "values")
    if weights is None and x.size > 0:
        plain = _mean(x.ravel(), None)
        if math.isfinite(plain):  # so are all values: none need be looked at
            return plain
    x, w = distribution(x, weights)
    return _without_overflow(_mean(x, w), x)


def variance(values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """`E[(X - E[X])^2]`.

    >>> variance([1, 3])
    1.0
    """
    x, w = distribution(values, weights)
    # Seen from one of them, values that are all the same differ by nothing, rounding included.
    with np.errstate(over="ignore"):
        distance = x - x[0 if w is None else int(np.argmax(w))]
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (distance - _mean(distance, w)) ** 2
    return _without_overflow(_mean(squares, w), x)


def sharpe(values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """`E[X] / sqrt(Var(X))`, the Sharpe ratio; infinite when a non-zero mean has no variance.

    >>> sharpe([1, 3])
    2.0
    """
    return float(sharpe_ratio(mean(values, weights), variance(values, weights)))


def sharpe_ratio(mean: npt.ArrayLike, variance: npt.ArrayLike) -> Array:
    """`mean / sqrt(variance)`, of arrays too; without variance infinite, or nan if the mean is 0.

    >>> sharpe_ratio([1.0, 1.0], [4.0, 0.0])
    array([0.5, inf])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.asarray(mean, np.float64) / np.sqrt(np.asarray(variance, np.float64)))


def quantile(values: npt.ArrayLike, level: float, weights: npt.ArrayLike | None = None) -> float:
    """The smallest value `x` with `P(X <= x) >= level`, for `level` in (0, 1].

    >>> quantile([30, 10, 20], level=0.5)
    20.0
    """
    x, w = distribution(values, weights)
    wanted = check_level(level) * (1.0 - 1e-12)
    if w is None:
        place = max(math.ceil(wanted * x.size), 1) - 1
        return float(np.partition(x, place)[place])
    order = np.argsort(x, kind="stable")
    reached = np.cumsum(w[order]) >= wanted
    return float(x[order[int(np.argmax(reached))]] if reached.any() else x[order[-1]])


@overload
def cvar(
    values: npt.ArrayLike, level: float, weights: npt.ArrayLike | None = None, axis: None = None
) -> float: ...


@overload
def cvar(values: npt.ArrayLike, level: float, weights: None = None, *, axis: int) -> Array: ...


def cvar(
    values: npt.ArrayLike,
    level: float,
    weights: npt.ArrayLike | None = None,
    axis: int | None = None,
) -> float | Array:
    """The mean of the worst `level` share of `X`: its conditional value at risk.

    With an `axis`, that of every sample along it; all values then count the same.

    >>> cvar([1, 2, 3, 4], level=0.5)
    1.5
    >>> cvar([[1, 2, 3, 4], [5, 6, 7, 8]], level=0.5, axis=1)
    array([1.5, 5.5])
    """
    if axis is not None:
        return _cvar_along(values, check_level(level), weights, axis)
    x, w = distribution(values, weights)
    y = quantile(x, level, w)
    with np.errstate(over="ignore"):
        shortfall = _mean(np.maximum(y - x, 0.0), w) / check_level(level)
    return _without_overflow(y - shortfall, x)


def relative_change(x: npt.ArrayLike, base: npt.ArrayLike) -> Array:
    """`(x - base) / |base|`, also where it has to be a limit.

    Nothing changed is 0, even from 0 or infinity. From infinity to a number is -1, from minus
    infinity 1. From 0 to a number is infinite, from one infinity to the other not a number.
    """
    x, base = np.broadcast_arrays(np.asarray(x, float), np.asarray(base, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = (x - base) / np.abs(base)
    return np.select([x == base, np.isinf(base) & np.isfinite(x)], [0.0, -np.sign(base)], plain)


def check_level(level: float) -> float:
    """`level` as a float in (0, 1], or an `InputError`."""
    return check_number(level, "level", above=0.0, at_most=1.0)


def _mean(x: Array, w: Array | None) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        # The bits of `x.mean()`, without its code in Python, which takes longer than the sum.
        return float(np.add.reduce(x) / x.size if w is None else w @ x)


def _cvar_along(
    values: npt.ArrayLike, level: float, weights: npt.ArrayLike | None, axis: int
) -> Array:
    if weights is not None:
        raise InputError("cvar takes weights or an axis, not both")
    rows = np.moveaxis(finite_array(values, "values"), axis, -1)
    if rows.shape[-1] == 0:
        raise InputError("values must not be empty: a statistic needs at least one")
    wanted = level * rows.shape[-1]
    worst = np.sort(rows, axis=-1)[..., : max(math.ceil(wanted * (1.0 - 1e-12)), 1)]
    quantile = worst[..., -1:]
    return np.asarray(quantile[..., 0] - (quantile - worst).sum(-1) / wanted)


def _without_overflow(statistic: float, values: Array) -> float:
    if not math.isfinite(statistic):
        largest = float(np.abs(values).max())
        raise InputError(f"values up to {largest:g} are too large for this statistic: scale them")
    return statistic
