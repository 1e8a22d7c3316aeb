"""The rows of a study as CSV files: one per run, per final episode, per evaluation in training."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from mvpi._storage.files import read_text, write_file
from mvpi.errors import InputError


@dataclass(frozen=True)
class RunRow:
    """The final episodes of one run: statistics of the returns, then of the per-step rewards.

    `risk_aversion` is what the method was given, 0 for TD3; `experiment` the identity of the run;
    `commit` and `processor` the program and the machine it was made with, empty if not recorded.
    """

    task: str
    method: str
    risk_aversion: float
    seed: int
    steps: int
    mean: float
    variance: float
    sharpe: float
    reward_mean: float
    reward_variance: float
    in_zone: float | None
    experiment: str
    commit: str = ""
    processor: str = ""


@dataclass(frozen=True)
class ReturnRow:
    """The return of one final episode."""

    experiment: str
    episode: int
    episode_return: float


@dataclass(frozen=True)
class CurveRow:
    """One evaluation while a run was trained."""

    task: str
    method: str
    risk_aversion: float
    seed: int
    steps: int
    return_mean: float
    return_variance: float
    reward_mean: float
    reward_variance: float
    experiment: str


Row = TypeVar("Row", RunRow, ReturnRow, CurveRow)
Drawn = TypeVar("Drawn")


def _text(cell: str | None) -> str:
    if not cell:
        raise ValueError("a cell is empty")
    return cell


_PARSERS: dict[str, Callable[[str], Any]] = {
    "str": _text,
    "int": int,
    "float": float,
    "float | None": lambda text: float(text) if text else None,
}
"""By the type of a field."""


def write_rows(path: Path, rows: Iterable[Any]) -> None:
    """Rows as CSV, all at once; equal rows are equal bytes."""
    text = io.StringIO()
    writer = None
    for row in map(asdict, rows):
        if writer is None:
            writer = csv.DictWriter(text, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)
    write_file(path, text.getvalue().encode())


def write_with_figure(
    out: Path, name: str, rows: Sequence[Drawn], draw: Callable[[Sequence[Drawn], Path], None]
) -> tuple[Path, Path]:
    """Rows as NAME.csv and their figure as NAME.png; returns the two paths."""
    table, figure = out / f"{name}.csv", out / f"{name}.png"
    write_rows(table, rows)
    draw(rows, figure)
    return table, figure


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """The rows that `write_rows` wrote, or an `InputError` that says where they are damaged.

    A field that has a default may be empty, or have no column.
    """
    parsers = {column.name: _PARSERS[str(column.type)] for column in fields(kind)}
    optional = {column.name for column in fields(kind) if column.default is not MISSING}
    reader = csv.DictReader(read_text(path).splitlines(keepends=True), strict=True)
    try:
        return [
            kind(
                **{
                    name: parse(cells[name])
                    for name, parse in parsers.items()
                    if not (name in optional and cells.get(name, "") == "")
                }
            )
            for cells in reader
        ]
    except KeyError as error:
        raise InputError(f"{path} is damaged: column {error} is missing") from None
    except (ValueError, TypeError, csv.Error) as error:
        raise InputError(f"{path} is damaged in line {reader.line_num}: {error}") from None
