"""Tasks with a noisy zone: the share of steps each method spends in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mvpi.envs import Task
from mvpi.errors import InputError
from mvpi.experiments.outcome import share_in_zone
from mvpi.paper.curves import COLORS, MARKERS
from mvpi.paper.rows import RunRow

_RESAMPLES = 2_000


@dataclass(frozen=True)
class ZoneRow:
    """The final episodes of a method's seeds: how often in the zone, at what return.

    `low` and `high` are a 95% bootstrap interval of the share over the seeds; of a single one there
    is none, and they are NaN.
    """

    task: str
    method: str
    risk_aversion: float
    seeds: int
    in_zone: float
    low: float
    high: float
    mean_return: float
    return_deviation: float


def check_zone(task: str, action_noise: float) -> None:
    """An `InputError` if the task cannot be made, or has no noisy zone."""
    with closing(Task(task, action_noise)()) as env:
        if share_in_zone(env) is None:
            raise _no_zone(task)


def _no_zone(task: str) -> InputError:
    return InputError(f"{task} has no noisy zone; use mvpi paper curves or table for it")


def zone_rows(runs: Sequence[RunRow]) -> list[ZoneRow]:
    """A row for every task, method and risk aversion."""
    groups: dict[tuple[str, str, float], list[RunRow]] = {}
    for run in runs:
        groups.setdefault((run.task, run.method, run.risk_aversion), []).append(run)
    rng = np.random.default_rng(0)
    rows = []
    for key, group in groups.items():
        shares = [run.in_zone for run in group if run.in_zone is not None]
        if len(shares) < len(group):
            raise _no_zone(key[0])
        low = high = math.nan
        if len(shares) > 1:
            drawn = rng.choice(shares, size=(_RESAMPLES, len(shares))).mean(axis=1)
            low, high = map(float, np.quantile(drawn, [0.025, 0.975]))
        mean = float(np.mean([run.mean for run in group]))
        deviation = float(np.sqrt(np.mean([run.variance for run in group])))
        share = float(np.mean(shares))
        rows.append(ZoneRow(*key, len(group), share, low, high, mean, deviation))
    return rows


def draw(rows: Sequence[ZoneRow], path: Path) -> None:
    """A panel a task: mean return against the share of steps in the zone, a point a method."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    width = max(3.4 * len(tasks), 6.6) + 0.3  # room for the title and the legend
    figure = Figure(figsize=(width, 3.8), layout="constrained")
    panels = figure.subplots(1, len(tasks), squeeze=False).ravel()
    several = len({row.risk_aversion for row in rows}) > 1
    handles = {}
    for axes, task in zip(panels, tasks, strict=True):
        for row in (row for row in rows if row.task == task):
            error = np.maximum([[row.in_zone - row.low], [row.high - row.in_zone]], 0.0)
            handles[row.method] = axes.errorbar(
                100 * row.in_zone,
                row.mean_return,
                xerr=None if math.isnan(row.low) else 100 * error,
                fmt=MARKERS[row.method],
                color=COLORS[row.method],
                markerfacecolor="none",
                markersize=9,
                capsize=3,
            )
            if several and row.risk_aversion > 0:
                axes.annotate(
                    rf"$\lambda = {row.risk_aversion:g}$",
                    (100 * row.in_zone, row.mean_return),
                    xytext=(5, 5),
                    textcoords="offset points",
                    fontsize=7,
                )
        axes.set_xlabel("steps in the noisy zone, %", fontsize=9)
        axes.set_title(task.removeprefix("mvpi/"), fontsize=10)
        axes.set_xlim(-4, 104)
        axes.spines[["top", "right"]].set_visible(False)
    intervals = "" if all(math.isnan(row.low) for row in rows) else ", 95% intervals over seeds"
    figure.suptitle(f"Mean return against time in the noisy zone{intervals}")
    figure.supylabel("mean return", fontsize=10)
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
    )
    figure.savefig(path, dpi=150, metadata={"Software": None})
