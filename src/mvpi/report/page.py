"""One HTML page about trained runs, in one file: nothing is fetched.

Figures are pictures (SVG) that Plotly draws over, if scripts run: values under the pointer, agents
switched on and off, a slider for agents trained with a range. Without scripts and on paper the page
shows the same numbers.

The same runs make the same bytes: nothing on the page depends on the day or the machine.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from mvpi._version import __version__
from mvpi.errors import MissingPackage
from mvpi.report import live_figures
from mvpi.report.agent_statistics import ZONE, Column, Comparison
from mvpi.report.downloads import downloads
from mvpi.report.formatting import between, change, listed, number, share
from mvpi.report.grouping import AgentRuns, Section, sections
from mvpi.report.range_block import range_facts
from mvpi.report.run_reader import Run
from mvpi.report.summary import summary, unlike_baselines
from mvpi.report.svg_figures import (
    Style,
    described,
    learning_curves,
    mean_against_deviation,
    return_histograms,
    reward_distributions,
    styles,
)

Draw = Callable[[Comparison, dict[str, Style], str], str]
DrawLive = Callable[[Comparison, dict[str, Style]], live_figures.Figure | None]


@dataclass(frozen=True)
class _Kind:
    """A figure of a section: how its picture and its live form are drawn, what is said about it.

    One without a picture is shown only where scripts run.
    """

    name: str
    picture: Draw | None
    live: DrawLive
    title: str
    caption: str
    of_training: bool = False


_FIGURES = (
    _Kind(
        "curves",
        learning_curves,
        live_figures.curves,
        "Learning curves",
        "Mean return of evaluations in training: mean over seeds, band of one standard error.",
        of_training=True,
    ),
    _Kind(
        "returns",
        return_histograms,
        live_figures.returns,
        "Returns of the final episodes",
        "A histogram for every agent, scaled to its row; the dark line is its mean.",
    ),
    _Kind(
        "plane",
        mean_against_deviation,
        live_figures.plane,
        "Mean against standard deviation",
        "Small points are seeds, big ones agents; higher and further left is better.",
    ),
    _Kind(
        "rewards",
        reward_distributions,
        live_figures.rewards,
        "Rewards of single steps",
        "Share of steps with at most that reward: the steeper, the steadier. "
        "The outermost 1% at either end is cut.",
    ),
    _Kind(
        "training",
        None,
        live_figures.inside_training,
        "Inside training",
        "The dual variable y, the risk aversion in use, and losses: means over seeds.",
        of_training=True,
    ),
)


def template() -> Any:
    """The page without its facts; raises `InputError` if Jinja is not installed."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise MissingPackage("the report", "jinja2", "report") from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["unbroken"] = lambda text: text.replace(
        " = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"
    )
    source = files("mvpi.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source)


def render(
    runs: Iterable[Run], notes: Sequence[str], arguments: Sequence[str], *, live: bool = True
) -> str:
    """The page; `arguments` are those of the command, for the footer.

    `live` puts Plotly into it, about 5 MB.
    """
    comparisons = [Comparison.of(section) for section in sections(runs)]
    look = styles(agent.label for c in comparisons for agent in c.section.agents)
    any_range = any(c.section.ranges for c in comparisons)
    page: str = template().render(
        title=_title(comparisons),
        any_range=any_range,
        scripts=_scripts(live, any_range),
        sections=[_facts(c, look, f"e{i}", live) for i, c in enumerate(comparisons, 1)],
        notes=notes,
        version=__version__,
        command=shlex.join(["mvpi", "report", *arguments]),
    )
    return page


def _scripts(live: bool, any_range: bool) -> list[Any]:
    """Plotly and the script of the page, as far as it needs them."""
    from markupsafe import Markup

    own = files("mvpi.report").joinpath("page.js").read_text(encoding="utf-8")
    scripts = [_plotly()] if live else []
    return [Markup(text) for text in (*scripts, *([own] if live or any_range else []))]


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingPackage("the live report", "plotly", "report") from None
    text: str = get_plotlyjs()
    return text.replace("</script", "<\\/script")


def _title(comparisons: Sequence[Comparison]) -> str:
    if len(comparisons) == 1:
        return f"Trained agents on {comparisons[0].section.title}"
    return f"Trained agents in {len(comparisons)} environments"


def _facts(comparison: Comparison, look: dict[str, Style], key: str, live: bool) -> dict[str, Any]:
    """What the template says about an environment; `key` begins the ids of its elements."""
    section = comparison.section
    return {
        "key": key,
        "title": section.title,
        "judged": bool(section.judged),
        "several": len(section.judged) > 1,
        "summary": summary(comparison),
        "columns": comparison.columns,
        "legend": [(agent.label, look[agent.label]) for agent in section.agents],
        "several_seeds": any(len(agent.every_run) > 1 for agent in section.agents),
        "figures": list(_figures(comparison, look, key, live)),
        "downloads": downloads(comparison),
        "rows": [_row(comparison, agent) for agent in section.agents],
        "compared": any(section.baseline(agent) is not None for agent in section.judged),
        "unlike": unlike_baselines(section),
        "ranges": [
            range_facts(agent, look[agent.label], f"{key}-range{i}")
            for i, agent in enumerate(section.ranges, 1)
        ],
        **_settings(section),
    }


def _figures(
    comparison: Comparison, look: dict[str, Style], key: str, live: bool
) -> Iterator[dict[str, Any]]:
    """The figures there are data for; `series` are what the live form can show, by name."""
    from markupsafe import Markup

    section = comparison.section
    trained = any(run.curve() for agent in section.agents for run in agent.every_run)
    for kind in _FIGURES:
        if not (trained if kind.of_training else section.judged):
            continue
        drawn = kind.live(comparison, look) if live else None
        if kind.picture is None and drawn is None:
            continue
        svg: Any = ""
        if kind.picture is not None:
            agents = section.agents if kind.of_training else section.judged
            names = listed([agent.label for agent in agents])
            svg = kind.picture(comparison, look, f"{key}-{kind.name}")
            svg = described(svg, f"{kind.title} on {section.title}: {names}.")
        yield {
            "title": kind.title,
            "caption": kind.caption,
            "svg": svg,
            "live": Markup("" if drawn is None else live_figures.as_json(drawn)),
            "series": {} if drawn is None else drawn["layout"].get("meta", {}),
        }


def _row(comparison: Comparison, agent: AgentRuns) -> dict[str, Any]:
    """An agent in the table; without cells it was not evaluated yet, or along a range."""
    judged = bool(agent.runs)
    return {
        "label": agent.label,
        "seeds": len(agent.runs or agent.along or agent.waiting),
        "waiting": len(agent.waiting) if judged or agent.along else 0,
        "cells": [_cell(comparison, agent, c) for c in comparison.columns] if judged else [],
        "steps": f"{agent.steps or 0:,}",
        "along": bool(agent.along),
    }


def _cell(comparison: Comparison, agent: AgentRuns, column: Column) -> dict[str, Any]:
    text = share if column is ZONE else number
    ours, base = comparison.estimates[agent.key][column.name], comparison.section.baseline(agent)
    theirs = None if base is None else comparison.estimates[base.key][column.name]
    return {
        "value": text(ours.value),
        "interval": between(ours.low, ours.high, text),
        "change": "" if theirs is None else change(theirs.value, ours.value),
        "best": agent.key in comparison.best(column),
    }


def _settings(section: Section) -> dict[str, Any]:
    """The settings all agents share, and the others as rows with a text for every agent."""
    each = [dict(agent.settings) for agent in section.agents]
    names = sorted({name for settings in each for name in settings})
    seeds = [", ".join(str(r.seed) for r in a.every_run) for a in section.agents]
    values = {name: [settings.get(name, "") for settings in each] for name in names}
    shared = {
        name: texts[0]
        for name, texts in values.items()
        if len(set(texts)) == 1 and all(name in settings for settings in each)
    }
    differing = {name: texts for name, texts in values.items() if name not in shared}
    return {"shared": shared, "differing": {"seeds": seeds, **differing}}
