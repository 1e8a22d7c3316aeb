"""Changes against a baseline: how large they are, and how they are written."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def relative_change(x: npt.ArrayLike, base: npt.ArrayLike) -> Array:
    """`(x - base) / |base|`, also where it has to be a limit.

    Nothing changed is 0, even from 0 or infinity. From infinity to a number is -1, from minus
    infinity 1. From 0 to a number is infinite, from one infinity to the other not a number.
    """
    x, base = np.broadcast_arrays(np.asarray(x, float), np.asarray(base, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = (x - base) / np.abs(base)
    return np.select([x == base, np.isinf(base) & np.isfinite(x)], [0.0, -np.sign(base)], plain)


def percent(share: float) -> str:
    """A change as a person reads it: small ones with a decimal, large ones as powers of ten.

    A change that is no number, such as one between infinities, is a question mark.

    >>> percent(0.123), percent(-0.0126), percent(0.997), percent(-0.0004), percent(3e5)
    ('+12%', '-1.3%', '+99.7%', '0%', '+3e7%')
    """
    if math.isnan(share):
        return "?"
    if math.isinf(share):
        return "+inf" if share > 0 else "-inf"
    value = 100.0 * share
    if abs(value) >= 1e5:
        return f"{value:+.0e}%".replace("e+0", "e").replace("e+", "e")
    whole = 9.95 <= abs(value) < 99 or abs(value) >= 100  # almost all is not all
    rounded = round(value, 0 if whole else 1)
    return f"{rounded:+,g}%" if rounded else "0%"
