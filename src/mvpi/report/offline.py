"""The figure of the off-line experiment: how likely the gamble becomes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mvpi.experiments.offline import OfflineRow


def draw(rows: Sequence[OfflineRow], path: Path) -> None:
    """Mean and standard error of pi(a0 | s0) against iterations, a curve a risk aversion."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    risk_aversions = list(dict.fromkeys(row.risk_aversion for row in rows))
    for i, lam in enumerate(risk_aversions):
        curve = [row for row in rows if row.risk_aversion == lam]
        x = [row.iteration for row in curve]
        mean = np.array([row.mean for row in curve])
        error = np.array([row.standard_error for row in curve])
        color = f"C{i}"
        axes.plot(x, mean, color=color)
        axes.fill_between(x, mean - error, mean + error, color=color, alpha=0.3, linewidth=0)
        axes.annotate(
            rf"$\lambda = {lam:g}$",
            (x[-1], mean[-1]),
            xytext=(6, 0),
            textcoords="offset points",
            color=color,
            va="center",
        )
    axes.axhline(0.5, color="0.8", linewidth=1, zorder=0)
    axes.set(
        xlabel="iterations",
        ylabel=r"$\pi(a_0 \mid s_0)$, the probability of the gamble",
        title=f"Off-line MVPI on the four-state problem, {rows[0].runs} runs",
    )
    axes.set_xlim(0, rows[-1].iteration * 1.12)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
