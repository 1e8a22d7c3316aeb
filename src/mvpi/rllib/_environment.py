"""Environments extended by the columns of a risk measure, as env runners make them.

`ExtendedEnvironment` takes the place of the environment in a config; which one that was, and by
what it is extended, is in `env_config["mvpi"]`. A class that can be imported: a name registered
with Ray is lost when its session ends, and a checkpoint is loaded in another one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from ray.rllib.env.env_context import EnvContext
from ray.rllib.utils.from_config import from_config
from ray.tune.registry import ENV_CREATOR, _global_registry

from mvpi._types import Step
from mvpi.augmenter.columns import Columns
from mvpi.envs.extended import EXTENSION, ExtendedObservation, Extender
from mvpi.errors import InputError
from mvpi.risk import Risk, range_of

KEY = "mvpi"
"""In `env_config`: the environment that is extended, `risk`, `return_scale`, `risk_aversion`."""


class ExtendedEnvironment(ExtendedObservation):
    """The environment of a config, with observations extended.

    The return of an episode ends where the episode does. So with `mvpi.OfReturn` a truncation is
    passed on as a termination: no algorithm then bootstraps there. `info["TimeLimit.truncated"]`
    tells them apart.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        if KEY not in config:
            raise InputError(
                f"env_config has no {KEY!r}: set the environment first and call risk_averse last"
            )
        ours = config[KEY]
        risk: Risk = ours["risk"]
        chosen = ours.get("risk_aversion")
        super().__init__(plain_environment(None, config), risk, ours["return_scale"], chosen)
        self._of_return = risk.of_return
        self._rng: np.random.Generator | None = None

    def _generator(self, seed: int | None) -> np.random.Generator:
        """One for all episodes: RLlib resets before every sample of whole ones, with one seed."""
        if self._rng is None:
            self._rng = np.random.default_rng(None if seed is None else [seed, 1])
        return self._rng

    def _earned(self, reward: float) -> float:
        """None of a reward that is not finite: networks must act until the driver refuses it."""
        return reward if math.isfinite(reward) else 0.0

    def step(self, action: Any) -> Step:
        observation, reward, terminated, truncated, info = super().step(action)
        if self._of_return and truncated and not terminated:
            return observation, reward, True, False, {**info, "TimeLimit.truncated": True}
        return observation, reward, terminated, truncated, info


def plain_environment(env: Any, config: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """The environment of the user's, made as RLlib makes one: `env`, or what replaced it."""
    env = config[KEY]["env"] if KEY in config else env
    own = {name: value for name, value in config.items() if name != KEY}
    context: Any = config.copy_with_overrides(own) if isinstance(config, EnvContext) else own
    registry: Any = _global_registry
    made: Any
    if isinstance(env, str) and registry.contains(ENV_CREATOR, env):
        made = registry.get(ENV_CREATOR, env)(context)
    elif isinstance(env, str):
        path = "." in env and "/" not in env and ":" not in env
        made = from_config(env, context) if path else gym.make(env, **own)
    else:
        made = env(context)
    if not isinstance(made, gym.Env):
        raise InputError(
            f"observations of a gymnasium.Env can be extended, {env!r} makes {type(made).__name__}"
        )
    return made


def extend(config: Any, columns: Columns, risk: Risk) -> None:
    """Have a config make environments that are extended by the columns of a risk."""
    _refuse(config, risk)
    ours = {"env": config.env, "risk": risk, "return_scale": columns.return_scale}
    if config.observation_space is not None:
        config.environment(observation_space=Extender(config.observation_space, columns).space)
    config.environment(ExtendedEnvironment, env_config={KEY: ours})


def _refuse(config: Any, risk: Risk) -> None:
    if config.env is None:
        raise InputError(f"{risk} extends observations: call config.environment(...) before")
    if gym.VectorizeMode(config.gym_env_vectorize_mode) is gym.VectorizeMode.VECTOR_ENTRY_POINT:
        raise InputError(
            f"{risk} extends the observations of single environments, not those of a vector entry "
            'point: use gym_env_vectorize_mode="sync" or "async"'
        )
    if KEY in config.env_config:
        raise InputError(f"env_config has a key {KEY!r} already: rename it")
    refuse_other_environment(config)
    if range_of(risk) is None and _chosen(config.evaluation_config) is not None:
        raise InputError(f"{risk} is no range of risk aversions: leave risk_aversion out")


def refuse_other_environment(config: Any) -> None:
    """Evaluations must be of an environment that is extended."""
    other = config.evaluation_config
    if isinstance(other, Mapping) and "env" in other:
        raise InputError(
            "an environment of its own for evaluation would not be extended: "
            f'evaluation_config={{"env_config": {{"{KEY}": {{"env": ...}}}}}}'
        )


def _chosen(evaluation_config: Any) -> Any:
    """The risk aversion that evaluations are asked to act with, if any."""
    if not isinstance(evaluation_config, Mapping):
        return None
    return evaluation_config.get("env_config", {}).get(KEY, {}).get("risk_aversion")


def seen_columns(observations: Any, rows: slice, size: int) -> npt.NDArray[Any]:
    """What networks see of `size` columns in rows of an episode's observations: (rows, size)."""
    if isinstance(observations, Mapping):
        observations = observations[EXTENSION]
    last = observations[rows]
    if isinstance(last, np.ndarray):
        return last[:, last.shape[1] - size :]
    parts = [o[EXTENSION] if isinstance(o, Mapping) else o for o in last]
    return np.array([part[len(part) - size :] for part in parts]).reshape(len(parts), size)


def with_column(observations: list[Any], place: int, seen: npt.NDArray[Any]) -> list[Any]:
    """Observations of several episodes with one number of each in a column of all its rows.

    `place` counts from the end. What was given stays as it is.
    """
    first = observations[0]
    if isinstance(first, np.ndarray) and all(np.shape(o) == first.shape for o in observations):
        together = np.stack(observations)  # transitions drawn from a buffer: one copy for all
        together[..., place] = seen[:, None]
        return list(together)
    return [_written(rows, place, value) for rows, value in zip(observations, seen, strict=True)]


def _written(observations: Any, place: int, seen: float) -> Any:
    if isinstance(observations, Mapping):
        return {**observations, EXTENSION: _written(observations[EXTENSION], place, seen)}
    if isinstance(observations, list):
        return [_written(observation, place, seen) for observation in observations]
    written = np.array(observations)
    written[..., place] = seen
    return written
