"""metrics.csv: a row per evaluation in training, appended and synced one by one."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mvpi._storage import files
from mvpi._storage.names import METRICS
from mvpi.errors import InputError

Row = dict[str, float | int | None]
"""An evaluation in training, as metrics.csv holds it."""

COUNTS = ("steps", "updates", "iterations")
"""Columns that say when a row was made."""
_LARGEST_COUNT = 10**12


def read_metrics(directory: Path) -> list[Row]:
    """The rows of a run's metrics.csv, an evaluation each; an empty cell is None.

    A last row that was not written to its end is left out. Anything else that is no finite number
    is an `InputError`, and so is a count that is not whole or a variance below 0.
    """
    path = directory / METRICS
    lines = files.read_text(path).splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    try:
        return [
            {name: _number(name, text) if text else None for name, text in line.items()}
            for line in csv.DictReader(lines, strict=True)
        ]
    except (ValueError, TypeError, csv.Error) as error:
        raise InputError(f"{path} is damaged: {files.short(error)}") from None


def _number(name: str, text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{files.short(name, 40)} is {files.short(text, 40)}, not a finite number")
    if name in COUNTS and not (0 <= value <= _LARGEST_COUNT and value == int(value)):
        raise ValueError(f"{name} is {value:g}, not a whole number from 0 to {_LARGEST_COUNT:g}")
    if name.endswith("variance") and value < 0:
        raise ValueError(f"{name} is {value:g}, and none is below 0")
    return value


class Metrics:
    """The file while a run writes to it, with a checksum of all it holds."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / METRICS
        self._bytes = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def mark(self) -> dict[str, Any]:
        """How much the file holds now, and the checksum of that."""
        return {"bytes": self._bytes, "checksum": self._digest.hexdigest()}

    def holds(self, mark: Any, *, exactly: bool = False) -> bool:
        """Whether the file still begins with what it held at a mark, or is that."""
        data = self._data()
        size = mark.get("bytes") if isinstance(mark, dict) else None
        if type(size) is not int or not 0 <= size <= len(data) or (exactly and size < len(data)):
            return False
        found = hashlib.blake2b(data[:size], digest_size=16).hexdigest()
        return bool(found == mark.get("checksum"))

    def counts(self) -> list[int]:
        """When the complete rows were made, in steps or updates."""
        return [_count(line) for line in self._lines(None)[1]]

    def keep(self, belongs: Callable[[int], bool], mark: dict[str, Any] | None = None) -> list[int]:
        """Keep those rows before the mark whose counts belong to the run; returns their counts."""
        header, lines = self._lines(None if mark is None else mark["bytes"])
        kept = [line for line in lines if belongs(_count(line))]
        data = "".join([header, *kept] if kept else []).encode()
        files.write_file(self.path, data)
        self._bytes, self._digest = len(data), hashlib.blake2b(data, digest_size=16)
        return [_count(line) for line in kept]

    def add(self, row: Row) -> None:
        """Append a row; the first one brings the header."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(row), lineterminator="\n")
        with files.open_file(self.path, "a") as file:
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            data = text.getvalue().encode()
            files.write_all(file, data)
            os.fsync(file.fileno())
        self._bytes += len(data)
        self._digest.update(data)

    def _data(self) -> bytes:
        return files.read_bytes(self.path) if self.path.exists() else b""

    def _lines(self, size: int | None) -> tuple[str, list[str]]:
        """The header and the complete rows, of the first `size` bytes."""
        try:
            text = self._data()[:size].decode()
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path} is damaged: {files.short(error)}") from None
        header, *lines = text.splitlines(keepends=True) or [""]
        columns = header.count(",")
        complete = (x for x in lines if x.endswith("\n") and x.count(",") == columns)
        return header, [line for line in complete if _is_count(line.partition(",")[0])]


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(_LARGEST_COUNT))


def _count(line: str) -> int:
    return int(line.partition(",")[0])
