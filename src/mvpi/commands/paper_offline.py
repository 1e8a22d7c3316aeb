"""`mvpi paper offline`: Algorithm 2 on the four-state problem."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track
from rich.table import Table

from mvpi.commands.display import print_json
from mvpi.experiments.paper import OFFLINE_RISK_AVERSIONS

if TYPE_CHECKING:
    from mvpi.experiments.offline import OfflineRow


@dataclass(frozen=True)
class PaperOffline:
    """Off-line MVPI, Algorithm 2, on the four-state problem."""

    risk_aversions: tuple[float, ...] = OFFLINE_RISK_AVERSIONS
    """Each has runs of its own."""
    runs: int = 30
    """Independent runs of each, with data of their own."""
    iterations: int = 200
    """The paper has 200; a few thousand settle."""
    seed: int = 0
    """Makes the runs repeatable."""
    out: Path = Path("out/paper")
    """Where offline.csv and offline.png go."""
    json: bool = False
    """Print one JSON object at the end, and nothing else."""

    def run(self, console: Console) -> None:
        from mvpi.experiments import offline
        from mvpi.report.offline import draw
        from mvpi.report.rows import write_rows

        rounds = offline.run(self.risk_aversions, self.runs, self.iterations, self.seed)
        last = next(rounds)
        self.out.mkdir(parents=True, exist_ok=True)
        table, figure = self.out / "offline.csv", self.out / "offline.png"
        rows = list(last)
        shown = track(rounds, "iterations", self.iterations, console=console, disable=self.json)
        for last in shown:
            rows += last
        write_rows(table, rows)
        draw(rows, figure)
        if self.json:
            print_json({"rows": [asdict(row) for row in last], "figure": str(figure)})
            return
        console.print(_summary(last))
        console.print(f"Wrote {table} and {figure}.", markup=False, soft_wrap=True)


def _summary(last: list[OfflineRow]) -> Table:
    from mvpi.experiments.offline import THRESHOLD, best_probability

    title = f"Probability of the gamble after {last[0].iteration} iterations, {last[0].runs} runs"
    table = Table(title=title, caption=f"The gamble is best below lam = {THRESHOLD:.4f}.")
    for column in ("lam", "started at", "now", "std. error", "best"):
        table.add_column(column, justify="right")
    for row in last:
        best = best_probability(row.risk_aversion)
        cells = (f"{row.mean:.4f}", f"{row.standard_error:.4f}", f"{best:.0f}")
        table.add_row(f"{row.risk_aversion:g}", "0.5", *cells)
    return table
