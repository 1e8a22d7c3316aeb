"""Where an agent's environments come from: the one it trains in and fresh ones for evaluation."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import gymnasium as gym

from mvpi._checks import shown
from mvpi._text import without_address
from mvpi._types import Env
from mvpi.envs import Task
from mvpi.errors import InputError


class EnvFactory(Protocol):
    """Makes the environments of an agent."""

    def training(self) -> Env: ...

    def evaluation(self) -> Env: ...

    def close(self, env: Env) -> None:
        """Close an environment of `training`, unless it is somebody else's."""

    @property
    def record(self) -> dict[str, Any]:
        """What config.json says of it; the same for the same environment."""


@dataclass(frozen=True)
class FromFunction:
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
            inner = FromFunction(self.make.func).record
            return inner | {
                "arguments": without_address(repr((self.make.args, self.make.keywords)))
            }
        name = getattr(self.make, "__qualname__", type(self.make).__qualname__)
        return {"function": f"{getattr(self.make, '__module__', '')}.{name}"}


@dataclass(frozen=True)
class FromInstance:
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
    name = {"env": without_address(str(env))}
    try:
        return name if env.spec is None else name | {"spec": json.loads(env.spec.to_json())}
    except (TypeError, ValueError):  # a wrapper with arguments that JSON cannot hold
        return name


def as_env_factory(env: str | Env | Callable[[], Env]) -> EnvFactory:
    """The factory for an id, an environment, or a function that makes one."""
    if isinstance(env, str):
        return FromFunction(Task(env))
    if isinstance(env, gym.Env):
        return FromInstance(env)
    if callable(env):
        return FromFunction(env)
    raise InputError(
        f"env must be an id, a gymnasium.Env or a function that makes one, got {shown(env)}"
    )
