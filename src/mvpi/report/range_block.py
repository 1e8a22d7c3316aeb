"""The part of the page about an agent trained with a range: a slider, figures, a table of places.

A place is one of the risk aversions the agent was evaluated at. Without a script the page shows the
knee, or the middle of the range, and the table has all places.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mvpi.report import range_figures
from mvpi.report.agent_statistics import COLUMNS, Estimate, Estimates, estimates
from mvpi.report.formatting import between, counted, number
from mvpi.report.grouping import AgentRuns
from mvpi.report.range_figures import Places
from mvpi.report.risk_choice import Candidates, panels_of
from mvpi.report.svg_figures import Style, described
from mvpi.risk import parse_risk
from mvpi.risk.extended import at

_BETTER = "Higher and further left is better"


@dataclass(frozen=True)
class _Range:
    """The outcomes of all seeds at every risk aversion, and the frontiers of both views."""

    label: str
    lams: tuple[float, ...]
    places: Places
    values: tuple[float, ...]
    panels: tuple[Candidates, Candidates]
    chosen: Candidates

    @property
    def shown(self) -> int:
        """The place that is shown first."""
        return len(self.lams) // 2 if self.chosen.knee is None else self.chosen.knee


def _range_of(agent: AgentRuns) -> _Range:
    """Runs that were evaluated at other risk aversions than the first are left out."""
    found = [run.along for run in agent.along if run.along is not None]
    lams = found[0].risk_aversions
    alike = [one.outcomes for one in found if one.risk_aversions == lams]
    places = [list(outcomes) for outcomes in zip(*alike, strict=True)]
    risk = parse_risk(agent.risk)
    panels = panels_of([f"risk aversion {lam:.3g}" for lam in lams], places)
    values = []
    for lam, outcomes in zip(lams, places, strict=True):
        one = at(risk, lam)
        each = [
            one.value(o.returns) if risk.of_return else o.reward_mean - lam * o.reward_variance
            for o in outcomes
        ]
        values.append(sum(each) / len(each))
    return _Range(agent.label, lams, places, tuple(values), panels, panels[risk.of_return])


def range_sentence(agent: AgentRuns) -> str:
    """What is recommended of the range, for the summary of the page."""
    advice = _range_of(agent).chosen.recommendation()
    return f"{agent.label}: {advice[0].lower()}{advice[1:]}"


def range_facts(agent: AgentRuns, style: Style, key: str) -> dict[str, Any]:
    """What the template says of the agent; `key` begins the ids of its elements."""
    found = _range_of(agent)
    places = [estimates(outcomes) for outcomes in found.places]
    return {
        "key": key,
        "label": agent.label,
        "recommendation": found.chosen.recommendation(),
        "objective": parse_risk(agent.risk).value_label,
        "per_step": found.chosen is found.panels[0],
        "seeds": counted([len(found.places[0])], "seed"),
        "episodes": counted([len(o.returns) for o in found.places[0]], "episode"),
        "shown": found.shown,
        "last": len(found.lams) - 1,
        "figures": list(_figures(found, style, key)),
        "columns": COLUMNS,
        "rows": [_row(found, i, places[i]) for i in range(len(found.lams))],
    }


def _figures(found: _Range, style: Style, key: str) -> Iterator[tuple[str, str, Any]]:
    """Title, caption and drawing of each."""
    of, shown = found.chosen.of, found.shown
    frontier = (
        f"Mean and standard deviation of the {of}, the non-dominated points joined. {_BETTER}"
    )
    if not any(math.isnan(one.mean.low) for one in found.chosen.moments):
        frontier += "; bars are 95% intervals"
    drawn = (
        (
            "Frontier",
            f"{frontier}.",
            range_figures.frontier(found.chosen, style, f"{key}-frontier", shown),
        ),
        (
            "Along the range",
            f"Mean {of}, and one standard deviation to either side.",
            range_figures.along(found.lams, found.chosen, style, f"{key}-along", shown),
        ),
        (
            "Returns at this risk aversion",
            "A histogram of the final episodes; the line is their mean.",
            range_figures.histogram(found.places, style, f"{key}-returns", shown),
        ),
        (
            "Rewards of single steps at this risk aversion",
            "Share of steps with at most that reward; pale: at the other risk aversions.",
            range_figures.rewards(found.places, style, f"{key}-rewards", shown),
        ),
    )
    for title, caption, svg in drawn:
        yield title, caption, described(svg, f"{title}: {found.label}.")


def _row(found: _Range, i: int, statistics: Estimates) -> dict[str, Any]:
    chosen = found.chosen
    place = "" if i in chosen.efficient else "dominated"
    lam = f"{found.lams[i]:.3g}"
    one = chosen.moments[i]
    told = (
        f"λ = {lam}: mean {chosen.of} {number(one.mean.value)}, standard deviation "
        f"{number(one.deviation.value)}"
    )
    return {
        "lam": lam,
        "place": "knee" if i == chosen.knee else place,
        "text": told,
        "cells": [_cell(statistics[column.name]) for column in COLUMNS],
        "value": number(found.values[i]),
    }


def _cell(one: Estimate) -> tuple[str, str]:
    return number(one.value), between(one.low, one.high)
