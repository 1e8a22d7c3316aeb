"""Numbers, changes, counts and lists as the page prints them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from mvpi._text import percent_change

MINUS = "\N{MINUS SIGN}"


def number(value: float, digits: int = 4) -> str:
    """So many digits, thousands grouped. Rounding errors are for `mvpi._rounding` to leave out.

    >>> number(12345.6), number(0.0123456), number(0.0123456, digits=3), number(-0.0)
    ('12,346', '0.01235', '0.0123', '0')
    >>> number(1000.0), number(3.2), number(554.0, digits=3)
    ('1,000', '3.200', '554')
    """
    if math.isnan(value):
        return "\N{EN DASH}"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if value == 0:
        return "0"
    if abs(value) >= 1e7 or abs(value) < 1e-4:
        text = f"{value:.3g}"
    elif abs(value) >= 999.5:
        text = f"{value:,.0f}"
    else:
        text = f"{value:#.{digits}g}".rstrip(".")
    return text.replace("-", MINUS)


def share(value: float, digits: int = 4) -> str:
    """A part of a whole, in percent.

    >>> share(0.1234), share(1.0, digits=3)
    ('12.3%', '100.0%')
    """
    del digits
    return f"{value:.1%}"


def between(low: float, high: float, text: Callable[[float, int], str] = number) -> str:
    """An interval, as `text` writes its ends with three digits; empty where it is not known.

    >>> between(1.0, 2.5), between(0.1, 0.2, share), between(math.nan, 1.0)
    ('1.00 to 2.50', '10.0% to 20.0%', '')
    """
    known = not (math.isnan(low) or math.isnan(high))
    return f"{text(low, 3)} to {text(high, 3)}" if known else ""


def change(before: float, after: float) -> str:
    """In percent, with a typographic minus; empty where it is not finite, as from 0.

    >>> change(100.0, 112.3), change(-8.0, -8.125), change(5.0, 5.0001), change(0.0, 3.0)
    ('+12%', '\N{MINUS SIGN}1.6%', '0%', '')
    """
    return percent_change(before, after).replace("-", MINUS)


def counted(counts: Collection[int], what: str) -> str:
    """How many of something there are in each of several places.

    >>> counted([3, 3], "seed"), counted([1], "seed"), counted([3, 5], "seed")
    ('3 seeds', '1 seed', '3 to 5 seeds')
    """
    few, many = min(counts), max(counts)
    if few != many:
        return f"{few:,} to {many:,} {what}s"
    return f"{few:,} {what}{'' if few == 1 else 's'}"


def listed(names: Collection[str]) -> str:
    """Names in a sentence; labels have commas of their own, so they are parted by semicolons."""
    *before, last = names
    return f"{'; '.join(before)} and {last}" if before else last
