"""Statistics of agents with bootstrap intervals, and the efficient frontier of an environment.

A statistic of an agent is the mean over its runs of the statistic of each run, so that the
spread between seeds is not mistaken for risk; the worst episode is the worst of all runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mvpi import _bootstrap, stats
from mvpi._rounding import Rounding
from mvpi._types import Array
from mvpi.experiments.outcome import Outcome
from mvpi.report.grouping import AgentKey, AgentRuns, Section
from mvpi.report.objectives import Objective, objectives

LEVEL = 0.1
"""Of the CVaR: the worst tenth of the episodes."""
_RESAMPLES = 1_000


@dataclass(frozen=True)
class Column:
    """A statistic in the table; `sign` is 1 if more is better and -1 if less is."""

    name: str
    title: str
    sign: int


COLUMNS = (
    Column("mean", "mean return", 1),
    Column("deviation", "std. dev.", -1),
    Column("sharpe", "Sharpe ratio", 1),
    Column("cvar", f"CVaR {LEVEL:.0%}", 1),
    Column("worst", "worst episode", 1),
    Column("reward_mean", "per-step mean", 1),
    Column("reward_variance", "per-step variance", -1),
)

ZONE = Column("in_zone", "in noisy zone", -1)
"""The share of steps in the zone of `mvpi.envs.RiskyZone`; in the table of tasks that have one."""


@dataclass(frozen=True)
class Estimate:
    """A statistic and its 95% interval; without one `low` and `high` are not numbers."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def overlaps(self, other: Estimate) -> bool:
        return self.low <= other.high and other.low <= self.high

    def through(self, function: Callable[[float], float]) -> Estimate:
        return Estimate(function(self.value), function(self.low), function(self.high))


Estimates = dict[str, Estimate]


def estimates(
    outcomes: Sequence[Outcome], seed: int = 0, valued_by: Sequence[Objective] = ()
) -> Estimates:
    """Every statistic of `COLUMNS`, of `ZONE` and of objectives, of runs of different seeds.

    The bootstrap draws runs, then episodes within each of them. Of the single steps it is not known
    to which episode they belong, so their statistics have an interval only from drawing runs. A
    worst episode has none: drawing again can never find a worse one.
    """
    returns = [np.array(outcome.returns) for outcome in outcomes]
    rng = np.random.default_rng(seed)
    count = len(outcomes)
    drawn = _bootstrap.draw_runs(count, _RESAMPLES, rng)
    named = {**OF_ROWS, **{o.name: o.of_rows for o in valued_by if o.of_return}}
    of_rows = tuple(named.values())
    values = _average(_bootstrap.of_each(returns, of_rows))
    resampled = _average(_bootstrap.of_drawn(returns, drawn, of_rows, rng))
    found: Estimates = {
        name: Estimate(float(values[i]), *_bootstrap.interval(resampled[i]))
        for i, name in enumerate(named)
    }
    found["worst"] = Estimate(float(min(x.min() for x in returns)))
    of_runs = {
        name: [value for o in outcomes if (value := getattr(o, name)) is not None]
        for name in ("reward_mean", "reward_variance", ZONE.name)
    }
    for objective in valued_by:
        if not objective.of_return:
            of_runs[objective.name] = [objective.of_outcome(o) for o in outcomes]
    for name, known in of_runs.items():
        if len(known) < count:
            continue
        of_steps = np.array(known, dtype=np.float64)
        several = count > 1
        between = _bootstrap.interval(of_steps[drawn].mean(1)) if several else (math.nan, math.nan)
        found[name] = Estimate(float(of_steps.mean()), *between)
    if "reward_mean" in found and "reward_variance" in found:
        mean, spread = found["reward_mean"], found["reward_variance"]
        rounding = Rounding(mean.value, spread.value)
        found["reward_mean"] = mean.through(rounding.level)
        found["reward_variance"] = spread.through(rounding.variance)
    return found


def _means(rows: Array) -> Array:
    means = _bootstrap.means(rows)
    return Rounding(means, _bootstrap.variances(rows)).level(means)


def _deviations(rows: Array) -> Array:
    variances = _bootstrap.variances(rows)
    return Rounding(_bootstrap.means(rows), variances).deviation(np.sqrt(variances))


def _sharpe_ratios(rows: Array) -> Array:
    return stats.sharpe_ratio(_means(rows), _deviations(rows) ** 2)


def _cvars(rows: Array) -> Array:
    return stats.cvar(rows, LEVEL, axis=1)


OF_ROWS: dict[str, _bootstrap.OfRows] = {
    "mean": _means,
    "deviation": _deviations,
    "sharpe": _sharpe_ratios,
    "cvar": _cvars,
}


def _average(values: Array) -> Array:
    """Over runs; Sharpe ratios of runs without variance are infinite and may cancel."""
    with np.errstate(invalid="ignore"):
        return np.asarray(values.mean(-1))


def efficient(points: Sequence[tuple[float, float]]) -> list[int]:
    """Which of the points (deviation, mean) no other one dominates, by growing deviation.

    A point dominates if it is at least as good in both and better in one.

    >>> efficient([(2.0, 5.0), (1.0, 3.0), (2.0, 4.0), (3.0, 5.0)])
    [1, 0]
    """

    def dominated(deviation: float, mean: float) -> bool:
        return any(d <= deviation and m >= mean and (d, m) != (deviation, mean) for d, m in points)

    kept = [i for i, point in enumerate(points) if not dominated(*point)]
    return sorted(kept, key=lambda i: points[i])


@dataclass(frozen=True)
class Comparison:
    """A section with its numbers: `estimates` by the key of the agent."""

    section: Section
    estimates: dict[AgentKey, Estimates]
    objectives: tuple[Objective, ...] = ()

    @classmethod
    def of(cls, section: Section) -> Comparison:
        valued_by = objectives(section)
        found = {a.key: estimates(a.outcomes, valued_by=valued_by) for a in section.judged}
        return cls(section, found, valued_by)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Of the table of this section."""
        zone = all(ZONE.name in found for found in self.estimates.values())
        valued = (Column(o.name, o.title, 1) for o in self.objectives)
        return (*COLUMNS, *valued, ZONE) if zone else (*COLUMNS, *valued)

    def best(self, column: Column) -> set[AgentKey]:
        """The agents with the best value, all of them if several share it."""
        values = {
            key: column.sign * found[column.name].value
            for key, found in self.estimates.items()
            if not math.isnan(found[column.name].value)
        }
        if len(self.estimates) < 2 or not values:
            return set()
        return {key for key, value in values.items() if value == max(values.values())}

    def point(self, agent: AgentRuns) -> tuple[float, float]:
        """Its place in the plane: deviation and mean."""
        found = self.estimates[agent.key]
        return found["deviation"].value, found["mean"].value

    @property
    def frontier(self) -> list[AgentRuns]:
        """The agents no other one dominates, by growing deviation."""
        agents = self.section.judged
        return [agents[i] for i in efficient([self.point(agent) for agent in agents])]
