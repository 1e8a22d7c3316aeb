"""`mvpi.sb3.risk_averse`: what it costs, and what every algorithm reaches with it.

    python benchmarks/plug.py                       cost
    python benchmarks/plug.py --parts portfolio     every algorithm on a Markowitz portfolio

    cost        time of training with the plug over that of the plain class, at risk 0: both then
                behave alike, while all that the plug does is done; `y` is measured on a full
                window, as in a long training. One model trains on, bound to one core, in short
                turns with the plug and without it. Two models, one of them plain, would differ by
                up to 5% even if both were plain, by where in memory they are
    processor   written beside it: the same ratio of processor times, which other work on the
                machine changes less
    portfolio   the exact objective, mean - 2 variance, of the final policy at risk 0 and at risk 2;
                DQN and QR-DQN choose among 25 portfolios

Rows go to a CSV file as they are measured; those that are there already are not measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows
from training import chosen, in_process

from mvpi.envs import Markowitz, Task
from mvpi.sb3 import augmenter_of, risk_averse

Part = Literal["cost", "portfolio"]
Library = Literal["stable_baselines3", "sb3_contrib", "sbx"]

LAM = 2.0
BOUND = 0.5
BINS = 5
REPLAY = {
    "learning_rate": 3e-4,
    "learning_starts": 1_000,
    "batch_size": 256,
    "buffer_size": 30_000,
    "gamma": 0.0,
    "train_freq": 10,
    "policy_kwargs": {"net_arch": [64]},
}
ROLLOUT = {
    "learning_rate": 1e-3,
    "n_steps": 500,
    "gamma": 0.0,
    "gae_lambda": 1.0,
    "policy_kwargs": {"net_arch": [64], "log_std_init": -1.5},
}
NO_ENTROPY = {"ent_coef": 1e-4}
FASTER = {"learning_rate": 1e-3}
EXPLORE = {"exploration_fraction": 0.5, "target_update_interval": 500}
QUANTILES = {"policy_kwargs": {"net_arch": [64], "n_quantiles": 25}}  # its 200 take minutes
EPOCHS = {"batch_size": 100}
LSTM = {**EPOCHS, "policy_kwargs": {"net_arch": [64], "lstm_hidden_size": 16, "log_std_init": -1.5}}


@dataclass(frozen=True)
class Contestant:
    """One algorithm with its settings for the portfolio, beside those its kind shares."""

    library: Library
    name: str
    settings: dict[str, Any]
    discrete: bool = False
    policy: str = "MlpPolicy"
    box: float = 0.0
    """Half the width of the box of actions that it is shown, if not that of the problem."""

    def __str__(self) -> str:
        return f"{self.library}.{self.name}"

    @property
    def cls(self) -> Any:
        return getattr(import_module(self.library), self.name)


NOISE = {"action_noise": 0.1}
CONTESTANTS = (
    Contestant("stable_baselines3", "DDPG", REPLAY | NOISE),
    Contestant("stable_baselines3", "TD3", REPLAY | NOISE),
    Contestant("stable_baselines3", "SAC", REPLAY | NO_ENTROPY),
    Contestant("stable_baselines3", "DQN", REPLAY | EXPLORE, discrete=True),
    Contestant("sb3_contrib", "TQC", REPLAY | NO_ENTROPY),
    Contestant("sb3_contrib", "QRDQN", REPLAY | EXPLORE | QUANTILES, discrete=True),
    Contestant("sb3_contrib", "CrossQ", REPLAY | NO_ENTROPY | FASTER),
    Contestant("sbx", "DDPG", REPLAY | NOISE),
    Contestant("sbx", "TD3", REPLAY | NOISE),
    Contestant("sbx", "SAC", REPLAY | NO_ENTROPY),
    Contestant("sbx", "DQN", REPLAY | EXPLORE, discrete=True),
    Contestant("sbx", "TQC", REPLAY | NO_ENTROPY),
    Contestant("sbx", "CrossQ", REPLAY | NO_ENTROPY | FASTER),
    Contestant("stable_baselines3", "PPO", ROLLOUT | EPOCHS),
    Contestant("stable_baselines3", "A2C", ROLLOUT | {"n_steps": 100, "learning_rate": 2e-3}),
    Contestant("sb3_contrib", "TRPO", ROLLOUT | EPOCHS),
    Contestant("sb3_contrib", "RecurrentPPO", ROLLOUT | LSTM, policy="MlpLstmPolicy"),
    Contestant("sb3_contrib", "MaskablePPO", ROLLOUT | EPOCHS | {"policy_kwargs": None}, True),
    # Its initial policy is so wide that in a narrow box nearly all actions would be clipped.
    Contestant("sbx", "PPO", ROLLOUT | EPOCHS, box=4.0),
)
COSTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "stable_baselines3.TD3": ("Hopper-v4", {"learning_starts": 100}, 40),
    "stable_baselines3.SAC": ("Hopper-v4", {"learning_starts": 100}, 40),
    "sbx.SAC": ("Hopper-v4", {"learning_starts": 100}, 100),
    "stable_baselines3.DQN": ("CartPole-v1", {"learning_starts": 100}, 400),
    "stable_baselines3.PPO": ("Hopper-v4", {}, 2_048),
    "stable_baselines3.A2C": ("Hopper-v4", {}, 400),
}
"""Defaults otherwise; the number is the steps of a turn."""
HOOKS = ("collect_rollouts", "train")
"""What the plug puts into a model, beside the class of its buffer."""


@dataclass(frozen=True)
class Row:
    """One measurement: a ratio of times, or the objective of a final policy."""

    part: str
    name: str
    risk: float
    seed: int
    value: float
    seconds: float


@dataclass(frozen=True)
class Config:
    """Measures the cost of the plug, or what algorithms reach with it."""

    parts: tuple[Part, ...] = ("cost",)
    names: tuple[str, ...] = ()
    """Algorithms, such as sbx.SAC; all if left out."""
    out: Path = Path("out/plug.csv")
    """Where rows are written, and read from to continue."""
    rounds: int = 3
    """Repetitions of a measurement of cost."""
    turns: int = 60
    """Turns with the plug, and without it, in one of them."""
    seeds: int = 2
    steps: int = 20_000
    """Steps of training on the portfolio."""


def cost(name: str, turns: int) -> tuple[float, float]:
    """The time of training with the plug over that without it: the median over pairs of turns.

    By the clock, and by the processor time of this process.
    """
    task, settings, steps = COSTS[name]
    library, algorithm = name.rsplit(".", 1)
    cls = getattr(import_module(library), algorithm)
    model = risk_averse(cls, "MlpPolicy", Task(task)(), risk=0.0, seed=0, device="cpu", **settings)
    augmenter_of(model).observe(np.zeros(augmenter_of(model).window))
    model.learn(max(500, steps))
    switches = pulled_out(model), put_in(model)
    ratios = []
    for turn in range(turns):
        seconds = np.zeros((2, 2))
        for i in (0, 1) if turn % 2 else (1, 0):
            switches[i]()
            start = np.array([time.perf_counter(), time.process_time()])
            model.learn(steps, reset_num_timesteps=False)
            seconds[i] = [time.perf_counter(), time.process_time()] - start
        ratios.append(seconds[1] / seconds[0])
    by_clock, by_processor = np.median(ratios, axis=0)
    return float(by_clock), float(by_processor)


def pulled_out(model: Any) -> Callable[[], None]:
    """A function that makes a plain model of one with the plug."""
    own_class = type(buffer_of(model)).__bases__[0]

    def pull_out() -> None:
        for name in HOOKS:
            vars(model).pop(name, None)
        buffer_of(model).__class__ = own_class

    return pull_out


def put_in(model: Any) -> Callable[[], None]:
    """A function that makes it one with the plug again."""
    hooks = {name: vars(model)[name] for name in HOOKS}
    plugged = type(buffer_of(model))

    def put() -> None:
        vars(model).update(hooks)
        buffer_of(model).__class__ = plugged

    return put


def buffer_of(model: Any) -> Any:
    return getattr(model, "replay_buffer", None) or model.rollout_buffer


def portfolio(contestant: Contestant, risk: float, seed: int, steps: int) -> float:
    """The exact objective of the policy that was learned."""
    from stable_baselines3.common.noise import NormalActionNoise

    env: Any = Markowitz(bound=BOUND)
    problem = env
    if contestant.discrete:
        env = gym.wrappers.DiscretizeAction(env, bins=BINS)
    if contestant.box:
        env = gym.wrappers.RescaleAction(env, -contestant.box, contestant.box)
    settings = dict(contestant.settings)
    if settings.get("policy_kwargs") is not None:
        settings["policy_kwargs"] = dict(settings["policy_kwargs"])
    if "action_noise" in settings:
        std = np.full(2, settings["action_noise"])
        settings["action_noise"] = NormalActionNoise(np.zeros(2), std)
    if contestant.name == "MaskablePPO":
        from sb3_contrib.common.wrappers import ActionMasker

        env = ActionMasker(env, lambda _: np.ones(BINS**2, bool))
    model = risk_averse(
        contestant.cls, contestant.policy, env, risk=risk, seed=seed, device="cpu", **settings
    )
    model.learn(steps)
    action, _ = model.predict(np.ones(1), deterministic=True)
    if contestant.discrete:
        action = env.get_wrapper_attr("action")(int(action))
    if contestant.box:
        action = env.action(action)
    return problem.value(action, LAM)


def best_value(discrete: bool) -> float:
    problem = Markowitz(bound=BOUND)
    if not discrete:
        return problem.value(problem.best_action(LAM), LAM)
    env = gym.wrappers.DiscretizeAction(problem, bins=BINS)
    return max(problem.value(env.action(i), LAM) for i in range(BINS**2))


def measure(part: str, name: str, risk: float, seed: int, config: Config) -> list[Row]:
    start = time.perf_counter()
    if part == "cost":
        both = in_process(chosen("one"), partial(cost, name, config.turns))
        values = dict(zip(("cost", "processor"), both, strict=True))
    else:
        contestant = next(c for c in CONTESTANTS if str(c) == name)
        job = partial(portfolio, contestant, risk, seed, config.steps)
        values = {part: in_process(chosen("one"), job)}
    seconds = round(time.perf_counter() - start, 1)
    return [Row(p, name, risk, seed, value, seconds) for p, value in values.items()]


def missing(config: Config) -> list[tuple[str, str, float, int]]:
    """What is asked for and not in the file yet: part, name, risk, and seed or round."""
    done = {(row.part, row.name, row.risk, row.seed) for row in read_rows(config.out, Row)}
    wanted: list[tuple[str, str, float, int]] = []
    if "cost" in config.parts:
        names = [name for name in COSTS if name in (config.names or COSTS)]
        wanted += [("cost", name, 0.0, i) for i, name in product(range(config.rounds), names)]
    if "portfolio" in config.parts:
        there = [str(c) for c in CONTESTANTS if str(c) in config.names or not config.names]
        keys = product(there, (0.0, LAM), range(config.seeds))
        wanted += [("portfolio", *key) for key in keys]
    return [key for key in wanted if key not in done]


def cost_table(rows: list[Row]) -> Table:
    table = Table(title="Time with the plug / without it: median of turns, median of the rounds")
    for column in ("", "median", "all rounds"):
        table.add_column(column, justify="right" if column == "median" else "left")
    for part, name in product(("cost", "processor"), COSTS):
        there = [row.value for row in rows if (row.part, row.name) == (part, name)]
        if there:
            every = " ".join(f"{value:.3f}" for value in there)
            table.add_row(f"{part} {name}", f"{np.median(there):.3f}", every)
    return table


def portfolio_table(rows: list[Row]) -> Table:
    table = Table(title=f"Exact mean - {LAM:g} variance of the final policy, worst seed first")
    for column in ("", "risk 0", f"risk {LAM:g}", "of the best possible"):
        table.add_column(column, justify="right" if column else "left")
    for contestant in CONTESTANTS:
        best = best_value(contestant.discrete)
        cells = []
        for risk in (0.0, LAM):
            key = ("portfolio", str(contestant), risk)
            values = sorted(r.value for r in rows if (r.part, r.name, r.risk) == key)
            cells.append(" ".join(f"{value:.4f}" for value in values))
        shares = " ".join(f"{value / best:.1%}" for value in values)
        table.add_row(str(contestant), *cells, shares)
    return table


def main(config: Config) -> None:
    for key in missing(config):
        append_rows(config.out, measure(*key, config))
    rows, console = read_rows(config.out, Row), Console()
    if "cost" in config.parts:
        console.print(cost_table(rows))
    if "portfolio" in config.parts:
        console.print(portfolio_table(rows))


if __name__ == "__main__":
    main(tyro.cli(Config))
