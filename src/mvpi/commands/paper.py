"""`mvpi paper`: the paper's experiments, one command for each of its tables and figures."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mvpi.agents.files import write_file
from mvpi.commands.display import number, print_json
from mvpi.commands.overview import run_experiments, tell_failures
from mvpi.commands.paper_offline import PaperOffline
from mvpi.envs import Task
from mvpi.errors import EnvironmentFailure, InputError
from mvpi.experiments.outcome import share_in_zone
from mvpi.experiments.paper import (
    BASELINE,
    COMPARED,
    METHODS,
    RISK_AVERSIONS,
    RISKY_TASKS,
    TASKS,
    Grid,
)
from mvpi.experiments.runner import Runner

if TYPE_CHECKING:
    from mvpi.report.risky import ZoneRow
    from mvpi.report.study import Finished
    from mvpi.report.table import Cell


@dataclass(frozen=True)
class Study(ABC):
    """What is run, and where. Interrupted, the same command goes on; finished runs are kept."""

    shows_training: ClassVar[bool] = True
    """Whether evaluations in training matter: if not, damaged ones are no failure."""

    tasks: tuple[str, ...] = TASKS
    """Environment ids."""
    methods: tuple[str, ...] = tuple(METHODS)
    """Of TD3, MVPI-TD3, TRVO, MVP, Tamar, Prashanth."""
    risk_aversions: tuple[float, ...] = RISK_AVERSIONS
    """Of all methods but TD3."""
    seeds: int = 10
    """Runs of everything, with seeds 0, 1, ..."""
    steps: int = 1_000_000
    """Environment steps of a run."""
    action_noise: float = 0.1
    """Standard deviation of the noise on every action, in training and evaluation."""
    evaluation_every: int = 10_000
    """Steps between two evaluations."""
    evaluation_episodes: int = 20
    """Episodes of each."""
    episodes: Annotated[int, tyro.conf.arg(aliases=["--final-episodes"])] = 100
    """Episodes that judge the final policy."""
    out: Path = Path("out/paper")
    """Run directories go to its `runs`, tables and figures beside it."""
    workers: int | None = None
    """Runs side by side on this machine; by default one for every core."""
    ray: str | None = None
    """The address of a Ray cluster to run on instead; `out` must be on storage its nodes share."""
    recorded: Path | None = None
    """A directory with rows of runs made elsewhere: these are not run again."""
    finished_only: bool = False
    """Run nothing: show what is finished."""
    json: bool = False
    """Print one JSON object at the end, and nothing else."""

    def run(self, console: Console) -> None:
        from mvpi.report.study import find_runs, read_study

        grid = self._grid()
        self.check()
        root = self.out / "runs"
        recorded = {} if self.recorded is None else read_study(self.recorded, grid)
        failures: dict[str, str] = {}
        if not self.finished_only:
            for task in self.tasks:
                self.check_task(task)
            to_run = [e for e in grid.experiments() if e.identity not in recorded]
            failures = run_experiments(to_run, root, self._runner(), quiet=self.json)
        found = find_runs(grid, root, recorded)
        if not (found.runs or found.unreadable or failures):
            raise InputError(f"no run of this study is finished in {root}; leave out finished-only")
        self.out.mkdir(parents=True, exist_ok=True)
        damaged = found.unreadable | (found.without_curve if self.shows_training else {})
        try:
            if found.runs:
                self.show(found.runs, console)
        finally:
            tell_failures({n: why for n, why in damaged.items() if n not in failures}, root)
        failures |= damaged
        if failures:
            raise EnvironmentFailure(
                f"{len(failures)} of {len(grid.experiments())} experiments failed; the others are "
                "kept, the same command tries again"
            )

    @abstractmethod
    def show(self, runs: Sequence[Finished], console: Console) -> None:
        """Write tables and figures of the finished runs."""

    def check(self) -> None:
        """Whether there will be something to show: better known before anything is run."""
        if self.finished_only and (self.workers is not None or self.ray is not None):
            raise InputError("--finished-only runs nothing; leave it out, or --workers and --ray")
        if self.recorded is not None and self.recorded.resolve() == self.out.resolve():
            raise InputError(
                f"--recorded and --out must differ, both are {self.out}: rows of other runs there "
                "would be lost"
            )

    def check_task(self, task: str) -> None:
        """Whether the task can be run: better known now than from a worker."""
        Task(task, self.action_noise)().close()

    def _grid(self) -> Grid:
        return Grid(
            self.tasks,
            self.methods,
            self.risk_aversions,
            self.seeds,
            self.steps,
            self.action_noise,
            self.episodes,
            {
                "evaluation_every": self.evaluation_every,
                "evaluation_episodes": self.evaluation_episodes,
            },
        )

    def _runner(self) -> Runner:
        if self.ray is None:
            from mvpi.experiments.local import LocalRunner

            return LocalRunner(self.workers)
        if self.workers is not None:
            raise InputError("give either --workers, for this machine, or --ray, not both")
        from mvpi.experiments.cluster import RayRunner

        return RayRunner(self.ray)


@dataclass(frozen=True)
class PaperCurves(Study):
    """Mean return, and J of the per-step reward, against training steps."""

    def show(self, runs: Sequence[Finished], console: Console) -> None:
        from mvpi.report.curves import REWARD_OBJECTIVE, draw, mean_return, reward_objective
        from mvpi.report.study import compared_at, write_study

        write_study(self.out, runs)
        curves = [row for run in runs for row in run.curve]
        figures = []
        for lam in self.risk_aversions:
            rows = compared_at(lam, curves)
            per_step = [row for row in rows if row.method in (BASELINE, *COMPARED)]
            for name, chosen, value, label in (
                ("curves", rows, mean_return, "mean return of an episode"),
                ("reward-curves", per_step, reward_objective(lam), REWARD_OBJECTIVE),
            ):
                if chosen:
                    figures.append(self.out / f"{name}-{lam:g}.png")
                    draw(chosen, value, label, rf"Training with $\lambda = {lam:g}$", figures[-1])
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

    methods: tuple[str, ...] = (BASELINE, *COMPARED)
    """The paper's table has TRVO and MVPI-TD3; TD3 is what they are compared with."""

    def check(self) -> None:
        super().check()
        if BASELINE not in self.methods or len(self.methods) == 1:
            raise InputError(
                f"the table needs {BASELINE} and another method, got {', '.join(self.methods)}"
            )

    def show(self, runs: Sequence[Finished], console: Console) -> None:
        from mvpi.report.rows import write_rows
        from mvpi.report.table import cells, markdown, summary

        found = [cell for lam in self.risk_aversions for cell in cells(runs, lam)]
        if not found:
            raise InputError(
                f"the table needs finished runs of {BASELINE} and of another method on one task"
            )
        table, text = self.out / "table.csv", self.out / "table.md"
        write_rows(table, found)
        write_rows(self.out / "table-runs.csv", (run.row for run in runs))
        write_file(text, markdown(found, self.steps).encode())
        if self.json:
            print_json({"cells": [asdict(cell) for cell in found], "summary": summary(found)})
            return
        for lam in dict.fromkeys(cell.risk_aversion for cell in found):
            console.print(_table([c for c in found if c.risk_aversion == lam], self.steps))
        for line in summary(found):
            console.print(line)
        console.print(f"Wrote {table} and {text}.", markup=False, soft_wrap=True)


@dataclass(frozen=True)
class PaperRisky(Study):
    """How often agents are in a noisy zone: tasks of later papers, 500 steps an episode."""

    tasks: tuple[str, ...] = RISKY_TASKS
    """Environment ids; all must have a zone."""
    risk_aversions: tuple[float, ...] = (1.0,)
    """Of all methods but TD3."""
    action_noise: float = 0.0
    """These tasks have their randomness in the zone."""
    out: Path = Path("out/risky")
    """Run directories go to its `runs`, tables and figures beside it."""

    def check_task(self, task: str) -> None:
        from mvpi.report.risky import no_zone

        with closing(Task(task, self.action_noise)()) as env:
            if share_in_zone(env) is None:
                raise no_zone(task)

    def show(self, runs: Sequence[Finished], console: Console) -> None:
        from mvpi.report.risky import draw, zone_rows
        from mvpi.report.rows import write_rows
        from mvpi.report.study import write_study

        write_study(self.out, runs)
        rows = zone_rows([run.row for run in runs])
        table, figure = self.out / "zone.csv", self.out / "zone.png"
        write_rows(table, rows)
        draw(rows, figure)
        if self.json:
            print_json({"rows": [asdict(row) for row in rows], "figure": str(figure)})
            return
        console.print(_zone_table(rows, self.steps))
        wrote = f"Wrote {table}, {figure}, runs.csv, returns.csv and curves.csv."
        console.print(wrote, markup=False, soft_wrap=True)


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
    from mvpi.report.changes import percent
    from mvpi.report.table import STATISTICS

    title = f"Change against TD3, lam = {cells[0].risk_aversion:g}, {steps:,} steps"
    table = Table(title=title, box=SIMPLE_HEAD, collapse_padding=True)
    table.caption = "paper: 10 seeds, 1,000,000 steps"
    for column in ("", "of", "change", "95% interval", "paper", "sign"):
        table.add_column(column, justify="left" if column in ("", "of", "sign") else "right")
    for cell in cells:
        line = STATISTICS.index(cell.statistic)
        heading = (cell.task, cell.method, f"{cell.seeds} seed{'s'[: cell.seeds > 1]}", "")
        table.add_row(
            heading[line],
            cell.statistic,
            percent(cell.change),
            f"{percent(cell.low)} to {percent(cell.high)}",
            "" if cell.published is None else percent(cell.published),
            "" if cell.published is None else cell.verdict,
            end_section=cell.statistic == STATISTICS[-1],
        )
    return table


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
