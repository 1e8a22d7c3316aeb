"""One training run for every risk aversion, on portfolios with exact answers.

    python benchmarks/risk_range.py                     3 seeds, 2 and 5 assets
    python benchmarks/risk_range.py --assets 2 --seeds 1

MVPI-TD3 with `RiskRange(0.5, 5)`, and beside it, in turns, at the single risk aversion 1 with the
settings of `portfolio.py`, which take it to its target. The range has the same settings but for 8
updates every 200 steps instead of 6, and a learning rate that begins at 3e-3 and falls to a
fiftieth: critics and actor have a function of the risk aversion to learn. The action of
`agent.at(lam)` at nine risk aversions is put into the closed form: its objective as a share of the
largest one. The box of actions is that of the smallest risk aversion, the same for all.

Seconds are those the process had the processor. Rows go to a CSV file as they are measured; those
that are there already are not measured again. In the end both agents make 40,000 steps in turns:
the ratio of their best processor times.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import tyro
from portfolio import SETTINGS, STEPS, portfolio
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows

import mvpi

RANGE = mvpi.RiskRange(0.5, 5.0)
OF_RANGE = {"gradient_steps": 8, "learning_rate": 3e-3, "decay_steps": STEPS}
SINGLE = 1.0
RISKS: tuple[mvpi.Risk, ...] = (RANGE, mvpi.MeanVariance(SINGLE))
POINTS = 9


@dataclass(frozen=True)
class Row:
    """What an agent reached at one risk aversion; `trained` is the risk it was trained with."""

    assets: int
    trained: str
    seed: int
    risk_aversion: float
    share: float
    seconds: float


@dataclass(frozen=True)
class Config:
    """Trains on portfolios whose best composition is known for every risk aversion."""

    out: Path = Path("results/risk-range.csv")
    """Where rows are written, and read from to continue."""
    assets: tuple[int, ...] = (2, 5)
    seeds: int = 3
    steps: int = STEPS
    turns: int = 4
    """Of 40,000 steps of each agent whose times are compared; 0 leaves that out."""


def trained(assets: int, risk: mvpi.Risk, seed: int, steps: int) -> tuple[mvpi.TD3, float]:
    """An agent, and the seconds that its training took."""
    make, start = partial(portfolio, assets, mvpi.MeanVariance(RANGE.low)), time.process_time()
    settings = SETTINGS | (OF_RANGE if isinstance(risk, mvpi.RiskRange) else {})
    agent = mvpi.TD3(make, risk, seed, **settings).learn(steps)
    return agent, time.process_time() - start


def time_ratio(assets: int, turns: int) -> float:
    """The time of a range over that of one risk aversion, in turns, the best of each."""
    pairs = [[trained(assets, risk, 0, 40_000)[1] for risk in RISKS] for _ in range(turns)]
    ours, single = np.min(pairs, axis=0)
    return float(ours / single)


def rows_of(assets: int, risk: mvpi.Risk, seed: int, steps: int) -> list[Row]:
    """Train an agent; its share of the exact objective at every risk aversion trained for."""
    env = portfolio(assets, mvpi.MeanVariance(RANGE.low))
    agent, seconds = trained(assets, risk, seed, steps)
    wanted = RANGE.grid(POINTS) if isinstance(risk, mvpi.RiskRange) else [SINGLE]
    found = []
    for lam in map(float, wanted):
        chosen = agent.at(lam) if isinstance(risk, mvpi.RiskRange) else agent
        action = chosen.predict(np.ones(1))
        share = env.value(action, lam) / env.value(env.best_action(lam), lam)
        figures = round(lam, 4), round(share, 4), round(seconds, 1)
        found.append(Row(assets, risk.text, seed, *figures))
    return found


def table(rows: list[Row]) -> Table:
    shown = Table(title="Share of the exact objective")
    for column in ("assets", "trained with", "seeds", "smallest", "mean", "seconds"):
        shown.add_column(column, justify="left" if column == "trained with" else "right")
    for assets, trained in dict.fromkeys((row.assets, row.trained) for row in rows):
        mine = [row for row in rows if (row.assets, row.trained) == (assets, trained)]
        shares = np.array([row.share for row in mine])
        seconds = {row.seed: row.seconds for row in mine}
        numbers = f"{shares.min():.1%}", f"{shares.mean():.1%}", f"{min(seconds.values()):.0f}"
        shown.add_row(str(assets), trained, str(len(seconds)), *numbers)
    return shown


def main(config: Config) -> None:
    done = {(row.assets, row.trained, row.seed) for row in read_rows(config.out, Row)}
    for assets, seed, risk in product(config.assets, range(config.seeds), RISKS):
        if (assets, risk.text, seed) not in done:
            append_rows(config.out, rows_of(assets, risk, seed, config.steps))
    Console().print(table(read_rows(config.out, Row)))
    for assets in config.assets if config.turns else ():
        ratio = time_ratio(assets, config.turns)
        Console().print(f"{assets} assets: a range takes {ratio:.2f} times the time of one agent")


if __name__ == "__main__":
    main(tyro.cli(Config))
