"""How commands print numbers."""

from __future__ import annotations

import json
import math
from typing import Any

from mvpi.report.changes import relative_change


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


def number(value: float, noise: float = 1e-15) -> str:
    """Five digits, and rounding noise shown as the zero it is."""
    return f"{_without_noise(value, noise):.5g}"


def change(before: float, after: float, noise: float = 0.0) -> str:
    """In percent; from 0, of which nothing is a percentage, the difference."""
    before = _without_noise(before, noise)
    after = before + _without_noise(after - before, noise)
    share = float(relative_change(after, before))
    return f"{100 * share:+.3g}%" if math.isfinite(share) else f"{after - before:+.3g}"


def _without_noise(value: float, noise: float) -> float:
    return 0.0 if abs(value) <= noise else value
