"""Environments whose observations are extended by the columns that a risk measure needs.

    ReturnSoFar(env)                    the return so far, for `mvpi.OfReturn`
    ExtendedObservation(env, risk)      all columns of a measure; `RiskRange` adds the risk aversion

A flat box, or a finite set as a one-hot vector, becomes a longer box; a `Dict` gets the key
`"extension"`. Values are encoded by `mvpi.augmenter.columns`: the return so far as
asinh(G / scale).
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from mvpi._checks import check_kind
from mvpi._types import Array, Env, Step
from mvpi.augmenter.columns import Columns
from mvpi.errors import InputError
from mvpi.risk import RETURN_SO_FAR, RISK_AVERSION, OfReturn, Risk, as_risk, range_of
from mvpi.risk.extended import BEYOND

EXTENSION = "extension"
"""The key of the columns in observations that are dictionaries."""


class Extender:
    """Extends observations of a space by encoded columns."""

    def __init__(self, space: gym.Space[Any], columns: Columns) -> None:
        low, high = (np.array([_BOUNDS[n][i] for n in columns.names], np.float32) for i in (0, 1))
        self.columns = columns
        self._inner = space
        added = gym.spaces.Box(low, high)
        self.space: gym.Space[Any]
        if isinstance(space, gym.spaces.Dict):
            if EXTENSION in space.spaces:
                raise InputError(f"observations have a key {EXTENSION!r} already: rename it")
            self.space = gym.spaces.Dict({**space.spaces, EXTENSION: added})
            return
        flat = gym.spaces.flatten_space(space) if _is_finite(space) else space
        if not isinstance(flat, gym.spaces.Box) or len(flat.shape) != 1:
            raise InputError(
                f"observations must be a flat Box, a finite set or a Dict to be extended, got "
                f"{space}; wrap others in a Dict"
            )
        dtype: Any = np.float64 if flat.dtype == np.float64 else np.float32
        lowest = np.concatenate([flat.low, low]).astype(dtype)
        highest = np.concatenate([flat.high, high]).astype(dtype)
        self.space = gym.spaces.Box(lowest, highest, dtype=dtype)

    def __call__(self, observation: Any, raw: Array) -> Any:
        """The extended observation."""
        seen = self.columns.encode(raw)
        if isinstance(self._inner, gym.spaces.Dict):
            return {**observation, EXTENSION: seen}
        if _is_finite(self._inner):
            observation = gym.spaces.flatten(self._inner, observation)
        return np.concatenate([observation, seen]).astype(self.space.dtype)


class ExtendedObservation(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Observations extended by the columns of a risk measure.

    The return so far is counted here. The risk aversion of a range is drawn at the beginning of an
    episode, unless `risk_aversion` is given. `return_scale` is the size of a return: below it,
    policies see the return so far in proportion, beyond it by its logarithm.
    """

    def __init__(
        self,
        env: Env,
        risk: Risk | float,
        return_scale: float = 1.0,
        risk_aversion: float | None = None,
    ) -> None:
        check_kind(env, gym.Env, "env", "a gymnasium.Env")
        measure = as_risk(risk)
        gym.utils.RecordConstructorArgs.__init__(
            self, risk=risk, return_scale=return_scale, risk_aversion=risk_aversion
        )
        super().__init__(env)
        self.columns = Columns(measure, return_scale)
        self.risk_aversion = None if risk_aversion is None else _in_range(measure, risk_aversion)
        self._extender = Extender(env.observation_space, self.columns)
        self.observation_space = self._extender.space
        self.raw: Array = np.zeros(self.columns.size)
        """The values of the columns now, as they are."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        if self.risk_aversion is None:
            self.raw = self.columns.begin(self._generator(seed))
        else:
            values = {RISK_AVERSION: self.risk_aversion, RETURN_SO_FAR: 0.0}
            self.raw = self.columns.raw(values, ())
        return self._extender(observation, self.raw), info

    def _generator(self, seed: int | None) -> np.random.Generator:
        """What risk aversions are drawn with, after a reset with `seed`."""
        return self.np_random

    def _earned(self, reward: float) -> float:
        """What a reward adds to the return so far."""
        return reward

    def step(self, action: Any) -> Step:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.raw = self.columns.step(self.raw, self._earned(float(reward)))
        extended = self._extender(observation, self.raw)
        return extended, float(reward), terminated, truncated, info


class ReturnSoFar(ExtendedObservation):
    """Observations extended by the return so far, for policies trained with `mvpi.OfReturn`.

    >>> import mvpi.envs
    >>> env = mvpi.envs.ReturnSoFar(mvpi.envs.Markowitz())
    >>> env.reset(seed=0)[0]
    array([1., 0.])
    """

    def __init__(self, env: Env, scale: float = 1.0) -> None:
        super().__init__(env, OfReturn(as_risk(0.0)), scale)
        gym.utils.RecordConstructorArgs.__init__(self, scale=scale)


_BOUNDS = {RETURN_SO_FAR: (-np.inf, np.inf), RISK_AVERSION: (-BEYOND, BEYOND)}


def _is_finite(space: gym.Space[Any]) -> bool:
    kinds = gym.spaces.Discrete | gym.spaces.MultiDiscrete | gym.spaces.MultiBinary
    return isinstance(space, kinds)


def _in_range(risk: Risk, risk_aversion: float) -> float:
    known = range_of(risk)
    if known is None:
        raise InputError(f"{risk} is no range of risk aversions: leave risk_aversion out")
    return known.at(risk_aversion).risk_aversion
