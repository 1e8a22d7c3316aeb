"""The picture of a frontier of agents: mean against standard deviation, a panel for each view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from mvpi._types import Array
from mvpi.report.risk_choice import Candidates

_SIZE = (10.0, 4.6)
_COLOURS = "viridis"
_LAST_COLOUR = 0.92
"""The palest colours of the map are not legible on white."""


def draw(
    path: Path, panels: Sequence[Candidates], exact: Mapping[str, tuple[Array, Array]], title: str
) -> None:
    """Save the picture; `exact` are deviations and means by the quantity of a panel."""
    with mpl.rc_context():
        mpl.rcdefaults()
        figure = Figure(figsize=_SIZE, layout="constrained")
        count = len(panels[0].names)
        colours = mpl.colormaps[_COLOURS](np.linspace(0.0, _LAST_COLOUR, count))
        for axes, panel in zip(figure.subplots(1, len(panels)), panels, strict=True):
            _draw_panel(axes, panel, colours, exact.get(panel.of))
        figure.suptitle(title, fontsize="medium")
        figure.set_layout_engine("constrained", wspace=0.06)
        figure.legend(
            handles=_legend(panels, colours, bool(exact)),
            loc="outside lower center",
            ncols=min(7, count + 4),
            fontsize="small",
            frameon=False,
            title="risk aversion",
            title_fontsize="small",
        )
        figure.savefig(path, dpi=150)


def _draw_panel(
    axes: Axes, panel: Candidates, colours: Any, exact: tuple[Array, Array] | None
) -> None:
    x, y = np.array([one.point for one in panel.moments]).T
    if exact is not None:
        axes.plot(*exact, color="0.35", linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
    kept = panel.efficient
    axes.plot(x[kept], y[kept], color="0.55", linewidth=1.2, zorder=2)
    for i, (one, colour) in enumerate(zip(panel.moments, colours, strict=True)):
        bars: dict[str, Any] = {"color": colour, "alpha": 0.45, "linewidth": 1.0, "zorder": 2}
        axes.hlines(one.mean.value, one.deviation.low, one.deviation.high, **bars)
        axes.vlines(one.deviation.value, one.mean.low, one.mean.high, **bars)
        # Dominated points lie below the others, which they must not hide.
        inner, height = (colour, 3.5) if i in kept else ("white", 3.0)
        axes.plot(*one.point, "o", markersize=7, color=inner, markeredgecolor=colour, zorder=height)
    if panel.knee is not None:
        knee = panel.moments[panel.knee].point
        axes.plot(*knee, "o", markersize=14, color="none", markeredgecolor="tab:red", zorder=4)
    axes.set(xlabel=f"standard deviation of the {panel.of}", ylabel=f"mean of the {panel.of}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
    axes.grid(alpha=0.25)


def _legend(panels: Sequence[Candidates], colours: Any, exact: bool) -> list[Line2D]:
    def mark(label: str, **style: Any) -> Line2D:
        return Line2D([], [], linestyle="none", marker="o", label=label, **style)

    shown = [
        mark(name.removeprefix("risk aversion "), color=colour)
        for name, colour in zip(panels[0].names, colours, strict=True)
    ]
    shown.append(Line2D([], [], color="0.55", linewidth=1.2, label="non-dominated"))
    if any(len(panel.efficient) < len(panel.names) for panel in panels):
        shown.append(mark("dominated", color="white", markeredgecolor="0.4"))
    if any(panel.knee is not None for panel in panels):
        shown.append(mark("knee", color="none", markeredgecolor="tab:red", markersize=10))
    if exact:
        dashes = (0, (4, 2))
        shown.append(Line2D([], [], color="0.35", linestyle=dashes, label="exact frontier"))
    return shown
