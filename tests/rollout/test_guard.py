"""Environments that break: what they did is told in one line, and what was learned is left."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers import worlds
from helpers.victims import TINY, Case, options, results, run

import mvpi
from mvpi import cli
from mvpi._storage.arrays import read_arrays
from mvpi.errors import EnvironmentFailure, ResumeWarning

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
    made = iter([worlds.Walk(), worlds.Broken(what, 3)])
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
