"""The picture of an efficient frontier."""

from __future__ import annotations

import math
from os import PathLike
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_kind, check_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mvpi.tabular.frontier import Frontier

Array = npt.NDArray[np.float64]

_LABELS = 6
_SEPARATION = 0.09
"""Labels are at least this far apart, as a share of the height of the picture."""


def draw(
    frontier: Frontier,
    path: str | PathLike[str] | None,
    spread: Literal["variance", "standard deviation"],
    axes: Axes | None,
) -> Axes:
    """Spread against mean: the efficient part, the dominated part, marks and risk aversions."""
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import FigureCanvasBase
    from matplotlib.figure import Figure

    if path is not None:
        formats = FigureCanvasBase.get_supported_filetypes()
        path = check_output(path, endings=[f".{name}" for name in formats])
    if axes is None:
        axes = Figure(figsize=(8.0, 5.0), layout="constrained").subplots()
    check_kind(axes, Axes, "axes", "Axes of matplotlib, or None for a new figure")

    def horizontal(variance: Array) -> Array:
        return variance if spread == "variance" else np.sqrt(variance)

    means, variances = frontier.curve()
    x = horizontal(variances)
    least_beyond = np.minimum.accumulate(variances[::-1])[::-1]
    efficient = variances <= least_beyond + 1e-12 * float(frontier.variances[-1])
    efficient &= means >= frontier.means[0]  # far below, variances are lost in rounding
    axes.plot(x, means, color="0.75", linewidth=1.5, linestyle="--", label="dominated")
    axes.plot(
        np.where(efficient, x, np.nan), means, color="tab:blue", linewidth=2, label="efficient"
    )
    corners = horizontal(frontier.variances)
    axes.plot(
        corners,
        frontier.means,
        "o",
        color="tab:blue",
        markersize=3 if len(frontier) > 30 else 5,
        label="deterministic policies",
    )
    ends = {"risk-neutral": ("^", "tab:red", -1), "least variance": ("s", "tab:green", 0)}
    for name, (marker, color, i) in ends.items():
        axes.plot(corners[i], frontier.means[i], marker, color=color, markersize=9, label=name)
    _label_risk_aversions(frontier, axes, corners)
    _look_at_efficient_part(axes, corners, frontier.means)
    axes.set_xlabel(f"{spread} of the reward of a step")
    axes.set_ylabel("mean reward of a step")
    axes.set_title("Efficient frontier, with the risk aversions $\\lambda$ it is best for")
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", fontsize="small")
    if path is not None:
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.savefig(path, dpi=150)
    return axes


def _look_at_efficient_part(axes: Axes, x: Array, means: Array) -> None:
    """Show the efficient part with room for labels, and the dominated part as far as it fits."""
    width, height = float(np.ptp(x)), float(np.ptp(means))
    if width > 0 and height > 0:
        axes.set_xlim(x.min() - 0.35 * width, x.max() + 0.15 * width)
        axes.set_ylim(means.min() - 0.5 * height, means.max() + 0.12 * height)
        axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= axes.get_xlim()[1]])


def _label_risk_aversions(frontier: Frontier, axes: Axes, corners: Array) -> None:
    """Write the range of lambda beside a few policies that stand well apart."""
    height = float(np.ptp(frontier.means)) or 1.0
    chosen: list[int] = []
    supported = [i for i, span in enumerate(frontier.risk_aversions) if span is not None]
    for i in _spread_out(supported):
        distances = [abs(frontier.means[i] - frontier.means[j]) for j in chosen]
        if min(distances, default=height) > _SEPARATION * height and len(chosen) < _LABELS:
            chosen.append(i)
    for i in chosen:
        span = frontier.risk_aversions[i]
        assert span is not None
        axes.annotate(
            _range_text(*span),
            (corners[i], frontier.means[i]),
            xytext=(-9, 4),
            textcoords="offset points",
            ha="right",
            fontsize="small",
        )


def _spread_out(items: list[int]) -> list[int]:
    """The ends first, then the middle, then the quarters, ..."""
    order = [items[-1], items[0]]
    parts = 2
    while parts <= 16:
        order += [items[round(k * (len(items) - 1) / parts)] for k in range(1, parts, 2)]
        parts *= 2
    return list(dict.fromkeys(order))


def _range_text(low: float, high: float) -> str:
    if math.isinf(high):
        return f"$\\lambda$ > {low:.3g}"
    if low == 0.0:
        return f"$\\lambda$ < {high:.3g}"
    if high - low < 0.02 * high:
        return f"$\\lambda$ = {0.5 * (low + high):.3g}"
    return f"$\\lambda$ {low:.3g} to {high:.3g}"
