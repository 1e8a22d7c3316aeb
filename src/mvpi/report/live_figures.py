"""The figures of the page for Plotly: values under the pointer, zoom, agents switched on and off.

A figure is a dictionary of `data` and `layout`, as Plotly's JSON schema has it. Every trace says in
its `meta` to which agent it belongs, whether it is of a single seed, and which series it draws; the
script of the page shows and hides traces by these. Text of files is escaped: Plotly reads tags.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mvpi._figures import mean_curve
from mvpi._types import Array
from mvpi.report.agent_statistics import Comparison, Estimate
from mvpi.report.formatting import between, number, share
from mvpi.report.grouping import AgentRuns
from mvpi.report.svg_figures import (
    Style,
    histogram_shares,
    padded,
    reward_limits,
    reward_quantiles,
    thinned,
)
from mvpi.report.training_series import DIAGNOSTICS, Series, results

Figure = dict[str, Any]
_SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
}
"""Plotly's names for the markers of matplotlib."""
_SOFT, _INK = "#777c85", "#33373d"


def curves(comparison: Comparison, look: dict[str, Style]) -> Figure | None:
    """Returns and objectives of the evaluations in training."""
    return _of_series(comparison, look, results(comparison.objectives))


def inside_training(comparison: Comparison, look: dict[str, Style]) -> Figure | None:
    """What training measured of itself: `y`, risk aversion, losses."""
    return _of_series(comparison, look, DIAGNOSTICS)


def returns(comparison: Comparison, look: dict[str, Style]) -> Figure:
    """Histograms of the final returns, a row for every agent."""
    agents = comparison.section.judged
    edges, shares = histogram_shares(agents)
    centres, width = (edges[1:] + edges[:-1]) / 2, float(edges[1] - edges[0])
    data = []
    for i, (agent, part) in enumerate(zip(agents, shares, strict=True)):
        style, floor = look[agent.label], len(agents) - 1 - i
        told = [
            f"{number(low)} to {number(high)}: {share(each)} of episodes"
            for low, high, each in zip(edges[:-1], edges[1:], part / part.sum(), strict=True)
        ]
        bars = {
            "type": "bar",
            "x": _list(centres),
            "y": _list(0.86 * part / part.max()),
            "base": floor,
            "width": width,
            "marker": {"color": style.color, "opacity": 0.55, "line": {"width": 0}},
            "customdata": told,
        }
        data.append(_trace(comparison, agent, bars, "%{customdata}"))
        mean = comparison.estimates[agent.key]["mean"]
        line = {"color": _INK, "width": 1.5}
        facts = _lines([mean.value, mean.value], [floor, floor + 0.93], line)
        data.append(_trace(comparison, agent, facts, f"mean {_told(mean)}"))
    axis = {"range": [0, len(agents)], "showticklabels": False, "showgrid": False}
    layout = _layout("return of an episode", "")
    layout["yaxis"].update(axis)
    return {"data": data, "layout": {**layout, "barmode": "overlay", "hovermode": "closest"}}


def plane(comparison: Comparison, look: dict[str, Style]) -> Figure:
    """Mean against standard deviation, with intervals, seeds, and the efficient frontier."""
    agents = comparison.section.judged
    data: list[Figure] = []
    if len(agents) > 1:
        data.append(_frontier(comparison))
    for agent in agents:
        style, found = look[agent.label], comparison.estimates[agent.key]
        marker = {"color": style.color, "symbol": _SYMBOLS[style.marker]}
        common: dict[str, Any] = {"type": "scatter", "mode": "markers"}
        if len(agent.outcomes) > 1:
            facts = {
                **common,
                "x": [outcome.deviation for outcome in agent.outcomes],
                "y": [outcome.mean for outcome in agent.outcomes],
                "marker": {**marker, "size": 6, "opacity": 0.6},
                "text": [f"seed {run.seed}" for run in agent.runs],
            }
            told = "%{text}: mean %{y:,.4~g}, std. dev. %{x:,.4~g}"
            data.append(_trace(comparison, agent, facts, told))
        deviation, mean = found["deviation"], found["mean"]
        facts = {
            **common,
            "x": [deviation.value],
            "y": [mean.value],
            "error_x": _bars(deviation, style),
            "error_y": _bars(mean, style),
            "marker": {**marker, "size": 12, "line": {"color": "white", "width": 1}},
        }
        told = f"mean {_told(mean)}<br>std. dev. {_told(deviation)}"
        data.append(_trace(comparison, agent, facts, told))
    layout = _layout("standard deviation of the return", "mean return")
    return {"data": data, "layout": {**layout, "hovermode": "closest"}}


def rewards(comparison: Comparison, look: dict[str, Style]) -> Figure:
    """The distribution of the rewards of single steps."""
    agents = comparison.section.judged
    levels, every = reward_quantiles([agent.outcomes for agent in agents])
    told = "%{y:.0%} of steps have at most %{x:,.4~g}"
    data = []
    for agent, quantiles in zip(agents, every, strict=True):
        facts = _lines(_list(quantiles), _list(levels), _line(look[agent.label]))
        data.append(_trace(comparison, agent, facts, told))
    layout = _layout("reward of a step", "share of steps with at most that")
    layout["xaxis"]["range"] = list(reward_limits(every))
    layout["yaxis"].update(tickformat=".0%", range=[-0.02, 1.02])
    return {"data": data, "layout": {**layout, "hovermode": "closest"}}


def as_json(figure: Figure) -> str:
    """The figure as text that may stand in a script element."""
    text = json.dumps(figure, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _of_series(
    comparison: Comparison, look: dict[str, Style], every: Iterable[Series]
) -> Figure | None:
    """Series against steps, of which the page shows one at a time; None if there are no rows."""
    data: list[Figure] = []
    titles: dict[str, str] = {}
    for series in every:
        traces = [
            t
            for agent in comparison.section.agents
            for t in _series_traces(comparison, agent, series, look[agent.label])
        ]
        if traces:
            titles[series.name] = series.title
            data += traces
    if not data:
        return None
    first = next(iter(titles))
    for trace in data:
        trace["visible"] = trace["meta"]["series"] == first and not trace["meta"]["seed"]
    layout = _layout("training steps", titles[first])
    layout["xaxis"]["rangemode"] = "tozero"
    return {"data": data, "layout": {**layout, "hovermode": "x unified", "meta": titles}}


def _series_traces(
    comparison: Comparison, agent: AgentRuns, series: Series, style: Style
) -> Iterator[Figure]:
    """The mean over seeds, its band of one standard error, and every seed by itself."""
    runs = [(run.seed, curve) for run in agent.every_run if (curve := series.curve(run))]
    steps, mean, error = thinned(mean_curve([curve for _, curve in runs])).T
    if not len(steps):
        return
    told = "%{y:,.4~g}"
    if len(runs) > 1:
        band = {
            "type": "scatter",
            "mode": "lines",
            "x": _list(np.concatenate([steps, steps[::-1]])),
            "y": _list(np.concatenate([mean - error, (mean + error)[::-1]])),
            "fill": "toself",
            "fillcolor": _pale(style.color),
            "line": {"width": 0},
            "hoverinfo": "skip",
        }
        yield _trace(comparison, agent, band, series=series.name)
    facts = _curve(_list(steps), _list(mean), _line(style), style)
    yield _trace(comparison, agent, facts, told, series=series.name)
    for seed, curve in runs if len(runs) > 1 else ():
        x, y = thinned(np.array(curve, np.float64)).T
        facts = _curve(_list(x), _list(y), {"color": style.color, "width": 0.8}, style)
        yield _trace(comparison, agent, facts, told, series=series.name, seed=seed)


def _frontier(comparison: Comparison) -> Figure:
    corners = np.array([comparison.point(agent) for agent in comparison.frontier])
    every = np.array([comparison.point(agent) for agent in comparison.section.judged])
    (_, right), (low, _) = (padded(float(x.min()), float(x.max()), 0.09) for x in every.T)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [corners[0, 0], *corners[:, 0], right],
        "y": [low, *corners[:, 1], corners[-1, 1]],
        "line": {"color": _SOFT, "width": 1.2, "dash": "dash", "shape": "hv"},
        "name": "efficient frontier",
        "showlegend": True,
        "hoverinfo": "skip",
        "meta": {},
    }


def _trace(
    comparison: Comparison,
    agent: AgentRuns,
    facts: Figure,
    told: str = "",
    *,
    series: str = "",
    seed: int | None = None,
) -> Figure:
    """The facts as a trace of an agent, or of one seed; `told` is what the pointer shows."""
    name = html.escape(agent.label)
    beside = name if seed is None else f"{name}, seed {seed}"
    hover = {"hovertemplate": f"{told}<extra>{beside}</extra>"} if told else {}
    place = comparison.section.agents.index(agent)
    meta = {"agent": place, "seed": seed is not None, "series": series}
    return {**facts, **hover, "name": name, "showlegend": False, "meta": meta}


def _lines(x: list[float], y: list[float], line: Figure) -> Figure:
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line}


def _curve(x: list[float], y: list[float], line: Figure, style: Style) -> Figure:
    """A line; a single point, after a short run, is a marker, since no line can be seen of it."""
    if len(x) > 1:
        return _lines(x, y, line)
    marker = {"color": style.color, "symbol": _SYMBOLS[style.marker], "size": 9}
    return {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker}


def _layout(x: str, y: str) -> Figure:
    grid = {"gridcolor": "#e6e8eb", "zeroline": False, "automargin": True, "exponentformat": "none"}
    return {
        "margin": {"l": 48, "r": 32, "t": 24, "b": 40},
        "xaxis": {**grid, "title": {"text": x}},
        "yaxis": {**grid, "title": {"text": y}},
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        "font": {"size": 12, "color": _INK},
        "modebar": {"bgcolor": "rgba(255,255,255,0.8)", "color": "#9aa1a9", "activecolor": _INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }


def _told(one: Estimate) -> str:
    interval = between(one.low, one.high)
    return f"{number(one.value)} ({interval})" if interval else number(one.value)


def _bars(one: Estimate, style: Style) -> Figure:
    """Error bars to the ends of the interval; none where it is not known."""
    known = np.isfinite([one.low, one.high]).all()
    return {
        "visible": bool(known),
        "type": "data",
        "symmetric": False,
        "array": [one.high - one.value if known else 0.0],
        "arrayminus": [one.value - one.low if known else 0.0],
        "color": style.color,
        "thickness": 1.2,
        "width": 4,
    }


def _line(style: Style) -> Figure:
    dash = ",".join(f"{1.6 * part:g}px" for part in style.dashes) or "solid"
    return {"color": style.color, "width": 2, "dash": dash}


def _pale(color: str) -> str:
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


def _list(values: Array | Sequence[float]) -> list[float]:
    """Six digits: more cannot be seen."""
    return [float(f"{value:.6g}") for value in values]
