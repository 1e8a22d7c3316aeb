"""`mvpi report`: one HTML page about trained runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.progress import track

from mvpi.errors import InputError

if TYPE_CHECKING:
    from mvpi.report.runs import Run


@dataclass(frozen=True)
class Report:
    """Compare trained runs on one HTML page: curves, returns, frontier, statistics, settings."""

    run_directories: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR [DIR ...]")
    ]
    """Run directories of `mvpi train`, or directories that hold some at any depth."""
    out: Path = Path("report.html")
    """The page."""
    episodes: int = 100
    """How many final episodes, for runs that were not evaluated yet."""

    def run(self, console: Console) -> None:
        from mvpi._storage.files import write_file
        from mvpi.report.page import render, template
        from mvpi.report.runs import read_runs
        from mvpi.report.words import counted

        if self.out.is_dir():
            raise InputError(f"--out must be a file such as report.html, {self.out} is a directory")
        template()  # whether it can be filled in is better known before runs are evaluated
        runs, notes = read_runs(self.run_directories, self.episodes, _shown)
        page = render(runs, notes, self._arguments())
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
        return arguments


def _shown(runs: Sequence[Run]) -> Iterable[Run]:
    """A bar on standard error while runs are evaluated."""
    return track(runs, "evaluating", console=Console(stderr=True))
