"""One training run for every risk aversion, on control tasks.

    python benchmarks/range_tasks.py --parts pendulum
    python benchmarks/range_tasks.py --parts locomotion --chunk 50000
    NUMBA_NUM_THREADS=1 python benchmarks/range_tasks.py --parts speed

`pendulum`: MVPI-TD3 with `RiskRange(0, 1)` on `mvpi/RiskyPendulum-v0`, 120,000 steps, 3 seeds. Its
right half pays `bonus + N(0, std^2)` more in a step. The side for which `mean - lam variance` is
larger changes at `lam = bonus / std^2`, which is 0.3.

`locomotion`: HalfCheetah-v4 and Hopper-v4 with action noise 0.1, the paper's settings, 300,000
steps, `RiskRange(0, 2)` against agents at 0, 1 and 2 alone, 2 seeds: `J_reward`, the mean - lam
variance of the rewards of the last episodes.

`speed`: steps per second of MVPI-TD3 as published on HalfCheetah-v4, with a range and with one risk
aversion, in turns: the best turn of each, and the median of the ratios of neighbouring turns.

Each run has a directory. `--chunk` ends the script after so many steps of training, so that other
jobs get their turn: started again, it goes on. Rows go to a CSV file when a run is finished; runs
with rows are not made again. Seconds are those that the process had the processor, over all chunks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows

import mvpi
from mvpi.envs import Task
from mvpi.risk import parse_risk

PENDULUM = "mvpi/RiskyPendulum-v0"
SMALL: dict[str, Any] = {
    "hidden": (64, 64),
    "learning_starts": 2_000,
    "gamma": 0.95,
    "batch_size": 256,
    "averaging": 1_000,
}
"""The settings of docs/choosing-the-risk-aversion.md."""


@dataclass(frozen=True)
class Run:
    """An agent to train, and the risk aversions at which it is judged."""

    task: str
    trained: str
    seed: int
    steps: int
    judged: tuple[float, ...]
    episodes: int

    @property
    def name(self) -> str:
        return f"{self.task.rsplit('/', 1)[-1]}-{self.trained.replace(':', '-')}-{self.seed}"

    def agent(self) -> mvpi.TD3:
        small = self.task == PENDULUM
        env = self.task if small else Task(self.task, action_noise=0.1)
        return mvpi.TD3(env, parse_risk(self.trained), self.seed, **(SMALL if small else {}))


@dataclass(frozen=True)
class Row:
    """The last episodes of an agent at one risk aversion; `trained` is what it was trained with."""

    task: str
    trained: str
    seed: int
    risk_aversion: float
    mean: float
    deviation: float
    reward_mean: float
    reward_variance: float
    j_reward: float
    seconds: float


@dataclass(frozen=True)
class Config:
    """Trains one agent for a range of risk aversions on control tasks, and single ones."""

    parts: tuple[Literal["pendulum", "locomotion", "speed"], ...] = ("pendulum", "locomotion")
    out: Path = Path("results/risk-range-tasks.csv")
    """Where rows are written, and read from to continue."""
    runs: Path = Path("out/range-tasks")
    """Where the run directories are."""
    seeds: int = 3
    """Of the pendulum; locomotion has one less."""
    chunk: int = 1_000_000_000
    """End after so many steps of training."""
    turns: int = 12
    """Of each of the two agents whose speed is compared."""


def wanted(config: Config) -> Iterator[Run]:
    """The runs, in the order in which they say the most."""
    if "pendulum" in config.parts:
        grid = tuple(round(0.1 * i, 1) for i in range(11))
        for seed in range(config.seeds):
            yield Run(PENDULUM, "range:0.0:1.0", seed, 120_000, grid, 40)
    if "locomotion" in config.parts:
        ways = (("range:0.0:2.0", "2.0"), ("0.0", "1.0"))
        tasks = ("HalfCheetah-v4", "Hopper-v4")
        for pair, seed, task in product(ways, range(config.seeds - 1), tasks):
            for trained in pair:
                judged = (0.0, 0.5, 1.0, 2.0) if ":" in trained else (float(trained),)
                yield Run(task, trained, seed, 300_000, judged, 100)


def trained_steps(directory: Path) -> int:
    """Steps of a run so far."""
    return mvpi.load(directory).steps if (directory / "policy.safetensors").exists() else 0


def rows_of(run: Run, agent: mvpi.TD3, seconds: float) -> list[Row]:
    found = []
    for lam in run.judged:
        chosen = agent.at(lam) if ":" in run.trained else agent
        seen = mvpi.evaluate(chosen, episodes=run.episodes, seed=1_000 + run.seed)
        moments = seen.mean, seen.deviation, seen.reward_mean, seen.reward_variance
        numbers = (*moments, seen.reward_value(lam), seconds)
        found.append(
            Row(run.task, run.trained, run.seed, lam, *(round(float(x), 4) for x in numbers))
        )
    return found


def table(rows: list[Row]) -> Table:
    shown = Table(title="The last episodes: return, and reward of a step")
    for name in ("task", "trained with", "seed", "λ", "mean", "deviation", "variance", "J_reward"):
        shown.add_column(name, justify="left" if name in ("task", "trained with") else "right")
    for row in rows:
        numbers = (f"{row.mean:.1f}", f"{row.deviation:.1f}", f"{row.reward_variance:.3f}")
        key = (row.task, row.trained, str(row.seed), f"{row.risk_aversion:g}")
        shown.add_row(*key, *numbers, f"{row.j_reward:.3f}")
    return shown


def compare_speed(turns: int, steps: int = 500) -> str:
    """Steps per second of processor time, with one risk aversion and with a range."""
    risks = mvpi.MeanVariance(1.0), mvpi.RiskRange(0.0, 2.0)
    settings = {"learning_starts": 1_000, "evaluation_every": 1_000_000}
    agents = [mvpi.TD3(Task("HalfCheetah-v4"), risk, **settings).learn(2_000) for risk in risks]
    speeds: list[list[float]] = [[], []]
    for turn in range(turns):
        for agent, found in zip(agents, speeds, strict=True):
            start = time.process_time()
            agent.learn(2_000 + (turn + 1) * steps)
            found.append(steps / (time.process_time() - start))
    plain, ranged = map(max, speeds)
    ratio = median(b / a for a, b in zip(*speeds, strict=True))
    return (
        f"one risk aversion {plain:.0f} steps/s, a range {ranged:.0f}: {ranged / plain:.3f} of it; "
        f"median of {turns} ratios {ratio:.3f}"
    )


def main(config: Config) -> None:
    if "speed" in config.parts:
        Console().print(compare_speed(config.turns))
    left = config.chunk
    for run in wanted(config):
        known = {(row.task, row.trained, row.seed) for row in read_rows(config.out, Row)}
        if (run.task, run.trained, run.seed) in known:
            continue
        directory = config.runs / run.name
        done = trained_steps(directory)
        until = min(run.steps, done + left)
        clock, start = directory.with_name(f"{run.name}.seconds"), time.process_time()
        agent = run.agent().learn(until, directory)
        earlier = float(clock.read_text()) if clock.exists() else 0.0
        seconds = round(earlier + time.process_time() - start, 1)
        clock.write_text(str(seconds))
        left -= until - done
        if until == run.steps:
            append_rows(config.out, rows_of(run, agent, seconds))
        if left <= 0:
            break
    Console().print(table(read_rows(config.out, Row)))


if __name__ == "__main__":
    main(tyro.cli(Config))
