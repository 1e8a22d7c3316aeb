"""The five columns of a list of outcomes: from arrays, a table, rows, or a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np

from mvpi._checks import real_array, shown
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.tabular.labels import listed

COLUMNS = ("state", "action", "probability", "reward", "next_state")
WORKBOOKS = (".xlsx", ".xls", ".ods")
"""Files of spreadsheets that are not read, but often given."""
_SEPARATORS = ",;\t"
"""What spreadsheets write between cells."""


def outcome_columns(given: Sequence[Any]) -> tuple[list[Any], list[Any], Array, Array, list[Any]]:
    """The five columns, whatever form they came in, checked for their lengths and numbers."""
    table = given[0]
    if isinstance(table, str | PathLike) and all(column is None for column in given[1:]):
        table = _of_file(table)
    if all(column is None for column in given[1:]):
        given = _of_table(table)
    for column, name in zip(given, COLUMNS, strict=True):
        if column is None:
            raise InputError(f"{name} is missing: outcomes have the columns {', '.join(COLUMNS)}")
    readers = (listed, listed, _numbers_of, _numbers_of, listed)
    columns: Any = [
        read(column, name) for read, column, name in zip(readers, given, COLUMNS, strict=True)
    ]
    sizes = [len(column) for column in columns]
    if len(set(sizes)) > 1:
        text = ", ".join(f"{n} of {name}" for n, name in zip(sizes, COLUMNS, strict=True))
        raise InputError(f"the columns must have the same length, got {text}")
    if not sizes[0]:
        raise InputError("outcomes must have at least one row, got none")
    state, action, probability, reward, next_state = columns
    return state, action, probability, reward, next_state


def _of_table(table: Any) -> list[Any]:
    """The columns of a DataFrame, of a dict or structured array, or of an iterable of rows."""
    names = getattr(table, "columns", None)
    if names is None and isinstance(table, Mapping):
        names = table.keys()
    if names is None and isinstance(table, np.ndarray):
        names = table.dtype.names
    if names is not None:
        missing = [name for name in COLUMNS if name not in names]
        if missing:
            raise InputError(
                f"the table must have the columns {', '.join(COLUMNS)}; {missing[0]} is missing, "
                f"it has {shown(list(names))}"
            )
        return [table[name] for name in COLUMNS]
    if isinstance(table, bytes) or not isinstance(table, Iterable):
        raise InputError(
            f"outcomes must be five columns ({', '.join(COLUMNS)}), a table with these columns, an "
            f"iterable of such rows, or the path of a CSV file, got {shown(table)}"
        )
    rows = table.tolist() if isinstance(table, np.ndarray) else list(table)
    if not rows:
        raise InputError("outcomes must have at least one row, got none")
    return [list(column) for column in zip(*map(_row, range(len(rows)), rows), strict=True)]


def _row(i: int, row: Any) -> Sequence[Any]:
    """The five entries of a row: a tuple or list, or a dict as `csv.DictReader` makes them."""
    if isinstance(row, Mapping) and all(row.get(name) is not None for name in COLUMNS):
        return [row[name] for name in COLUMNS]
    if not isinstance(row, tuple | list) or len(row) != len(COLUMNS):
        raise InputError(
            f"row {i} of the outcomes must be ({', '.join(COLUMNS)}), got {shown(row)}"
        )
    return row


def _of_file(path: str | PathLike[str]) -> dict[str, list[str]]:
    """The columns of a CSV file by the names in its first line; empty lines do not count."""
    where = fspath(path)
    if not str(where).lower().endswith(".csv"):
        remedy = ": save the sheet as CSV" if str(where).lower().endswith(WORKBOOKS) else ""
        raise InputError(f"a file of outcomes must be a CSV file, got {shown(where)}{remedy}")
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:  # noqa: PTH123
            lines = file.read().splitlines()
    except FileNotFoundError:
        raise InputError(f"{where} does not exist") from None
    except UnicodeDecodeError:
        raise InputError(f"{where} must be UTF-8; save it as CSV UTF-8") from None
    head = lines[0] if lines else ""
    separator = max(_SEPARATORS, key=head.count)
    try:
        rows = [row for row in csv.reader(lines, delimiter=separator, strict=True) if any(row)]
    except csv.Error as error:
        raise InputError(f"{where} is not a CSV file: {error}") from None
    names = [name.strip() for name in rows[0]] if rows else []
    for i, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise InputError(
                f"row {i} of {where} must have {len(names)} cells, as its first row, got {len(row)}"
            )
    cells = zip(*rows[1:], strict=True) if len(rows) > 1 else ([] for _ in names)
    return {
        name: [cell.strip() for cell in column] for name, column in zip(names, cells, strict=True)
    }


def _numbers_of(column: Any, name: str) -> Array:
    if isinstance(column, Iterable) and not hasattr(column, "__array__"):
        column = [_number(x, name, i) for i, x in enumerate(listed(column, name))]
    array = real_array(column, name)
    if array.ndim != 1:
        raise InputError(f"{name} must be a list or an array of one dimension, got {shown(column)}")
    return array


def _number(entry: Any, name: str, at: int) -> Any:
    """The number that a text is, as it comes from a file; anything else as it is."""
    if not isinstance(entry, str):
        return entry
    try:
        return float(entry)
    except ValueError:
        comma = "; decimals have a point" if "," in entry else ""
        raise InputError(f"{name}[{at}] must be a number, got {shown(entry)}{comma}") from None
