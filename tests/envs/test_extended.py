"""Environments with extended observations."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import mvpi
from mvpi import InputError, OfReturn, RiskRange
from mvpi.envs import ExtendedObservation, FourState, Markowitz, ReturnSoFar


def test_the_return_so_far_is_the_sum_of_rewards() -> None:
    env = ReturnSoFar(Markowitz(horizon=20), scale=2.0)
    observation, _ = env.reset(seed=0)
    total, done = 0.0, False
    while not done:
        assert observation[-1] == pytest.approx(np.arcsinh(total / 2.0), rel=1e-6)
        assert env.observation_space.contains(observation)
        observation, reward, terminated, truncated, _ = env.step(np.array([0.5, -0.5]))
        total += float(reward)
        done = terminated or truncated
    assert observation[-1] == pytest.approx(np.arcsinh(total / 2.0), rel=1e-6)
    assert env.reset()[0][-1] == 0.0


def test_a_finite_set_becomes_a_vector() -> None:
    env = ReturnSoFar(FourState())
    assert env.observation_space.shape == (5,)
    assert env.reset(seed=0)[0].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]


class Keyed(gym.ObservationWrapper[Any, Any, Any]):
    """Observations in a dictionary."""

    def __init__(self) -> None:
        super().__init__(Markowitz())
        self.observation_space = gym.spaces.Dict({"x": self.env.observation_space})

    def observation(self, observation: Any) -> dict[str, Any]:
        return {"x": observation}


def test_a_dictionary_gets_a_key() -> None:
    env = ExtendedObservation(Keyed(), OfReturn(RiskRange(0.1, 1.0)))
    observation, _ = env.reset(seed=3)
    assert set(observation) == {"x", "extension"}
    assert env.observation_space.contains(observation)
    assert env.columns.decode(observation["extension"]) == pytest.approx(env.raw, rel=1e-6)


def test_the_risk_aversion_is_drawn_or_given() -> None:
    known = RiskRange(0.1, 1.0)
    env = ExtendedObservation(Markowitz(), known)
    drawn = {float(env.reset(seed=i)[0][-1]) for i in range(10)}
    assert len(drawn) > 5
    assert env.reset(seed=1)[0].tolist() == env.reset(seed=1)[0].tolist()
    fixed = ExtendedObservation(Markowitz(), known, risk_aversion=1.0)
    assert fixed.reset(seed=0)[0][-1] == 1.0


def test_what_cannot_be_extended() -> None:
    class Image(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(0, 255, (4, 4), np.uint8)
        action_space = gym.spaces.Discrete(2)

    with pytest.raises(InputError, match="flat Box, a finite set or a Dict"):
        ReturnSoFar(Image())
    with pytest.raises(InputError, match="scale must be > 0, got 0"):
        ReturnSoFar(Markowitz(), scale=0.0)
    with pytest.raises(InputError, match="no range of risk aversions"):
        ExtendedObservation(Markowitz(), OfReturn(1.0), risk_aversion=1.0)
    with pytest.raises(InputError, match=r"must be a gymnasium\.Env"):
        ReturnSoFar(None)  # type: ignore[arg-type]
    assert mvpi.envs.ReturnSoFar is ReturnSoFar
