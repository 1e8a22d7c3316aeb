"""Where an agent's environments come from, and the guard it steps them through.

A `Source` makes environments: the one an agent trains in and fresh ones for evaluation. A `World`
is a training environment behind a guard: actions as networks give them, observations as flat
float32, everything checked, and a state that can be saved and restored.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from mvpi._checks import shown
from mvpi.descriptions import lasting
from mvpi.envs import Task
from mvpi.errors import EnvironmentFailure, InputError, ResumeWarning, warn
from mvpi.spaces import Spaces

Env = gym.Env[Any, Any]
Array = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float32]

_LARGEST = float(np.finfo(np.float32).max)
"""Rewards are stored as float32."""


class Source(Protocol):
    """Makes the environments of an agent."""

    def training(self) -> Env: ...

    def evaluation(self) -> Env: ...

    def close(self, env: Env) -> None:
        """Close an environment of `training`, unless it is somebody else's."""

    @property
    def record(self) -> dict[str, Any]:
        """What config.json says of it; the same for the same environment."""


@dataclass(frozen=True)
class Made:
    """Environments made by a function, each time anew."""

    make: Callable[[], Env]

    def training(self) -> Env:
        env = self.make()
        if not isinstance(env, gym.Env):
            raise InputError(f"the function must make a gymnasium.Env, it made {shown(env)}")
        return env

    evaluation = training

    def close(self, env: Env) -> None:
        env.close()

    @property
    def record(self) -> dict[str, Any]:
        if isinstance(self.make, Task):
            return {"id": self.make.id, "action_noise": float(self.make.action_noise)}
        if isinstance(self.make, partial):
            inner = Made(self.make.func).record
            return inner | {"arguments": lasting(repr((self.make.args, self.make.keywords)))}
        name = getattr(self.make, "__qualname__", type(self.make).__qualname__)
        return {"function": f"{getattr(self.make, '__module__', '')}.{name}"}


@dataclass(frozen=True)
class Given:
    """An environment that was passed in: trained in as it is, evaluated on copies."""

    env: Env

    def training(self) -> Env:
        return self.env

    def evaluation(self) -> Env:
        try:
            return copy.deepcopy(self.env)
        except Exception as error:
            raise InputError(
                f"{self.env} cannot be copied for evaluation ({error}); pass an id or a function "
                "that makes the environment"
            ) from error

    def close(self, env: Env) -> None:
        pass

    @property
    def record(self) -> dict[str, Any]:
        spaces = {"observations": self.env.observation_space, "actions": self.env.action_space}
        return _recipe(self.env) | {name: str(space) for name, space in spaces.items()}


def _recipe(env: Env) -> dict[str, Any]:
    """An environment's name, and how it was made as far as Gymnasium knows."""
    name = {"env": lasting(str(env))}
    try:
        return name if env.spec is None else name | {"spec": json.loads(env.spec.to_json())}
    except (TypeError, ValueError):  # a wrapper with arguments that JSON cannot hold
        return name


def as_source(env: str | Env | Callable[[], Env]) -> Source:
    """A source from an id, an environment, or a function that makes one."""
    if isinstance(env, str):
        return Made(Task(env))
    if isinstance(env, gym.Env):
        return Given(env)
    if callable(env):
        return Made(env)
    raise InputError(
        f"env must be an id, a gymnasium.Env or a function that makes one, got {shown(env)}"
    )


class World:
    """A training environment behind a guard.

    Raises `EnvironmentFailure` when the environment raises, changes the shape of its observations
    or returns a number that is not finite. `discrete` allows finite sets. With `remember`, the
    current `episode` is kept, what was seen, done and earned in every step; its actions are
    repeated to restore a state in its middle.
    """

    def __init__(
        self, env: Env, seed: int, *, discrete: bool = False, remember: bool = False
    ) -> None:
        self.env = env
        self.spaces = Spaces.of(env, discrete)
        self._shape = (self.spaces.observations.size,)
        self._remember = remember
        self.before_reset: list[dict[str, Any]] | None = None
        """States of the generators before the episode; None in the first one, begun by the seed."""
        self.first: Vector
        """The observation with which the episode began."""
        self.observation: Vector
        self.length: int
        self.episode: list[tuple[Vector, Any, float]]
        self._reset(seed=seed)

    @property
    def fresh(self) -> bool:
        """Whether the episode has not begun."""
        return self.length == 0

    def step(self, action: Any) -> tuple[Vector, float, bool, bool]:
        """Act; returns the next observation, the reward, terminated and truncated."""
        a = self.spaces.actions.meaning(action)
        before = self.observation
        try:
            observation, reward, terminated, truncated, _ = self.env.step(a)
            r, terminated, truncated = float(reward), bool(terminated), bool(truncated)
        except (InputError, MemoryError):
            raise
        except Exception as error:
            raise failure(self.env, f"raised {_name(error)} in step", error) from error
        self.length += 1
        self.observation = self._checked(observation)
        if not abs(r) <= _LARGEST:
            raise failure(self.env, f"returned the reward {r}")
        if self._remember:
            self.episode.append((before, action, r))
        return self.observation, r, terminated, truncated

    def reset(self) -> Vector:
        """Begin the next episode; what the random state was before is kept for `state`."""
        self.before_reset = list(random_states(self.env))
        return self._reset()

    def state(self) -> tuple[dict[str, Any], npt.NDArray[Any]]:
        """All that is needed to come to this moment again: a record, and the actions since."""
        record = {
            "first": self.before_reset is None,
            "random": self.before_reset or [],
            "observation": self.observation.tolist(),
            "earned": self._earned(),
        }
        return record, np.array([a for _, a, _ in self.episode])

    def restore(self, record: dict[str, Any], actions: Iterable[Any]) -> None:
        """Come to the moment of `state` by resetting and acting; warns if it is another one."""
        if not record["first"]:  # the first one was begun by the seed, as now
            set_random_states(self.env, record["random"])
            self.before_reset = record["random"]
            self._reset()
        over = False
        for a in actions:
            if over:
                break
            _, _, terminated, truncated = self.step(a)
            over = terminated or truncated
        same = not over and self.observation.tolist() == record["observation"]
        same = same and self._earned() == record.get("earned", 0.0)
        if over:
            self.reset()
        if not same:
            warn(
                f"{self.env} keeps state outside its random generators: its observation after "
                "resuming is another one; training goes on, but not exactly as it would have",
                ResumeWarning,
            )

    def _earned(self) -> float:
        return math.fsum(r for _, _, r in self.episode)

    def _reset(self, seed: int | None = None) -> Vector:
        try:
            observation, _ = self.env.reset(seed=seed)
        except Exception as error:
            raise failure(self.env, f"raised {_name(error)} in reset", error) from error
        self.first = self.observation = self._checked(observation)
        self.length = 0
        self.episode = []
        return self.observation

    def _checked(self, observation: Any) -> Vector:
        try:
            o = self.spaces.observations.vectors(observation)
        except (TypeError, ValueError) as error:
            raise failure(self.env, "returned an observation that is no array", error) from error
        if o.shape != self._shape:
            what = f"returned an observation of shape {o.shape}, not {self._shape}"
            raise failure(self.env, what)
        if not np.isfinite(o).all():
            at = int(np.argmin(np.isfinite(o)))
            raise failure(self.env, f"returned the observation {o[at]} at index {at}")
        return o


def failure(env: Env, what: str, cause: Exception | None = None) -> EnvironmentFailure:
    """The exception for what an environment did wrong, in one line."""
    reason = "" if cause is None else f": {' '.join(str(cause).split())}"
    return EnvironmentFailure(f"environment {env} {what}{reason}")


def random_states(env: Env) -> Iterator[dict[str, Any]]:
    """The state of every random generator that a layer of the environment holds."""
    for depth, name, generator in _generators(env):
        yield {"layer": depth, "name": name, "state": _plain(_get_state(generator))}


def set_random_states(env: Env, states: list[dict[str, Any]]) -> None:
    """Put the generators back; raises `InputError` when the layers are other ones."""
    generators = {(depth, name): generator for depth, name, generator in _generators(env)}
    try:
        for entry in states:
            _set_state(generators[entry["layer"], entry["name"]], entry["state"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"the checkpoint is of another environment: {env} has no such random state ({error})"
        ) from None


def _generators(env: Env) -> Iterator[tuple[int, str, Any]]:
    layer: Any = env
    depth = 0
    while layer is not None:
        for name, value in sorted(vars(layer).items()):
            if isinstance(value, np.random.Generator | np.random.RandomState):
                yield depth, name, value
        layer = layer.env if isinstance(layer, gym.Wrapper) else None
        depth += 1


def _get_state(generator: Any) -> Any:
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.bit_generator.state


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.RandomState):
        generator.set_state(_with_arrays(state))
    else:
        generator.bit_generator.state = _with_arrays(state)


def _plain(state: Any) -> Any:
    """The state as JSON can hold it."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state


def _with_arrays(state: Any) -> Any:
    """What `_plain` made a list of was an array."""
    if isinstance(state, dict):
        return {key: _with_arrays(value) for key, value in state.items()}
    return np.array(state, dtype=np.uint64) if isinstance(state, list) else state


def _name(error: Exception) -> str:
    return type(error).__name__
