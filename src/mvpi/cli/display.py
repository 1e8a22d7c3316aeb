"""How commands print numbers and labels."""

from __future__ import annotations

import json
import math
from typing import Any

from mvpi._checks import shown

_LONGEST_LABEL = 40
"""Characters of a label that a table shows."""


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
    """Five digits. Rounding errors are for `mvpi._rounding` to leave out.

    >>> number(1.2345678), number(-0.0)
    ('1.2346', '0')
    """
    return f"{value + 0.0:.5g}"


def label_text(label: object) -> str:
    """A label of a state or an action in a table: a text without quotes, on one short line."""
    text = " ".join(label.split()) if isinstance(label, str) else shown(label)
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 3]}..."


def json_label(label: object) -> object:
    """A label as JSON has it: tuples become lists, what JSON does not know a text."""
    if isinstance(label, tuple):
        return [json_label(part) for part in label]
    return label if isinstance(label, str | int | float | None) else str(label)
