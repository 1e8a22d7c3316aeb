"""Objects, errors and changes as short text, for messages, tables and records."""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from mvpi.stats import relative_change

_LONGEST_REASON = 200
_DIGITS = 8


def without_address(description: str) -> str:
    """What `repr` or `str` says of an object, without its address in memory.

    >>> without_address("<Gamble object at 0x7f55d4e1c0d0>")
    '<Gamble object>'
    """
    return re.sub(r" at 0x[0-9a-f]+", "", description)


def one_line(text: str) -> str:
    """Text without line breaks and repeated blanks.

    >>> one_line("cannot be\\n   read")
    'cannot be read'
    """
    return " ".join(text.split())


def reason(error: BaseException) -> str:
    """Why another library or the system failed, as one short line to be put into a message.

    >>> reason(KeyError("steps")), reason(OSError(28, "No space left on device", "a.csv"))
    ("'steps' is missing", 'No space left on device')
    """
    if isinstance(error, KeyError):
        return f"{error} is missing"
    told = error.strerror if isinstance(error, OSError) else None
    return one_line(told or str(error))[:_LONGEST_REASON]


def rounded_up(number: float) -> str:
    """Eight digits, not below the number: a lower bound that is accepted when it is typed in.

    >>> rounded_up(0.28994971001), rounded_up(0.6), rounded_down(-0.28994971001)
    ('0.28994972', '0.6', '-0.28994972')
    """
    return _rounded(number, ROUND_CEILING)


def rounded_down(number: float) -> str:
    """Eight digits, not above the number; see `rounded_up`."""
    return _rounded(number, ROUND_FLOOR)


def _rounded(number: float, direction: str) -> str:
    known = f"{number:.12g}"  # the digits beyond are rounding errors: 0.6 stays 0.6
    rounded = Context(prec=_DIGITS, rounding=direction).create_decimal(known)
    return f"{float(rounded):.{_DIGITS}g}"


def percent_change(before: float, after: float) -> str:
    """A change in percent, as `percent` writes it; empty where it is not finite, as from 0.

    >>> percent_change(100.0, 112.3), percent_change(5.0, 5.0001), percent_change(0.0, 3.0)
    ('+12%', '0%', '')
    """
    share = float(relative_change(after, before))
    return percent(share) if math.isfinite(share) else ""


def change(before: float, after: float) -> str:
    """A change in percent; from 0, the difference.

    >>> change(4.0, 3.0), change(0.0, 0.25), change(0.05, -1.0)
    ('-25%', '+0.25', '-2,100%')
    """
    return percent_change(before, after) or f"{after - before:+.3g}"


def percent(share: float) -> str:
    """A relative change in percent: small ones with a decimal, large ones as powers of ten.

    NaN, such as the change between two infinities, is a question mark.

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
