"""One HTML page about trained runs, in one file: nothing is fetched, no script runs.

The same runs make the same bytes: nothing on the page depends on the day or the machine.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import mvpi
from mvpi.errors import InputError, missing
from mvpi.report import words
from mvpi.report.comparison import ZONE, Column, Comparison, Estimate
from mvpi.report.groups import AgentRuns, Section, sections
from mvpi.report.plots import (
    Style,
    learning_curves,
    mean_against_deviation,
    return_histograms,
    reward_distributions,
    styles,
)
from mvpi.report.runs import Run

Draw = Callable[[Comparison, dict[str, Style], str], str]


@dataclass(frozen=True)
class _Kind:
    """A figure that every section has: how it is drawn, and what is said about it."""

    name: str
    draw: Draw
    title: str
    caption: str


_FIGURES = (
    _Kind(
        "curves",
        learning_curves,
        "Learning curves",
        "Mean return of evaluations in training: mean over seeds, band of one standard error.",
    ),
    _Kind(
        "returns",
        return_histograms,
        "Returns of the final episodes",
        "A histogram for every agent, scaled to its row; the dark line is its mean.",
    ),
    _Kind(
        "plane",
        mean_against_deviation,
        "Mean against standard deviation",
        "Small points are seeds, big ones agents; higher and further left is better.",
    ),
    _Kind(
        "rewards",
        reward_distributions,
        "Rewards of single steps",
        "Share of steps with at most that reward: the steeper, the steadier. "
        "The outermost 1% at either end is cut.",
    ),
)


@dataclass(frozen=True)
class _Cell:
    value: str
    interval: str
    change: str
    best: bool


@dataclass(frozen=True)
class _Row:
    """An agent in the table; without cells it was not evaluated yet."""

    label: str
    seeds: str
    waiting: str
    cells: tuple[_Cell, ...]
    steps: str


def template() -> Any:
    """The page without its facts; raises `InputError` if Jinja is not installed."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise InputError(missing("the report", "jinja2", "report")) from None
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["unbroken"] = lambda text: text.replace(
        " = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"
    )
    source = files("mvpi.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(source)


def render(runs: Iterable[Run], notes: Sequence[str], arguments: Sequence[str]) -> str:
    """The page; `arguments` are those of the command, for the footer."""
    comparisons = [Comparison.of(section) for section in sections(runs)]
    look = styles(agent.label for c in comparisons for agent in c.section.agents)
    page: str = template().render(
        title=_title(comparisons),
        sections=[_facts(c, look, f"e{i}") for i, c in enumerate(comparisons, 1)],
        notes=notes,
        version=mvpi.__version__,
        command=shlex.join(["mvpi", "report", *arguments]),
    )
    return page


def _title(comparisons: Sequence[Comparison]) -> str:
    if len(comparisons) == 1:
        return f"Trained agents on {comparisons[0].section.title}"
    return f"Trained agents in {len(comparisons)} environments"


def _facts(comparison: Comparison, look: dict[str, Style], key: str) -> dict[str, Any]:
    """What the template says about an environment; `key` begins the ids of its elements."""
    section = comparison.section
    return {
        "key": key,
        "title": section.title,
        "judged": bool(section.judged),
        "several": len(section.judged) > 1,
        "summary": words.summary(comparison),
        "columns": comparison.columns,
        "legend": [(agent.label, look[agent.label]) for agent in section.agents],
        "figures": list(_figures(comparison, look, key)),
        "rows": [_row(comparison, agent) for agent in section.agents],
        "compared": any(section.baseline(agent) is not None for agent in section.judged),
        "unlike": words.unlike_baselines(section),
        **_settings(section),
    }


def _figures(
    comparison: Comparison, look: dict[str, Style], key: str
) -> Iterable[tuple[_Kind, Any]]:
    """The figures there are data for, each with a sentence for those who do not see it."""
    from markupsafe import Markup

    section = comparison.section
    curves = any(run.curve for agent in section.agents for run in (*agent.runs, *agent.waiting))
    for kind in _FIGURES:
        if curves if kind.draw is learning_curves else section.judged:
            agents = section.agents if kind.draw is learning_curves else section.judged
            names = words.listed([agent.label for agent in agents])
            sentence = f"{kind.title} on {section.title}: {names}."
            opening = Markup('<svg role="img" aria-label="{}"').format(sentence)
            svg = kind.draw(comparison, look, f"{key}-{kind.name}")
            yield kind, Markup(svg.replace("<svg", opening, 1))


def _row(comparison: Comparison, agent: AgentRuns) -> _Row:
    seeds, waiting = str(len(agent.runs)), str(len(agent.waiting) or "")
    if agent.steps is None:
        return _Row(agent.label, waiting, "", (), "")
    found = comparison.estimates[agent.key]
    base = comparison.section.baseline(agent)
    theirs = None if base is None else comparison.estimates[base.key]
    cells = tuple(
        _cell(
            column,
            found[column.name],
            None if theirs is None else theirs[column.name],
            agent.key in comparison.best(column),
        )
        for column in comparison.columns
    )
    return _Row(agent.label, seeds, waiting, cells, f"{agent.steps:,}")


def _cell(column: Column, ours: Estimate, base: Estimate | None, best: bool) -> _Cell:
    text = words.share if column is ZONE else words.number
    known = not (math.isnan(ours.low) or math.isnan(ours.high))
    interval = f"{text(ours.low, 3)} to {text(ours.high, 3)}" if known else ""
    moved = "" if base is None else words.change(base.value, ours.value)
    return _Cell(text(ours.value), interval, moved, best)


def _settings(section: Section) -> dict[str, Any]:
    """The settings all agents share, and the others as rows with a text for every agent."""
    each = [dict(agent.settings) for agent in section.agents]
    names = sorted({name for settings in each for name in settings})
    seeds = [", ".join(str(r.seed) for r in (*a.runs, *a.waiting)) for a in section.agents]
    values = {name: [settings.get(name, "") for settings in each] for name in names}
    shared = {
        name: texts[0]
        for name, texts in values.items()
        if len(set(texts)) == 1 and all(name in settings for settings in each)
    }
    differing = {name: texts for name, texts in values.items() if name not in shared}
    return {"shared": shared, "differing": {"seeds": seeds, **differing}}
