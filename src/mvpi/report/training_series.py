"""What is drawn against training steps: quantities of metrics.csv, and objectives made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from mvpi._storage.metrics import Row
from mvpi.report.objectives import Objective
from mvpi.report.run_reader import Of, Run


@dataclass(frozen=True)
class Series:
    """A quantity of every evaluation in training; `of` gives None where a row has none."""

    name: str
    title: str
    of: Of

    def curve(self, run: Run) -> list[tuple[int, float]]:
        """Steps and values of one run."""
        return run.curve(self.of)


def _column(name: str, title: str) -> Series:
    return Series(name, title, lambda row: row.get(name))


DIAGNOSTICS = (
    _column("y", "y, the dual variable"),
    _column("risk_aversion", "risk aversion"),
    _column("critic_loss", "loss of the critic"),
    _column("actor_loss", "loss of the actor"),
    _column("steps_per_second", "steps per second"),
)
"""What training measured of itself."""


def results(objectives: Iterable[Objective]) -> list[Series]:
    """What the policy earned: the mean return first, then objectives and moments."""
    return [
        _column("return_mean", "mean return"),
        *(
            Series(o.name, o.title, _mean_variance(o.variance_price, o.of_return))
            for o in objectives
            if o.variance_price is not None
        ),
        _column("value", "objective, of returns"),
        Series("return_deviation", "std. dev. of returns", _root("return_variance")),
        _column("reward_mean", "mean reward of a step"),
        Series("reward_deviation", "std. dev. of rewards of a step", _root("reward_variance")),
    ]


def _root(name: str) -> Of:
    def of(row: Row) -> float | None:
        value = row.get(name)
        return None if value is None else math.sqrt(value)

    return of


def _mean_variance(price: float, of_return: bool) -> Of:
    what = "return" if of_return else "reward"

    def of(row: Row) -> float | None:
        mean, variance = row.get(f"{what}_mean"), row.get(f"{what}_variance")
        return None if mean is None or variance is None else mean - price * variance

    return of
