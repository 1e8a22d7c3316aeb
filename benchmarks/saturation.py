"""InvertedDoublePendulum: does the actor of MVPI-TD3 get stuck at the border of the actions?

    python benchmarks/saturation.py          all rows, about half an hour on one core

TD3 of this package and TD3 of Stable-Baselines3 with the plug, the paper's settings, risk 0 and 1:
10,000 random steps, then 6,000 updates; here also with a smaller learning rate. Where `tanh` has
reached +-1 in every state no gradient is left, and the actor stays as it is. Rows go to a CSV file
as they are measured; those that are there already are not measured again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows

import mvpi
from mvpi.envs import Task

TASK = Task("InvertedDoublePendulum-v4", action_noise=0.1)
RANDOM_STEPS = 10_000


@dataclass(frozen=True)
class Row:
    """How much of what the actor does is at the border, and what it earns."""

    library: str
    risk: float
    seed: int
    steps: int
    saturated: float
    mean_return: float


@dataclass(frozen=True)
class Config:
    """Trains TD3 of two libraries until the actor has been updated 3,000 times."""

    out: Path = Path("results/saturation.csv")
    """Where rows are written, and read from to continue."""
    seeds: int = 3
    steps: int = 16_000


def trained_here(risk: float, seed: int, steps: int, learning_rate: float = 1e-3) -> Any:
    return mvpi.TD3(
        TASK,
        risk,
        seed,
        learning_starts=RANDOM_STEPS,
        learning_rate=learning_rate,
        evaluation_every=steps,
        evaluation_episodes=1,
    ).learn(steps)


def trained_there(risk: float, seed: int, steps: int) -> Any:
    import torch
    from stable_baselines3 import TD3
    from stable_baselines3.common.noise import NormalActionNoise

    from mvpi.sb3 import risk_averse

    torch.set_num_threads(1)
    return risk_averse(
        TD3,
        "MlpPolicy",
        TASK(),
        risk=risk,
        seed=seed,
        learning_starts=RANDOM_STEPS,
        batch_size=100,
        train_freq=1,
        action_noise=NormalActionNoise(np.zeros(1), np.full(1, 0.1)),
        policy_kwargs={"net_arch": [400, 300]},
        device="cpu",
    ).learn(steps)


LIBRARIES: dict[str, Callable[[float, int, int], Any]] = {
    "mvpi": trained_here,
    "mvpi, learning rate 3e-4": partial(trained_here, learning_rate=3e-4),
    "Stable-Baselines3": trained_there,
}


def visited(count: int = 1_000) -> npt.NDArray[np.float32]:
    """Observations under random actions."""
    env, seen = TASK(), []
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    for _ in range(count):
        seen.append(observation)
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            observation, _ = env.reset()
    return np.array(seen, np.float32)


def measured(library: str, risk: float, seed: int, steps: int) -> Row:
    model = LIBRARIES[library](risk, seed, steps)
    actions = model.predict(visited())
    actions = actions[0] if isinstance(actions, tuple) else actions
    saturated = float((np.abs(actions) > 0.999).mean())
    seen = mvpi.evaluate(model, TASK, episodes=20)
    return Row(library, risk, seed, steps, round(saturated, 3), round(seen.mean, 1))


def table(rows: list[Row]) -> Table:
    shown = Table(title="Share of states in which the action is at the border")
    for column in ("library", "risk", "seed", "saturated", "mean return"):
        shown.add_column(column, justify="left" if column == "library" else "right")
    for row in rows:
        numbers = f"{row.risk:g}", str(row.seed), f"{row.saturated:.0%}", f"{row.mean_return:.0f}"
        shown.add_row(row.library, *numbers)
    return shown


def main(config: Config) -> None:
    done = {(r.library, r.risk, r.seed, r.steps) for r in read_rows(config.out, Row)}
    for seed, risk, library in product(range(config.seeds), (1.0, 0.0), LIBRARIES):
        key = library, risk, seed, config.steps
        if key not in done:
            append_rows(config.out, [measured(*key)])
    rows = read_rows(config.out, Row)
    Console().print(table(sorted(rows, key=lambda r: (r.library, r.risk, r.seed))))


if __name__ == "__main__":
    main(tyro.cli(Config))
