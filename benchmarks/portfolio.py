"""MVPI-TD3 on the Markowitz portfolio, against the exact answer.

    python benchmarks/portfolio.py                      all rows, about 20 minutes on one core
    python benchmarks/portfolio.py --assets 2 --seeds 1

For every measure and seed an agent is trained and its action put into the closed form: its
objective as a share of the largest one, for a variance budget its variance as a share of the
limit. The box of actions is twice as wide as the largest investment of the best portfolio.

Rewards here are mostly noise. Some settings beside the paper's account for it: 33 steps are made
per update, the slope of the critic is averaged over the actions that are explored
(`actor_smoothing`), and the policy is the actor's average over about its last 1,000 updates (300
with a budget, whose price it has to follow).

Seconds are those the process had the processor, so that other work on the machine hardly counts.
Rows go to a CSV file as they are measured; those that are there already are not measured again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows

import mvpi
from mvpi.envs import Markowitz
from mvpi.risk import parse_risk

PORTFOLIOS: dict[int, dict[str, Any]] = {
    2: {"mean": (0.3, 0.15), "covariance": ((0.15, 0.03), (0.03, 0.09))},
    5: {
        "mean": (0.12, 0.15, 0.18, 0.21, 0.24),
        "covariance": (np.diag([0.06, 0.07, 0.08, 0.09, 0.1]) + 0.01).tolist(),
    },
}
RISKS = ("0.5", "1.0", "2.0", "cvar:0.1:0.3", "entropic:2.0", "budget:0.3")
SETTINGS: dict[str, Any] = {
    "gamma": 0.0,
    "hidden": (256,),
    "batch_size": 256,
    "exploration_noise": 0.3,
    "actor_smoothing": 0.3,
    "train_freq": 200,
    "gradient_steps": 6,
    "averaging": 1_000,
    "evaluation_every": 1_000_000,
}
WITH_BUDGET: dict[str, Any] = {"averaging": 300, "budget_every": 5_000}
STEPS, ENTROPIC_STEPS = 300_000, 600_000
"""Exponentials of rewards are noisier than squares."""


@dataclass(frozen=True)
class Row:
    """What one agent reached."""

    assets: int
    risk: str
    seed: int
    share: float
    seconds: float


@dataclass(frozen=True)
class Config:
    """Trains on portfolios whose best composition is known."""

    out: Path = Path("results/portfolio.csv")
    """Where rows are written, and read from to continue."""
    assets: tuple[int, ...] = (2, 5)
    risks: tuple[str, ...] = RISKS
    seeds: int = 3


def portfolio(assets: int, risk: mvpi.Risk) -> Markowitz:
    """The portfolio in a box twice as wide as its best composition, 1 where that has no size."""
    wide = Markowitz(**PORTFOLIOS[assets], bound=100.0)
    largest = float(np.abs(wide.best_action(risk)).max())
    return Markowitz(**PORTFOLIOS[assets], bound=1.0 if largest > 99.0 else 2.0 * largest)


def trained_share(assets: int, risk: mvpi.Risk, seed: int) -> float:
    """How much of the exact objective a trained agent reaches; for a budget, of the variance."""
    env = portfolio(assets, risk)
    settings = SETTINGS | (WITH_BUDGET if isinstance(risk, mvpi.VarianceBudget) else {})
    agent = mvpi.TD3(partial(portfolio, assets, risk), risk=risk, seed=seed, **settings)
    steps = ENTROPIC_STEPS if isinstance(risk, mvpi.Entropic) else STEPS
    action = agent.learn(steps).predict(np.ones(1))
    if isinstance(risk, mvpi.VarianceBudget):
        return float(action @ env.covariance @ action) / risk.limit
    return env.value(action, risk) / env.value(env.best_action(risk), risk)


def table(rows: list[Row]) -> Table:
    shown = Table(title="Share of the exact objective (budget: of the limit)")
    for column in ("assets", "risk", "seeds", "smallest", "mean", "largest", "seconds"):
        shown.add_column(column, justify="left" if column == "risk" else "right")
    for assets, risk in dict.fromkeys((row.assets, row.risk) for row in rows):
        mine = [row for row in rows if (row.assets, row.risk) == (assets, risk)]
        shares = np.array([row.share for row in mine])
        numbers = (f"{x:.1%}" for x in (shares.min(), shares.mean(), shares.max()))
        slowest = max(row.seconds for row in mine)
        shown.add_row(str(assets), risk, str(shares.size), *numbers, f"{slowest:.0f}")
    return shown


def main(config: Config) -> None:
    done = {(row.assets, row.risk, row.seed) for row in read_rows(config.out, Row)}
    wanted = product(config.assets, config.risks, range(config.seeds))
    for assets, risk, seed in (key for key in wanted if key not in done):
        start = time.process_time()
        share = trained_share(assets, parse_risk(risk), seed)
        seconds = time.process_time() - start
        append_rows(config.out, [Row(assets, risk, seed, round(share, 4), round(seconds))])
    Console().print(table(read_rows(config.out, Row)))


if __name__ == "__main__":
    main(tyro.cli(Config))
