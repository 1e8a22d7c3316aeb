"""One training run for every risk aversion on a finite problem, against its exact frontier.

    python benchmarks/finite_range.py                   DQN and PPO, 3 seeds
    python benchmarks/finite_range.py --names DQN --seeds 1

An inventory as an environment: stock from 0 to 10, orders of 0, 2, 5 or 10 units, a random demand.
DQN and PPO of Stable-Baselines3 are trained by `mvpi.sb3.risk_averse` with `RiskRange(0, 0.7)`.
Money is counted in tens: the Huber loss of DQN is quadratic only for errors below 1.

The actions of `mvpi.sb3.at(model, lam)` in all states are a policy of `mvpi.examples.inventory` at
discount 1, whose mean and variance of a step are exact, and so is `mvpi.frontier` of it. Two
differences are reported, both as shares of the exact mean: how far `mean - lam variance` is below
the largest one (`short_of_best`), and how far the mean is below that of the frontier at the same
variance (`below_frontier`).

Seconds are those the process had the processor. Rows go to a CSV file as they are measured; those
that are there already are not measured again.
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
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows
from stable_baselines3 import DQN, PPO

import mvpi
from mvpi.sb3 import at, risk_averse

CAPACITY, UNIT = 10, 10.0
ORDERS = np.array([0, 2, 5, 10])
CHANCES = np.array([0.1, 0.2, 0.3, 0.25, 0.15])
"""Of a demand of 0, 1, 2, 3 and 4."""
RANGE = mvpi.RiskRange(0.0, 0.7)
POINTS = 8
NETWORK = {"net_arch": [64, 64]}
ALGORITHMS: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "DQN": (
        DQN,
        50_000,
        {
            "learning_rate": 1e-3,
            "gamma": 0.98,
            "batch_size": 128,
            "learning_starts": 2_000,
            "target_update_interval": 500,
            "exploration_fraction": 0.3,
            "exploration_final_eps": 0.01,
            "policy_kwargs": NETWORK,
        },
    ),
    "PPO": (
        PPO,
        60_000,
        {
            "learning_rate": 1e-3,
            "gamma": 0.98,
            "n_steps": 2_000,
            "batch_size": 250,
            "policy_kwargs": NETWORK,
        },
    ),
}


class Inventory(gym.Env[Any, Any]):
    """The stock of `mvpi.examples.inventory`, a day a step; an episode is cut after 100 days."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Discrete(CAPACITY + 1)
        self.action_space = gym.spaces.Discrete(len(ORDERS))
        self._stock = self._day = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._stock, self._day = int(self.np_random.integers(CAPACITY + 1)), 0
        return self._stock, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        order = int(ORDERS[action])
        available = min(self._stock + order, CAPACITY)
        sold = min(int(self.np_random.choice(5, p=CHANCES)), available)
        self._stock, self._day = available - sold, self._day + 1
        return self._stock, earned(order, available, sold), False, self._day >= 100, {}


def earned(order: int, available: int, sold: int) -> float:
    """The reward of a day, in tens."""
    return (2.0 * sold - order - 2.0 * (order > 0) - 0.01 * available) / UNIT


@dataclass(frozen=True)
class Row:
    """The policy of one model at one risk aversion, its exact moments, and the exact best."""

    algorithm: str
    seed: int
    risk_aversion: float
    mean: float
    variance: float
    best_mean: float
    best_variance: float
    short_of_best: float
    below_frontier: float
    seconds: float


@dataclass(frozen=True)
class Config:
    """Trains DQN and PPO on an inventory whose frontier is known."""

    out: Path = Path("results/risk-range-finite.csv")
    """Where rows are written, and read from to continue."""
    names: tuple[str, ...] = tuple(ALGORITHMS)
    seeds: int = 3


def moments(mdp: mvpi.MDP, policy: np.ndarray) -> tuple[float, float]:
    """Exact mean and variance of the reward of a day."""
    occupancy = mdp.occupancy(policy)
    of_pair = np.zeros((2, *occupancy.shape))
    for stock, action in np.ndindex(occupancy.shape):
        order = int(ORDERS[action])
        available = min(stock + order, CAPACITY)
        rewards = np.array([earned(order, available, min(d, available)) for d in range(5)])
        of_pair[:, stock, action] = CHANCES @ rewards, CHANCES @ np.square(rewards)
    mean, square = (float((occupancy * values).sum()) for values in of_pair)
    return mean, square - mean**2


def rows_of(name: str, seed: int, mdp: mvpi.MDP, exact: mvpi.Frontier) -> list[Row]:
    """Train a model; its policies at risk aversions of the range against the exact ones."""
    algorithm, steps, arguments = ALGORITHMS[name]
    start = time.process_time()
    model = risk_averse(
        algorithm, "MlpPolicy", Inventory(), risk=RANGE, seed=seed, device="cpu", **arguments
    )
    model.learn(steps)
    seconds = round(time.process_time() - start, 1)
    found = []
    for lam in RANGE.grid(POINTS).tolist():
        chosen = at(model, lam)
        states = range(CAPACITY + 1)
        policy = np.array([int(chosen.predict(s, deterministic=True)[0]) for s in states])
        mean, variance = moments(mdp, policy)
        best = exact.best(lam / UNIT)
        best_mean, best_variance = moments(mdp, best.policy)
        reach = exact.with_variance_at_most(variance * UNIT**2).mean / UNIT
        value, largest = mean - lam * variance, best_mean - lam * best_variance
        shares = (largest - value) / best_mean, (reach - mean) / reach if reach > 0.0 else 0.0
        numbers = (lam, mean, variance, best_mean, best_variance, *shares)
        found.append(Row(name, seed, *(round(float(x), 4) for x in numbers), seconds))
    return found


def table(rows: list[Row]) -> Table:
    shown = Table(title="The learned frontier against the exact one, 0 to 0.7")
    for column in ("algorithm", "seed", "short of best, largest", "below frontier", "seconds"):
        shown.add_column(column, justify="left" if column == "algorithm" else "right")
    for name, seed in dict.fromkeys((row.algorithm, row.seed) for row in rows):
        mine = [row for row in rows if (row.algorithm, row.seed) == (name, seed)]
        worst = max(row.short_of_best for row in mine), max(row.below_frontier for row in mine)
        shown.add_row(name, str(seed), *(f"{x:.1%}" for x in worst), f"{mine[0].seconds:.0f}")
    return shown


def main(config: Config) -> None:
    mdp = mvpi.examples.inventory(CAPACITY, discount=1.0)
    exact = mvpi.frontier(mdp)
    done = {(row.algorithm, row.seed) for row in read_rows(config.out, Row)}
    for seed, name in product(range(config.seeds), config.names):
        if (name, seed) not in done:
            append_rows(config.out, rows_of(name, seed, mdp, exact))
    Console().print(table(read_rows(config.out, Row)))


if __name__ == "__main__":
    main(tyro.cli(Config))
