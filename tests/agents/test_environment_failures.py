"""Environments that break, and environments an agent cannot use."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import worlds
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from victims import TINY, Case, options, results, run

import mvpi
from mvpi import InputError, cli
from mvpi._storage.arrays import read_arrays
from mvpi.agents.policy import Deterministic
from mvpi.environment import ResumeWarning
from mvpi.errors import EnvironmentFailure
from mvpi.spaces import BoxActions, FlatObservations, Spaces

DEFECTS = (*worlds.DEFECTS_OF_STEP, *worlds.DEFECTS_OF_RESET)


def agent(*env: Any, **settings: Any) -> Any:
    return mvpi.TD3(worlds.make(*env), 1.0, 3, **(TINY | settings))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    run(Case(["Walk"], steps=400), out)
    return out


@pytest.mark.parametrize("what", DEFECTS)
def test_breaks_after_a_checkpoint(tmp_path: Path, whole: Path, what: str) -> None:
    """The failure names the step and the checkpoint, from which a repaired environment goes on."""
    out = tmp_path / "run"
    with pytest.raises(EnvironmentFailure) as caught:
        agent("Broken", what, 190).learn(400, out)
    message = str(caught.value)
    assert "\n" not in message
    steps = int(re.search(r"after (\d+) steps", message)[1])  # type: ignore[index]
    assert 189 <= steps < 250
    _, record = read_arrays(out / "checkpoint.safetensors", "checkpoint")
    assert 100 <= record["steps"] <= steps
    assert f"the checkpoint at step {record['steps']} in {out} is intact" in message
    agent("Walk").learn(400, out)
    assert results(out) == results(whole)


@pytest.mark.parametrize("what", DEFECTS)
@pytest.mark.parametrize("disk", [True, False])
def test_breaks_at_once(tmp_path: Path, whole: Path, what: str, disk: bool) -> None:
    out = tmp_path / "run"
    with pytest.raises(EnvironmentFailure) as caught:
        agent("Broken", what, 1).learn(400, out if disk else None)
    assert "\n" not in str(caught.value)
    assert re.search(r"after \d+ steps", str(caught.value))
    assert "checkpoint" not in str(caught.value)
    if disk:
        agent("Walk").learn(400, out)
        assert results(out) == results(whole)


@pytest.mark.parametrize("what", worlds.DEFECTS_OF_RESET)
def test_breaks_in_the_first_reset(what: str) -> None:
    with pytest.raises(EnvironmentFailure) as caught:
        agent("Broken", what, 0).learn(400)
    assert "\n" not in str(caught.value)


def test_says_what_was_raised() -> None:
    with pytest.raises(
        EnvironmentFailure, match="ZeroDivisionError in step: a wheel came off"
    ) as e:
        agent("Broken", "raise in step", 1).learn(400)
    assert isinstance(e.value.__cause__, ZeroDivisionError)


def test_large_but_finite_observations_are_no_reason_to_warn() -> None:
    class Large(worlds.Walk):
        def reset(self, **seed: Any) -> Any:
            super().reset(**seed)
            return np.full(2, 3e38), {}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mvpi.TD3(Large, 0.0, 3, **TINY).learn(40)


@pytest.mark.parametrize(
    "what", ["raise in step", "nan reward", "nan observation", *worlds.DEFECTS_OF_RESET]
)
@pytest.mark.parametrize("risk", [mvpi.MeanVariance(1.0), mvpi.VarianceBudget(0.1)])
def test_breaks_in_an_evaluation(tmp_path: Path, what: str, risk: mvpi.Risk) -> None:
    """The environment of evaluations is another instance: what it does must be told as well."""
    made = iter([worlds.Walk(), worlds.Walk(), worlds.Broken(what, 3)])
    with pytest.raises(EnvironmentFailure) as caught:
        mvpi.TD3(lambda: next(made), risk, 3, **(TINY | {"budget_every": 150})).learn(400, tmp_path)
    assert "\n" not in str(caught.value)
    assert re.search(r"after (150|200) steps; the checkpoint at step \d+", str(caught.value))


@pytest.mark.parametrize("what", ["raise in step", "dict observation", "raise in reset"])
def test_the_command_line_tells_it_in_one_line(
    tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"attack/{what.title().replace(' ', '')}-v0"
    gym.register(name, lambda: worlds.Broken(what, 190), disable_env_checker=True)
    try:
        with pytest.raises(SystemExit) as exited:
            cli.main(["train", "td3", *options(tmp_path / "run", Case(name)), "--json"])
    finally:
        del gym.registry[name]
    assert exited.value.code == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "is intact" in captured.err


def test_an_evaluation_of_a_broken_environment() -> None:
    with pytest.raises(EnvironmentFailure, match="wheel came off"):
        mvpi.evaluate(agent("Walk"), worlds.make("Broken", "raise in step", 3), episodes=1)


def test_a_buffer_that_the_environment_reuses_is_copied() -> None:
    """An environment may hand out its own array and change it at the next step."""
    fresh, reused = (agent("Buffered", copies).learn(200) for copies in (True, False))
    o = np.linspace(-1.0, 1.0, 20).reshape(-1, 2)
    assert np.array_equal(fresh.predict(o), reused.predict(o))


def test_a_state_outside_the_generators_is_warned_of(tmp_path: Path) -> None:
    agent("Forgetful").learn(250, tmp_path)
    with pytest.warns(ResumeWarning, match="its observation after"):
        agent("Forgetful").learn(400, tmp_path)


def test_no_warning_without_such_a_state(tmp_path: Path) -> None:
    agent("Walk").learn(250, tmp_path)
    agent("Walk").learn(400, tmp_path)


# ---- spaces ---------------------------------------------------------------------------------

FLOATS = Box(-1.0, 1.0, (2,), np.float32)
SB3 = "mvpi.sb3.risk_averse"
UNUSABLE: dict[str, tuple[Any, Any, str]] = {
    "dict": (Dict({"a": FLOATS}), FLOATS, SB3),
    "tuple": (Tuple([FLOATS]), FLOATS, SB3),
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
    learned = agent("Strict", *BOUNDS[bounds], dtype, seen, **settings).learn(60)
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
        agent("Walk").predict(observation)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0 + 1e-12), (-1e300, 1e300)])
def test_a_box_that_only_float64_can_tell_is_kept_to(low: float, high: float) -> None:
    box_of_one = BoxActions(np.array([low]), np.array([high]))
    actions = box_of_one.meaning(np.linspace(-1.0, 1.0, 101, dtype=np.float32)[:, None])
    assert actions.dtype == np.float64
    assert (actions[0], actions[-1]) == (low, high)
    assert (np.diff(actions[:, 0]) > 0).all()
    assert ((actions >= low) & (actions <= high)).all()
