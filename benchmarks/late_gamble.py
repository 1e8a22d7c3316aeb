"""A late gamble: what the risk of a step avoids, and what the risk of the return avoids.

    python benchmarks/late_gamble.py                    3 seeds, and the picture

MVPI-PPO on mvpi/LateGamble-v0: no risk, mean-variance of the reward of a step, and mean-variance of
the return, both at the same risk aversion and with the same settings. Rows go to a CSV file as they
are measured; those that are there already are not measured again. The picture shows agents of the
first seed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows

import mvpi
from mvpi.envs import LateGamble
from mvpi.risk import parse_risk

TASK = "mvpi/LateGamble-v0"
RISKS = {"0": "no risk", "0.05": "risk of a step", "return:0.05": "risk of the return"}
SETTINGS: dict[str, Any] = {"return_scale": 100.0, "evaluation_every": 300_000}
EPISODES = 100


@dataclass(frozen=True)
class Row:
    """What 100 episodes of a trained agent earned, and where their steps were."""

    risk: str
    seed: int
    steps: int
    return_mean: float
    return_variance: float
    reward_mean: float
    reward_variance: float
    left: float
    middle: float
    right: float
    length: float
    seconds: float


@dataclass(frozen=True)
class Config:
    """Trains with the risk of a step and with that of the return where they differ."""

    out: Path = Path("results/late-gamble.csv")
    """Where rows are written, and read from to continue."""
    picture: Path = Path("docs/late-gamble.png")
    runs: Path = Path("out/late-gamble")
    """Where run directories are."""
    risks: tuple[str, ...] = tuple(RISKS)
    seeds: tuple[int, ...] = (0, 1, 2)
    steps: int = 300_000


@dataclass(frozen=True)
class Episode:
    """The positions, places and rewards of an episode."""

    x: list[float]
    places: list[int]
    rewards: list[float]


def trained(risk: str, seed: int, config: Config) -> mvpi.PPO:
    agent = mvpi.PPO(TASK, parse_risk(risk), seed, **SETTINGS)
    return agent.learn(config.steps, out=config.runs / f"{risk.replace(':', '-')}-{seed}")


def episodes(agent: mvpi.PPO, count: int) -> list[Episode]:
    env, found = gym.make(TASK), []
    for seed in range(count):
        seen, _ = env.reset(seed=1_000 + seed)
        shown, done = Episode([], [], []), False
        while not done:
            known = {"return_so_far": sum(shown.rewards)} if agent.risk.of_return else {}
            seen, reward, terminated, truncated, info = env.step(agent.predict(seen, **known))
            shown.x.append(float(seen[0]))
            shown.places.append(info["place"])
            shown.rewards.append(float(reward))
            done = terminated or truncated
        found.append(shown)
    return found


def row_of(risk: str, seed: int, config: Config) -> Row:
    start = time.process_time()
    agent = trained(risk, seed, config)
    seconds = time.process_time() - start
    shown = episodes(agent, EPISODES)
    returns = np.array([sum(one.rewards) for one in shown])
    rewards = np.concatenate([one.rewards for one in shown])
    places = np.concatenate([one.places for one in shown])
    moments = returns.mean(), returns.var(), rewards.mean(), rewards.var()
    shares = [float((places == place).mean()) for place in (-1, 0, 1)]
    numbers = [round(float(number), 4) for number in (*moments, *shares)]
    return Row(
        *(risk, seed, config.steps, *numbers),
        *(round(rewards.size / EPISODES, 1), round(seconds, 1)),
    )


def table(rows: list[Row]) -> Table:
    """The agents, above them what staying in one place would give exactly."""
    shown = Table(title="A late gamble")
    for column in ("", "mean return", "its variance", "mean reward", "its variance", "where"):
        shown.add_column(column, justify="right" if "mean" in column or "its" in column else "left")
    for place, exact in LateGamble(gym.make("InvertedPendulum-v5")).behaviours().items():
        shown.add_row(f"always {place}", *(f"{number:.4g}" for number in exact), "")
    for row in sorted(rows, key=lambda row: (list(RISKS).index(row.risk), row.seed)):
        moments = row.return_mean, row.return_variance, row.reward_mean, row.reward_variance
        where = f"{row.left:.0%} left, {row.middle:.0%} middle, {row.right:.0%} right"
        shown.add_row(f"{row.risk}, {row.seed}", *(f"{number:.4g}" for number in moments), where)
    return shown


def draw(config: Config) -> None:
    """A row for every agent: where it goes, what its steps pay, and what its episodes pay."""
    figure = Figure(figsize=(10.5, 7.2), layout="constrained")
    panels = figure.subplots(len(RISKS), 3, sharex="col")
    task = LateGamble(gym.make("InvertedPendulum-v5"))
    for (risk, name), (path, step, earned) in zip(RISKS.items(), panels, strict=True):
        shown = episodes(trained(risk, 0, config), EPISODES)
        for one in shown[:20]:
            path.plot(one.x, color="#1f77b4", alpha=0.4, linewidth=0.8)
        path.axhspan(task.threshold, 2.0, color="#d62728", alpha=0.12)
        path.axhspan(-2.0, -task.threshold, color="#2ca02c", alpha=0.12)
        path.set_ylim(-1.05, 1.05)
        path.set_ylabel(f"{name}\n\nposition")
        for one, color in zip(shown[:2], ("#1f77b4", "#ff7f0e"), strict=True):
            step.plot(one.rewards, color=color, linewidth=0.9)
        step.set_ylim(-4.5, 7.5)
        step.axvline(task.toss, color="0.6", linewidth=0.8, linestyle=":")
        returns = np.array([sum(one.rewards) for one in shown])
        rewards = np.concatenate([one.rewards for one in shown])
        earned.hist(returns, bins=np.arange(0.0, 205.0, 5.0), color="#1f77b4")
        step.set_title(f"standard deviation {rewards.std():.2f}", fontsize=9)
        earned.set_title(
            f"mean {returns.mean():.0f}, standard deviation {returns.std():.1f}", fontsize=9
        )
        step.set_ylabel("reward")
        earned.set_ylabel("episodes")
        for axes in (path, step, earned):
            axes.spines[["top", "right"]].set_visible(False)
    path, step, earned = panels[-1]
    path.set_xlabel("step; red: raises the late gamble\ngreen: swings that cancel")
    step.set_xlabel("step of two episodes; dotted: the toss")
    earned.set_xlabel(f"return of {EPISODES} episodes")
    figure.savefig(config.picture, dpi=130, metadata={"Software": None})


def main(config: Config) -> None:
    done = {(row.risk, row.seed, row.steps) for row in read_rows(config.out, Row)}
    for seed, risk in product(config.seeds, config.risks):
        if (risk, seed, config.steps) not in done:
            append_rows(config.out, [row_of(risk, seed, config)])
    Console(width=120).print(table(read_rows(config.out, Row)))
    if set(config.risks) == set(RISKS):
        draw(config)


if __name__ == "__main__":
    main(tyro.cli(Config))
