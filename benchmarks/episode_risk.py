"""Risk of a step and risk of an episode side by side: the variance of both after training.

    python benchmarks/episode_risk.py                   3 seeds, 100,000 steps, both tasks
    python benchmarks/episode_risk.py --tasks pendulum --seeds 1

MVPI-TD3 on the risky pendulum (settings of `make run`) and on Hopper-v4 with action noise 0.1 (the
paper's settings), with the risks of `TASKS`: none, mean-variance of the reward of a step, and
mean-variance of the return. A return has the scale of many steps: its risk aversions are smaller.

Rows go to a CSV file as they are measured; those that are there already are not measured again, and
a run that was interrupted goes on from its last checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows

import mvpi
from mvpi.envs import Task
from mvpi.risk import parse_risk


@dataclass(frozen=True)
class Study:
    """A task, the risks it is trained with, and the settings of all its agents."""

    env: Task
    risks: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


TASKS = {
    "pendulum": Study(
        Task("mvpi/RiskyPendulum-v0"),
        ("0", "1", "return:0.001", "return:0.01", "return:1"),
        {
            "hidden": (64, 64),
            "learning_starts": 2_000,
            "gamma": 0.95,
            "batch_size": 256,
            "averaging": 1_000,
            "return_scale": 500.0,
        },
    ),
    "hopper": Study(
        Task("Hopper-v4", action_noise=0.1),
        ("0", "1", "return:0.001", "return:0.01"),
        {"return_scale": 1_000.0},
    ),
}


@dataclass(frozen=True)
class Row:
    """What 100 episodes of a trained agent earned; `seconds` of the processor are of training."""

    task: str
    risk: str
    seed: int
    steps: int
    return_mean: float
    return_variance: float
    reward_mean: float
    reward_variance: float
    length: float
    seconds: float


@dataclass(frozen=True)
class Config:
    """Trains with the risk of a step and with that of an episode."""

    out: Path = Path("results/episode-risk.csv")
    """Where rows are written, and read from to continue."""
    runs: Path = Path("out/episode-risk")
    """Where run directories are."""
    tasks: tuple[str, ...] = tuple(TASKS)
    seeds: int = 3
    steps: int = 100_000


def row_of(task: str, risk: str, seed: int, config: Config) -> Row:
    """Train an agent, or go on training it; then 100 episodes of it."""
    study, start = TASKS[task], time.process_time()
    agent = mvpi.TD3(study.env, parse_risk(risk), seed, **study.settings)
    run = config.runs / f"{task}-{risk.replace(':', '-')}-{config.steps}-{seed}"
    agent.learn(config.steps, out=run)
    seconds = time.process_time() - start
    shown = mvpi.evaluate(agent, episodes=100)
    moments = shown.mean, shown.variance, shown.reward_mean, shown.reward_variance
    numbers = (round(float(x), 4) for x in moments)
    return Row(
        *(task, risk, seed, config.steps, *numbers),
        *(round(float(shown.lengths.mean()), 1), round(seconds, 1)),
    )


def table(rows: list[Row]) -> Table:
    """Means over seeds; variances are spread over powers of ten, so of them the median."""
    shown = Table(title="Risk of a step, risk of an episode")
    names = ("task", "risk", "seeds", "mean return", "variance of the return")
    for column in (*names, "mean reward", "variance of the reward", "steps of an episode"):
        shown.add_column(column, justify="left" if column in ("task", "risk") else "right")
    for task, risk in dict.fromkeys((row.task, row.risk) for row in rows):
        mine = [row for row in rows if (row.task, row.risk) == (task, risk)]
        shown.add_row(
            *(task, risk, str(len(mine)), f"{np.mean([row.return_mean for row in mine]):.1f}"),
            f"{np.median([row.return_variance for row in mine]):.4g}",
            f"{np.mean([row.reward_mean for row in mine]):.3f}",
            f"{np.median([row.reward_variance for row in mine]):.3g}",
            f"{np.mean([row.length for row in mine]):.0f}",
        )
    return shown


def main(config: Config) -> None:
    done = {(row.task, row.risk, row.seed, row.steps) for row in read_rows(config.out, Row)}
    for task, seed in product(config.tasks, range(config.seeds)):
        for risk in TASKS[task].risks:
            if (task, risk, seed, config.steps) not in done:
                append_rows(config.out, [row_of(task, risk, seed, config)])
    Console().print(table(read_rows(config.out, Row)))


if __name__ == "__main__":
    main(tyro.cli(Config))
