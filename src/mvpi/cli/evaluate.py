"""`mvpi evaluate`: mean and spread of the returns and rewards of a trained policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from mvpi import stats
from mvpi._rounding import Rounding
from mvpi.cli.display import number, print_json
from mvpi.envs import Task
from mvpi.errors import InputError
from mvpi.risk import Risk, risk_text
from mvpi.risk.extended import range_of

if TYPE_CHECKING:
    from mvpi.agents.agent import Agent
    from mvpi.rollout.evaluation import Evaluation

_LEVEL = 0.1


@dataclass(frozen=True)
class Evaluate:
    """Run episodes with a trained policy and print statistics of its raw rewards."""

    run_directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """A run directory of `mvpi train`, a policy.safetensors, or a name of `mvpi zoo`."""
    episodes: int = 100
    """How many episodes."""
    seed: int = 0
    """Seed of the episodes."""
    risk_aversion: float | None = None
    """Of an agent trained with a range: the risk aversion to act with."""
    env: str | None = None
    """Another environment than the one the policy was trained in."""
    action_noise: float | None = None
    """Other noise on the actions than in training."""
    json: bool = False
    """Print one JSON object, with all returns."""

    def run(self, console: Console) -> None:
        from mvpi.agents.loading import load
        from mvpi.rollout.evaluation import evaluate

        agent = self._agent(load(self.run_directory))
        where = environment(agent, self.env, self.action_noise)
        result = evaluate(agent, where, self.episodes, self.seed)
        rows = _statistics(result) | {"value": _objective(agent, result)}
        if self.json:
            facts: dict[str, Any] = {name: value for name, (value, _) in rows.items()}
            facts["intervals"] = {name: interval for name, (_, interval) in rows.items()}
            facts |= {"risk": risk_text(agent.risk), "steps": agent.steps, "seed": self.seed}
            print_json(facts | {"returns": result.returns.tolist()})
            return
        title = f"{self.run_directory}, trained {agent.steps} steps"
        console.print(_table(rows, result, title, agent.risk))

    def _agent(self, agent: Agent[Any]) -> Agent[Any]:
        """The agent at the risk aversion that was asked for."""
        chosen, known = self.risk_aversion, range_of(agent.risk)
        if chosen is None and known is not None and known.low == known.high:
            chosen = known.low
        if chosen is not None:
            return agent.at(chosen)
        if known is None:
            return agent
        raise InputError(
            f"{self.run_directory} was trained for every risk aversion from {known.low:g} to "
            f"{known.high:g}: choose one with --risk-aversion, or see all of them with "
            f"`mvpi frontier {self.run_directory}`"
        )


def environment(agent: Agent[Any], env: str | None, action_noise: float | None) -> Task:
    """The environment of an agent, with another id or other noise if they are given."""
    from mvpi.rollout.factory import FromFunction

    known = agent.env_factory.make if isinstance(agent.env_factory, FromFunction) else None
    name = env or (known.id if isinstance(known, Task) else None)
    if name is None:
        raise InputError("--env must be given: the file does not name its environment")
    if action_noise is None:
        action_noise = known.action_noise if isinstance(known, Task) else 0.0
    return Task(name, action_noise)


def _objective(agent: Agent[Any], result: Evaluation) -> tuple[float, tuple[float, float]]:
    """The value that training maximised, and its 95% interval.

    The interval is that of `E[y + u(R - y)]` at the best `y`: the value is a maximum over `y`, so
    to first order it does not depend on how `y` would be found in the episodes drawn again.
    """
    risk, gamma = agent.risk, agent.settings.occupancy_gamma
    if risk.of_return:
        return risk.value(result.returns), result.interval(risk.value)
    if gamma is not None:
        return risk.value(*result.occupancy(gamma)), (float("nan"), float("nan"))
    y = risk.dual(result.rewards)
    certain = replace(result, rewards=y + risk.utility(result.rewards - y))
    return risk.value(result.rewards), certain.reward_interval(stats.mean)


Statistics = dict[str, tuple[float, tuple[float, float]]]


def _statistics(result: Evaluation) -> Statistics:
    """Each statistic of the returns and of the per-step rewards, with its 95% interval."""
    of_returns: dict[str, Callable[[Any], float]] = {
        "mean": stats.mean,
        "variance": stats.variance,
        "deviation": lambda x: stats.variance(x) ** 0.5,
        "sharpe": stats.sharpe,
        "cvar": lambda x: stats.cvar(x, _LEVEL),
    }
    rows = {n: (f(result.returns), result.interval(f)) for n, f in of_returns.items()}
    rows["worst"] = result.worst, (float("nan"), float("nan"))
    rows["reward_mean"] = result.reward_mean, result.reward_interval(stats.mean)
    rows["reward_variance"] = result.reward_variance, result.reward_interval(stats.variance)
    return rows


_NAMES = {
    "mean": "mean return",
    "variance": "variance",
    "deviation": "std. dev.",
    "sharpe": "Sharpe ratio",
    "cvar": f"CVaR, worst {_LEVEL:.0%}",
    "worst": "worst episode",
    "reward_mean": "per-step mean",
    "reward_variance": "per-step variance",
    "value": "objective",
}


def _table(rows: Statistics, result: Evaluation, title: str, risk: Risk) -> Table:
    from mvpi.report.formatting import counted

    table = Table("", "value", "95% interval", title=title)
    what = "" if risk.of_return else " of the reward of a step"
    size = f"{counted([len(result.returns)], 'episode')}, {counted([len(result.rewards)], 'step')}"
    table.caption = f"{size}; objective: {risk.value_label}{what}"
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for name, (value, (low, high)) in _without_rounding(rows).items():
        interval = f"{number(low)} to {number(high)}" if low == low else ""  # noqa: PLR0124 - NaN
        table.add_row(_NAMES[name], number(value), interval)
    return table


def _without_rounding(rows: Statistics) -> Statistics:
    """The statistics with rounding errors cut; of returns without spread the ratio is infinite."""
    returns = Rounding(rows["mean"][0], rows["variance"][0])
    rewards = Rounding(rows["reward_mean"][0], rows["reward_variance"][0])
    kept: dict[str, Callable[[float], float]] = {
        "mean": returns.level,
        "variance": returns.variance,
        "deviation": returns.deviation,
        "cvar": returns.level,
        "worst": returns.level,
        "reward_mean": rewards.level,
        "reward_variance": rewards.variance,
        "value": float,
    }
    if returns.deviation(rows["deviation"][0]) == 0.0:
        constant = stats.sharpe([returns.level(rows["mean"][0])])
        kept["sharpe"] = lambda _: constant
    else:
        kept["sharpe"] = float
    return {
        name: (kept[name](value), (kept[name](low), kept[name](high)))
        for name, (value, (low, high)) in rows.items()
    }
