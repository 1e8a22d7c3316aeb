"""How commands print numbers."""

from __future__ import annotations

import json
import math
from typing import Any

from mvpi.report.changes import percent, relative_change


def print_json(facts: dict[str, Any]) -> None:
    """One JSON object on standard output; numbers that are not finite become null."""
    print(json.dumps(_finite(facts), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def number(value: float) -> str:
    """Five digits. Rounding errors are for `mvpi.rounding` to leave out.

    >>> number(1.2345678), number(-0.0)
    ('1.2346', '0')
    """
    return f"{value + 0.0:.5g}"


def change(before: float, after: float) -> str:
    """In percent; from 0, of which nothing is a percentage, the difference.

    >>> change(4.0, 3.0), change(0.0, 0.25), change(0.05, -1.0)
    ('-25%', '+0.25', '-2,100%')
    """
    share = float(relative_change(after, before))
    return percent(share) if math.isfinite(share) else f"{after - before:+.3g}"
