"""The figures of an agent trained with a range: one drawing each, with a part for every place.

The part of a place has the class `at`, and the place as `data-at`; the page shows one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist

from mvpi.experiments.outcome import Outcome
from mvpi.report.risk_choice import Candidates
from mvpi.report.svg_figures import (
    Style,
    distribution,
    new_figure,
    padded,
    reward_limits,
    reward_quantiles,
    svg_text,
)

_BINS = 31
_LEVELS = 100
_NOW = "#1d2126"
"""Of the place that is shown."""
_SOFT = "#9aa0a8"

Places = Sequence[Sequence[Outcome]]
"""For every risk aversion the outcomes of all seeds."""


def frontier(panel: Candidates, style: Style, key: str, shown: int) -> str:
    """Mean against standard deviation: all places, the non-dominated ones joined, the knee."""
    x, y = np.array([one.point for one in panel.moments]).T
    with new_figure() as (figure, axes):
        kept = panel.efficient
        axes.plot(x[kept], y[kept], color=_SOFT, linewidth=1.1)
        hollow = [i for i in range(len(x)) if i not in kept]
        common: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 5}
        axes.plot(x[kept], y[kept], color=style.color, **common)
        axes.plot(x[hollow], y[hollow], color="white", markeredgecolor=style.color, **common)
        if panel.knee is not None:
            place = (x[panel.knee], y[panel.knee])
            ring: dict[str, Any] = {"color": "none", "markeredgecolor": "#33373d", "markersize": 15}
            axes.plot(*place, marker="o", linestyle="none", label="knee", **ring)
            figure.legend(loc="outside upper left", frameon=False, borderpad=0)
        for i, one in enumerate(panel.moments):
            bars: dict[str, Any] = {"color": _NOW, "linewidth": 1.4}
            _mark(i, axes.hlines(y[i], one.deviation.low, one.deviation.high, **bars))
            _mark(i, axes.vlines(x[i], one.mean.low, one.mean.high, **bars))
            _mark(i, axes.plot(x[i], y[i], marker="o", color=_NOW, markersize=9, zorder=4)[0])
        axes.set(xlabel=f"standard deviation of the {panel.of}", ylabel=f"mean {panel.of}")
        return _placed(svg_text(figure, key), key, shown)


def histogram(places: Places, style: Style, key: str, shown: int) -> str:
    """The returns of the final episodes of one place at a time, on common axes."""
    every = [np.concatenate([o.returns for o in outcomes]) for outcomes in places]
    low, high = padded(float(min(map(np.min, every))), float(max(map(np.max, every))), 0.02)
    edges = np.linspace(low, high, _BINS + 1)
    shares = [100.0 * np.histogram(x, edges)[0] / x.size for x in every]
    with new_figure() as (figure, axes):
        for i, (returns, share) in enumerate(zip(every, shares, strict=True)):
            _mark(i, axes.stairs(share, edges, fill=True, facecolor=style.color, alpha=0.4, lw=0))
            _mark(i, axes.stairs(share, edges, color=style.color, lw=1.1))
            _mark(i, axes.axvline(float(returns.mean()), color=_NOW, lw=1.4))
        axes.set(xlim=(low, high), ylim=(0, 1.08 * max(map(np.max, shares))))
        axes.set(xlabel="return of an episode", ylabel="share of episodes, %")
        return _placed(svg_text(figure, key), key, shown)


def along(lams: Sequence[float], panel: Candidates, style: Style, key: str, shown: int) -> str:
    """Mean and one standard deviation to either side, against the risk aversion."""
    deviation, mean = np.array([one.point for one in panel.moments]).T
    x = np.array(lams)
    with new_figure() as (figure, axes):
        low, high = mean - deviation, mean + deviation
        axes.fill_between(x, low, high, color=style.color, alpha=0.18, linewidth=0)
        axes.plot(x, mean, color=style.color, marker="o", markersize=3.5)
        for i, lam in enumerate(lams):
            _mark(i, axes.vlines(lam, low[i], high[i], color=_NOW, linewidth=1.6))
            _mark(i, axes.plot(lam, mean[i], marker="o", color=_NOW, markersize=9)[0])
        axes.set(xlabel="risk aversion", ylabel=f"{panel.of}: mean ± std. dev.")
        return _placed(svg_text(figure, key), key, shown)


def rewards(places: Places, style: Style, key: str, shown: int) -> str:
    """How many steps had at most a certain reward, at one place at a time."""
    levels, every = reward_quantiles(places, _LEVELS)
    low, high = reward_limits(every)
    with new_figure() as (figure, axes):
        curves = [distribution(levels, x, (low, high), whole=100.0) for x in every]
        for curve in curves:  # all of them, pale: what can be reached
            axes.plot(*curve, color=_SOFT, lw=0.6, alpha=0.5)
        for i, curve in enumerate(curves):
            _mark(i, axes.plot(*curve, color=style.color)[0])
        axes.set(xlim=(low, high), ylim=(-2, 102))
        axes.set(xlabel="reward of a step", ylabel="share of steps with at most that, %")
        return _placed(svg_text(figure, key), key, shown)


def _mark(place: int, artist: Artist) -> None:
    """The artist is a part of the place; `_placed` takes this for what it writes."""
    artist.set_gid(f"at{place}")


def _placed(svg: str, key: str, shown: int) -> str:
    """The drawing with classes and places where `_mark` set ids."""

    def placed(found: re.Match[str]) -> str:
        on = " on" if int(found[1]) == shown else ""
        return f'class="at{on}" data-at="{found[1]}"'

    return re.sub(rf'id="{re.escape(key)}-at(\d+)"', placed, svg)
