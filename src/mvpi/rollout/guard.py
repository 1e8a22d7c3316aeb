"""A training environment behind a guard: everything it returns is checked.

Actions come as networks give them, observations go out as flat float32, and the state can be saved
and restored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from mvpi._types import Array, Env, Vector
from mvpi.augmenter.columns import NO_COLUMNS, Columns
from mvpi.errors import EnvironmentFailure, InputError, ResumeWarning, warn
from mvpi.rollout.spaces import Spaces

_LARGEST = float(np.finfo(np.float32).max)
"""Rewards are stored as float32."""


class GuardedEnv:
    """A training environment behind a guard.

    Raises `EnvironmentFailure` when the environment raises, changes the shape of its observations
    or returns a number that is not finite. `discrete` allows finite sets. With `remember`, the
    current `episode` is kept, what was seen, done and earned in every step; its actions are
    repeated to restore a state in its middle.
    """

    def __init__(
        self,
        env: Env,
        seed: int,
        *,
        discrete: bool = False,
        remember: bool = False,
        columns: Columns = NO_COLUMNS,
        rng: np.random.Generator | None = None,
    ) -> None:
        """`columns` extend every observation; what they begin with is drawn from `rng`."""
        self.env = env
        self.spaces = Spaces.of(env, discrete)
        self.columns, self._rng = columns, rng or np.random.default_rng(seed)
        self._shape = (self.spaces.observations.size,)
        self._remember = remember
        self.before_reset: list[dict[str, Any]] | None = None
        """States of the generators before the episode; None in the first one, begun by the seed."""
        self.first: Vector
        """The observation with which the episode began."""
        self.observation: Vector
        self.seen: Vector
        """The observation as networks see it: the same where there are no columns."""
        self.length: int
        self.episode: list[tuple[Vector, Any, float]]
        self._raw: Array = np.empty(0)
        """Values of the columns now."""
        self._encoded: Vector
        """What networks see of them."""
        self._raw_first: Array
        """Those with which the episode began."""
        self._reset(seed=seed)

    @property
    def observation_size(self) -> int:
        """Numbers in an extended observation."""
        return self.spaces.observations.size + self.columns.size

    @property
    def fresh(self) -> bool:
        """Whether the episode has not begun."""
        return self.length == 0

    def step(self, action: Any) -> tuple[Vector, float, bool, bool]:
        """Act; returns the next observation, the reward, terminated and truncated."""
        a = self.spaces.actions.to_env_action(action)
        before = self.observation
        try:
            observation, reward, terminated, truncated, _ = self.env.step(a)
            r, terminated, truncated = float(reward), bool(terminated), bool(truncated)
        except (InputError, MemoryError):
            raise
        except Exception as error:
            raise failure(self.env, f"raised {_name(error)} in step", error) from error
        self.length += 1
        observed = self._checked(observation)
        if not abs(r) <= _LARGEST:
            raise failure(self.env, f"returned the reward {r}")
        self._extend(observed, self.columns.step(self._raw, r))
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
        if self.columns.size:
            record["columns"] = self._raw_first.tolist()
        return record, np.array([a for _, a, _ in self.episode])

    def restore(self, record: dict[str, Any], actions: Iterable[Any]) -> None:
        """Come to the moment of `state` by resetting and acting; warns if it is another one."""
        raw = np.array(record["columns"]) if self.columns.size else None
        if record["first"]:  # it was begun by the seed, as now
            self._begin_columns(raw)
        else:
            set_random_states(self.env, record["random"])
            self.before_reset = record["random"]
            self._reset(raw=raw)
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

    def _reset(self, seed: int | None = None, raw: Array | None = None) -> Vector:
        try:
            observation, _ = self.env.reset(seed=seed)
        except Exception as error:
            raise failure(self.env, f"raised {_name(error)} in reset", error) from error
        self._observed = self._checked(observation)
        self.length = 0
        self.episode = []
        return self._begin_columns(raw)

    def _begin_columns(self, raw: Array | None = None) -> Vector:
        """Extend the first observation of an episode, by given values or new ones."""
        drawn = self.columns.begin(self._rng) if raw is None else raw
        if drawn.shape != (self.columns.size,):
            raise ValueError(f"{drawn.shape} values for {self.columns.size} columns")
        self._raw_first = drawn
        self._extend(self._observed, drawn)
        self.first = self.observation
        return self.observation

    def _extend(self, observed: Vector, raw: Array) -> None:
        """The observation of now: what was observed, and the columns behind it."""
        if not self.columns.size:
            self._raw = raw
            self.observation = self.seen = observed
            return
        if raw is not self._raw:  # a risk aversion stays for a whole episode
            self._raw, self._encoded = raw, self.columns.encode(raw.astype(np.float32))
        self.observation = self.columns.extend(observed, raw)
        self.seen = self.columns.extend(observed, self._encoded)

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
    """The exception for a failure of an environment, in one line."""
    reason = "" if cause is None else f": {' '.join(str(cause).split())}"
    return EnvironmentFailure(f"environment {env} {what}{reason}")


def random_states(env: Env) -> Iterator[dict[str, Any]]:
    """The state of every random generator that a layer of the environment holds."""
    for depth, name, generator in _generators(env):
        yield {"layer": depth, "name": name, "state": generator_state(generator)}


def set_random_states(env: Env, states: list[dict[str, Any]]) -> None:
    """Put the generators back; raises `InputError` when the layers are other ones."""
    generators = {(depth, name): generator for depth, name, generator in _generators(env)}
    try:
        for entry in states:
            set_generator_state(generators[entry["layer"], entry["name"]], entry["state"])
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


def generator_state(generator: np.random.Generator | np.random.RandomState) -> Any:
    """The state of a random generator, as JSON can hold it."""
    if isinstance(generator, np.random.RandomState):
        return _plain(generator.get_state(legacy=False))
    return _plain(generator.bit_generator.state)


def set_generator_state(generator: np.random.Generator | np.random.RandomState, state: Any) -> None:
    """Put a generator back to what `generator_state` gave."""
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
