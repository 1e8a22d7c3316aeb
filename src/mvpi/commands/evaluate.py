"""`mvpi evaluate`: what a trained policy earns, and how steadily."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from mvpi import stats
from mvpi.commands.display import number, print_json
from mvpi.errors import InputError
from mvpi.risk import risk_text
from mvpi.rounding import Rounding

if TYPE_CHECKING:
    from mvpi.evaluation import Evaluation

_LEVEL = 0.1


@dataclass(frozen=True)
class Evaluate:
    """Run episodes with a trained policy and print statistics of its raw rewards."""

    run_directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """A run directory of `mvpi train`, or a policy.safetensors."""
    episodes: int = 100
    """How many episodes."""
    seed: int = 0
    """Seed of the episodes."""
    env: str | None = None
    """Another environment than the one the policy was trained in."""
    action_noise: float | None = None
    """Other noise on the actions than in training."""
    json: bool = False
    """Print one JSON object, with all returns."""

    def run(self, console: Console) -> None:
        from mvpi.agents.agent import load
        from mvpi.evaluation import evaluate

        agent = load(self.run_directory)
        result = evaluate(agent, self._environment(agent), self.episodes, self.seed)
        rows = _statistics(result)
        if self.json:
            facts: dict[str, Any] = {name: value for name, (value, _) in rows.items()}
            facts["intervals"] = {name: interval for name, (_, interval) in rows.items()}
            facts |= {"risk": risk_text(agent.risk), "steps": agent.steps, "seed": self.seed}
            print_json(facts | {"returns": result.returns.tolist()})
            return
        console.print(_table(rows, result, f"{self.run_directory}, trained {agent.steps} steps"))

    def _environment(self, agent: Any) -> Any:
        from mvpi.environment import Made
        from mvpi.envs import Task

        known = agent.source.make if isinstance(agent.source, Made) else None
        name = self.env or (known.id if isinstance(known, Task) else None)
        if name is None:
            raise InputError("--env must be given: the file does not name its environment")
        noise = self.action_noise
        if noise is None:
            noise = known.action_noise if isinstance(known, Task) else 0.0
        return Task(name, noise)


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
}


def _table(rows: Statistics, result: Evaluation, title: str) -> Table:
    table = Table("", "value", "95% interval", title=title)
    table.caption = f"{len(result.returns)} episodes, {len(result.rewards)} steps"
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
