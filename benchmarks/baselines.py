"""MVP, Tamar and Prashanth on small problems: does each improve its own objective?

    python benchmarks/baselines.py          all rows, about ten minutes on one core

Every agent is evaluated before and after training, 1,000 episodes each, on the paper's four-state
example (10 steps) and on the liquidity problem of Tamar 2012. Its objective of the return G is

    MVP          E[G] - lam Var(G)
    Tamar        E[G] - lam max(0, Var(G) - limit)^2
    Prashanth    E[G] - lam Var(G), G discounted

with bootstrap intervals of 95%. Settings differ from the paper's, which are for MuJoCo. Rows go to
a CSV file as they are measured; those that are there already are not measured again.
"""

from __future__ import annotations

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
from mvpi.envs import FourState, Liquidity

Array = npt.NDArray[np.float64]

PROBLEMS: dict[str, Any] = {"four states": partial(FourState, 10), "liquidity": Liquidity}
TABLE: dict[str, Any] = {"hidden": (), "ent_coef": 0.0}
SMALL: dict[str, Any] = {"hidden": (16,), "ent_coef": 0.0}
EPISODIC: dict[str, Any] = {"learning_rate": 3e-3, "estimate_rate": 10.0}
PERTURBED: dict[str, Any] = {
    "learning_rate": 3e-3,
    "critic_learning_rate": 1e-2,
    "perturbation": 0.5,
    "n_steps": 100,
    "max_grad_norm": None,
}


@dataclass(frozen=True)
class Trial:
    """An agent, a problem and a risk aversion."""

    agent: str
    problem: str
    risk: float
    steps: int
    settings: dict[str, Any]


TRIALS = (
    Trial("MVP", "four states", 0.5, 80_000, TABLE | EPISODIC),
    Trial("MVP", "four states", 2.0, 80_000, TABLE | EPISODIC),
    Trial("MVP", "liquidity", 2.0, 200_000, SMALL | EPISODIC),
    Trial("Tamar", "four states", 1.0, 80_000, TABLE | EPISODIC | {"variance_limit": 1.0}),
    Trial("Tamar", "liquidity", 100.0, 200_000, SMALL | EPISODIC | {"variance_limit": 0.1}),
    *(
        Trial("Prashanth", problem, risk, steps, net | PERTURBED | {"scheme": scheme, "gamma": 0.9})
        for problem, risk, steps, net in (
            ("four states", 4.0, 300_000, TABLE),
            ("liquidity", 2.0, 300_000, SMALL),
        )
        for scheme in ("spsa", "smoothed")
    ),
)


@dataclass(frozen=True)
class Row:
    """An objective before and after training, with the ends of its intervals."""

    agent: str
    problem: str
    risk: float
    seed: int
    before: float
    before_low: float
    before_high: float
    after: float
    after_low: float
    after_high: float


@dataclass(frozen=True)
class Config:
    """Trains the total-reward baselines on small problems."""

    out: Path = Path("results/baselines.csv")
    """Where rows are written, and read from to continue."""
    seeds: int = 3
    episodes: int = 1_000


def name_of(trial: Trial) -> str:
    scheme = trial.settings.get("scheme")
    return f"{trial.agent} ({scheme})" if scheme else trial.agent


def objective(agent: Any, returns: Array) -> float:
    """What the agent maximises, of a sample of returns."""
    lam, spread = agent.risk.risk_aversion, float(returns.var())
    if isinstance(agent, mvpi.Tamar):
        spread = max(0.0, spread - agent.settings.variance_limit) ** 2
    return float(returns.mean()) - lam * spread


def measured(agent: Any, episodes: int, seed: int) -> tuple[float, float, float]:
    """The objective and the ends of its interval."""
    seen = mvpi.evaluate(agent, episodes=episodes, seed=seed)
    parts = np.split(seen.rewards, np.cumsum(seen.lengths)[:-1])
    gamma = agent.settings.gamma
    returns = np.array([np.polynomial.polynomial.polyval(gamma, rewards) for rewards in parts])
    rng = np.random.default_rng(0)
    again = [objective(agent, rng.choice(returns, returns.size)) for _ in range(1_000)]
    low, high = np.quantile(again, [0.025, 0.975])
    value, low, high = (round(float(x), 4) for x in (objective(agent, returns), low, high))
    return value, low, high


def trained(trial: Trial, seed: int, episodes: int) -> Row:
    make = getattr(mvpi, trial.agent)
    quiet = {"evaluation_every": trial.steps, "evaluation_episodes": 1}
    env = PROBLEMS[trial.problem]
    agent = make(env, risk=trial.risk, seed=seed, **trial.settings, **quiet)
    before = measured(agent, episodes, seed)
    agent.learn(trial.steps)
    after = measured(agent, episodes, seed)
    return Row(name_of(trial), trial.problem, trial.risk, seed, *before, *after)


def table(rows: list[Row]) -> Table:
    shown = Table(title="Objective before and after training, 95% intervals")
    for column in ("agent", "problem", "risk", "seed", "before", "after"):
        shown.add_column(column, justify="left" if column in ("agent", "problem") else "right")
    for row in rows:
        before = f"{row.before:.3f} [{row.before_low:.3f}, {row.before_high:.3f}]"
        after = f"{row.after:.3f} [{row.after_low:.3f}, {row.after_high:.3f}]"
        shown.add_row(row.agent, row.problem, f"{row.risk:g}", str(row.seed), before, after)
    return shown


def main(config: Config) -> None:
    done = {(row.agent, row.problem, row.risk, row.seed) for row in read_rows(config.out, Row)}
    for trial, seed in product(TRIALS, range(config.seeds)):
        if (name_of(trial), trial.problem, trial.risk, seed) not in done:
            append_rows(config.out, [trained(trial, seed, config.episodes)])
    Console().print(table(read_rows(config.out, Row)))


if __name__ == "__main__":
    main(tyro.cli(Config))
