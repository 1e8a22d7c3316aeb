"""The paper's table: changes relative to TD3, with intervals, beside the paper's own figures.

For a method and TD3, each statistic of the final episodes' returns is averaged over the seeds; the
change is `(x - x_TD3) / |x_TD3|`. An interval is a bootstrap over both sources of chance: seeds
are drawn again, and within each seed its episodes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from mvpi.experiments.outcome import Outcome
from mvpi.experiments.paper import BASELINE, COMPARED, METHODS, published
from mvpi.report.rows import Finished, compared_at

Array = npt.NDArray[np.float64]
Verdict = Literal["agrees", "disagrees", "undecided", "not in the paper"]

STATISTICS = ("J", "mean", "variance", "SR")
_RESAMPLES = 2_000
_ROUNDING = 0.005
"""The paper's percentages are whole: 0% may be anything up to half a percent."""


@dataclass(frozen=True)
class Cell:
    """One change: ours with its 95% interval, the paper's, and whether they agree.

    Changes are shares: 0.5 is +50%. `seeds` are those of the method and of the baseline, the fewer.
    """

    task: str
    method: str
    risk_aversion: float
    statistic: str
    change: float
    low: float
    high: float
    published: float | None
    verdict: Verdict
    seeds: int


def cells(runs: Sequence[Finished], lam: float, seed: int = 0) -> list[Cell]:
    """The table of these runs at one risk aversion: the paper's methods first, then others."""
    tasks: dict[str, dict[str, list[Outcome]]] = {}
    for run in compared_at(lam, runs):
        tasks.setdefault(run.task, {}).setdefault(run.method, []).append(run.outcome)
    found: list[Cell] = []
    for task, methods in tasks.items():
        base = methods.pop(BASELINE, [])
        if base:
            for method in sorted(methods, key=(*COMPARED, *METHODS).index):
                found += _compare(task, method, lam, base, methods[method], seed)
    return found


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


def change(x: npt.ArrayLike, base: npt.ArrayLike) -> Array:
    """`(x - base) / |base|`, also where it has to be a limit.

    Nothing changed is 0, even from 0 or infinity; from infinity to a number is -1; from 0 to
    a number is infinite.
    """
    x, base = np.broadcast_arrays(np.asarray(x, float), np.asarray(base, float))
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = (x - base) / np.abs(base)
    return np.select([x == base, np.isposinf(base) & np.isfinite(x)], [0.0, -1.0], plain)


def statistics(returns: Array, risk_aversion: float) -> Array:
    """J, mean, variance and Sharpe ratio of the episodes, each averaged over the seeds.

    `returns` is (..., seeds, episodes), the result (4, ...).
    """
    mean, variance = returns.mean(axis=-1), returns.var(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        sharpe = np.where(mean == 0, 0.0, mean / np.sqrt(variance))
        every = np.stack([mean - risk_aversion * variance, mean, variance, sharpe])
        averaged: Array = every.mean(axis=-1)  # not a number for infinite ratios of both signs
    return averaged


def _compare(
    task: str,
    method: str,
    lam: float,
    base: Sequence[Outcome],
    other: Sequence[Outcome],
    seed: int,
) -> Iterator[Cell]:
    rng = np.random.default_rng(seed)
    sides = [np.array([outcome.returns for outcome in side]) for side in (base, other)]
    was, now = (statistics(side, lam) for side in sides)
    drawn_was, drawn_now = (statistics(_redrawn(side, rng), lam) for side in sides)
    found = change(now, was)
    ends = np.quantile(change(drawn_now, drawn_was), [0.025, 0.975], axis=1, method="inverted_cdf")
    there = published(task, method, lam)
    seeds = min(len(base), len(other))
    for i, name in enumerate(STATISTICS):
        low, high = float(ends[0, i]), float(ends[1, i])
        paper = None if there is None else there[i] / 100.0
        judged = verdict(paper, low, high, seeds)
        yield Cell(task, method, lam, name, float(found[i]), low, high, paper, judged, seeds)


def _redrawn(returns: Array, rng: np.random.Generator) -> Array:
    """Bootstrap samples, (resamples, seeds, episodes): seeds drawn again, and their episodes."""
    seeds, episodes = returns.shape
    which = rng.integers(seeds, size=(_RESAMPLES, seeds, 1))
    when = rng.integers(episodes, size=(_RESAMPLES, seeds, episodes))
    return returns[which, when]


def percent(share: float) -> str:
    """A change as a person reads it: whole percents, large ones as powers of ten.

    A change that is no number, such as one between infinite Sharpe ratios, is a question mark.
    """
    if math.isnan(share):
        return "?"
    if math.isinf(share):
        return "+inf" if share > 0 else "-inf"
    value = 100.0 * share
    if abs(value) >= 1e5:
        return f"{value:+.0e}%".replace("e+0", "e").replace("e+", "e")
    return f"{value:+.0f}%".replace("+0%", "0%").replace("-0%", "0%")


def summary(table: Sequence[Cell]) -> list[str]:
    """What the paper says in words, counted: in how many tasks a method is better."""
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
        counted = ", ".join(f"{n} {v}" for v, n in verdicts.items() if v != "not in the paper")
        if counted:
            lines.append(f"lam = {lam:g}: signs of the paper's figures: {counted}")
    return lines


def _counts(lam: float, name: str, by_method: dict[str, dict[str, Cell]]) -> Iterator[str]:
    trvo, mvpi = (by_method[method] for method in COMPARED)
    tasks: dict[str, list[tuple[float, float, float | None, float | None]]] = {
        "TD3": [(cell.change, 0.0, cell.published, 0.0) for cell in mvpi.values()],
        "TRVO": [
            (mvpi[task].change, trvo[task].change, mvpi[task].published, trvo[task].published)
            for task in mvpi
            if task in trvo
        ],
    }
    for other, pairs in tasks.items():
        if pairs:
            ours = sum(x > y for x, y, _, _ in pairs)
            known = [(x, y) for _, _, x, y in pairs if x is not None and y is not None]
            paper = f" (paper: {sum(x > y for x, y in known)} of {len(known)})" if known else ""
            yield (
                f"lam = {lam:g}: MVPI-TD3 has a higher {name} than {other} in {ours} of "
                f"{len(pairs)} tasks{paper}"
            )


def markdown(table: Sequence[Cell], steps: int) -> str:
    """The table for a document: ours with its interval, the paper's figure, the verdict."""
    lines = []
    for lam in dict.fromkeys(cell.risk_aversion for cell in table):
        here = [cell for cell in table if cell.risk_aversion == lam]
        title = f"Changes against TD3 at lam = {lam:g} after {steps:,} steps, with 95% intervals."
        lines += [
            title,
            "After the slash: the paper's figure (10 seeds, 1,000,000 steps), and the verdict.",
            "",
            f"| task | method | seeds | {' | '.join(STATISTICS)} |",
            f"|---|---|---|{'---|' * len(STATISTICS)}",
        ]
        for key in dict.fromkeys((cell.task, cell.method) for cell in here):
            row = [cell for cell in here if (cell.task, cell.method) == key]
            lines.append(f"| {' | '.join([*key, str(row[0].seeds), *map(described, row)])} |")
        lines.append("")
    return "\n".join([*lines, *(f"* {line}" for line in summary(table)), ""])


def described(cell: Cell) -> str:
    """A cell in words: ours, its interval, the paper's figure, the verdict."""
    ours = f"{percent(cell.change)} ({percent(cell.low)} to {percent(cell.high)})"
    if cell.published is None:
        return ours
    return f"{ours} / {percent(cell.published)} {cell.verdict}"
