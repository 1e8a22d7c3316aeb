"""Observations extended by the columns of a risk measure, as Stable-Baselines3 sees them.

An environment is extended by `mvpi.envs.ExtendedObservation`, a `VecEnv` by `ExtendedVecEnv`: a
flat box or a finite set becomes a longer box, a dictionary gets the key "extension". The columns
are the last entries, so they can be read from observations of any batch.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, unwrap_vec_normalize

from mvpi._types import Array
from mvpi.augmenter.columns import Columns
from mvpi.envs.extended import EXTENSION, ExtendedObservation, Extender
from mvpi.errors import InputError
from mvpi.risk import Risk
from mvpi.risk.extended import range_of


def extended(env: Any, risk: Risk, return_scale: float) -> Any:
    """The environment that a policy for `risk` sees; one that is extended already stays."""
    if env is None or not risk.columns:
        return env
    if isinstance(env, VecEnv):
        return _extended_vec_env(env, Columns(risk, return_scale))
    if isinstance(env, str):
        env = gym.make(env)
    if not isinstance(env, gym.Env):
        raise InputError(f"{risk} extends a gymnasium.Env or a VecEnv, got {type(env).__name__}")
    known = _extension_of(env)
    if known is None:
        return ExtendedObservation(env, risk, return_scale)
    _check_columns(known.columns, Columns(risk, return_scale))
    return env


def seen_by_model(
    env: gym.Env[Any, Any], risk: Risk, return_scale: float, risk_aversion: float | None = None
) -> gym.Env[Any, Any]:
    """An environment to evaluate a model in, extended at one risk aversion if it sees any."""
    if not risk.columns or _extension_of(env) is not None:
        return env
    known = range_of(risk)
    if known is not None and risk_aversion is None:
        raise InputError(
            f"this model was trained for every risk aversion from {known.low:g} to {known.high:g}: "
            "choose one by mvpi.sb3.at(model, risk_aversion)"
        )
    return ExtendedObservation(env, risk, return_scale, risk_aversion)


def _extended_vec_env(env: VecEnv, columns: Columns) -> VecEnv:
    if unwrap_vec_normalize(env) is not None:
        raise InputError(
            f"VecNormalize would also scale {' and '.join(columns.names)}, which is read from the "
            "observations: leave it out, or scale observations by "
            "gymnasium.wrappers.NormalizeObservation in each environment"
        )
    inner: Any = env
    while isinstance(inner, VecEnvWrapper):
        if isinstance(inner, ExtendedVecEnv):
            _check_columns(inner.columns, columns)
            return env
        inner = inner.venv
    if all(_wrapped_like(env, columns)):
        return env
    return ExtendedVecEnv(env, columns)


def _wrapped_like(env: VecEnv, columns: Columns) -> list[bool]:
    """Which environments inside are extended already; those that cannot be asked are not."""
    try:
        wrapped = env.env_is_wrapped(ExtendedObservation)
        inside = env.get_attr("columns") if any(wrapped) else []
    except (AttributeError, NotImplementedError):
        return [False]
    for known in inside:
        _check_columns(known, columns)
    return wrapped


def _extension_of(env: Any) -> ExtendedObservation | None:
    while isinstance(env, gym.Wrapper):
        if isinstance(env, ExtendedObservation):
            return env
        env = env.env
    return None


def _check_columns(known: Columns, wanted: Columns) -> None:
    if known.names != wanted.names or known.return_scale != wanted.return_scale:
        raise InputError(
            f"the environment is extended by {_told(known)} already, the risk needs "
            f"{_told(wanted)}: pass the plain environment, or the same return_scale"
        )


def _told(columns: Columns) -> str:
    return f"{', '.join(columns.names)} (return_scale {columns.return_scale:g})"


class ExtendedVecEnv(VecEnvWrapper):
    """Several environments with extended observations, those at the end of episodes too."""

    def __init__(self, venv: VecEnv, columns: Columns) -> None:
        self._extender = Extender(venv.observation_space, columns)
        super().__init__(venv, observation_space=self._extender.space)
        self.columns = columns
        self.rng = np.random.default_rng()
        self.raw: Array = np.zeros((self.num_envs, columns.size))
        """The values of the columns now, as they are."""

    def seed(self, seed: int | None = None) -> Any:
        self.rng = np.random.default_rng(seed)
        return self.venv.seed(seed)

    def reset(self) -> Any:
        observations = self.venv.reset()
        self.raw = self.columns.begin(self.rng, self.num_envs)
        return self._extended(observations)

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        self.raw = self.columns.step(self.raw, rewards)
        for i in np.flatnonzero(dones):
            last = infos[i].get("terminal_observation")
            if last is not None:
                infos[i]["terminal_observation"] = self._extender(last, self.raw[i])
            self.raw[i] = self.columns.begin(self.rng)
        return self._extended(observations), rewards, dones, infos

    def _extended(self, observations: Any) -> Any:
        if isinstance(observations, dict):
            return {**observations, EXTENSION: self.columns.encode(self.raw)}
        rows = [self._extender(*row) for row in zip(observations, self.raw, strict=True)]
        return np.stack(rows)


def seen_in(observations: Any, columns: Columns) -> npt.NDArray[Any]:
    """What networks see of the columns in a batch of observations, arrays or tensors."""
    rows = observations[EXTENSION] if isinstance(observations, dict) else observations
    last = rows[..., rows.shape[-1] - columns.size :]
    return last.numpy(force=True) if isinstance(last, torch.Tensor) else np.asarray(last)


def raw_in(observations: Any, columns: Columns) -> Array:
    """The raw values of the columns in a batch of observations."""
    return columns.decode(seen_in(observations, columns))


def with_column(observations: Any, columns: Columns, place: int, seen: npt.ArrayLike) -> Any:
    """A batch of observations in which one column has other values."""
    if isinstance(observations, dict):
        inside = with_column(observations[EXTENSION], columns, place, seen)
        return {**observations, EXTENSION: inside}
    at = observations.shape[-1] - columns.size + place
    tensor = isinstance(observations, torch.Tensor)
    written: Any = observations.clone() if tensor else np.array(observations)
    written[..., at] = torch.as_tensor(seen).to(written) if tensor else seen
    return written
