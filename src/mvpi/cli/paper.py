"""`mvpi paper`: the paper's experiments, one command for each of its tables and figures."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mvpi._text import percent
from mvpi.cli.display import number, print_json
from mvpi.cli.runner_options import RayAddress, Workers, check_runner_options, make_runner
from mvpi.envs import Task
from mvpi.errors import EnvironmentFailure, InputError
from mvpi.paper.grid import BASELINE, COMPARED, RISKY_TASKS, Grid, OfflineGrid

if TYPE_CHECKING:
    from mvpi.paper.noisy_zone import ZoneRow
    from mvpi.paper.offline import OfflineRow
    from mvpi.paper.study import Finished
    from mvpi.paper.table import Cell

GridOptions = Annotated[Grid, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class Study(ABC):
    """What is run, and where. Interrupted, the same command goes on; finished runs are kept."""

    shows_training: ClassVar[bool] = True
    """Whether evaluations in training are shown: if not, damaged ones are no failure."""

    grid: GridOptions = field(default_factory=Grid)
    out: Path = Path("out/paper")
    """Run directories go to its `runs`, tables and figures beside it."""
    workers: Workers = None
    ray: RayAddress = None
    recorded: Path | None = None
    """A directory with rows of runs made elsewhere: these are not run again."""
    record: Path | None = None
    """A directory to add the rows and policies of runs to as they finish; needs `--commit`."""
    commit: str | None = None
    """The commit of mvpi that the runs to record were made with."""
    processor: str | None = None
    """The processor that they were made on; by default that of this machine."""
    finished_only: bool = False
    """Run nothing: show what is finished."""
    json: bool = False
    """Print one JSON object at the end, and nothing else."""

    def run(self, console: Console) -> None:
        from mvpi.experiments.progress import tell_failures
        from mvpi.paper.study import complete, processor_name, read_study, record

        self.check()
        root = self.out / "runs"
        recorded = {} if self.recorded is None else read_study(self.recorded, self.grid)
        if not self.finished_only:
            for task in self.grid.tasks:
                self.check_task(task)
        runner = None if self.finished_only else make_runner(self.workers, self.ray)
        processor = self.processor or processor_name()
        added = 0

        def keep(runs: Sequence[Finished]) -> None:
            nonlocal added
            if self.record is not None:
                added += record(self.record, runs, root, self.commit or "", processor)

        kept = None if self.record is None else keep
        found = complete(self.grid, root, runner, recorded, quiet=self.json, keep=kept)
        self.out.mkdir(parents=True, exist_ok=True)
        damaged = found.unreadable | (found.without_curve if self.shows_training else {})
        try:
            if found.runs:
                self.show(found.runs, console)
            keep(found.runs)
            if self.record is not None and not self.json:
                told = f"Added {added} of {len(found.runs)} finished runs to {self.record}."
                console.print(told, markup=False, soft_wrap=True)
        finally:
            tell_failures({n: w for n, w in damaged.items() if n not in found.failures}, root)
        failures = found.failures | damaged
        if failures:
            raise EnvironmentFailure(
                f"{len(failures)} of {len(self.grid.experiments())} experiments failed; the others "
                "are kept, the same command tries again"
            )

    @abstractmethod
    def show(self, runs: Sequence[Finished], console: Console) -> None:
        """Write tables and figures of the finished runs, and print them."""

    def check(self) -> None:
        """An `InputError` if options contradict each other."""
        if self.finished_only and (self.workers is not None or self.ray is not None):
            raise InputError("--finished-only runs nothing; leave it out, or --workers and --ray")
        check_runner_options(self.workers, self.ray)
        for name, rows in (("recorded", self.recorded), ("record", self.record)):
            if rows is not None and rows.resolve() == self.out.resolve():
                raise InputError(
                    f"--{name} and --out must differ, both are {self.out}: rows of other runs "
                    "there would be lost"
                )
        if (self.record is None) != (self.commit is None):
            raise InputError(
                "--record and --commit go together: recorded rows name the commit of mvpi that "
                "made them"
            )

    def check_task(self, task: str) -> None:
        """An `InputError` if the task cannot be made: all its runs would fail, one by one.

        Looking its id up is not enough: Gymnasium lists Hopper-v2 and cannot make it.
        """
        Task(task, self.grid.action_noise)().close()


@dataclass(frozen=True)
class PaperCurves(Study):
    """Mean return, and J of the per-step reward, against training steps."""

    def show(self, runs: Sequence[Finished], console: Console) -> None:
        from mvpi.paper.curves import write
        from mvpi.paper.study import write_study

        write_study(self.out, runs)
        curves = [row for run in runs for row in run.curve]
        figures = write(self.out, curves, self.grid.risk_aversions)
        if self.json:
            last = max((row.steps for row in curves), default=0)
            ends = [asdict(row) for row in curves if row.steps == last]
            print_json({"rows": ends, "figures": list(map(str, figures))})
        else:
            files = ", ".join([*map(str, figures), "runs.csv", "returns.csv"])
            console.print(f"Wrote {files} and curves.csv.", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class PaperTable(Study):
    """Changes of J, mean, variance and Sharpe ratio against TD3, beside the paper's figures."""

    shows_training: ClassVar[bool] = False

    grid: GridOptions = field(default_factory=partial(Grid, methods=(BASELINE, *COMPARED)))

    def check(self) -> None:
        from mvpi.paper.table import check_methods

        check_methods(self.grid.methods)
        super().check()

    def show(self, runs: Sequence[Finished], console: Console) -> None:
        from mvpi.paper.table import missing, summary, table_of, write

        found = table_of(runs, self.grid.risk_aversions)
        table, text = write(self.out, found, runs, self.grid)
        lacking = missing(self.grid, runs)
        if self.json:
            facts = {"cells": [asdict(cell) for cell in found], "summary": summary(found)}
            print_json(facts | {"missing": lacking})
            return
        for lam in dict.fromkeys(cell.risk_aversion for cell in found):
            console.print(_table([c for c in found if c.risk_aversion == lam], self.grid.steps))
        for line in (*summary(found), *lacking):
            console.print(line, soft_wrap=True)
        console.print(f"Wrote {table} and {text}.", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class PaperRisky(Study):
    """How often agents are in a noisy zone: tasks of later papers, 500 steps an episode.

    All tasks must have a zone. They have their randomness there, so actions are without noise.
    """

    grid: GridOptions = field(
        default_factory=partial(Grid, tasks=RISKY_TASKS, risk_aversions=(1.0,), action_noise=0.0)
    )
    out: Path = Path("out/risky")
    """Run directories go to its `runs`, tables and figures beside it."""

    def check_task(self, task: str) -> None:
        from mvpi.paper.noisy_zone import check_zone

        check_zone(task, self.grid.action_noise)

    def show(self, runs: Sequence[Finished], console: Console) -> None:
        from mvpi.paper.noisy_zone import draw, zone_rows
        from mvpi.paper.rows import write_with_figure
        from mvpi.paper.study import write_study

        write_study(self.out, runs)
        rows = zone_rows([run.row for run in runs])
        table, figure = write_with_figure(self.out, "zone", rows, draw)
        if self.json:
            print_json({"rows": [asdict(row) for row in rows], "figure": str(figure)})
            return
        console.print(_zone_table(rows, self.grid.steps))
        wrote = f"Wrote {table}, {figure}, runs.csv, returns.csv and curves.csv."
        console.print(wrote, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class PaperOffline:
    """Off-line MVPI, Algorithm 2, on the four-state problem."""

    grid: Annotated[OfflineGrid, tyro.conf.arg(name="")] = field(default_factory=OfflineGrid)
    out: Path = Path("out/paper")
    """Where offline.csv and offline.png go."""
    json: bool = False
    """Print one JSON object at the end, and nothing else."""

    def run(self, console: Console) -> None:
        from mvpi.paper import offline
        from mvpi.paper.rows import write_with_figure

        iterations = offline.run(**asdict(self.grid))
        last = next(iterations)
        self.out.mkdir(parents=True, exist_ok=True)
        rows = list(last)
        total = self.grid.iterations
        for last in track(iterations, "iterations", total, console=console, disable=self.json):
            rows += last
        table, figure = write_with_figure(self.out, "offline", rows, offline.draw)
        if self.json:
            print_json({"rows": [asdict(row) for row in last], "figure": str(figure)})
            return
        console.print(_offline_table(last))
        console.print(f"Wrote {table} and {figure}.", markup=False, soft_wrap=True)


Experiments = (
    Annotated[PaperCurves, tyro.conf.subcommand("curves")]
    | Annotated[PaperTable, tyro.conf.subcommand("table")]
    | Annotated[PaperRisky, tyro.conf.subcommand("risky")]
    | Annotated[PaperOffline, tyro.conf.subcommand("offline")]
)


@dataclass(frozen=True)
class Paper:
    """An experiment of the paper: run on this machine or on a Ray cluster, shown, compared."""

    experiment: Annotated[Experiments, tyro.conf.arg(name="")]

    def run(self, console: Console) -> None:
        self.experiment.run(console)


def _table(cells: Sequence[Cell], steps: int) -> Table:
    """A line a statistic, four lines a method: it fits a narrow terminal."""
    from mvpi.paper.table import STATISTICS

    title = f"Change against TD3, lam = {cells[0].risk_aversion:g}, {steps:,} steps"
    table = Table(title=title, box=SIMPLE_HEAD, collapse_padding=True)
    table.caption = "paper: 10 seeds, 1,000,000 steps"
    if any(cell.verdict == "not compared" for cell in cells):
        table.caption += "; = is the value itself where no run of TD3 is finished"
    for column in ("", "of", "change", "95% interval", "paper", "sign"):
        left = column in ("", "of", "sign")
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    for cell in cells:
        line = STATISTICS.index(cell.statistic)
        heading = (cell.task, cell.method, f"{cell.seeds} seed{'s'[: cell.seeds > 1]}", "")
        table.add_row(
            heading[line],
            cell.statistic,
            *_change(cell),
            "" if cell.published is None else percent(cell.published),
            "" if cell.verdict == "not in the paper" else cell.verdict,
            end_section=cell.statistic == STATISTICS[-1],
        )
    return table


def _change(cell: Cell) -> tuple[str, str]:
    """The change and its interval; the value where there is nothing to compare with."""
    if cell.verdict == "not compared":
        return f"= {number(cell.value)}", ""
    return percent(cell.change), f"{percent(cell.low)} to {percent(cell.high)}"


def _zone_table(rows: Sequence[ZoneRow], steps: int) -> Table:
    title = f"Share of steps in the noisy zone after {steps:,} steps"
    table = Table(title=title, box=SIMPLE_HEAD, collapse_padding=True)
    for column in ("task", "method", "lam", "seeds", "in zone", "95% interval", "return"):
        table.add_column(column, justify="left" if column in ("task", "method") else "right")
    for i, row in enumerate(rows):
        table.add_row(
            row.task.removeprefix("mvpi/"),
            row.method,
            f"{row.risk_aversion:g}",
            str(row.seeds),
            f"{row.in_zone:.0%}",
            "" if math.isnan(row.low) else f"{row.low:.0%} to {row.high:.0%}",
            number(row.mean_return),
            end_section=i + 1 == len(rows) or rows[i + 1].task != row.task,
        )
    return table


def _offline_table(last: Sequence[OfflineRow]) -> Table:
    from mvpi.paper.offline import THRESHOLD, best_probability

    title = f"Probability of the gamble after {last[0].iteration} iterations, {last[0].runs} runs"
    table = Table(title=title, caption=f"The gamble is best below lam = {THRESHOLD:.4f}.")
    for column in ("lam", "started at", "now", "std. error", "best"):
        table.add_column(column, justify="right")
    for row in last:
        best = best_probability(row.risk_aversion)
        cells = (f"{row.mean:.4f}", f"{row.standard_error:.4f}", f"{best:.0f}")
        table.add_row(f"{row.risk_aversion:g}", "0.5", *cells)
    return table
