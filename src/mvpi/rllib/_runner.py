"""On env runners: the raw rewards of every sample, reported beside RLlib's own metrics.

A callback at the end of `sample` logs them into the runner's metrics, which reach the driver
together with the episodes, or are lost together with them. RLlib has not appended its artificial
last step by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import NormalizeReward
from gymnasium.wrappers.vector import NormalizeReward as NormalizeVectorReward

from mvpi._types import Array
from mvpi.envs.extended import EXTENSION
from mvpi.errors import InputError
from mvpi.rllib._environment import seen_columns

REWARDS = "mvpi_rewards"
"""The key in the metrics of an env runner; taken out again on the driver."""


class Sampled(NamedTuple):
    """Raw rewards, and of each how many steps of its episode came before and how it went on."""

    rewards: Array
    times: npt.NDArray[np.int64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    seen: npt.NDArray[Any]
    """What the policy saw of the columns before the step and after it: (steps, 2, columns)."""


@dataclass(frozen=True)
class ReportRewards:
    """RLlib's `on_sample_end`. Rewards of evaluations say nothing of the policy that explores."""

    columns: int

    def __call__(self, *, env_runner: Any, metrics_logger: Any, samples: Any, **_: Any) -> None:
        if not env_runner.config.in_evaluation:
            space = env_runner.env.single_observation_space if self.columns else None
            found = sampled(samples, self.columns, space)
            metrics_logger.log_value(REWARDS, found, reduce="item_series")


def sampled(episodes: Any, columns: int = 0, space: gym.Space[Any] | None = None) -> Sampled:
    """The rewards of chunks of episodes, extended by some columns in an environment of a space."""
    chunks = [episode for episode in episodes if len(episode) > 0]
    if not chunks:
        return nothing(columns)
    rewards = [np.asarray(chunk.get_rewards(), np.float64) for chunk in chunks]
    times = [chunk.t_started + np.arange(len(chunk)) for chunk in chunks]
    ends = np.cumsum([len(chunk) for chunk in chunks]) - 1
    terminated, truncated = np.zeros((2, int(ends[-1]) + 1), np.bool_)
    terminated[ends] = [chunk.is_terminated for chunk in chunks]
    truncated[ends] = [chunk.is_truncated for chunk in chunks]
    seen = [nothing(0).seen]
    if columns:
        seen = [_before_and_after(chunk, columns, space) for chunk in chunks]
    return Sampled(
        np.concatenate(rewards),
        np.concatenate(times),
        terminated,
        truncated,
        np.concatenate(seen),
    )


def nothing(columns: int) -> Sampled:
    """No rewards at all."""
    none = np.zeros(0, np.bool_)
    seen = np.zeros((0, 2, columns), np.float32)
    return Sampled(np.zeros(0), np.zeros(0, np.int64), none, none, seen)


def _before_and_after(chunk: Any, columns: int, space: Any) -> npt.NDArray[Any]:
    """What the policy saw of the columns; nan, which the driver refuses, if they were moved."""
    if not _has_form_of(space, chunk.get_observations(0)):
        return np.full((len(chunk), 2, columns), np.nan)
    kept = chunk.observations
    seen = seen_columns(kept.data, slice(kept.lookback, kept.lookback + len(chunk) + 1), columns)
    return np.stack([seen[:-1], seen[1:]], axis=1)


def _has_form_of(space: Any, observation: Any) -> bool:
    """Whether no connector has flattened, stacked or cut the observations of a space."""
    if isinstance(space, gym.spaces.Dict):
        return isinstance(observation, Mapping) and EXTENSION in observation
    return bool(np.shape(observation) == space.shape)


def refuse_changing_rewards(*, env: Any, **_: Any) -> None:
    """RLlib's `on_environment_created`."""
    for inner in (env, *getattr(env.unwrapped, "envs", ())):
        while isinstance(inner, gym.Wrapper | gym.vector.VectorWrapper):
            if isinstance(inner, NormalizeReward | NormalizeVectorReward):
                raise InputError(
                    "the wrapper NormalizeReward divides rewards by a scale that changes while the "
                    "agent learns, so a risk aversion has no fixed meaning: leave it out"
                )
            inner = inner.env
