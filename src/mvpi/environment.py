"""Where an agent's environments come from, and the guard it steps them through.

A `Source` makes environments: the one an agent trains in and fresh ones for evaluation. A `World`
is a training environment behind a guard: actions in [-1, 1], observations as flat float32,
everything checked, and a random state that can be saved between episodes and restored.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from mvpi.envs import Task
from mvpi.errors import EnvironmentFailure, InputError

Env = gym.Env[Any, Any]
Array = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float32]

_LARGEST = float(np.finfo(np.float32).max)
"""Rewards are stored as float32."""

_OTHERWISE = "for such spaces plug the risk into another algorithm: mvpi.sb3.risk_averse"


class ResumeWarning(UserWarning):
    """A resumed run goes on, but will not be identical to one that was never interrupted."""


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
            raise InputError(f"the function must make a gymnasium.Env, it made {env!r}")
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
            return inner | {"arguments": repr((self.make.args, self.make.keywords))}
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
        return {"env": str(self.env)}


def as_source(env: str | Env | Callable[[], Env]) -> Source:
    """A source from an id, an environment, or a function that makes one."""
    if isinstance(env, str):
        return Made(Task(env))
    if isinstance(env, gym.Env):
        return Given(env)
    if callable(env):
        return Made(env)
    raise InputError(
        f"env must be an id, a gymnasium.Env or a function that makes one, got {env!r}"
    )


@dataclass(frozen=True, eq=False)
class Spaces:
    """Flat observations, and a box of actions with finite bounds, in the box's own type."""

    observation_size: int
    low: npt.NDArray[Any]
    high: npt.NDArray[Any]

    @property
    def action_size(self) -> int:
        return self.low.size

    @cached_property
    def _centre_and_scale(self) -> tuple[Array, Array]:
        low, high = 0.5 * self.low.astype(np.float64), 0.5 * self.high.astype(np.float64)
        return high + low, high - low

    def actions(self, x: Vector) -> npt.NDArray[Any]:
        """What `x` in [-1, 1] means in the box: inside its bounds, of its type."""
        centre, scale = self._centre_and_scale
        # Rounding must not leave the box.
        return np.clip(centre + scale * x, self.low, self.high).astype(self.low.dtype)

    @classmethod
    def of(cls, env: Env) -> Spaces:
        """The spaces of `env`, or an `InputError` that names what an agent here needs."""
        seen, done = env.observation_space, env.action_space
        if not isinstance(seen, gym.spaces.Box):
            raise InputError(f"observations must be a flat Box of floats, got {seen}; {_OTHERWISE}")
        if len(seen.shape) != 1:
            raise InputError(
                f"observations must be flat, got the shape {seen.shape}; wrap the environment in "
                "gymnasium.wrappers.FlattenObservation"
            )
        if 0 in (*seen.shape, *(done.shape or ())):
            raise InputError(f"observations and actions must not be empty, got {seen} and {done}")
        if not np.issubdtype(seen.dtype, np.floating):
            raise InputError(f"observations must be floats, got {seen.dtype}; {_OTHERWISE}")
        if not isinstance(done, gym.spaces.Box):
            raise InputError(f"actions must be a Box of floats, got {done}; {_OTHERWISE}")
        if len(done.shape) != 1 or not np.issubdtype(done.dtype, np.floating):
            raise InputError(f"actions must be a flat Box of floats, got {done}; {_OTHERWISE}")
        if not (np.isfinite(done.low).all() and np.isfinite(done.high).all()):
            raise InputError(
                f"actions need finite bounds, got {done}; wrap the environment in "
                "gymnasium.wrappers.RescaleAction or TransformAction"
            )
        if not (done.low < done.high).all():
            raise InputError(f"actions need low < high in every dimension, got {done}")
        return cls(int(seen.shape[0]), done.low, done.high)


class World:
    """A training environment behind a guard.

    Raises `EnvironmentFailure` when the environment raises, changes the shape of its observations
    or returns a number that is not finite.
    """

    def __init__(self, env: Env, seed: int) -> None:
        self.env = env
        self.spaces = Spaces.of(env)
        self._shape = (self.spaces.observation_size,)
        self.fresh = True
        self.before_reset: list[dict[str, Any]] = []
        self.observation = self._reset(seed=seed)

    def step(self, action: Vector) -> tuple[Vector, float, bool, bool]:
        """Act with `action` in [-1, 1]; returns next observation, reward, terminated, truncated."""
        a = self.spaces.actions(action)
        try:
            observation, reward, terminated, truncated, _ = self.env.step(a)
            r, terminated, truncated = float(reward), bool(terminated), bool(truncated)
        except (InputError, MemoryError):
            raise
        except Exception as error:
            raise failure(self.env, f"raised {_name(error)} in step", error) from error
        self.fresh = False
        self.observation = self._checked(observation)
        if not abs(r) <= _LARGEST:
            raise failure(self.env, f"returned the reward {r}")
        return self.observation, r, terminated, truncated

    def reset(self) -> Vector:
        """Begin the next episode; what the random state was before is kept for `state`."""
        self.before_reset = list(random_states(self.env))
        return self._reset()

    def state(self) -> dict[str, Any]:
        """All that is needed to begin this episode again: only right after a reset."""
        return {"random": self.before_reset, "observation": self.observation.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Begin the episode of `state`; warns if the environment does not repeat it."""
        set_random_states(self.env, state["random"])
        self.before_reset = state["random"]
        if self._reset().tolist() != state["observation"]:
            warnings.warn(
                f"{self.env} keeps state outside its random generators: its first observation "
                "after resuming is another one; training goes on, but not exactly as it would have",
                ResumeWarning,
                stacklevel=2,
            )

    def _reset(self, seed: int | None = None) -> Vector:
        try:
            observation, _ = self.env.reset(seed=seed)
        except Exception as error:
            raise failure(self.env, f"raised {_name(error)} in reset", error) from error
        self.observation = self._checked(observation)
        self.fresh = True
        return self.observation

    def _checked(self, observation: Any) -> Vector:
        """A copy as float32: the environment may go on using its own array."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                o = np.array(observation, dtype=np.float32)
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
