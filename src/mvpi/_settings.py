"""What all dataclasses of settings need: names checked, records written, layers counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from difflib import get_close_matches
from typing import Any, TypeVar

import numpy as np

from mvpi._checks import check_count, shown
from mvpi.errors import InputError

Settings = TypeVar("Settings")


def make_settings(kind: type[Settings], given: dict[str, Any]) -> Settings:
    """Settings of that kind; an unknown name raises and says the nearest known one."""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise InputError(f"unknown setting {name}; {hint}")
    return kind(**given)


def recorded(settings: Any, before: dict[str, Any]) -> dict[str, Any]:
    """A dataclass of settings as plain facts, without those that do what they did `before`."""
    return {k: v for k, v in asdict(settings).items() if k not in before or v != before[k]}


def layer_sizes(hidden: Any, fewest: int = 0) -> tuple[int, ...]:
    """The sizes of hidden layers, or an `InputError`."""
    row = isinstance(hidden, np.ndarray) and hidden.ndim == 1
    if not row and (isinstance(hidden, str | bytes) or not isinstance(hidden, Sequence)):
        raise InputError(f"hidden must be a sequence like (400, 300), got {shown(hidden)}")
    sizes = tuple(check_count(size, "each size in hidden") for size in hidden)
    if len(sizes) < fewest:
        raise InputError("hidden must name at least one layer")
    return sizes
