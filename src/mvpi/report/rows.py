"""What a study found, as plain rows: one a finished run, and one an evaluation in its training."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mvpi.agents.files import read_metrics, write_file
from mvpi.errors import InputError
from mvpi.experiments.outcome import Outcome
from mvpi.experiments.paper import METHODS, Grid


@dataclass(frozen=True)
class RunRow:
    """The final episodes of one run: statistics of the returns, then of the per-step rewards."""

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


@dataclass(frozen=True)
class Finished:
    """A finished run of a grid; `risk_aversion` is what the method was given, 0 for TD3."""

    task: str
    method: str
    risk_aversion: float
    seed: int
    outcome: Outcome
    directory: Path

    @property
    def key(self) -> tuple[str, str, float, int]:
        return self.task, self.method, self.risk_aversion, self.seed


class OfMethod(Protocol):
    """A run, or a row of one."""

    @property
    def method(self) -> str: ...

    @property
    def risk_aversion(self) -> float: ...


Kind = TypeVar("Kind", bound=OfMethod)


def compared_at(lam: float, rows: Iterable[Kind]) -> list[Kind]:
    """What is compared at a risk aversion: methods that were given it, and risk-neutral ones."""
    return [row for row in rows if row.risk_aversion == METHODS[row.method].risk(lam)]


Unreadable = dict[str, str]
"""Why a run cannot be read, by the name of its experiment."""


def finished(grid: Grid, root: Path) -> tuple[list[Finished], Unreadable]:
    """All finished runs of the grid under `root`, each once, in the grid's order."""
    found: dict[str, Finished] = {}
    unreadable: Unreadable = {}
    order = product(grid.tasks, grid.methods, grid.risk_aversions, range(grid.seeds))
    for task, method, lam, seed in order:
        experiment = grid.experiment(task, method, lam, seed)
        try:
            outcome = experiment.outcome(root)
        except (InputError, OSError) as error:
            unreadable[experiment.name] = str(error)
            continue
        if outcome is not None:
            risk, directory = METHODS[method].risk(lam), root / experiment.name
            found[experiment.name] = Finished(task, method, risk, seed, outcome, directory)
    return list(found.values()), unreadable


def run_rows(runs: Iterable[Finished]) -> list[RunRow]:
    """A row for every run."""
    rows = []
    for run in runs:
        seen = run.outcome
        returns = seen.mean, seen.variance, seen.sharpe
        rewards = seen.reward_mean, seen.reward_variance, seen.in_zone
        rows.append(RunRow(*run.key, seen.steps, *returns, *rewards))
    return rows


def curve_rows(runs: Iterable[Finished]) -> list[CurveRow]:
    """The evaluations in the training of every run."""
    names = ("steps", "return_mean", "return_variance", "reward_mean", "reward_variance")
    rows = []
    for run in runs:
        path = run.directory / "metrics.csv"
        evaluations = read_metrics(run.directory)
        if not evaluations:
            raise InputError(f"{path} is damaged: it has no evaluation")
        for row in evaluations:
            numbers: list[Any] = [row.get(name) for name in names]
            if None in numbers or not math.isfinite(numbers[0]):
                raise InputError(f"{path} is damaged: a number is missing")
            rows.append(CurveRow(*run.key, int(numbers[0]), *numbers[1:]))
    return rows


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
