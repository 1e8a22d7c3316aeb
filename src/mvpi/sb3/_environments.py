"""Which environments a training went on in, as far as they tell: to see whether others are given.

Those of this process tell their wrappers and, where `gymnasium.make` made them, their id and the
keywords that it was called with. Nothing is known of those in other processes.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from mvpi._checks import shown
from mvpi._storage.files import short
from mvpi.envs.task import why_not_made
from mvpi.errors import InputError, ResumeWarning, warn

_FEW = 1_000
"""Numbers in an array that is kept as it is."""
_REMEDY = "make env as for the first run; another one can follow by model.set_env"


def made(env: Any) -> Any:
    """The environment of an id; what is one already stays."""
    if not isinstance(env, str):
        return env
    try:
        return gym.make(env)
    except Exception as error:
        reason = short(why_not_made(env, error), 300)
        raise InputError(f"environment {shown(env)} cannot be made: {reason}") from error


def around(env: VecEnv | None) -> Iterator[Any]:
    """A `VecEnv` and all that it wraps, the outermost first."""
    layer: Any = env
    while layer is not None:
        yield layer
        layer = layer.venv if isinstance(layer, VecEnvWrapper) else None


def inside(env: VecEnv | None) -> list[Any]:
    """The environments in a `VecEnv`, if they are in this process."""
    found = [getattr(layer, "envs", ()) for layer in around(env)][-1:]
    return [one for envs in found if isinstance(envs, list | tuple) for one in envs]


def layers(env: Any) -> Iterator[Any]:
    """An environment and all that it wraps, the outermost first."""
    layer = env
    while isinstance(layer, gym.Env):
        yield layer
        layer = layer.env if isinstance(layer, gym.Wrapper) else None


def known_environments(env: VecEnv | None) -> dict[str, Any]:
    """What the environments tell of themselves, as plain JSON."""
    wrappers = [_name(layer) for layer in around(env) if isinstance(layer, VecEnvWrapper)]
    return {"wrappers": wrappers, "inside": [_facts(one) for one in inside(env)]}


def check_environments(there: Any, env: VecEnv | None) -> bool:
    """Whether states can be put into `env`: its environments have as many layers as before.

    `InputError` if it was made otherwise, a `ResumeWarning` if it is only wrapped otherwise.
    """
    if there is None:  # a file of an earlier version
        return True
    here = known_environments(env)
    if there["wrappers"] != here["wrappers"]:
        raise InputError(_differ(_listed(there["wrappers"]), _listed(here["wrappers"]), _REMEDY))
    fits = True
    for saved, given in zip(there["inside"], here["inside"], strict=False):
        _check_made(saved["made"], given["made"])
        if saved["layers"] != given["layers"] and fits:
            fits = len(saved["layers"]) == len(given["layers"])
            episode = "it" if fits else "a new episode begins; training"
            end = f"{episode} goes on, but perhaps not exactly as it would have"
            warn(_differ(_chain(saved["layers"]), _chain(given["layers"]), end), ResumeWarning)
    return fits


def _check_made(saved: Any, given: Any) -> None:
    """Nothing is known of environments that something else than `gymnasium.make` made."""
    if saved is None or given is None:
        return
    if saved["id"] != given["id"]:
        raise InputError(_differ(saved["id"], given["id"], _REMEDY))
    chosen = sorted(saved["given"].keys() | given["given"].keys())
    pairs = {name: [_argument(one, name) for one in (saved, given)] for name in chosen}
    other = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if other:
        was, now = (
            f"{saved['id']} with "
            + ", ".join(f"{name}={pair[i]!r}" for name, pair in other.items())
            for i in (0, 1)
        )
        raise InputError(_differ(was, now, _REMEDY))


def _argument(facts: Any, name: str) -> Any:
    return facts["given"].get(name, facts["defaults"].get(name))


def _facts(env: Any) -> dict[str, Any]:
    return {"layers": [_name(layer) for layer in layers(env)], "made": _made(env)}


def _name(layer: Any) -> str:
    return type(layer).__qualname__


def _made(env: Any) -> dict[str, Any] | None:
    """How `gymnasium.make` made it, None if something else did."""
    spec = env.unwrapped.spec if isinstance(env, gym.Env) else None
    if not isinstance(spec, EnvSpec):
        return None
    own = inspect.signature(type(env.unwrapped)).parameters.values()
    given = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    limits = [la._max_episode_steps for la in layers(env) if isinstance(la, TimeLimit)]
    return {
        "id": spec.id,
        "given": _plain({**given, "max_episode_steps": limits[0] if limits else None}),
        "defaults": _plain({p.name: p.default for p in own if p.default is not p.empty}),
    }


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """Those that JSON can hold; not texts that may be a place on a disk, which can move."""
    texts = {name: _text(value) for name, value in arguments.items()}
    return {name: json.loads(text) for name, text in texts.items() if text and "/" not in text}


def _text(value: Any) -> str:
    try:
        return json.dumps(value, default=_listed_numbers, allow_nan=False)
    except (TypeError, ValueError):
        return ""


def _listed_numbers(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.size <= _FEW:
        return value.tolist()
    raise TypeError(type(value).__name__)


def _differ(was: str, now: str, end: str) -> str:
    return f"training went on in {short(was, 200)}, env is {short(now, 200)}: {end}"


def _listed(wrappers: Any) -> str:
    return " in ".join(["a VecEnv", *reversed(wrappers)])


def _chain(found: Any) -> str:
    return "(".join(map(str, found)) + ")" * (len(found) - 1)
