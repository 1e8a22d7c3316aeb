"""The objectives of an environment: what its risk-averse agents maximise, as columns of the table.

An objective is of the return of an episode or of the reward of a step, and every agent is valued
with each, so that a column compares like with like.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mvpi._types import Array
from mvpi.experiments.outcome import Outcome
from mvpi.report.formatting import MINUS
from mvpi.report.grouping import Section, measure_of
from mvpi.risk import OfReturn, Risk

_MOST = 2
"""Measures with columns of their own: those of the first agents."""


@dataclass(frozen=True)
class Objective:
    """A risk measure of returns or of the rewards of single steps."""

    measure: Risk
    of_return: bool

    @property
    def name(self) -> str:
        """What no other objective of the page is called."""
        return f"{self.measure.text} of {'returns' if self.of_return else 'rewards'}"

    @property
    def title(self) -> str:
        moments = self.variance_price is not None
        label = self.measure.value_label if moments else self.measure.label
        return f"{label.replace('-', MINUS)} of {'returns' if self.of_return else 'rewards'}"

    @property
    def variance_price(self) -> float | None:
        """The weight of the variance where the value is mean and variance alone."""
        return self.measure.price if self.measure.search == "moments" else None

    def of_outcome(self, outcome: Outcome) -> float:
        """The value of one run. Of the rewards of single steps it takes their quantiles."""
        price = self.variance_price
        if self.of_return:
            return self.measure.value(outcome.returns)
        if price is not None:
            return outcome.reward_mean - price * outcome.reward_variance
        return self.measure.value(outcome.reward_quantiles)

    def of_rows(self, rows: Array) -> Array:
        """The values of samples of returns, one a row."""
        price = self.variance_price
        if price is not None:
            return np.asarray(rows.mean(-1) - price * rows.var(-1))
        return np.array([self.measure.value(row) for row in rows])


def objectives(section: Section) -> tuple[Objective, ...]:
    """Of the risk-averse agents of a section, each measure once; none for ranges and budgets."""
    measures = dict.fromkeys(_measures(section))
    return tuple(
        Objective(measure, of_return)
        for measure in list(measures)[:_MOST]
        for of_return in (True, False)
    )


def _measures(section: Section) -> Iterator[Risk]:
    for agent in section.agents:
        measure = measure_of(agent.risk)
        if measure is None:
            continue
        if isinstance(measure, OfReturn):
            measure = measure.risk
        if measure.is_neutral or measure.search == "none" or measure.variance_limit is not None:
            continue
        yield measure
