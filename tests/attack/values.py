"""Values that are wrong for nearly every argument, by name. Each is made anew for every call."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np


class Hostile:
    """Whatever is asked of it raises."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no\nanswer")

    __repr__ = __float__ = __int__ = __index__ = __len__ = __iter__ = __array__ = _refuse
    __fspath__ = __bool__ = __eq__ = _refuse
    __hash__ = object.__hash__


def _pipe() -> Path:
    """One in the working directory: to open it is to wait for ever."""
    path = Path.cwd() / "pipe"
    if not path.exists():
        os.mkfifo(path)
    return path


def _recursive() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "numpy True": lambda: np.True_,
    "True in 0 dimensions": lambda: np.array(True),
    "text": lambda: "abc",
    "number in text": lambda: "1.0",
    "numpy text": lambda: np.str_("1.0"),
    "empty text": lambda: "",
    "bytes": lambda: b"1",
    "NUL": lambda: "a\0b",
    "surrogate": lambda: "\ud800",
    "long text": lambda: "x" * 100_000,
    "lines": lambda: "a\nb\r\nc",
    "nan": lambda: math.nan,
    "numpy nan": lambda: np.float32("nan"),
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "nan as decimal": lambda: Decimal("sNaN"),
    "complex": lambda: 1 + 0j,
    "numpy complex": lambda: np.complex128(0.5),
    "duration": lambda: np.timedelta64(1, "s"),
    "duration of no unit": lambda: np.timedelta64(1),
    "Python duration": lambda: datetime.timedelta(1),
    "date": lambda: np.datetime64("2020-01-01"),
    "huge": lambda: 10**400,
    "huger": lambda: 10**5000,
    "huge negative": lambda: -(10**5000),
    "huge fraction": lambda: Fraction(10**400, 3),
    "-1": lambda: -1,
    "-1.5": lambda: -1.5,
    "masked": lambda: np.ma.masked,
    "masked array": lambda: np.ma.array([0.5, 0.5], mask=[False, True]),
    "list of masked arrays": lambda: [np.ma.array([0.5, 0.5], mask=[False, True])] * 2,
    "list with masked": lambda: [0.5, np.ma.masked],
    "array of text": lambda: np.array(["1", "2"]),
    "array of bytes": lambda: np.array([b"1", b"2"]),
    "list of text": lambda: ["1", "2"],
    "array with None": lambda: np.array([1.0, None], dtype=object),
    "array of dicts": lambda: np.array([{}, {}], dtype=object),
    "array of complex": lambda: np.array([1 + 1j, 0.5]),
    "array of booleans": lambda: np.array([True, False]),
    "array of durations": lambda: np.array([1, 2], dtype="m8[s]"),
    "array of dates": lambda: np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]"),
    "array of nan": lambda: np.array([math.nan, 1.0]),
    "array of inf": lambda: np.array([math.inf, 1.0]),
    "array of huge": lambda: [10**400, 1],
    "array of 1e308": lambda: np.array([1e308, 1e308]),
    "structured array": lambda: np.zeros(2, dtype=[("a", float), ("b", int)]),
    "empty array": lambda: np.array([]),
    "empty list": list,
    "5 dimensions": lambda: np.ones((2, 3, 1, 2, 2)),
    "ragged": lambda: [[1, 2], [3]],
    "recursive": _recursive,
    "dict": lambda: {"a": 1},
    "set": lambda: {1, 2},
    "generator": lambda: (x for x in (1, 2)),
    "range of no end": lambda: iter(int, 1),
    "class": lambda: float,
    "object": object,
    "function": lambda: len,
    "module": lambda: math,
    "hostile": Hostile,
    "missing file": lambda: Path("/nonexistent/directory/x.npz"),
    "directory": Path.cwd,
    "pipe": _pipe,
}
