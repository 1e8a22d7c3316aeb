"""Environments by id, made without the warnings that their version is not the newest."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches

import gymnasium as gym

from mvpi._checks import check_kind, check_number, shown
from mvpi._types import Env
from mvpi.envs.noisy_zone import quiet_mujoco
from mvpi.envs.wrappers import NoisyActions
from mvpi.errors import InputError

_OLDEST_MUJOCO = 4
"""The first version of MuJoCo's tasks that Gymnasium still makes."""


@dataclass(frozen=True)
class Task:
    """An environment id and the noise on its actions; calling it makes the environment.

    >>> Task("mvpi/Markowitz-v0", action_noise=0.1)()
    <NoisyActions<OrderEnforcing<Markowitz<mvpi/Markowitz-v0>>>>
    """

    id: str
    action_noise: float = 0.0

    def __call__(self) -> Env:
        check_kind(self.id, str, "env", "the id of an environment")
        check_number(self.action_noise, "action_noise", at_least=0.0)
        try:
            with _old_tasks_allowed(self.id):
                # Agents check what an environment returns themselves, at every step.
                env: Env = gym.make(self.id, disable_env_checker=True)
        except (InputError, MemoryError):
            raise
        except Exception as error:
            reason = why_not_made(self.id, error)[:300]
            raise InputError(f"environment {shown(self.id)} cannot be made: {reason}") from error
        return NoisyActions(env, self.action_noise) if self.action_noise > 0 else env


def why_not_made(name: str, error: Exception) -> str:
    """Why Gymnasium did not make the environment of an id, and the id that may have been meant."""
    stem, _, version = name.rpartition("-v")
    versions = [int(found[1]) for key in gym.registry if (found := _version_of(key, stem))]
    if version.isdecimal() and versions and name not in gym.registry:
        known = ", ".join(f"{stem}-v{number}" for number in sorted(versions))
        return f"Gymnasium {gym.__version__} has no such version; use {known}"
    reason = " ".join(str(error).split()) or type(error).__name__
    if name in gym.registry and "gymnasium-robotics" in reason:  # the first versions of MuJoCo's
        newer = [number for number in sorted(versions) if number >= _OLDEST_MUJOCO]
        known = ", ".join(f"{stem}-v{number}" for number in newer)
        return f"Gymnasium {gym.__version__} cannot make that version any more; use {known}"
    if name in gym.registry or ":" in name:  # the latter is in a module of its own
        return reason
    ids = {key.lower(): key for key in gym.registry}
    near = get_close_matches(name.lower(), ids, n=1)
    return f"there is no such id; did you mean {ids[near[0]]}?" if near else reason


def _version_of(key: str, stem: str) -> re.Match[str] | None:
    return re.fullmatch(re.escape(stem) + r"-v(\d+)", key)


@contextmanager
def _old_tasks_allowed(name: str) -> Iterator[None]:
    """Silence Gymnasium's outdated-version warning: the paper's tasks are the -v4 ones."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is out of date.*")
        spec = gym.registry.get(name)
        if spec is None or not str(spec.entry_point).startswith("gymnasium.envs.mujoco"):
            yield
            return
        with quiet_mujoco():
            yield
