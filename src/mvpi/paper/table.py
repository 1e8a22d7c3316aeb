"""The paper's table: changes relative to TD3, with intervals, beside the paper's own figures.

Mean and variance of the final episodes' returns are averaged over the seeds first; of these
averages are `J = mean - lam variance` and `SR = mean / sqrt(variance)`, as in the paper's table.
The change is `(x - x_TD3) / |x_TD3|`. Intervals are from a two-level bootstrap: seeds are
resampled, and within each seed its episodes. A run whose returns were not recorded enters with the
mean and the variance in its row. Of an unfinished study the table shows the runs there are; those
without a run to compare with have their own statistics only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from mvpi import _bootstrap, stats
from mvpi._storage.files import write_file
from mvpi._text import percent
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.paper.grid import BASELINE, COMPARED, METHODS, Grid
from mvpi.paper.published import published
from mvpi.paper.rows import write_rows
from mvpi.paper.study import Finished, compared_at
from mvpi.stats import relative_change

Verdict = Literal["agrees", "disagrees", "undecided", "not in the paper", "not compared"]

STATISTICS = ("J", "mean", "variance", "SR")
_RESAMPLES = 2_000
_ROUNDING = 0.005
"""The paper's percentages are whole: 0% may be anything up to half a percent."""


@dataclass(frozen=True)
class Cell:
    """One change: ours with its 95% interval, the paper's, and whether they agree.

    Changes are shares: 0.5 is +50%; `low` and `high` are of the change, all three NaN if the
    verdict is "not compared". `value` is the method's own statistic, with its interval. `seeds` is
    the number of seeds of the method or of the baseline, whichever is smaller.
    """

    task: str
    method: str
    risk_aversion: float
    statistic: str
    value: float
    value_low: float
    value_high: float
    change: float
    low: float
    high: float
    published: float | None
    verdict: Verdict
    seeds: int


def check_methods(methods: Collection[str]) -> None:
    """An `InputError` if these methods have nothing to be compared."""
    if BASELINE not in methods or len(methods) == 1:
        raise InputError(f"the table needs {BASELINE} and another method, got {', '.join(methods)}")


def table_of(runs: Sequence[Finished], risk_aversions: Sequence[float]) -> list[Cell]:
    """The table of these runs: the risk aversions that a method was given, one after the other."""
    shown = _with_runs(runs, risk_aversions)
    return [cell for lam in shown or risk_aversions[:1] for cell in cells(runs, lam)]


def _with_runs(runs: Sequence[Finished], risk_aversions: Sequence[float]) -> list[float]:
    return [x for x in risk_aversions if any(run.risk_aversion == x for run in runs)]


def cells(runs: Sequence[Finished], lam: float, seed: int = 0) -> list[Cell]:
    """The table of these runs at one risk aversion: the paper's methods first, then others.

    On a task without runs of the baseline, or of nothing else, there are no changes.
    """
    tasks: dict[str, dict[str, list[Finished]]] = {}
    for run in compared_at(lam, runs):
        tasks.setdefault(run.row.task, {}).setdefault(run.method, []).append(run)
    found: list[Cell] = []
    for task, methods in tasks.items():
        seen = {
            method: _Seen.of(methods[method], lam, np.random.default_rng([seed, place]))
            for place, method in enumerate(METHODS)
            if method in methods
        }
        base = seen.pop(BASELINE, None) if len(seen) > 1 else None
        for method in sorted(seen, key=(*COMPARED, *METHODS).index):
            found += _compare(task, method, lam, base, seen[method])
    return found


def missing(grid: Grid, runs: Sequence[Finished]) -> list[str]:
    """Which runs a comparison lacks: lines of text, none if it lacks none.

    A seed counts as missing if any other run has it.
    """
    there = {(run.row.task, run.method, run.risk_aversion, run.row.seed) for run in runs}
    seeds = sorted({run.row.seed for run in runs})
    risk_aversions = _with_runs(runs, grid.risk_aversions)
    begun = [task for task in grid.tasks if any(key[0] == task for key in there)]
    tasks_lacking: dict[str, list[str]] = {}
    for task in begun:
        lacking = []
        for method in grid.methods:
            averse = METHODS[method].averse
            for lam in risk_aversions or grid.risk_aversions if averse else (0.0,):
                gone = [str(seed) for seed in seeds if (task, method, lam, seed) not in there]
                given = f" at lam = {lam:g}" if averse else ""
                lacking += [f"{method}{given} (seed {', '.join(gone)})"] if gone else []
        if lacking:
            tasks_lacking.setdefault("; ".join(lacking), []).append(task)
    lines = [f"missing on {', '.join(tasks)}: {what}" for what, tasks in tasks_lacking.items()]
    none = [task for task in grid.tasks if task not in begun]
    lines += [f"no run yet on {', '.join(none)}"] if none else []
    rest = [f"{lam:g}" for lam in grid.risk_aversions if lam not in risk_aversions]
    return [*lines, f"no run yet at lam = {', '.join(rest)}"] if rest else lines


def verdict(published: float | None, low: float, high: float, seeds: int) -> Verdict:
    """Whether our interval has the sign of the paper's figure.

    Undecided while the interval holds both signs, or when one seed alone cannot say. Where the
    paper has 0%, agreeing means an interval within its rounding.
    """
    if published is None:
        return "not in the paper"
    if seeds < 2 or math.isnan(low) or math.isnan(high):
        return "undecided"
    if published == 0:
        if low >= -_ROUNDING and high <= _ROUNDING:
            return "agrees"
        return "disagrees" if low > _ROUNDING or high < -_ROUNDING else "undecided"
    if low <= 0 <= high:
        return "undecided"
    return "agrees" if (low > 0) == (published > 0) else "disagrees"


@dataclass(frozen=True)
class _Seen:
    """Statistics of the seeds of a method in a task, and of every bootstrap resample."""

    values: Array
    resampled: Array
    seeds: int

    @classmethod
    def of(cls, seeds: Sequence[Finished], lam: float, rng: np.random.Generator) -> _Seen:
        means, variances = np.array([(run.row.mean, run.row.variance) for run in seeds]).T
        moments = np.stack([means, _bootstrap.without_rounding(means, variances)])
        returns = [np.array(run.returns) for run in seeds]
        drawn = _bootstrap.draw_runs(len(returns), _RESAMPLES, rng)
        again = _bootstrap.of_drawn(returns, drawn, (_bootstrap.means, _bootstrap.variances), rng)
        recorded = np.array([bool(run.returns) for run in seeds])
        resampled = np.where(recorded[drawn], again, moments[:, drawn])
        return cls(
            _statistics(moments.mean(axis=-1), lam),
            _statistics(resampled.mean(axis=-1), lam),
            len(seeds),
        )


def _statistics(moments: Array, risk_aversion: float) -> Array:
    """J, mean, variance and Sharpe ratio, (4, ...), of a mean and a variance, (2, ...)."""
    mean, variance = moments
    objective = mean - risk_aversion * variance
    return np.stack([objective, mean, variance, stats.sharpe_ratio(mean, variance)])


def _compare(task: str, method: str, lam: float, base: _Seen | None, ours: _Seen) -> Iterator[Cell]:
    there = published(task, method, lam)
    seeds = ours.seeds if base is None else min(base.seeds, ours.seeds)
    for i, name in enumerate(STATISTICS):
        value = float(ours.values[i]), *_bootstrap.interval(ours.resampled[i])
        paper = None if there is None else there[i] / 100.0
        change = (math.nan, math.nan, math.nan)
        judged: Verdict = "not compared"
        if base is not None:
            low, high = _bootstrap.interval(relative_change(ours.resampled[i], base.resampled[i]))
            change = float(relative_change(ours.values[i], base.values[i])), low, high
            judged = verdict(paper, low, high, seeds)
        yield Cell(task, method, lam, name, *value, *change, paper, judged, seeds)


def summary(table: Sequence[Cell]) -> list[str]:
    """The claims of the paper's text as counts: in how many tasks a method is better.

    A task where one of the two is not a number does not count.
    """
    lines: list[str] = []
    for lam in dict.fromkeys(cell.risk_aversion for cell in table):
        here = [cell for cell in table if cell.risk_aversion == lam]
        for name in ("J", "SR"):
            by_method = {
                method: {c.task: c for c in here if c.method == method and c.statistic == name}
                for method in COMPARED
            }
            lines += _counts(lam, name, by_method)
        verdicts = Counter(cell.verdict for cell in here)
        words: dict[Verdict, str] = {
            "agrees": "agree",
            "disagrees": "disagree",
            "undecided": "undecided",
        }
        counted = ", ".join(f"{verdicts[v]} {word}" for v, word in words.items() if verdicts[v])
        if counted:
            lines.append(f"lam = {lam:g}: signs of the paper's figures: {counted}")
    return lines


@dataclass(frozen=True)
class _Match:
    """MVPI-TD3 against another method in one task and statistic.

    `higher` is None where one of the two is not a number, `in_paper` where the paper has none.
    """

    higher: bool | None
    beyond_chance: bool
    in_paper: bool | None


def _against_baseline(ours: Cell) -> _Match:
    return _Match(
        None if math.isnan(ours.change) else ours.change > 0,
        ours.seeds > 1 and ours.low > 0,
        None if ours.published is None else ours.published > 0,
    )


def _against(ours: Cell, other: Cell) -> _Match:
    known = not (math.isnan(ours.value) or math.isnan(other.value))
    papers = ours.published, other.published
    return _Match(
        ours.value > other.value if known else None,
        min(ours.seeds, other.seeds) > 1 and ours.value_low > other.value_high,
        None if papers[0] is None or papers[1] is None else papers[0] > papers[1],
    )


def _counts(lam: float, name: str, by_method: dict[str, dict[str, Cell]]) -> Iterator[str]:
    trvo, mvpi = (by_method[method] for method in COMPARED)
    matches = {
        BASELINE: [_against_baseline(cell) for cell in mvpi.values()],
        "TRVO": [_against(cell, trvo[task]) for task, cell in mvpi.items() if task in trvo],
    }
    for other, of_tasks in matches.items():
        known = [match for match in of_tasks if match.higher is not None]
        if known:
            higher = [match for match in known if match.higher]
            sure = sum(match.beyond_chance for match in higher)
            in_paper = [match.in_paper for match in of_tasks if match.in_paper is not None]
            paper = f" (paper: {sum(in_paper)} of {len(in_paper)})" if in_paper else ""
            yield (
                f"lam = {lam:g}: MVPI-TD3 has a higher {name} than {other} in {len(higher)} of "
                f"{len(known)} tasks, {sure} of them beyond the 95% intervals{paper}"
            )


def write(out: Path, table: Sequence[Cell], runs: Sequence[Finished], grid: Grid) -> list[Path]:
    """The table as table.csv and table.md, the rows of its runs as table-runs.csv.

    Returns the paths of the first two.
    """
    rows, text = out / "table.csv", out / "table.md"
    write_rows(rows, table)
    write_rows(out / "table-runs.csv", (run.row for run in runs))
    write_file(text, markdown(table, grid.steps, missing(grid, runs)).encode())
    return [rows, text]


def markdown(table: Sequence[Cell], steps: int, notes: Sequence[str] = ()) -> str:
    """The table for a document: ours with its interval, the paper's figure, the verdict."""
    lines = [
        "# Changes against TD3",
        "",
        "J is the mean - lam variance of the return, SR its Sharpe ratio. In brackets: 95%",
        "intervals. After the slash: the paper's figure (10 seeds, 1,000,000 steps), and the",
        "verdict on its sign.",
        "",
    ]
    for lam in dict.fromkeys(cell.risk_aversion for cell in table):
        here = [cell for cell in table if cell.risk_aversion == lam]
        lines += [
            f"## lam = {lam:g}, {steps:,} steps",
            "",
            f"| task | method | seeds | {' | '.join(STATISTICS)} |",
            f"|---|---|---|{'---|' * len(STATISTICS)}",
        ]
        for key in dict.fromkeys((cell.task, cell.method) for cell in here):
            row = [cell for cell in here if (cell.task, cell.method) == key]
            lines.append(f"| {' | '.join([*key, str(row[0].seeds), *map(described, row)])} |")
        lines.append("")
    return "\n".join([*lines, *(f"* {line}" for line in (*summary(table), *notes)), ""])


def described(cell: Cell) -> str:
    """A cell as text: our change, its interval, the paper's figure, the verdict."""
    if cell.verdict == "not compared":
        return f"{cell.value:.5g}, not compared"
    ours = f"{percent(cell.change)} ({percent(cell.low)} to {percent(cell.high)})"
    if cell.published is None:
        return ours
    return f"{ours} / {percent(cell.published)} {cell.verdict}"
