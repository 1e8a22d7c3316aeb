"""The finished runs of a grid: run, found in run directories, or read from recorded rows.

Tables and figures need nothing but the rows that `write_study` writes, so a study can be spread
over machines that share no storage.
"""

from __future__ import annotations

import math
import platform
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Protocol, TypeVar

from mvpi._checks import check_number
from mvpi._storage.files import read_bytes, write_file
from mvpi._storage.metrics import read_metrics
from mvpi._storage.names import METRICS, POLICY
from mvpi.errors import InputError
from mvpi.experiments.experiment import Experiment
from mvpi.experiments.outcome import Outcome
from mvpi.experiments.progress import run_experiments
from mvpi.experiments.runner import Runner
from mvpi.paper.grid import BASELINE, COMPARED, METHODS, Grid
from mvpi.paper.rows import CurveRow, ReturnRow, RunRow, read_rows, write_rows

RUNS, RETURNS, CURVES = "runs.csv", "returns.csv", "curves.csv"
POLICIES = "policies"
"""The directory of the recorded policies, NAME.safetensors each."""


@dataclass(frozen=True)
class Finished:
    """A finished run; `name` is that of its experiment.

    `returns` are those of its final episodes, none where only the row was recorded; `curve` is the
    evaluations in its training, none where they cannot be read.
    """

    row: RunRow
    returns: tuple[float, ...] = ()
    curve: tuple[CurveRow, ...] = ()
    name: str = ""

    @property
    def method(self) -> str:
        return self.row.method

    @property
    def risk_aversion(self) -> float:
        return self.row.risk_aversion


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


Recorded = Mapping[str, Finished]
"""Runs that were recorded elsewhere, by the identity of their experiment."""
Unreadable = dict[str, str]
"""Why a run cannot be read, by the name of its experiment."""


@dataclass(frozen=True)
class Found:
    """The finished runs of a grid, each once, in the grid's order; and what failed or is damaged.

    A run in `without_curve` is among `runs` all the same.
    """

    runs: list[Finished] = field(default_factory=list)
    unreadable: Unreadable = field(default_factory=dict)
    without_curve: Unreadable = field(default_factory=dict)
    failures: Unreadable = field(default_factory=dict)


@dataclass(frozen=True)
class _Place:
    """An experiment and its place in the grid."""

    experiment: Experiment
    task: str
    method: str
    risk_aversion: float
    seed: int

    @property
    def key(self) -> tuple[str, str, float, int]:
        return self.task, self.method, self.risk_aversion, self.seed


def _places(grid: Grid) -> dict[str, _Place]:
    """By the identity of the experiment, task after task."""
    found: dict[str, _Place] = {}
    order = product(grid.tasks, grid.methods, grid.risk_aversions, range(grid.seeds))
    for task, method, lam, seed in order:
        experiment = grid.experiment(task, method, lam, seed)
        place = _Place(experiment, task, method, METHODS[method].risk(lam), seed)
        found.setdefault(experiment.identity, place)
    return found


def complete(
    grid: Grid,
    root: Path,
    runner: Runner | None,
    recorded: Recorded | None = None,
    *,
    quiet: bool = False,
    keep: Callable[[list[Finished]], object] | None = None,
) -> Found:
    """Run what is neither finished under `root` nor recorded, if there is a runner; find all runs.

    `keep` gets the finished runs whenever there is one more. Raises `InputError` if there is
    nothing to show.
    """
    recorded = recorded or {}
    failures: Unreadable = {}
    if runner is not None:
        to_run = [e for e in grid.experiments() if e.identity not in recorded]
        finished = None if keep is None else lambda: keep(find_runs(grid, root, recorded).runs)
        failures = run_experiments(to_run, root, runner, quiet=quiet, finished=finished)
    found = replace(find_runs(grid, root, recorded), failures=failures)
    if not (found.runs or found.unreadable or failures):
        raise InputError(f"no run of this study is finished in {root}; leave out finished-only")
    return found


def find_runs(grid: Grid, root: Path, recorded: Recorded | None = None) -> Found:
    """The finished runs of the grid in directories under `root`; those not there, if recorded."""
    recorded = recorded or {}
    found = Found()
    for identity, place in _places(grid).items():
        name = place.experiment.name
        try:
            outcome = place.experiment.outcome(root)
        except (InputError, OSError) as error:
            if identity not in recorded:
                found.unreadable[name] = str(error)
                continue
            outcome = None
        if outcome is not None:
            curve: tuple[CurveRow, ...] = ()
            try:
                curve = _curve(place, root)
            except (InputError, OSError) as error:
                found.without_curve[name] = str(error)
            found.runs.append(Finished(_run_row(place, outcome), outcome.returns, curve, name))
        elif identity in recorded:
            found.runs.append(recorded[identity])
    return found


def _run_row(place: _Place, seen: Outcome) -> RunRow:
    returns = seen.mean, seen.variance, seen.sharpe
    rewards = seen.reward_mean, seen.reward_variance, seen.in_zone
    return RunRow(*place.key, seen.steps, *returns, *rewards, place.experiment.identity)


def _curve(place: _Place, root: Path) -> tuple[CurveRow, ...]:
    names = ("return_mean", "return_variance", "reward_mean", "reward_variance")
    directory = root / place.experiment.name
    path = directory / METRICS
    evaluations = read_metrics(directory)
    if not evaluations:
        raise InputError(f"{path} is damaged: it has no evaluation")
    rows = []
    for row in evaluations:
        steps, numbers = row.get("steps"), [row.get(name) for name in names]
        if steps is None or not math.isfinite(steps) or None in numbers:
            raise InputError(f"{path} is damaged: a number is missing")
        known: dict[str, Any] = dict(zip(names, numbers, strict=True))
        identity = place.experiment.identity
        rows.append(CurveRow(*place.key, int(steps), **known, experiment=identity))
    return tuple(rows)


def write_study(directory: Path, runs: Iterable[Finished]) -> None:
    """Runs as files: a row a run, a row a final episode, a row an evaluation in training."""
    runs = list(runs)
    write_rows(
        directory / RETURNS,
        (ReturnRow(run.row.experiment, *one) for run in runs for one in enumerate(run.returns)),
    )
    write_rows(directory / CURVES, (row for run in runs for row in run.curve))
    write_rows(directory / RUNS, (run.row for run in runs))  # last: it says what the others hold


def read_study(directory: Path, grid: Grid) -> Recorded:
    """The runs of the grid among those that `write_study` wrote; an `InputError` without any."""
    everything = _read_all(directory)
    places = _places(grid)
    recorded = {}
    for identity, run in everything.items():
        if identity in places:
            _check(run, places[identity], grid, directory)
            recorded[identity] = replace(run, name=places[identity].experiment.name)
    if not recorded:
        raise InputError(
            f"none of the {len(everything)} runs in {directory / RUNS} is of this study; give the "
            "steps and other options that they were made with"
        )
    return recorded


def _read_all(directory: Path) -> dict[str, Finished]:
    """The recorded runs of any grid, by the identity of their experiment."""
    rows = read_rows(directory / RUNS, RunRow)
    returns: dict[str, list[float]] = defaultdict(list)
    for episode in read_rows(directory / RETURNS, ReturnRow):
        returns[episode.experiment].append(episode.episode_return)
    curves: dict[str, list[CurveRow]] = defaultdict(list)
    for evaluation in read_rows(directory / CURVES, CurveRow):
        curves[evaluation.experiment].append(evaluation)
    return {
        row.experiment: Finished(row, tuple(returns[row.experiment]), tuple(curves[row.experiment]))
        for row in rows
    }


def record(
    directory: Path, runs: Iterable[Finished], root: Path, commit: str, processor: str
) -> int:
    """Add finished runs to the rows in a directory; returns how many were not there yet.

    Their rows name the commit and the processor. What is recorded already is left as it is. The
    policies of the methods in the paper's tables, from the run directories under `root`, are kept
    as well.
    """
    known = _read_all(directory) if (directory / RUNS).exists() else {}
    new = [run for run in runs if run.row.experiment not in known]
    (directory / POLICIES).mkdir(parents=True, exist_ok=True)
    for run in new:
        policy = root / run.name / POLICY
        if run.method in (BASELINE, *COMPARED) and policy.exists():
            kept = directory / POLICIES / f"{run.name}{policy.suffix}"
            write_file(kept, read_bytes(policy))
    signed = [
        run
        if run.row.commit
        else replace(run, row=replace(run.row, commit=commit, processor=processor))
        for run in new
    ]
    write_study(directory, [*known.values(), *signed])
    return len(new)


def processor_name() -> str:
    """The model of the processor of this machine, if the system provides it."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def _check(run: Finished, place: _Place, grid: Grid, directory: Path) -> None:
    row = run.row
    key = row.task, row.method, row.risk_aversion, row.seed, row.steps
    if key != (*place.key, grid.steps):
        raise InputError(f"{directory / RUNS} is damaged: {row.experiment} is not {key}")
    for name in ("mean", "reward_mean"):
        check_number(getattr(row, name), f"{name} of {row.experiment} in {directory / RUNS}")
    for name in ("variance", "reward_variance"):
        where = f"{name} of {row.experiment} in {directory / RUNS}"
        check_number(getattr(row, name), where, at_least=0.0)
    if any((c.task, c.method, c.risk_aversion, c.seed) != place.key for c in run.curve):
        raise InputError(f"{directory / CURVES} is damaged: {row.experiment} is not {place.key}")
    if len(run.returns) not in (0, grid.episodes):
        raise InputError(
            f"{directory / RETURNS} is damaged: it has {len(run.returns)} episodes of "
            f"{row.experiment} instead of {grid.episodes}"
        )
    for value in run.returns:
        check_number(value, f"a return of {row.experiment} in {directory / RETURNS}")
