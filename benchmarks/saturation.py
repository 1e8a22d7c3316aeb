"""Does the actor of TD3 get stuck at the border of the actions, with and without its penalty?

    python benchmarks/saturation.py --methods mvpi                  10 seeds, an hour on one core
    python benchmarks/saturation.py --methods without-penalty sb3 --seeds 3

TD3 of this package with and without `saturation_penalty`, and TD3 of Stable-Baselines3 with the
plug; two tasks, the paper's settings, risk 0 and 1: 10,000 random steps, then 6,000 updates. Where
`tanh` has reached +-1 in every state no gradient is left: the actor is stuck.
Rows go to a CSV file as they are measured; those that are there already are not measured again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows

import mvpi
from mvpi.envs import Task

Method = Literal["mvpi", "without-penalty", "sb3"]

TASKS = ("InvertedDoublePendulum-v4", "InvertedPendulum-v4")
RANDOM_STEPS = 10_000
STUCK = 0.999
"""The share of states with an action at the border from which on an actor is called stuck."""


@dataclass(frozen=True)
class Row:
    """How much of what the actor does is at the border, and what it earns."""

    task: str
    method: str
    risk: float
    seed: int
    steps: int
    saturated: float
    mean_return: float


@dataclass(frozen=True)
class Config:
    """Trains TD3 until the actor has been updated 3,000 times."""

    out: Path = Path("results/saturation.csv")
    """Where rows are written, and read from to continue."""
    methods: tuple[Method, ...] = ("mvpi", "without-penalty", "sb3")
    tasks: tuple[str, ...] = TASKS
    seeds: int = 10
    steps: int = 16_000


def trained_here(task: Task, risk: float, seed: int, steps: int, **settings: Any) -> Any:
    judged_at_the_end = {"evaluation_every": steps, "evaluation_episodes": 1}
    agent = mvpi.TD3(
        task, risk, seed, learning_starts=RANDOM_STEPS, **judged_at_the_end, **settings
    )
    return agent.learn(steps)


def trained_by_sb3(task: Task, risk: float, seed: int, steps: int) -> Any:
    import torch
    from stable_baselines3 import TD3
    from stable_baselines3.common.noise import NormalActionNoise

    from mvpi.sb3 import risk_averse

    torch.set_num_threads(1)
    return risk_averse(
        TD3,
        "MlpPolicy",
        task(),
        risk=risk,
        seed=seed,
        learning_starts=RANDOM_STEPS,
        batch_size=100,
        train_freq=1,
        action_noise=NormalActionNoise(np.zeros(1), np.full(1, 0.1)),
        policy_kwargs={"net_arch": [400, 300]},
        device="cpu",
    ).learn(steps)


TRAINED: dict[Method, Callable[[Task, float, int, int], Any]] = {
    "mvpi": trained_here,
    "without-penalty": partial(trained_here, saturation_penalty=0.0),
    "sb3": trained_by_sb3,
}


def visited(task: Task, count: int = 1_000) -> npt.NDArray[np.float32]:
    """Observations under random actions."""
    env, seen = task(), []
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    for _ in range(count):
        seen.append(observation)
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            observation, _ = env.reset()
    return np.array(seen, np.float32)


def measured(task: str, method: Method, risk: float, seed: int, steps: int) -> Row:
    noisy = Task(task, action_noise=0.1)
    model = TRAINED[method](noisy, risk, seed, steps)
    actions = model.predict(visited(noisy))
    actions = actions[0] if isinstance(actions, tuple) else actions
    border = STUCK * noisy().action_space.high  # type: ignore[attr-defined]
    saturated = float((np.abs(actions) > border).mean())
    seen = mvpi.evaluate(model, noisy, episodes=20)
    return Row(task, method, risk, seed, steps, round(saturated, 3), round(seen.mean, 1))


def table(rows: list[Row]) -> Table:
    """A line for each task, method and risk: how many of its seeds are stuck."""
    shown = Table(title="Actors at the border of the actions in every state")
    for column in ("task", "method", "risk", "stuck", "mean returns"):
        shown.add_column(column, justify="left" if column in ("task", "method") else "right")
    for key, group in groupby(rows, key=lambda r: (r.task, r.method, r.risk)):
        some = list(group)
        stuck = sum(row.saturated >= STUCK for row in some)
        returns = sorted(row.mean_return for row in some)
        shown.add_row(
            *map(str, key), f"{stuck} of {len(some)}", f"{returns[0]:.0f} to {returns[-1]:.0f}"
        )
    return shown


def main(config: Config) -> None:
    done = {(r.task, r.method, r.risk, r.seed, r.steps) for r in read_rows(config.out, Row)}
    order = product(range(config.seeds), config.tasks, (1.0, 0.0), config.methods)
    for seed, task, risk, method in order:
        if (task, method, risk, seed, config.steps) not in done:
            append_rows(config.out, [measured(task, method, risk, seed, config.steps)])
    rows = read_rows(config.out, Row)
    Console().print(table(sorted(rows, key=lambda r: (r.task, r.method, r.risk, r.seed))))


if __name__ == "__main__":
    main(tyro.cli(Config))
