"""The picture of an efficient frontier."""

from __future__ import annotations

import math
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_kind, check_output
from mvpi._types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox


_MARGIN = 0.08
"""Room around the efficient part, as a share of its width and height."""
_MANY = 30
"""Vertices from which their marks are small."""
_MARK = 9.0
"""Size of the marks of both ends, in points."""
_APART = 3.0
"""Smallest distance between a label and anything else, in points."""
_LINE = 0.003
"""The width of a line, as a share of that of the picture."""
_CURVE = 4_000
"""Points of the curve, so that its bends are smooth."""


class Drawable(Protocol):
    """What is drawn of an efficient frontier."""

    means: Array
    variances: Array
    quantity: str

    @property
    def risk_aversions(self) -> Any: ...
    @property
    def curve(self) -> Any: ...
    def __len__(self) -> int: ...


_PLACES = (
    *((10, -6), (-10, 6), (11, 0), (-11, 0), (0, -11), (0, 11), (10, 6), (-10, -6)),
    *((30, -10), (-30, 10), (24, -24), (-24, 24), (30, 10), (-30, -10), (24, 30)),
    *((60, -8), (60, 8), (-60, 4), (16, -44)),
)
"""Where a label may stand, in the order they are tried: offsets from its vertex in points. The far
ones have a line to it."""
_WITH_LINE = 20.0


def draw(
    frontier: Drawable,
    path: str | PathLike[str] | None,
    spread: Literal["variance", "standard deviation"],
    axes: Axes | None,
) -> Axes:
    """Spread against mean: the efficient part, the dominated part, vertices, risk aversions."""
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

    means, variances = frontier.curve(max(20, _CURVE // len(frontier)))
    x, vertices = horizontal(variances), horizontal(frontier.variances)
    efficient = _efficient(frontier, x, means)
    _set_limits(axes, vertices, frontier.means)
    curve = np.column_stack([x, means])
    if _is_in_view(axes, curve, ~(efficient[:-1] & efficient[1:])):
        axes.plot(x, means, color="0.75", linewidth=1.5, linestyle="--", label="dominated")
    if len(frontier) > 1:
        seen = np.where(efficient, x, np.nan)
        axes.plot(seen, means, color="tab:blue", linewidth=2, label="efficient")
    if len(frontier) > 2:
        axes.plot(
            vertices,
            frontier.means,
            "o",
            color="tab:blue",
            markersize=3 if len(frontier) > _MANY else 5,
            label="deterministic policies",
            clip_on=False,
        )
    _mark_ends(axes, vertices, frontier.means)
    axes.set_xlabel(f"{spread} of the {frontier.quantity}")
    axes.set_ylabel(f"mean {frontier.quantity}")
    axes.set_title("Efficient frontier, with the risk aversions $\\lambda$ it is best for")
    axes.grid(alpha=0.25)
    _, labels = axes.get_legend_handles_labels()
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.12),
        ncols=len(labels),
        fontsize="small",
        frameon=False,
    )
    _label_risk_aversions(frontier, axes, vertices, curve)
    if path is not None:
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.savefig(path, dpi=150)
    return axes


def _efficient(frontier: Drawable, x: Array, means: Array) -> npt.NDArray[np.bool_]:
    """Which points of the boundary no point of a larger mean beats by more than a line's width."""
    least_beyond = np.minimum.accumulate(x[::-1])[::-1]
    width = _LINE * float(least_beyond[-1])
    efficient: npt.NDArray[np.bool_] = (x <= least_beyond + width) & (means >= frontier.means[0])
    return efficient


def _mark_ends(axes: Axes, x: Array, means: Array) -> None:
    ends = {"risk-neutral": ("^", "tab:red", -1), "least variance": ("s", "tab:green", 0)}
    if len(x) == 1:
        ends = {"risk-neutral and of least variance": ("s", "tab:green", 0)}
    for name, (mark, color, i) in ends.items():
        (line,) = axes.plot(x[i], means[i], mark, color=color, markersize=_MARK, label=name)
        line.set(clip_on=False, zorder=3)


def _set_limits(axes: Axes, x: Array, means: Array) -> None:
    """The efficient part fills the picture, which begins at a spread of 0."""
    width = float(np.ptp(x)) or float(x[-1]) or 1.0
    height = float(np.ptp(means)) or max(abs(float(means[-1])), float(x[-1])) or 1.0
    left = max(float(x[0]) - _MARGIN * width, 0.0)
    axes.set_xlim(left, float(x[-1]) + _MARGIN * width)
    axes.set_ylim(float(means[0]) - _MARGIN * height, float(means[-1]) + _MARGIN * height)


def _is_in_view(axes: Axes, curve: Array, chosen: npt.NDArray[np.bool_]) -> bool:
    """Whether the picture shows any of the chosen segments of a curve."""
    from matplotlib.path import Path

    points = np.asarray(axes.transData.transform(curve))
    ends = np.stack([points[:-1][chosen], points[1:][chosen]], axis=1).reshape(-1, 2)
    segments = Path(ends, [Path.MOVETO, Path.LINETO] * (len(ends) // 2))
    return len(ends) > 0 and segments.intersects_bbox(axes.get_window_extent(), filled=False)


def _label_risk_aversions(frontier: Drawable, axes: Axes, vertices: Array, curve: Array) -> None:
    """Write the range of lambda beside every policy that has one and room for it."""
    from matplotlib.path import Path
    from matplotlib.text import Text

    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # computes the layout
    points = np.column_stack([vertices, frontier.means])
    pixels = np.asarray(axes.transData.transform(points))
    unit = figure.dpi / 72.0
    around = 0.5 * _MARK * unit * np.array([(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)])
    marks = [pixels[i] + around for i in (0, -1)]
    marked = np.vstack([pixels, *marks])
    lines = [Path(axes.transData.transform(curve))]
    frame = axes.get_window_extent().padded(-1.0)
    boxes: list[Bbox] = []
    labelled = np.empty((0, 2))
    supported = [i for i, span in enumerate(frontier.risk_aversions) if span is not None]
    for i in _spread_out(supported):
        if (np.hypot(*(labelled - pixels[i]).T) < _MARK * unit).any():
            continue  # too close to another labelled vertex
        span = frontier.risk_aversions[i]
        assert span is not None
        for place in _PLACES:
            label = _label(axes, _range_text(*span), points[i], *place)
            label.get_window_extent()  # moves the text to its place
            box = Text.get_window_extent(label).padded(_APART * unit)  # without the line
            line = Path([pixels[i], pixels[i] + unit * np.array(place)])
            crossed = [*((line, other) for other in boxes), *((other, box) for other in lines)]
            if _fits(box, frame, marked, boxes) and not any(
                path.intersects_bbox(other, filled=False) for path, other in crossed
            ):
                boxes.append(box)
                lines.append(line)
                labelled = np.vstack([labelled, pixels[i]])
                break
            label.remove()


def _label(axes: Axes, text: str, point: Array, x: float, y: float) -> Annotation:
    """A text on the side of its vertex to which the offset leads: beside it, above or below."""
    far = math.hypot(x, y) >= _WITH_LINE
    return axes.annotate(
        text,
        (float(point[0]), float(point[1])),
        xytext=(x, y),
        textcoords="offset points",
        ha="center" if abs(y) > 2 * abs(x) else "left" if x > 0 else "right",
        va="center" if abs(x) > 2 * abs(y) else "bottom" if y > 0 else "top",
        fontsize="small",
        arrowprops={"arrowstyle": "-", "color": "0.6", "linewidth": 0.8} if far else None,
    )


def _fits(box: Bbox, frame: Bbox, marked: Array, boxes: list[Bbox]) -> bool:
    """Whether a label is inside the picture and covers neither a mark nor another label."""
    inside = bool(np.all(frame.min <= box.min) and np.all(box.max <= frame.max))
    return inside and not box.count_contains(marked) and not box.count_overlaps(boxes)


def _spread_out(items: list[int]) -> list[int]:
    """The ends first, then the middle, then the quarters, ...: all of them in the end."""
    order, parts = [items[-1], items[0]], 1
    while parts < len(items):
        parts *= 2
        order += [items[round(k * (len(items) - 1) / parts)] for k in range(1, parts, 2)]
    return list(dict.fromkeys(order))


def _range_text(low: float, high: float) -> str:
    if math.isinf(high) and low == 0.0:
        return "any $\\lambda$"
    if math.isinf(high):
        return f"$\\lambda$ > {low:.3g}"
    if low == 0.0:
        return f"$\\lambda$ < {high:.3g}"
    if high - low < 0.02 * high:
        return f"$\\lambda$ = {0.5 * (low + high):.3g}"
    return f"$\\lambda$ {low:.3g} to {high:.3g}"
