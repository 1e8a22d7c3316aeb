"""Learning curves: a panel per task, a curve per method, with bands of one standard error."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from mvpi._figures import mean_curve, thousands
from mvpi._types import Array
from mvpi.paper.grid import BASELINE, COMPARED, METHODS
from mvpi.paper.rows import CurveRow
from mvpi.paper.study import compared_at

COLORS = dict(
    zip(METHODS, ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"), strict=True)
)
"""Distinguishable for colour-blind readers."""
MARKERS = dict(zip(METHODS, "os^DvP", strict=True))
REWARD_OBJECTIVE = r"$J_\mathrm{reward}$ = mean - $\lambda$ variance, per step"
_ROUGH = 200
"""More evaluations than this on a curve are averaged to about as many."""


def write(out: Path, rows: Sequence[CurveRow], risk_aversions: Sequence[float]) -> list[Path]:
    """Both figures of every risk aversion that has rows; returns their paths."""
    figures: list[Path] = []
    for lam in risk_aversions:
        of_lam = compared_at(lam, rows)
        per_step = [row for row in of_lam if row.method in (BASELINE, *COMPARED)]
        for name, chosen, value, label in (
            ("curves", of_lam, mean_return, "mean return of an episode"),
            ("reward-curves", per_step, reward_objective(lam), REWARD_OBJECTIVE),
        ):
            if chosen:
                figures.append(out / f"{name}-{lam:g}.png")
                draw(chosen, value, label, rf"Training with $\lambda = {lam:g}$", figures[-1])
    return figures


def draw(
    rows: Sequence[CurveRow],
    value: Callable[[CurveRow], float],
    label: str,
    title: str,
    path: Path,
) -> None:
    """Draw `value` of the evaluations against steps; `label` names it."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    methods = [method for method in METHODS if any(row.method == method for row in rows)]
    columns = min(4, len(tasks))
    lines = math.ceil(len(tasks) / columns)
    width = max(3.3 * columns, 6.6) + 0.4  # room for the title and the legend
    figure = Figure(figsize=(width, 2.6 * lines + 1.1), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, task in zip(panels, tasks, strict=False):
        for method in methods:
            chosen = [row for row in rows if (row.task, row.method) == (task, method)]
            _curve(axes, chosen, value, COLORS[method])
        axes.set_title(task.removeprefix("mvpi/"), fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_formatter(FuncFormatter(thousands))
        axes.tick_params(labelsize=8)
    for axes in panels[max(0, len(tasks) - columns) : len(tasks)]:
        axes.set_xlabel("steps", fontsize=9)
    for axes in panels[len(tasks) :]:
        axes.set_visible(False)
    seeds = _seeds(rows)
    figure.supylabel(label, fontsize=10)
    figure.suptitle(f"{title}, {seeds}", fontsize=11)
    handles = [panels[0].plot([], [], color=COLORS[m], label=m)[0] for m in methods]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(methods), frameon=False, fontsize=9
    )
    figure.savefig(path, dpi=150, metadata={"Software": None})


def mean_return(row: CurveRow) -> float:
    """The mean return of an evaluation."""
    return row.return_mean


def reward_objective(lam: float) -> Callable[[CurveRow], float]:
    """The paper's `J_reward` of an evaluation: mean - lam variance of the reward of a step."""
    return lambda row: row.reward_mean - lam * row.reward_variance


def band(rows: Sequence[CurveRow], value: Callable[[CurveRow], float]) -> Array:
    """Columns: steps, mean over the seeds that got so far, its standard error."""
    seeds: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        seeds[row.seed].append((row.steps, value(row)))
    return mean_curve([sorted(curve) for curve in seeds.values()])


def smoothed(points: Array) -> Array:
    """Long curves averaged to about `_ROUGH` points; the last one is of the last evaluations."""
    if len(points) <= 2 * _ROUGH:
        return points
    every = len(points) // _ROUGH
    averages: Array = points[len(points) % every :].reshape(-1, every, 3).mean(axis=1)
    return averages


def _curve(
    axes: Axes, rows: Sequence[CurveRow], value: Callable[[CurveRow], float], color: str
) -> None:
    steps, mean, error = smoothed(band(rows, value)).T
    axes.plot(steps, mean, color=color, linewidth=1.3)
    axes.fill_between(steps, mean - error, mean + error, color=color, alpha=0.2, linewidth=0)


def _seeds(rows: Sequence[CurveRow]) -> str:
    counts = defaultdict(set)
    for row in rows:
        counts[row.task, row.method].add(row.seed)
    few, many = min(map(len, counts.values())), max(map(len, counts.values()))
    number = f"{many}" if few == many else f"{few} to {many}"
    return f"{number} seeds, bands of one standard error" if many > 1 else "1 seed"
