"""The data of the page as CSV files inside it: links that work without network and script."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mvpi.report.agent_statistics import Comparison

Row = Sequence[Any]


def downloads(comparison: Comparison) -> list[tuple[str, str]]:
    """Names of files and the links that hold them."""
    section = comparison.section
    found = [("evaluations-in-training.csv", _link(_evaluations(comparison)))]
    if section.judged:
        found.append(("final-returns.csv", _link(_returns(comparison))))
        found.append(("statistics.csv", _link(_statistics(comparison))))
    return found


def _evaluations(comparison: Comparison) -> Iterator[Row]:
    runs = [(agent, run) for agent in comparison.section.agents for run in agent.every_run]
    names = list(dict.fromkeys(name for _, run in runs for row in run.metrics for name in row))
    yield ["agent", "seed", *names]
    for agent, run in runs:
        for row in run.metrics:
            yield [agent.label, run.seed, *(row.get(name) for name in names)]


def _returns(comparison: Comparison) -> Iterator[Row]:
    yield ["agent", "seed", "episode", "return"]
    for agent in comparison.section.judged:
        for run, outcome in zip(agent.runs, agent.outcomes, strict=True):
            for episode, value in enumerate(outcome.returns):
                yield [agent.label, run.seed, episode, value]


def _statistics(comparison: Comparison) -> Iterator[Row]:
    yield ["agent", "statistic", "value", "low", "high"]
    for agent in comparison.section.judged:
        for column in comparison.columns:
            one = comparison.estimates[agent.key][column.name]
            yield [agent.label, column.title, one.value, one.low, one.high]


def _link(rows: Iterable[Row]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return f"data:text/csv;base64,{base64.b64encode(text.getvalue().encode()).decode()}"
