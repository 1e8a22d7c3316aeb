"""PPO against stable-baselines3 and SBX, and the baselines against bare stepping.

    python benchmarks/on_policy.py                    speed on one core
    python benchmarks/on_policy.py --parts curves     Hopper-v4 at risk 0, ours against SB3

    speed    environment steps per second of PPO on Hopper-v4, the same settings everywhere
    actors   MVP, Tamar and Prashanth with 16 actors, against 16 environments stepped at random
    curves   returns while learning, of evaluations that sample actions

Speed is measured inside one process per contestant, bound to one core, over whole iterations
after a warm-up; contestants take turns and the best of the rounds counts. The peers get
observations normalised by `VecNormalize`, as ours are. Rows go to a CSV file as they are measured;
those that are there already are not measured again.
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

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows
from training import chosen, in_process

from mvpi.envs import Task

Part = Literal["speed", "actors", "curves"]

TASK = "Hopper-v4"
N_STEPS = 2_048
SHARED: dict[str, Any] = {
    "learning_rate": 3e-4,
    "n_steps": N_STEPS,
    "batch_size": 64,
    "n_epochs": 10,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.0,
    "max_grad_norm": 0.5,
}
"""Settings that have the same name in all libraries."""
PPOS = ("mvpi", "stable_baselines3", "sbx")
ACTORS = ("MVP", "Tamar", "Prashanth", "random actions")


@dataclass(frozen=True)
class Row:
    """One measurement: of speed in steps per second, of a curve a mean return."""

    part: str
    name: str
    seed: int
    steps: int
    value: float


@dataclass(frozen=True)
class Config:
    """Times PPO and the baselines, or lets PPO learn beside stable-baselines3."""

    parts: tuple[Part, ...] = ("speed", "actors")
    out: Path = Path("out/on_policy.csv")
    """Where rows are written, and read from to continue."""
    rounds: int = 3
    """Repetitions of a measurement of speed."""
    iterations: int = 8
    """Rollouts timed, after two that are not."""
    curve_steps: int = 200_000
    curve_every: int = 20_000
    """Steps between evaluations."""
    curve_episodes: int = 20
    seeds: int = 3


def our_ppo(seed: int, **more: Any) -> Any:
    import mvpi

    settings = {**SHARED, "critic_learning_rate": 3e-4, "target_kl": None, **more}
    return mvpi.PPO(TASK, seed=seed, **settings)


def peer_ppo(library: str, seed: int) -> tuple[Any, Any]:
    """A model and its vector environment with normalised observations."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    envs = VecNormalize(DummyVecEnv([Task(TASK)]), norm_reward=False)
    envs.seed(seed)
    model = import_module(library).PPO("MlpPolicy", envs, seed=seed, device="cpu", **SHARED)
    return model, envs


def ppo_speed(name: str, iterations: int) -> float:
    """Steps per second of whole iterations."""
    warm_up = 2 * N_STEPS
    if name == "mvpi":
        learner = our_ppo(0)._new_learner()
        learner.advance(warm_up, lambda: False)
        return rate(lambda: learner.advance(learner.steps + N_STEPS, lambda: False), iterations)
    model, _ = peer_ppo(name, 0)
    model.learn(warm_up)
    whole = partial(model.learn, N_STEPS * iterations, reset_num_timesteps=False)
    start = time.perf_counter()
    whole()
    return iterations * N_STEPS / (time.perf_counter() - start)


def actor_speed(name: str, iterations: int) -> float:
    """Steps per second with 16 environments."""
    import mvpi

    if name == "random actions":
        envs = [Task(TASK)() for _ in range(16)]
        for i, env in enumerate(envs):
            env.reset(seed=i)
            env.action_space.seed(i)
        return rate(lambda: step_at_random(envs), iterations)
    learner = getattr(mvpi, name)(TASK, risk=1.0)._new_learner()
    learner.advance(4 * N_STEPS, lambda: False)
    return rate(lambda: learner.advance(learner.steps + N_STEPS, lambda: False), iterations)


def step_at_random(envs: list[Any]) -> None:
    for _ in range(N_STEPS // len(envs)):
        for env in envs:
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()


def rate(iteration: Callable[[], Any], iterations: int) -> float:
    start = time.perf_counter()
    for _ in range(iterations):
        iteration()
    return iterations * N_STEPS / (time.perf_counter() - start)


def curve(name: str, seed: int, config: Config) -> list[float]:
    """Mean returns at every evaluation."""
    every, episodes = config.curve_every, config.curve_episodes
    if name == "mvpi":
        agent = our_ppo(seed, evaluation_every=every, evaluation_episodes=episodes)
        means: list[float] = []
        agent.learn(config.curve_steps, on_row=lambda row: means.append(row["return_mean"]))
        return means
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    model, envs = peer_ppo(name, seed)
    watched = VecNormalize(DummyVecEnv([Task(TASK)]), norm_reward=False, training=False)
    watched.seed(10_000 + seed)
    means = []
    for _ in range(every, config.curve_steps + 1, every):
        # An iteration of a peer is a whole rollout: the nearest number of them.
        wanted = every * (len(means) + 1) - model.num_timesteps
        model.learn(max(1, round(wanted / N_STEPS)) * N_STEPS, reset_num_timesteps=False)
        watched.obs_rms = envs.obs_rms
        mean, _ = evaluate_policy(
            model, watched, n_eval_episodes=episodes, deterministic=False, warn=False
        )
        means.append(float(mean))
    return means


def missing(config: Config) -> list[tuple[str, str, int]]:
    """What is asked for and not in the file yet: part, name and round or seed."""
    done = {(row.part, row.name, row.seed) for row in read_rows(config.out, Row)}
    wanted: list[tuple[str, str, int]] = []
    for part in config.parts:
        names = {"speed": PPOS, "actors": ACTORS, "curves": PPOS[:2]}[part]
        repeats = config.seeds if part == "curves" else config.rounds
        wanted += [(part, name, i) for i, name in product(range(repeats), names)]
    return [key for key in wanted if key not in done]


def measure(part: str, name: str, seed: int, config: Config) -> list[Row]:
    if part == "curves":
        means = in_process(chosen("one"), partial(curve, name, seed, config))
        steps = range(config.curve_every, config.curve_steps + 1, config.curve_every)
        return [Row(part, name, seed, n, mean) for n, mean in zip(steps, means, strict=True)]
    job = ppo_speed if part == "speed" else actor_speed
    value = in_process(chosen("one"), partial(job, name, config.iterations))
    return [Row(part, name, seed, config.iterations * N_STEPS, value)]


def speed_table(rows: list[Row], part: str, reference: str, title: str) -> Table:
    table = Table(title=title)
    for column in ("", "steps/s", "ratio"):
        table.add_column(column, justify="right" if column else "left")
    best: dict[str, float] = {}
    for row in rows:
        if row.part == part:
            best[row.name] = max(best.get(row.name, 0.0), row.value)
    for name, value in best.items():
        ratio = best.get(reference, np.nan) / value if part == "speed" else value / best[reference]
        table.add_row(name, f"{value:,.0f}", f"{ratio:.2f}")
    return table


def curve_table(rows: list[Row]) -> Table:
    table = Table(title=f"Mean returns on {TASK}, mean and standard error over seeds")
    table.add_column("steps", justify="right")
    names = list(dict.fromkeys(row.name for row in rows if row.part == "curves"))
    for name in names:
        table.add_column(name, justify="right")
    for steps in dict.fromkeys(row.steps for row in rows if row.part == "curves"):
        cells = []
        for name in names:
            there = [r.value for r in rows if (r.part, r.name, r.steps) == ("curves", name, steps)]
            error = np.std(there, ddof=1) / np.sqrt(len(there)) if len(there) > 1 else np.nan
            cells.append(f"{np.mean(there):,.0f} +- {error:,.0f}")
        table.add_row(f"{steps:,}", *cells)
    return table


def main(config: Config) -> None:
    for part, name, seed in missing(config):
        append_rows(config.out, measure(part, name, seed, config))
    rows, console = read_rows(config.out, Row), Console()
    if "speed" in config.parts:
        console.print(speed_table(rows, "speed", "mvpi", "PPO on one core: ours / it"))
    if "actors" in config.parts:
        title = "16 actors on one core: its speed / that of random actions"
        console.print(speed_table(rows, "actors", "random actions", title))
    if "curves" in config.parts:
        console.print(curve_table(rows))


if __name__ == "__main__":
    main(tyro.cli(Config))
