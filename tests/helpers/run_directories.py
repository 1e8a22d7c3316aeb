"""Run directories written by hand, as `mvpi train` and an evaluation would leave them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi.agents.registry import SETTINGS
from mvpi.experiments.outcome import QUANTILES, Outcome
from mvpi.experiments.range_outcome import RangeOutcome

AGENTS = (
    ("td3", "0.0"),
    ("td3", "1.0"),
    ("ppo", "0.0"),
    ("ppo", "1.0"),
    ("mvp", "1.0"),
    ("tamar", "1.0"),
)
TASKS = (
    ("InvertedPendulum-v4", 1000.0, 1.0),
    ("InvertedDoublePendulum-v4", 9300.0, 9.3),
    ("HalfCheetah-v4", 4700.0, 4.7),
    ("Walker2d-v4", 3400.0, 3.6),
    ("Swimmer-v4", 110.0, 0.11),
    ("Hopper-v4", 2900.0, 3.2),
    ("Reacher-v4", -7.5, -0.15),
    ("Ant-v4", 2700.0, 2.8),
)
"""Id, the return of a good agent, and its reward of a step."""


def write_run(
    directory: Path,
    algorithm: str = "td3",
    risk: str = "0.0",
    seed: int = 0,
    *,
    environment: str = "Hopper-v4",
    action_noise: float = 0.1,
    steps: int = 1_000_000,
    returns: Sequence[float] | None = (1.0, 3.0),
    rewards: npt.ArrayLike = (0.0, 1.0),
    curve: Sequence[tuple[int, float]] = ((500_000, 1.0), (1_000_000, 2.0)),
    in_zone: float | None = None,
    **settings: Any,
) -> Path:
    """One run; without `returns` it was not evaluated."""
    directory.mkdir(parents=True)
    config = {
        "format": 1,
        "mvpi": "0.1.0",
        "algorithm": algorithm,
        "environment": {"id": environment, "action_noise": action_noise},
        "risk": risk,
        "seed": seed,
        "settings": asdict(SETTINGS[algorithm](**settings)),
    }
    (directory / "config.json").write_text(json.dumps(config))
    rows = "".join(f"{at},{at // 100},{value},1.5\n" for at, value in curve)
    header = "steps,episodes,return_mean,return_variance\n"
    (directory / "metrics.csv").write_text(header + rows)
    if returns is not None:
        r = np.asarray(rewards, dtype=float)
        quantiles = np.quantile(r, np.linspace(0, 1, QUANTILES)).tolist()
        found = (float(r.mean()), float(r.var()), tuple(quantiles))
        Outcome(steps, tuple(map(float, returns)), *found, in_zone).write(directory)
    return directory


def write_range_run(
    directory: Path,
    risk: str = "range:0.0:2.0",
    seed: int = 0,
    *,
    lams: Sequence[float] = (0.0, 0.5, 1.0, 1.5, 2.0),
    means: Sequence[float] = (100.0, 98.0, 90.0, 60.0, 20.0),
    deviations: Sequence[float] = (20.0, 12.0, 6.0, 4.0, 3.0),
    **more: Any,
) -> Path:
    """A run trained with a range, with so much mean and deviation of the return along it."""
    write_run(directory, "td3", risk, seed, returns=None, **more)
    rng = np.random.default_rng(seed)
    outcomes = []
    for mean, deviation in zip(means, deviations, strict=True):
        noise = rng.normal(size=40)
        returns = mean + deviation * (noise - noise.mean()) / noise.std()
        rewards = returns / 100.0
        quantiles = np.quantile(rewards, np.linspace(0, 1, QUANTILES)).tolist()
        moments = (float(rewards.mean()), float(rewards.var()), tuple(quantiles))
        outcomes.append(Outcome(1_000_000, tuple(returns.tolist()), *moments))
    RangeOutcome(tuple(lams), tuple(outcomes)).write(directory)
    return directory


def write_study(
    root: Path,
    tasks: Sequence[tuple[str, float, float]] = TASKS,
    agents: Sequence[tuple[str, str]] = AGENTS,
    seeds: int = 3,
) -> Path:
    """Many runs with numbers as they look like: averse agents are steadier and earn less."""
    for t, (task, good, reward) in enumerate(tasks):
        for a, (algorithm, risk) in enumerate(agents):
            for seed in range(seeds):
                rng = np.random.default_rng([t, a, seed])
                averse = risk != "0.0"
                skill = {"td3": 1.0, "ppo": 0.8}.get(algorithm, 0.3) - 0.1 * averse
                mean = good * (skill if good > 0 else 2 - skill) + 0.05 * abs(good) * rng.normal()
                spread = abs(good) * (0.06 if averse else 0.2) * rng.uniform(0.7, 1.3)
                returns = mean + spread * rng.normal(size=100)
                failed = rng.random(100) < (0.02 if averse else 0.12)
                returns -= failed * rng.uniform(0.3, 0.7, 100) * abs(good)
                at = np.arange(1, 101) * 10_000
                rise = 1 - np.exp(-at / rng.uniform(1.5e5, 3e5))
                noise = 0.05 * abs(good) * rng.normal(size=100)
                curve = (mean - abs(good)) + abs(good) * rise + noise
                write_run(
                    root / f"{algorithm}-{task}-risk-{risk}-seed-{seed}",
                    algorithm,
                    risk,
                    seed,
                    environment=task,
                    returns=np.minimum(returns, 1.2 * good if good > 0 else -2.0).tolist(),
                    rewards=reward * skill
                    + abs(reward) * (0.15 if averse else 0.4) * rng.standard_t(3, 20_000),
                    curve=list(zip(at.tolist(), curve.tolist(), strict=True)),
                )
    return root
