"""Learners of the risk of an episode against the exact answer, on three small problems.

    python benchmarks/episode_learners.py               all rows, 3 seeds
    python benchmarks/episode_learners.py --problems portfolio --seeds 1

    betting     4 steps, a sure 0.1 or a bet of +-1 that is won with probability 0.7; finite actions
    selling     2 goods, 5 offers of 0 to 9, one good at most is sold at each; finite actions
    portfolio   5 steps, the reward is the stake times a return of 0.15 +- 0.3; continuous actions

Finite actions are learned by DQN and PPO of Stable-Baselines3 through `mvpi.sb3.risk_averse`,
continuous ones by `mvpi.TD3`. The exact answer is `mvpi.optimize(mdp, OfReturn(risk), horizon=T)`,
for the portfolio the closed form of Li and Ng (2000). What a learner reached is exact too: the law
of the return of its policy, followed along every path.

Rows go to a CSV file as they are measured; those that are there already are not measured again.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
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
from stable_baselines3.common.env_util import make_vec_env

import mvpi
from mvpi.envs import ReturnSoFar
from mvpi.risk import parse_risk
from mvpi.sb3 import attach, risk_averse

Law = dict[float, float]
"""Returns and their probabilities."""
Choose = Callable[[np.ndarray, float], Any]
"""The action at an observation and a return so far."""


class Played(gym.Env[Any, Any]):
    """A finite MDP, played for `horizon` steps. Seen are the state, one-hot, and the time."""

    def __init__(self, mdp: mvpi.MDP, horizon: int) -> None:
        self.mdp, self.horizon = mdp, horizon
        self.observation_space = gym.spaces.Box(0.0, 1.0, (mdp.n_states + 1,), np.float32)
        self.action_space = gym.spaces.Discrete(mdp.n_actions)

    def outcomes(self, s: int, action: int) -> list[tuple[float, float, int]]:
        """Probability, reward and next state; where an action is not allowed, the first that is."""
        if not self.mdp.allowed[s, action]:
            action = int(np.argmax(self.mdp.allowed[s]))
        row = slice(*self.mdp.transitions.indptr[s * self.mdp.n_actions + action :][:2])
        model = self.mdp.transitions
        return list(
            zip(model.data[row], self.mdp.rewards[row], model.indices[row].tolist(), strict=True)
        )

    def seen(self, s: int, time: int) -> np.ndarray:
        observation = np.zeros(self.mdp.n_states + 1, np.float32)
        observation[s], observation[-1] = 1.0, time / self.horizon
        return observation

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._s = int(self.np_random.choice(self.mdp.n_states, p=self.mdp.start))
        self._time = 0
        return self.seen(self._s, 0), {}

    def step(self, action: Any) -> Any:
        found = self.outcomes(self._s, int(action))
        drawn = self.np_random.choice(len(found), p=[p for p, _, _ in found])
        _, reward, self._s = found[drawn]
        self._time += 1
        observation = self.seen(self._s, self._time)
        return observation, float(reward), self._time == self.horizon, False, {}

    def law(self, choose: Choose) -> Law:
        """The law of the return of a policy, along every path."""
        now = {(s, 0.0): float(p) for s, p in enumerate(self.mdp.start) if p > 0.0}
        for t in range(self.horizon):
            after: dict[tuple[int, float], float] = defaultdict(float)
            for (s, earned), share in now.items():
                for p, reward, to in self.outcomes(s, int(choose(self.seen(s, t), earned))):
                    after[to, round(earned + reward, 9)] += share * p
            now = after
        law: Law = defaultdict(float)
        for (_, earned), share in now.items():
            law[earned] += share
        return law


def betting() -> tuple[mvpi.MDP, int]:
    """Every step a sure reward or a bet that is worth more on average."""
    rows = [("table", 0, 1.0, 0.1, "table"), ("table", 1, 0.7, 1.0, "table")]
    rows.append(("table", 1, 0.3, -1.0, "table"))
    return mvpi.MDP.from_outcomes(rows, discount=1.0), 4


def selling() -> tuple[mvpi.MDP, int]:
    """States are goods left and the offer; action 1 sells one."""
    offers = range(10)

    def outcomes() -> Iterator[tuple[Any, int, float, float, Any]]:
        for goods, offer in product((1, 2), offers):
            for sold in (0, 1):
                left = goods - sold
                for following in offers if left else (0,):
                    chance = 1.0 / len(offers) if left else 1.0
                    yield (goods, offer), sold, chance, float(sold * offer), (left, following)
        yield (0, 0), 0, 1.0, 0.0, (0, 0)

    start = {(2, offer): 0.1 for offer in offers}
    return mvpi.MDP.from_outcomes(outcomes(), discount=1.0, start=start), 5


class Portfolio(gym.Env[Any, Any]):
    """`STEPS` steps; the reward is the stake times a return, `MU +- SIGMA` with equal chances."""

    STEPS, MU, SIGMA, LARGEST = 5, 0.15, 0.3, 4.0
    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-LARGEST, LARGEST, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        sign = 1.0 if self.np_random.random() < 0.5 else -1.0
        self._time += 1
        reward = float(action[0]) * (self.MU + sign * self.SIGMA)
        seen = np.array([self._time / self.STEPS], np.float32)
        return seen, reward, self._time == self.STEPS, False, {}

    def law(self, choose: Choose) -> Law:
        """The law of the return of a policy, along every path."""
        now = {0.0: 1.0}
        for t in range(self.STEPS):
            after: Law = defaultdict(float)
            for earned, share in now.items():
                stake = float(choose(np.array([t / self.STEPS], np.float32), earned)[0])
                for sign in (1.0, -1.0):
                    after[earned + stake * (self.MU + sign * self.SIGMA)] += 0.5 * share
            now = after
        return now

    def exact(self, lam: float) -> float:
        """Li and Ng: `(1 - q)/(4 lam q)` with `q = (1 - rho)^T`."""
        q = (1.0 - self.MU**2 / (self.MU**2 + self.SIGMA**2)) ** self.STEPS
        return (1.0 - q) / (4.0 * lam * q)


@dataclass(frozen=True)
class Finite:
    """A problem with finite actions, its risk, and how long it is trained for."""

    make: Callable[[], tuple[mvpi.MDP, int]]
    risk: str
    steps: dict[str, int]
    neutral_first: bool
    """Whether the first half of the steps is without risk."""
    unit: float
    """Rewards are divided by this while learning, see `in_units`."""


FINITE = {
    "betting": Finite(betting, "0.4", {"DQN": 40_000, "PPO": 30_000}, False, unit=5.0),
    "selling": Finite(selling, "cvar:0.2", {"DQN": 40_000, "PPO": 60_000}, True, unit=50.0),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "DQN": {
        "learning_rate": lambda left: 1e-3 * left,
        "learning_starts": 1_000,
        "gamma": 1.0,
        "batch_size": 1_024,
        "train_freq": 1,
        "gradient_steps": 2,
        "target_update_interval": 400,
        "exploration_fraction": 0.9,
        "exploration_final_eps": 0.05,
        "window": 4_000,
        "policy_kwargs": {"net_arch": [64, 64]},
    },
    "PPO": {
        "learning_rate": lambda left: 1e-3 * left,
        "n_steps": 128,
        "batch_size": 256,
        "gamma": 1.0,
        "gae_lambda": 1.0,
        "ent_coef": 0.01,
    },
    "TD3": {
        "hidden": (64, 64),
        "gamma": 0.999,
        "batch_size": 256,
        "learning_starts": 2_000,
        "exploration_noise": 0.3,
        "actor_smoothing": 0.3,
        "train_freq": 20,
        "gradient_steps": 4,
        "averaging": 1_000,
        "evaluation_every": 1_000_000,
    },
}
RETURN_SCALE = 1.0
"""In the units of the problem; what networks see does not depend on the unit of rewards."""
ENVS = 8
"""Environments side by side, for DQN and PPO."""
PORTFOLIO_STEPS = 150_000


@dataclass(frozen=True)
class Row:
    """What a learner reached; `seconds` of the processor are of training."""

    problem: str
    risk: str
    algorithm: str
    seed: int
    steps: int
    value: float
    exact: float
    share: float
    seconds: float


@dataclass(frozen=True)
class Config:
    """Trains for the risk of an episode where the exact answer is known."""

    out: Path = Path("results/episode-learners.csv")
    """Where rows are written, and read from to continue."""
    problems: tuple[str, ...] = (*FINITE, "portfolio")
    algorithms: tuple[str, ...] = tuple(SETTINGS)
    seeds: int = 3


def value_of(law: Law, risk: mvpi.Risk) -> float:
    return risk.value(list(law), list(law.values()))


def in_units(risk: mvpi.Risk, unit: float) -> mvpi.Risk:
    """The same preference among rewards that are divided by `unit`.

    DQN of Stable-Baselines3 has the Huber loss, which is squared for errors below 1 and absolute
    beyond: where augmented rewards are farther apart than that, it learns something near their
    median instead of their mean. In larger units they are not. PPO clips the gradients of policy
    and values together: those of large values may leave little of the policy's.
    """
    if isinstance(risk, mvpi.MeanVariance):
        return mvpi.MeanVariance(risk.risk_aversion * unit)
    return risk  # CVaR has no unit


def finite_row(problem: str, algorithm: str, seed: int) -> Row:
    """DQN or PPO through the plug, from the beginning or after half of the steps without risk."""
    known, start = FINITE[problem], time.process_time()
    (mdp, horizon), risk = known.make(), mvpi.OfReturn(parse_risk(known.risk))
    env = Played(mdp, horizon)
    cls, unit = {"DQN": DQN, "PPO": PPO}[algorithm], known.unit

    def played() -> gym.Env[Any, Any]:
        return gym.wrappers.TransformReward(Played(mdp, horizon), lambda reward: reward / unit)

    learned = mvpi.OfReturn(in_units(risk.risk, unit))
    model = risk_averse(
        cls,
        "MlpPolicy",
        make_vec_env(played, ENVS, seed=seed),
        risk=mvpi.OfReturn(0.0) if known.neutral_first else learned,
        return_scale=RETURN_SCALE / unit,
        seed=seed,
        **SETTINGS[algorithm],
    )
    steps = known.steps[algorithm]
    if known.neutral_first:
        model.learn(steps // 2)
        attach(model, risk=learned)
        model.learn(steps // 2, reset_num_timesteps=False)
    else:
        model.learn(steps)
    seconds = time.process_time() - start
    columns = ReturnSoFar(env, RETURN_SCALE).columns

    def choose(observation: np.ndarray, earned: float) -> Any:
        seen = columns.extend(observation, columns.encode(np.array([earned])))
        return model.predict(seen, deterministic=True)[0]

    exact = mvpi.optimize(mdp, risk, horizon=horizon).value
    value = value_of(env.law(choose), risk)
    return row(problem, known.risk, algorithm, seed, steps, value, exact, seconds)


def portfolio_row(seed: int) -> Row:
    """TD3, mean-variance at risk aversion 1."""
    start, risk = time.process_time(), mvpi.OfReturn(1.0)
    agent = mvpi.TD3(Portfolio, risk, seed, **SETTINGS["TD3"]).learn(PORTFOLIO_STEPS)
    seconds = time.process_time() - start
    law = Portfolio().law(lambda seen, earned: agent.predict(seen, return_so_far=earned))
    exact = Portfolio().exact(1.0)
    value = value_of(law, risk)
    return row("portfolio", "1", "TD3", seed, PORTFOLIO_STEPS, value, exact, seconds)


def row(
    problem: str,
    risk: str,
    algorithm: str,
    seed: int,
    steps: int,
    value: float,
    exact: float,
    seconds: float,
) -> Row:
    found = (round(value, 5), round(exact, 5), round(value / exact, 4), round(seconds, 1))
    return Row(problem, risk, algorithm, seed, steps, *found)


def table(rows: list[Row]) -> Table:
    shown = Table(title="Share of the exact value of the return")
    for column in ("problem", "risk", "algorithm", "exact", "seeds", "shares", "seconds"):
        shown.add_column(column, justify="right" if column in ("exact", "seeds") else "left")
    for key in dict.fromkeys((row.problem, row.risk, row.algorithm) for row in rows):
        mine = [row for row in rows if (row.problem, row.risk, row.algorithm) == key]
        shares = ", ".join(f"{row.share:.1%}" for row in mine)
        numbers = f"{mine[0].exact:.4f}", str(len(mine)), shares
        shown.add_row(*key, *numbers, f"{max(row.seconds for row in mine):.0f}")
    return shown


def main(config: Config) -> None:
    done = {(row.problem, row.algorithm, row.seed) for row in read_rows(config.out, Row)}
    for problem, seed in product(config.problems, range(config.seeds)):
        for algorithm in ("TD3",) if problem == "portfolio" else ("DQN", "PPO"):
            if algorithm not in config.algorithms or (problem, algorithm, seed) in done:
                continue
            found = (
                portfolio_row(seed)
                if problem == "portfolio"
                else finite_row(problem, algorithm, seed)
            )
            append_rows(config.out, [found])
    Console().print(table(read_rows(config.out, Row)))


if __name__ == "__main__":
    main(tyro.cli(Config))
