"""`mvpi.rllib.risk_averse`: what it costs, and what SAC and PPO reach with it.

    python benchmarks/rllib.py                        cost
    python benchmarks/rllib.py --parts connector
    python benchmarks/rllib.py --parts portfolio      SAC and PPO on a Markowitz portfolio

    cost        time of training steps with the plug over that of the plain algorithm, at risk 0 and
                with two env runners: both then behave alike, while all that the plug does is done.
                They take turns, both with their actors alive all the time
                IMPALA learns beside its sampling, so there it is the steps per second of the plain
                algorithm over those with the plug, in turns of 6 seconds
    processor   written beside it, not of IMPALA: the same ratio of the processor time of the
                driver's thread, which samples, draws and learns; other work on the machine changes
                it less
    connector   processor time of augmenting 256 transitions that a buffer of RLlib drew, in ms
    portfolio   the exact objective, mean - 2 variance, of the final policy at risk 0 and at risk 2

Rows go to a CSV file as they are measured; those that are there already are not measured again.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import ray
import torch
import tyro
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer
from ray.tune.registry import register_env
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows

from mvpi import MeanVariance
from mvpi.envs import Markowitz
from mvpi.rllib import risk_averse
from mvpi.rllib._connector import AugmentRewards

Part = Literal["cost", "connector", "portfolio"]
COST, PROCESSOR = "cost", "processor"
LAM = 2.0
BOUND = 0.5
NET = {"fcnet_hiddens": [64], "fcnet_activation": "relu"}


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
    """Algorithms; all if left out."""
    out: Path = Path("out/rllib.csv")
    """Where rows are written, and read from to continue."""
    rounds: int = 3
    """Repetitions of a measurement of cost."""
    turns: int = 20
    """Turns of each algorithm in one of them."""
    steps: int = 20
    """Training steps of a turn; one for PPO, whose steps are long."""
    seeds: int = 2
    risks: tuple[float, ...] = (0.0, LAM)


def markowitz(config: dict[str, Any]) -> gym.Env[Any, Any]:
    """Observations of 32 bits, which is what RLlib's networks are made of."""
    space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    return gym.wrappers.TransformObservation(Markowitz(**config), np.float32, space)


register_env("markowitz", markowitz)

COSTS: dict[str, Any] = {
    "PPO": PPOConfig().environment("CartPole-v1").training(train_batch_size=2_000),
    "IMPALA": IMPALAConfig().environment("CartPole-v1"),
    "DQN": DQNConfig().environment("CartPole-v1"),
    "SAC": SACConfig().environment("Pendulum-v1"),
}
"""RLlib's defaults otherwise."""


def cost(name: str, turns: int, steps: int) -> tuple[float, float]:
    """The time of the plugged algorithm over that of the plain one: median over pairs of turns.

    By the clock, and by the processor time of this thread.
    """
    plain = COSTS[name].copy(copy_frozen=False).debugging(seed=0)
    plain.env_runners(num_env_runners=2)
    if name in {"DQN", "SAC"}:
        plain.training(num_steps_sampled_before_learning_starts=200)
    algorithms = [plain.build_algo(), risk_averse(plain, risk=0.0).build_algo()]
    steps = 1 if name == "PPO" else steps
    for algorithm in algorithms:
        for _ in range(130 if name in {"DQN", "SAC"} else steps):
            algorithm.training_step()
    ratios = []
    for turn in range(turns):
        seconds = np.zeros((2, 2))
        for i in (0, 1) if turn % 2 else (1, 0):
            start = np.array([time.perf_counter(), time.thread_time()])
            for _ in range(steps):
                algorithms[i].training_step()
            seconds[i] = [time.perf_counter(), time.thread_time()] - start
        ratios.append(seconds[1] / seconds[0])
    for algorithm in algorithms:
        algorithm.stop()
    by_clock, by_processor = np.median(ratios, axis=0)
    return float(by_clock), float(by_processor)


def throughput(name: str, turns: int) -> float:
    """Steps per second of the plain algorithm over those of the plugged one, median over turns."""
    plain = COSTS[name].copy(copy_frozen=False).debugging(seed=0)
    plain.env_runners(num_env_runners=2).reporting(min_time_s_per_iteration=6)
    algorithms = [plain.build_algo(), risk_averse(plain, risk=0.0).build_algo()]
    rates, sampled = np.zeros((turns + 1, 2)), [0, 0]
    for turn in range(turns + 1):  # the first one is for getting under way
        for i in (0, 1) if turn % 2 else (1, 0):
            start = time.perf_counter()
            total = algorithms[i].train()["num_env_steps_sampled_lifetime"]
            rates[turn, i] = (total - sampled[i]) / (time.perf_counter() - start)
            sampled[i] = total
    for algorithm in algorithms:
        algorithm.stop()
    return float(np.median(rates[1:, 0] / rates[1:, 1]))


def connector(*, drawn_anew: bool) -> float:
    """Milliseconds for a batch of SAC, the least of several rounds; without or with copies."""
    buffer = EpisodeReplayBuffer(capacity=10_000)
    rng = np.random.default_rng(0)
    for _ in range(20):
        shown, done = rng.normal(size=(101, 3)), rng.normal(size=(100, 1))
        episode = SingleAgentEpisode(
            observations=list(shown.astype(np.float32)),
            actions=list(done.astype(np.float32)),
            rewards=rng.normal(size=100).tolist(),
            terminated=True,
            len_lookback_buffer=0,
        )
        buffer.add(episode.to_numpy())
    ours = AugmentRewards()
    ours.use(MeanVariance(1.0), 0.3, drawn_anew=drawn_anew)
    seconds = []
    for _ in range(100):
        drawn = buffer.sample(256, n_step=1, gamma=0.99, sample_episodes=True)
        start = time.thread_time()
        ours(rl_module=None, batch={}, episodes=drawn, shared_data={})
        seconds.append(time.thread_time() - start)
    return 1e3 * min(seconds)


def portfolio(name: str, risk: float, seed: int) -> float:
    """The exact objective of the policy that was learned."""
    config: Any
    if name == "SAC":
        config = SACConfig().training(
            gamma=0.0,
            actor_lr=1e-3,
            critic_lr=1e-3,
            alpha_lr=1e-3,
            initial_alpha=1e-3,
            target_entropy=-10.0,
            train_batch_size_per_learner=256,
            num_steps_sampled_before_learning_starts=1_000,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 30_000},
            training_intensity=None,
        )
        config.env_runners(rollout_fragment_length=10)
        steps = 20_000
    else:
        config = PPOConfig().training(
            gamma=0.0,
            lambda_=1.0,
            lr=1e-3,
            train_batch_size=1_000,
            minibatch_size=250,
            num_epochs=10,
            entropy_coeff=0.0,
            use_kl_loss=False,
        )
        steps = 40_000
    config.environment("markowitz", env_config={"bound": BOUND}).debugging(seed=seed)
    config.env_runners(num_env_runners=0).rl_module(model_config=NET)
    algorithm = risk_averse(config, risk=risk).build_algo()
    while sampled(algorithm) < steps:
        algorithm.training_step()
    action = predicted(algorithm.get_module())
    algorithm.stop()
    return Markowitz(bound=BOUND).value(BOUND * np.clip(action, -1.0, 1.0), LAM)


def sampled(algorithm: Any) -> int:
    """Steps so far."""
    key = ("env_runners", "num_env_steps_sampled_lifetime")
    return int(algorithm.metrics.peek(key, default=0))


def predicted(module: Any) -> Any:
    """The deterministic action of the policy, in the box [-1, 1] that RLlib shows it."""
    with torch.no_grad():
        out = module.forward_inference({"obs": torch.ones(1, 1)})
    distribution = module.get_inference_action_dist_cls().from_logits(out["action_dist_inputs"])
    return distribution.to_deterministic().sample().numpy()[0]


def measure(part: str, name: str, risk: float, seed: int, config: Config) -> list[Row]:
    start = time.perf_counter()
    if part == "connector":
        values = {part: connector(drawn_anew=name == "drawn anew")}
    elif part == COST and name == "IMPALA":
        values = {COST: throughput(name, config.turns)}
    elif part == COST:
        values = dict(zip((COST, PROCESSOR), cost(name, config.turns, config.steps), strict=True))
    else:
        values = {part: portfolio(name, risk, seed)}
    seconds = round(time.perf_counter() - start, 1)
    return [Row(p, name, risk, seed, round(v, 6), seconds) for p, v in values.items()]


def missing(config: Config) -> list[tuple[str, str, float, int]]:
    """What is asked for and not in the file yet: part, name, risk, and seed or round."""
    done = {(row.part, row.name, row.risk, row.seed) for row in read_rows(config.out, Row)}
    wanted: list[tuple[str, str, float, int]] = []
    if "cost" in config.parts:
        names = config.names or COSTS
        wanted += [("cost", name, 0.0, i) for i, name in product(range(config.rounds), names)]
    if "connector" in config.parts:
        wanted += [("connector", name, 1.0, 0) for name in ("copies", "drawn anew")]
    if "portfolio" in config.parts:
        keys = product(config.names or ("PPO", "SAC"), config.risks, range(config.seeds))
        wanted += [("portfolio", *key) for key in keys]
    return [key for key in wanted if key not in done]


def show(rows: list[Row], console: Console) -> None:
    best = Markowitz(bound=BOUND)
    optimum = best.value(best.best_action(LAM), LAM)
    table = Table("", "", "risk", "values", "of the best possible")
    for key in dict.fromkeys((row.part, row.name, row.risk) for row in rows):
        values = [row.value for row in rows if (row.part, row.name, row.risk) == key]
        shares = " ".join(f"{v / optimum:.1%}" for v in values) if key[0] == "portfolio" else ""
        table.add_row(key[0], key[1], f"{key[2]:g}", " ".join(f"{v:.4f}" for v in values), shares)
    console.print(table)


def main(config: Config) -> None:
    warnings.simplefilter("ignore")
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    for key in missing(config):
        append_rows(config.out, measure(*key, config))
    show(read_rows(config.out, Row), Console())


if __name__ == "__main__":
    main(tyro.cli(Config))
