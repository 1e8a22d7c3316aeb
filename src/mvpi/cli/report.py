"""`mvpi report`: one HTML page about trained runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.progress import track

from mvpi._checks import check_count
from mvpi._storage.files import write_file
from mvpi._text import reason
from mvpi.errors import EnvironmentFailure, InputError

if TYPE_CHECKING:
    from mvpi.report.run_reader import Run


@dataclass(frozen=True)
class Report:
    """Compare trained runs on one HTML page: curves, returns, frontier, statistics, settings."""

    run_directories: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="DIR [DIR ...]", help_behavior_hint="(required)"),
    ]
    """Run directories of `mvpi train`, or directories that hold some, up to 8 levels below."""
    out: Path = Path("report.html")
    """The page."""
    episodes: int = 100
    """How many final episodes, for runs that were not evaluated yet."""
    points: int = 11
    """Of agents trained with a range: at how many risk aversions, if not evaluated yet."""

    static: bool = False
    """Pictures alone, without Plotly: a page of some 100 kB instead of 5 MB."""

    def run(self, console: Console) -> None:
        from mvpi.report.formatting import counted
        from mvpi.report.page import render, template

        if self.out.is_dir():
            raise InputError(f"--out must be a file such as report.html, {self.out} is a directory")
        check_count(self.episodes, "episodes", at_least=2)
        check_count(self.points, "points", at_least=2)
        template()  # a missing package is better known before runs are evaluated
        runs, notes = runs_to_show(self.run_directories, self.episodes, self.points)
        page = render(runs, notes, self._arguments(), live=not self.static)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        write_file(self.out, page.encode())
        told = f", {counted([len(notes)], 'note')} at its end" if notes else ""
        facts = f"{counted([len(runs)], 'run')}{told}"
        console.print(f"Wrote {self.out}: {facts}.", soft_wrap=True, markup=False)

    def _arguments(self) -> list[str]:
        """Those that make the page again."""
        arguments = [*map(str, self.run_directories), "--out", str(self.out)]
        if self.episodes != Report.episodes:
            arguments += ["--episodes", str(self.episodes)]
        if self.points != Report.points:
            arguments += ["--points", str(self.points)]
        if self.static:
            arguments.append("--static")
        return arguments


def runs_to_show(
    directories: Sequence[Path], episodes: int, points: int = Report.points
) -> tuple[list[Run], list[str]]:
    """The runs in or below the directories, each once, and notes on what is not shown in full.

    Runs without final episodes are evaluated first, with so many of them; those trained with a
    range at so many points of it.
    """
    from mvpi.report.run_reader import distinct, read_runs

    found, unreadable = read_runs(directories)
    evaluated, not_kept = _evaluated(found, episodes, points)
    runs, left_out = distinct(evaluated)
    return runs, [*unreadable, *not_kept, *left_out]


def _evaluated(runs: Sequence[Run], episodes: int, points: int) -> tuple[list[Run], list[str]]:
    """The runs, those without final episodes evaluated now; notes on what cannot be written.

    The evaluation is kept in the run directory, so that it is made once.
    """
    from mvpi.experiments.outcome import Outcome, judge_run
    from mvpi.experiments.range_outcome import RangeOutcome, judge_range

    due = [run for run in runs if run.due]
    found: dict[Path, Run] = {}
    notes: list[str] = []
    for run in track(due, "evaluating", console=Console(stderr=True), disable=not due):
        outcome: Outcome | RangeOutcome
        try:
            if run.has_range:
                outcome = judge_range(run.directory, points, episodes)
            else:
                outcome = judge_run(run.directory, episodes)
        except (InputError, EnvironmentFailure, OSError) as error:
            why = f"it cannot be evaluated: {reason(error)}"
            found[run.directory] = replace(run, waits_for=why)
            continue
        found[run.directory] = run.with_episodes(outcome)
        try:
            outcome.write(run.directory)
        except OSError as error:
            notes.append(f"the evaluation of {run.directory} is not kept: {reason(error)}")
    return [found.get(run.directory, run) for run in runs], notes
