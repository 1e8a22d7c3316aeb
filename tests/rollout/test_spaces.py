"""Spaces: which an agent can use, and how its actions and observations become those of a box."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from helpers import worlds
from helpers.victims import TINY

import mvpi
from mvpi import InputError
from mvpi.agents.policy import Deterministic
from mvpi.rollout.spaces import BoxActions, Choices, FlatObservations, Spaces, States

FLOATS = Box(-1.0, 1.0, (2,), np.float32)
SB3 = "mvpi.sb3.risk_averse"
UNUSABLE: dict[str, tuple[Any, Any, str]] = {
    "dict": (Dict({"a": FLOATS}), FLOATS, "FlattenObservation"),
    "tuple": (Tuple([FLOATS]), FLOATS, "FlattenObservation"),
    "discrete": (Discrete(4), FLOATS, SB3),
    "text": (Text(4), FLOATS, SB3),
    "binary": (MultiBinary(4), FLOATS, SB3),
    "image": (Box(0, 255, (8, 8, 3), np.uint8), FLOATS, "FlattenObservation"),
    "matrix": (Box(0.0, 1.0, (3, 3), np.float32), FLOATS, "FlattenObservation"),
    "scalar": (Box(0.0, 1.0, (), np.float32), FLOATS, "FlattenObservation"),
    "whole numbers": (Box(0, 9, (3,), np.int64), FLOATS, SB3),
    "no observation": (Box(0.0, 1.0, (0,), np.float32), FLOATS, ""),
    "discrete actions": (FLOATS, Discrete(3), SB3),
    "several discrete actions": (FLOATS, MultiDiscrete([3, 3]), SB3),
    "whole actions": (FLOATS, Box(0, 9, (3,), np.int32), SB3),
    "matrix of actions": (FLOATS, Box(0.0, 1.0, (3, 3), np.float32), SB3),
    "scalar action": (FLOATS, Box(0.0, 1.0, (), np.float32), SB3),
    "no action": (FLOATS, Box(0.0, 1.0, (0,), np.float32), ""),
    "unbounded actions": (FLOATS, Box(-np.inf, np.inf, (2,), np.float32), "RescaleAction"),
    "half bounded actions": (FLOATS, Box(0.0, np.inf, (2,), np.float32), "RescaleAction"),
    "degenerate actions": (
        FLOATS,
        Box(np.zeros(2, np.float32), np.array([1.0, 0.0], np.float32)),
        "low < high",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_spaces(name: str) -> None:
    seen, done, remedy = UNUSABLE[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        env = worlds.Spaced(seen, done)
    for given in (env, lambda: env):
        with pytest.raises(InputError) as caught:
            mvpi.TD3(given)
        assert remedy in str(caught.value)
        assert "\n" not in str(caught.value)


BOUNDS: dict[str, tuple[list[float], list[float]]] = {
    "symmetric": ([-1.0, -1.0], [1.0, 1.0]),
    "asymmetric": ([-0.1, -3.0], [0.3, 0.7]),
    "far from zero": ([100.1, -0.3], [100.3, -0.1]),
    "tiny": ([-1e-4, 1e-3], [1e-4, 3e-3]),
}


@pytest.mark.parametrize("seen", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_actions_stay_inside_bounds_exactly(bounds: str, dtype: Any, seen: Any) -> None:
    """`Strict` refuses any other; large noise drives the actions to the bounds."""
    settings = {"exploration_noise": 3.0, "evaluation_every": 60, "learning_starts": 20}
    make = worlds.make("Strict", *BOUNDS[bounds], dtype, seen)
    learned = mvpi.TD3(make, 1.0, 3, **(TINY | settings)).learn(60)
    env = worlds.Strict(*BOUNDS[bounds], dtype, seen)
    rng = np.random.default_rng(0)
    o = (100 * rng.standard_normal((200, 3))).astype(seen)
    actions = learned.predict(o)
    assert (actions >= env.action_space.low).all()
    assert (actions <= env.action_space.high).all()
    ones = np.array([learned.predict(row) for row in o])
    span = env.action_space.high - env.action_space.low
    assert np.allclose(ones, actions, rtol=0, atol=1e-4 * span.max())


def box(low: Any, high: Any) -> Spaces:
    return Spaces(FlatObservations(1), BoxActions(low, high))


@pytest.mark.parametrize("bounds", BOUNDS)
def test_a_saturated_policy_comes_to_the_bounds_and_not_beyond(bounds: str) -> None:
    low, high = (np.array(b, np.float32) for b in BOUNDS[bounds])
    weight = np.full((1, 2), 1e6, np.float32)
    policy = Deterministic(box(low, high), (weight,), (np.zeros(2, np.float32),))
    actions = policy.predict([[-1.0], [1.0]])
    assert np.allclose(actions, [low, high], rtol=1e-6)
    assert (actions >= low).all()
    assert (actions <= high).all()


@pytest.mark.filterwarnings("error")
def test_bounds_near_the_largest_float_give_finite_actions() -> None:
    largest = float(np.finfo(np.float32).max)
    spaces = box(np.array([-largest], np.float32), np.array([largest], np.float32))
    policy = Deterministic(spaces, (np.zeros((1, 1), np.float32),), (np.zeros(1, np.float32),))
    assert policy.predict([1.0]).tolist() == [0.0]


@pytest.mark.parametrize("observation", [1.0, [1.0], [[[1.0, 1.0]]], [1.0, 2.0, 3.0], [[]], "ab"])
def test_observations_of_a_wrong_shape(observation: Any) -> None:
    with pytest.raises(InputError, match="observation must"):
        mvpi.TD3(worlds.make("Walk"), **TINY).predict(observation)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0 + 1e-12), (-1e300, 1e300)])
def test_a_box_that_only_float64_can_tell_is_kept_to(low: float, high: float) -> None:
    box_of_one = BoxActions(np.array([low]), np.array([high]))
    actions = box_of_one.to_env_action(np.linspace(-1.0, 1.0, 101, dtype=np.float32)[:, None])
    assert actions.dtype == np.float64
    assert (actions[0], actions[-1]) == (low, high)
    assert (np.diff(actions[:, 0]) > 0).all()
    assert ((actions >= low) & (actions <= high)).all()


def test_choices_and_states_are_numbered_as_in_the_environment() -> None:
    spaces = Spaces.of(worlds.Spaced(Discrete(3, start=5), Discrete(4, start=-1)), discrete=True)
    assert (spaces.observations, spaces.actions) == (States(3, 5), Choices(4, -1))
    assert [spaces.actions.to_env_action(i) for i in range(4)] == [-1, 0, 1, 2]
    np.testing.assert_array_equal(spaces.observations.vectors(6), [0.0, 1.0, 0.0])
    for outside in (4, 8):
        with pytest.raises(ValueError, match="must be a state from 5 to 7"):
            spaces.observations.vectors(outside)
