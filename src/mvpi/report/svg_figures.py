"""The figures of the page, as SVG elements.

An agent has one colour, line and marker on the whole page. Names are in the HTML around the
figures, so that no legend covers data, and no text of a file gets into a figure.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mvpi._figures import mean_curve, thousands
from mvpi._types import Array
from mvpi.experiments.outcome import Outcome
from mvpi.report.agent_statistics import Comparison
from mvpi.report.grouping import AgentRuns

_SIZE = (4.2, 3.0)
_ROW = 0.36
"""Inches for every agent where each has a row of its own."""
_BINS = 41
MOST_POINTS = 200
_CUT = 0.01
"""Share of the steps at either end that the distribution of rewards does not show."""
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333")
"""Of Okabe and Ito: told apart by people who see colours differently, and legible on white."""
_DASHES: tuple[tuple[float, ...], ...] = ((), (5, 1.6), (1.3, 1.3), (6, 1.6, 1.3, 1.6))
_MARKERS = {
    "o": "M0-4a4 4 0 1 0 .01 0z",
    "s": "M-3.5-3.5h7v7h-7z",
    "^": "M0-4.5L4.2 3.2h-8.4z",
    "D": "M0-4.6L4.6 0 0 4.6-4.6 0z",
    "v": "M0 4.5L4.2-3.2h-8.4z",
    "P": "M-1.5-4.2h3v2.7h2.7v3h-2.7v2.7h-3v-2.7h-2.7v-3h2.7z",
    "X": "M-2-4L0-2 2-4 4-2 2 0 4 2 2 4 0 2-2 4-4 2-2 0-4-2z",
}
"""Markers of matplotlib, and the same as paths for the legend in HTML."""
_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a8f98",
    "axes.labelcolor": "#33373d",
    "xtick.color": "#8a8f98",
    "ytick.color": "#8a8f98",
    "xtick.labelcolor": "#33373d",
    "ytick.labelcolor": "#33373d",
    "axes.grid": True,
    "grid.color": "#e6e8eb",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
}


@dataclass(frozen=True)
class Style:
    """How an agent looks everywhere on the page."""

    color: str
    dashes: tuple[float, ...]
    marker: str

    @property
    def marker_path(self) -> str:
        return _MARKERS[self.marker]

    @property
    def curve(self) -> dict[str, Any]:
        """As matplotlib wants a line with markers; `markevery` says where these are."""
        return {
            "color": self.color,
            "linestyle": (0.0, self.dashes or None),
            "marker": self.marker,
            "markeredgecolor": "white",
            "markeredgewidth": 0.6,
        }


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """A style for each, no two alike among the first few dozen."""
    markers = list(_MARKERS)
    found = {}
    for i, label in enumerate(dict.fromkeys(labels)):
        turn = i + i // len(_COLORS)
        found[label] = Style(
            _COLORS[i % len(_COLORS)], _DASHES[turn % len(_DASHES)], markers[turn % len(markers)]
        )
    return found


def learning_curves(comparison: Comparison, look: dict[str, Style], key: str) -> str:
    """Mean return against steps: the mean over seeds, and a band of one standard error."""
    with new_figure() as (figure, axes):
        for agent in comparison.section.agents:
            steps, mean, error = thinned(mean_curve([run.curve() for run in agent.every_run])).T
            if not len(steps):
                continue
            style = look[agent.label]
            every = max(1, len(steps) // 6)
            axes.plot(steps, mean, markevery=(every - 1, every), **style.curve)
            if len(agent.every_run) > 1:
                low, high = mean - error, mean + error
                axes.fill_between(steps, low, high, color=style.color, alpha=0.18, linewidth=0)
        axes.set(xlabel="training steps", ylabel="mean return")
        axes.xaxis.set_major_formatter(FuncFormatter(thousands))
        axes.set_xlim(left=0)
        return svg_text(figure, key)


def return_histograms(comparison: Comparison, look: dict[str, Style], key: str) -> str:
    """The returns of the final episodes, a row for every agent, each scaled to its row."""
    agents = comparison.section.judged
    edges, shares = histogram_shares(agents)
    low, high = float(edges[0]), float(edges[-1])
    with new_figure(rows=len(agents)) as (figure, axes):
        for i, (agent, share) in enumerate(zip(agents, shares, strict=True)):
            style, floor = look[agent.label], float(len(agents) - 1 - i)
            top = floor + 0.86 * share / share.max()
            axes.stairs(
                top, edges, baseline=floor, fill=True, facecolor=style.color, alpha=0.35, lw=0
            )
            axes.stairs(top, edges, baseline=floor, color=style.color, lw=1.1)
            mean = comparison.estimates[agent.key]["mean"].value
            axes.vlines(mean, floor, floor + 0.93, color="#33373d", lw=1.3)
            axes.plot(
                -0.03,
                floor + 0.3,
                marker=style.marker,
                color=style.color,
                markersize=6,
                transform=axes.get_yaxis_transform(),
                clip_on=False,
            )
        axes.set(xlabel="return of an episode", yticks=[], ylim=(0, len(agents)))
        axes.set_xlim(low - 0.02 * (high - low), high + 0.02 * (high - low))
        axes.spines["left"].set_visible(False)
        return svg_text(figure, key)


def mean_against_deviation(comparison: Comparison, look: dict[str, Style], key: str) -> str:
    """A small point for every run, a big one for every agent, and the efficient frontier."""
    agents = comparison.section.judged
    points = np.array([comparison.point(agent) for agent in agents])
    single = [np.array([(o.deviation, o.mean) for o in agent.outcomes]) for agent in agents]
    everything = np.concatenate([points, *single])
    (left, right), (low, high) = (
        padded(float(x.min()), float(x.max()), 0.09) for x in everything.T
    )
    left = max(left, -0.04 * right)
    with new_figure() as (figure, axes):
        axes.set(xlim=(left, right), ylim=(low, high))
        if len(agents) > 1:
            corners = np.array([comparison.point(agent) for agent in comparison.frontier])
            axes.plot(
                [corners[0, 0], *corners[:, 0], right],
                [low, *corners[:, 1], corners[-1, 1]],
                drawstyle="steps-post",
                color="#777c85",
                linewidth=1.1,
                linestyle=(0, (4, 2)),
                label="efficient frontier",
                zorder=1,
            )
            figure.legend(loc="outside upper left", frameon=False, borderpad=0, handlelength=2.4)
        # Later ones are drawn over earlier ones and a little smaller: none hides another.
        sizes = np.linspace(11, 7, len(agents))
        for agent, point, runs, size in zip(agents, points, single, sizes, strict=True):
            style = look[agent.label]
            common: dict[str, Any] = {
                "color": style.color,
                "marker": style.marker,
                "linestyle": "none",
            }
            if len(runs) > 1:
                axes.plot(*runs.T, **common, markersize=4, alpha=0.6, markeredgewidth=0)
            axes.plot(*point, **common, markersize=float(size), markeredgecolor="white")
        axes.set(xlabel="standard deviation of the return", ylabel="mean return")
        return svg_text(figure, key)


def reward_distributions(comparison: Comparison, look: dict[str, Style], key: str) -> str:
    """How many steps had at most a certain reward; all runs of an agent count the same."""
    agents = comparison.section.judged
    levels, every = reward_quantiles([agent.outcomes for agent in agents])
    low, high = reward_limits(every)
    with new_figure() as (figure, axes):
        for agent, rewards in zip(agents, every, strict=True):
            axes.plot(
                *distribution(levels, rewards, (low, high)),
                markevery=[int(0.25 * MOST_POINTS), int(0.75 * MOST_POINTS)],
                **look[agent.label].curve,
            )
        axes.set(xlim=(low, high), ylim=(-0.02, 1.02))
        axes.set(xlabel="reward of a step", ylabel="share of steps with at most that")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.0f}%"))
        return svg_text(figure, key)


def histogram_shares(agents: Sequence[AgentRuns]) -> tuple[Array, list[Array]]:
    """Edges of bins for the returns of all agents, and the shares of each; seeds count alike."""
    every = [np.concatenate([o.returns for o in agent.outcomes]) for agent in agents]
    low, high = padded(float(min(x.min() for x in every)), float(max(x.max() for x in every)), 0.0)
    edges = np.linspace(low, high, _BINS + 1)
    shares = []
    for agent, returns in zip(agents, every, strict=True):
        weights = [np.full(len(o.returns), 1 / len(o.returns)) for o in agent.outcomes]
        shares.append(np.histogram(returns, edges, weights=np.concatenate(weights))[0])
    return edges, shares


def reward_quantiles(
    each: Sequence[Sequence[Outcome]], count: int = MOST_POINTS
) -> tuple[Array, list[Array]]:
    """Levels, and the quantiles of rewards of single steps for each agent; runs count alike."""
    levels = np.linspace(0.0, 1.0, count + 1)
    every = [np.concatenate([o.reward_quantiles for o in outcomes]) for outcomes in each]
    return levels, [np.asarray(np.quantile(x, levels)) for x in every]


def reward_limits(every: Sequence[Array]) -> tuple[float, float]:
    """Limits of an axis for quantiles: the outermost at either end are cut."""
    ends = np.quantile(every, [_CUT, 1 - _CUT], axis=1)
    return padded(float(ends[0].min()), float(ends[1].max()), 0.06)


def distribution(
    levels: Array, quantiles: Array, ends: tuple[float, float], whole: float = 1.0
) -> tuple[list[float], list[float]]:
    """A distribution function between the ends of an axis: its arguments and its values."""
    x = [min(ends[0], quantiles[0]), *quantiles, max(ends[1], quantiles[-1])]
    return x, [0.0, *(whole * levels), whole]


def thinned(points: Array) -> Array:
    """Some of many rows: more could not be told apart."""
    if len(points) <= MOST_POINTS:
        return points
    return np.asarray(points[np.linspace(0, len(points) - 1, MOST_POINTS).astype(int)])


@contextmanager
def new_figure(rows: int = 0) -> Iterator[tuple[Figure, Axes]]:
    """A figure with one pair of axes, drawn with our settings whatever the user's are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_RC)
        height = max(_SIZE[1], 0.8 + _ROW * rows)
        figure = Figure(figsize=(_SIZE[0], height), layout="constrained")
        axes = figure.subplots()
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
            axis.set_major_formatter(
                FuncFormatter(lambda x, _: f"{x:,.7g}".replace("-", "\N{MINUS SIGN}"))
            )
        yield figure, axes


def svg_text(figure: Figure, key: str) -> str:
    """The figure as an element of HTML whose ids, all beginning with `key`, are its own."""
    buffer = io.BytesIO()
    mpl.rcParams["svg.hashsalt"] = key
    figure.savefig(
        buffer,
        format="svg",
        transparent=True,
        metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")),
    )
    text = buffer.getvalue().decode()
    text = text[text.index("<svg") :]
    # The style is for every element of a page, not of the figure alone: the page has its own.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{key}-", text)


def described(svg: str, sentence: str) -> Any:
    """The figure with a sentence for those who do not see it, as markup for the template."""
    from markupsafe import Markup

    opening = Markup('<svg role="img" aria-label="{}"').format(sentence)
    return Markup(svg.replace("<svg", opening, 1))


def padded(low: float, high: float, share: float) -> tuple[float, float]:
    """Limits of an axis around data, which may be all the same."""
    size = max(abs(low), abs(high))
    smallest = 0.02 * size if size > 0 else 1.0
    pad = max(share * (high - low), 0.5 * (smallest - (high - low)))
    return low - pad, high + pad
