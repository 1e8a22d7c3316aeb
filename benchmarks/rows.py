"""Rows of measurements in a CSV file, shared by the benchmarks: written as they are measured."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

Row = TypeVar("Row")


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """The rows of a file as values of the dataclass `kind`, whose fields are the columns.

    No rows if there is no file yet.
    """
    if not path.exists():
        return []
    types: dict[str, Any] = get_type_hints(kind)
    with path.open(newline="") as file:
        return [
            kind(**{name: types[name](text) for name, text in line.items()})
            for line in csv.DictReader(file)
        ]


def append_rows(path: Path, rows: Iterable[Any]) -> None:
    """Add rows at the end of the file; a new one gets a header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        for row in map(asdict, rows):
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
