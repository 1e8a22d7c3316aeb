"""Statistics of a sample or of a discrete distribution.

Every function takes `values` and optional `weights`, probabilities up to a factor. Without
weights all values count the same, and variances divide by `n`: they describe the sample itself.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mvpi.errors import InputError

Array = npt.NDArray[np.float64]

_LARGEST_COUNT = 10**12


def distribution(
    values: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> tuple[Array, Array | None]:
    """`values` and `weights`, checked and flat; weights are scaled to sum to one.

    Raises `InputError` for an empty sample, values that are not finite, and weights that are
    negative, not finite, all zero, or not one per value.
    """
    x = _flat(values, "values")
    if x.size == 0:
        raise InputError("values must not be empty: a statistic needs at least one")
    if not np.isfinite(x).all():
        at = int(np.argmin(np.isfinite(x)))
        raise InputError(f"values must be finite, values[{at}] is {x[at]}")
    if weights is None:
        return x, None
    w = _flat(weights, "weights")
    if w.shape != x.shape:
        raise InputError(f"weights must be one per value: {x.size} values, {w.size} weights")
    if not (np.isfinite(w) & (w >= 0)).all():
        at = int(np.argmin(np.isfinite(w) & (w >= 0)))
        raise InputError(f"weights must be finite and >= 0, weights[{at}] is {w[at]}")
    total = float(w.sum())
    if total <= 0:
        raise InputError("weights must not all be zero")
    return x, w / total


def mean(values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """`E[X]`.

    >>> mean([1, 2, 6], weights=[1, 1, 0])
    1.5
    """
    x, w = distribution(values, weights)
    return _mean(x, w)


def variance(values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """`E[(X - E[X])^2]`.

    >>> variance([1, 3])
    1.0
    """
    x, w = distribution(values, weights)
    # Seen from one of them, values that are all the same differ by nothing, rounding included.
    distance = x - x[0 if w is None else int(np.argmax(w))]
    return _mean((distance - _mean(distance, w)) ** 2, w)


def sharpe(values: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
    """`E[X] / sqrt(Var(X))`, the Sharpe ratio; infinite when a non-zero mean has no variance.

    >>> sharpe([1, 3])
    2.0
    """
    centre, spread = mean(values, weights), math.sqrt(variance(values, weights))
    if spread > 0:
        return centre / spread
    return math.nan if centre == 0 else math.copysign(math.inf, centre)


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


def cvar(values: npt.ArrayLike, level: float, weights: npt.ArrayLike | None = None) -> float:
    """The mean of the worst `level` share of `X`: its conditional value at risk.

    >>> cvar([1, 2, 3, 4], level=0.5)
    1.5
    """
    x, w = distribution(values, weights)
    y = quantile(x, level, w)
    return y - _mean(np.maximum(y - x, 0.0), w) / level


def check_level(level: float) -> float:
    """`level` as a float in (0, 1], or an `InputError`."""
    return check_number(level, "level", above=0.0, at_most=1.0)


def check_number(
    value: float,
    name: str,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> float:
    """`value` as a finite float inside the bounds, or an `InputError` that states them."""
    bounds = [f"> {above:g}"] if above > -math.inf else []
    bounds += [f">= {at_least:g}"] if at_least > -math.inf else []
    bounds += [f"<= {at_most:g}"] if at_most < math.inf else []
    rule = f"{name} must be {' and '.join(bounds)}" if bounds else f"{name} must be finite"
    if isinstance(value, bool | str | bytes):
        raise InputError(f"{rule}, got {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{rule}, got {str(value)[:80]}") from None
    if not (math.isfinite(number) and number > above and at_least <= number <= at_most):
        raise InputError(f"{rule}, got {number}")
    return number


def check_count(value: int, name: str, *, at_least: int = 1) -> int:
    """A whole number from `at_least` to 10^12 as an `int`, or an `InputError`."""
    rule = f"{name} must be a whole number >= {at_least}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InputError(f"{rule}, got {value!r}")
    try:
        number = value.__index__()
    except TypeError:
        raise InputError(f"{rule}, got {value!r}") from None
    if number < at_least:
        raise InputError(f"{rule}, got {_abridged(number)}")
    if number > _LARGEST_COUNT:
        raise InputError(f"{rule} and <= {_LARGEST_COUNT}, got {_abridged(number)}")
    return number


def _abridged(number: int) -> str:
    """A whole number as text; one of many digits by its first ones and its size.

    Python converts it neither to a float, beyond 1e308, nor to text, beyond 4300 digits.
    """
    if abs(number) <= _LARGEST_COUNT:
        return str(number)
    size = abs(number)
    exponent = round(math.log10(size))
    exponent -= size < 10**exponent
    digits = str(size // 10 ** (exponent - 3))
    return f"{'-' if number < 0 else ''}{digits[0]}.{digits[1:]}e+{exponent}"


def _mean(x: Array, w: Array | None) -> float:
    return float(x.mean() if w is None else w @ x)


def _flat(values: npt.ArrayLike, name: str) -> Array:
    try:
        return np.asarray(values, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from None
