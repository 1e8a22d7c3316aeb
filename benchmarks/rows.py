"""Rows of measurements in a CSV file, shared by the benchmarks."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

Row = TypeVar("Row")


def read_rows(path: Path, kind: type[Row]) -> Iterator[Row]:
    """The rows of a file as values of the dataclass `kind`, whose fields are the columns."""
    types: dict[str, Any] = get_type_hints(kind)
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            yield kind(**{name: types[name](text) for name, text in line.items()})
