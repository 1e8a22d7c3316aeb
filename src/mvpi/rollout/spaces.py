"""Observation and action spaces of an agent, and their conversion for networks.

Observations become flat float32 vectors: a flat Box as it is, a state of a finite set as the unit
vector of its place. Actions come from a network as numbers in [-1, 1] that a box scales, or as
the index of a choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from mvpi._types import Array, Vector
from mvpi.errors import InputError

_OTHERWISE = (
    "for finite sets take mvpi.PPO, for other spaces plug the risk into another algorithm: "
    "mvpi.sb3.risk_averse"
)

_FLATTEN = "wrap the environment in gymnasium.wrappers.FlattenObservation"


@dataclass(frozen=True)
class FlatObservations:
    """Vectors of a fixed size."""

    size: int

    def vectors(self, observation: Any) -> Vector:
        """A copy as float32, of one observation or a batch of them."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.array(observation, dtype=np.float32)


@dataclass(frozen=True)
class States:
    """`size` states, numbered from `first`."""

    size: int
    first: int = 0

    def vectors(self, observation: Any) -> Vector:
        """The unit vector of a state, or of a batch of them."""
        index = np.asarray(observation)
        if index.ndim > 1 or not np.issubdtype(index.dtype, np.integer):
            raise ValueError(f"must be a whole number or a row of them, not {observation!r}")
        last = self.first + self.size - 1
        if (index < self.first).any() or (index > last).any():
            raise ValueError(f"must be a state from {self.first} to {last}, not {observation!r}")
        place = index.astype(np.int64) - self.first  # small types cannot hold the difference
        vectors = np.zeros((*index.shape, self.size), np.float32)
        np.put_along_axis(vectors, place[..., None], 1.0, axis=-1)
        return vectors


@dataclass(frozen=True, eq=False)
class BoxActions:
    """A box with finite bounds, in its own type."""

    low: npt.NDArray[Any]
    high: npt.NDArray[Any]

    @property
    def size(self) -> int:
        return self.low.size

    @cached_property
    def _centre_and_scale(self) -> tuple[Array, Array]:
        low, high = 0.5 * self.low.astype(np.float64), 0.5 * self.high.astype(np.float64)
        return high + low, high - low

    def to_env_action(self, x: Vector) -> npt.NDArray[Any]:
        """What `x` in [-1, 1] means in the box: inside its bounds, of its type."""
        centre, scale = self._centre_and_scale
        # Rounding must not leave the box.
        return np.clip(centre + scale * x, self.low, self.high).astype(self.low.dtype)


@dataclass(frozen=True)
class Choices:
    """`size` choices, numbered from `first`."""

    size: int
    first: int = 0

    def to_env_action(self, index: Any) -> Any:
        """The number of the choice at `index`."""
        return self.first + index


@dataclass(frozen=True, eq=False)
class Spaces:
    """The observation and the action space."""

    observations: FlatObservations | States
    actions: BoxActions | Choices

    @classmethod
    def of(cls, env: gym.Env[Any, Any], discrete: bool = False) -> Spaces:
        """The spaces of `env`, or an `InputError` that names what an agent here needs.

        `discrete` says whether the agent can do with finite sets.
        """
        seen, done = env.observation_space, env.action_space
        if 0 in (*(seen.shape or ()), *(done.shape or ())):
            raise InputError(f"observations and actions must not be empty, got {seen} and {done}")
        finite = gym.spaces.Discrete
        observations: FlatObservations | States
        actions: BoxActions | Choices
        if discrete and isinstance(seen, finite):
            observations = States(int(seen.n), int(seen.start))
        else:
            observations = _flat(seen)
        if discrete and isinstance(done, finite):
            actions = Choices(int(done.n), int(done.start))
        else:
            actions = _box(done)
        return cls(observations, actions)


def _flat(space: gym.Space[Any]) -> FlatObservations:
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        raise InputError(f"observations must be a flat Box of floats, got {space}; {_FLATTEN}")
    if not isinstance(space, gym.spaces.Box):
        raise InputError(f"observations must be a flat Box of floats, got {space}; {_OTHERWISE}")
    if len(space.shape) != 1:
        raise InputError(f"observations must be flat, got the shape {space.shape}; {_FLATTEN}")
    if not np.issubdtype(space.dtype, np.floating):
        raise InputError(f"observations must be floats, got {space.dtype}; {_OTHERWISE}")
    return FlatObservations(int(space.shape[0]))


def _box(space: gym.Space[Any]) -> BoxActions:
    if not isinstance(space, gym.spaces.Box):
        raise InputError(f"actions must be a Box of floats, got {space}; {_OTHERWISE}")
    if len(space.shape) != 1 or space.dtype not in (np.float16, np.float32, np.float64):
        raise InputError(f"actions must be a flat Box of floats, got {space}; {_OTHERWISE}")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise InputError(
            f"actions need finite bounds, got {space}; wrap the environment in "
            "gymnasium.wrappers.RescaleAction or TransformAction"
        )
    if not (space.low < space.high).all():
        raise InputError(f"actions need low < high in every dimension, got {space}")
    return BoxActions(space.low, space.high)
