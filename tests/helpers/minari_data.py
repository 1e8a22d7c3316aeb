"""Real Minari data sets, made by Minari's own collector."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import minari


def collected(
    env: gym.Env[Any, Any], name: str, steps: int, seed: int = 0, **options: Any
) -> tuple[Any, list[Any], list[Any]]:
    """A data set of random actions; the transitions and the starts it was made of.

    `options` are those of the collector.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari asks for a permalink
        collector = minari.DataCollector(env, **options)
        env.action_space.seed(0)
        s, _ = collector.reset(seed=seed, options={})
        seen, starts = [], [s]
        for _ in range(steps):
            a = env.action_space.sample()
            following, r, terminated, truncated, _ = collector.step(a)
            seen.append((s, a, r, following, terminated))
            s = following
            if terminated or truncated:
                s, _ = collector.reset()
                starts.append(s)
        if terminated or truncated:
            starts.pop()
        dataset = collector.create_dataset(
            dataset_id=name, author={"a", "b"}, algorithm_name="random", description="Steps."
        )
        env.close()
        collector._tmp_dir.cleanup()  # its own `close` leaves a finalizer that fails later
    return dataset, seen, starts
