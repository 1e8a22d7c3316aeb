"""Rounding errors in statistics are shown as zeros.

One rule for everything that is printed or drawn: a mean (or a value, a bound, a quantile) below
1e-9 of the size of what was earned is 0, and so is a standard deviation below 1e-7 of it, the root
of a variance below 1e-14 of its square. JSON, CSV and Python keep the raw numbers.
"""

from __future__ import annotations

from typing import overload

import numpy as np

from mvpi._types import Array

_OF_MEAN = 1e-9
_OF_DEVIATION = 1e-7
"""Larger: a variance is a difference, and its root halves the digits that are left."""


class Rounding:
    """Tells rounding errors from numbers by the size of what was earned, `|mean| + deviation`.

    `least` is a lower bound on that size, such as the smallest reward other than 0.
    Statistics may be arrays, one for each of several samples.

    >>> rounding = Rounding(mean=-1.0, variance=9.7e-16)
    >>> rounding.variance(9.7e-16), rounding.deviation(3e-8), rounding.level(2e-16)
    (0.0, 0.0, 0.0)
    >>> Rounding(mean=1e-12, variance=1e-24).variance(1e-24)
    1e-24
    """

    def __init__(self, mean: float | Array, variance: float | Array, least: float = 0.0) -> None:
        deviation = np.sqrt(np.maximum(variance, 0.0))
        self._size = np.maximum(np.abs(mean) + deviation, least)

    @overload
    def level(self, value: float) -> float: ...
    @overload
    def level(self, value: Array) -> Array: ...
    def level(self, value: float | Array) -> float | Array:
        """A mean, or anything else in the units of the rewards that is not a spread."""
        return _cut(value, _OF_MEAN * self._size)

    @overload
    def deviation(self, value: float) -> float: ...
    @overload
    def deviation(self, value: Array) -> Array: ...
    def deviation(self, value: float | Array) -> float | Array:
        """A standard deviation."""
        return _cut(value, _OF_DEVIATION * self._size)

    @overload
    def variance(self, value: float) -> float: ...
    @overload
    def variance(self, value: Array) -> Array: ...
    def variance(self, value: float | Array) -> float | Array:
        """A variance."""
        return _cut(value, (_OF_DEVIATION * self._size) ** 2)


def _cut(value: float | Array, noise: float | Array) -> float | Array:
    kept = np.where(np.abs(value) <= noise, 0.0, value)
    return kept if kept.ndim else float(kept)
