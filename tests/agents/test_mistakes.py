"""Mistakes of a user: settings, directories and commands, each told in one line."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.mounts import read_only, small_disk, writable
from helpers.victims import TINY, Case, files_left_open, options, results, run, status_of

import mvpi
from mvpi import InputError, cli
from mvpi.agents.settings import TD3Settings
from mvpi.errors import ResumeWarning


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The line of a command that fails with status 2."""
    with files_left_open():
        status = status_of(["train", "td3", *arguments, "--json"])
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    assert captured.err.startswith("mvpi: ")
    assert captured.err.count("\n") == 1
    return captured.err


MARKOWITZ = "mvpi/Markowitz-v0"

WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"lerning_rate": 1e-3}, "did you mean learning_rate?"),
    ({"bufer_size": 10}, "did you mean buffer_size?"),
    ({"xyzzy": 1}, "known are gamma, hidden"),
    ({"gamma": 1.0}, "gamma must be < 1, got 1.0"),
    ({"gamma": -0.1}, "gamma must be >= 0, got -0.1"),
    ({"gamma": float("nan")}, "gamma must be >= 0, got nan"),
    ({"gamma": "0.9"}, "gamma must be >= 0, got '0.9'"),
    ({"gamma": True}, "gamma"),
    ({"gamma": None}, "gamma"),
    ({"gamma": 1j}, "gamma"),
    ({"gamma": 10**400}, "gamma"),
    ({"gamma": [0.9]}, "gamma"),
    ({"hidden": 8}, "hidden must be a sequence"),
    ({"hidden": "88"}, "hidden must be a sequence"),
    ({"hidden": ()}, "at least one layer"),
    ({"hidden": (8, 0)}, "each size in hidden"),
    ({"hidden": (8.0,)}, "each size in hidden"),
    ({"hidden": {8: 1}.items()}, "hidden must be a sequence"),
    ({"batch_size": 0}, "batch_size must be a whole number >= 1, got 0"),
    ({"batch_size": 8.0}, "batch_size must be a whole number >= 1, got 8.0"),
    ({"buffer_size": -1}, "buffer_size"),
    ({"buffer_size": 1e6}, "buffer_size"),
    ({"learning_starts": -1}, "learning_starts"),
    ({"tau": 0.0}, "tau must be > 0 and <= 1, got 0.0"),
    ({"tau": 1.5}, "tau"),
    ({"learning_rate": 0.0}, "learning_rate"),
    ({"learning_rate": float("inf")}, "learning_rate"),
    ({"exploration_noise": -1}, "exploration_noise"),
    ({"target_noise_clip": "0.5"}, "target_noise_clip"),
    ({"window": 0}, "window"),
    ({"evaluation_every": 0}, "evaluation_every"),
    ({"checkpoint_every": 2.5}, "checkpoint_every"),
    ({"budget_rate": 0}, "budget_rate"),
    ({"train_freq": 3, "policy_delay": 2}, "train_freq must be a multiple of policy_delay, got 3"),
    ({"risk": -1.0}, "risk"),
    ({"risk": "1.0"}, "risk"),
    ({"risk": float("nan")}, "risk"),
    ({"seed": -1}, "seed"),
    ({"seed": 0.5}, "seed"),
    ({"seed": None}, "seed"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_SETTINGS)
def test_wrong_settings(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        mvpi.TD3(MARKOWITZ, **wrong)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_setting_refuses_text_and_lists() -> None:
    for field in dataclasses.fields(TD3Settings):
        for wrong in ("many", [object()], None, float("nan"), -1):
            if (field.name, wrong) == ("gradient_steps", -1):
                continue  # as many as steps
            with pytest.raises(InputError, match=field.name):
                mvpi.TD3(MARKOWITZ, **{field.name: wrong})


def numbers(kind: Callable[[Any], Any], whole: Callable[[Any], Any]) -> dict[str, Any]:
    """The tiny settings in other types of numbers."""
    plain = (
        TINY
        | {"evaluation_every": 100}
        | {"gamma": 0.5, "tau": 0.25, "learning_rate": 0.125, "exploration_noise": 0.25}
    )
    return {
        name: [whole(n) for n in value]
        if isinstance(value, list)
        else (whole(value) if isinstance(value, int) else kind(value))
        for name, value in plain.items()
    }


@pytest.mark.parametrize(
    ("kind", "whole"), [(np.float64, np.int64), (np.float32, np.uint8), (np.float16, np.int16)]
)
def test_numbers_of_numpy_train_the_same(
    tmp_path: Path, kind: Callable[[Any], Any], whole: Callable[[Any], Any]
) -> None:
    there = mvpi.TD3(MARKOWITZ, 1.0, 0, **numbers(float, int))
    here = mvpi.TD3(MARKOWITZ, np.float64(1.0), np.int64(0), **numbers(kind, whole))
    assert here.config() == there.config()
    there.learn(150, tmp_path / "there")
    here.learn(150, tmp_path / "here")
    assert results(tmp_path / "here") == results(tmp_path / "there")


@pytest.mark.parametrize("kind", [np.asarray, Fraction, Decimal])
def test_other_numbers_are_numbers(kind: Any) -> None:
    there = mvpi.TD3(MARKOWITZ, 1.0, 0, **numbers(float, int))
    assert mvpi.TD3(MARKOWITZ, 1.0, 0, **numbers(kind, int)).config() == there.config()


@pytest.mark.parametrize("steps", [0, -1, 1.5, "100", None, True])
def test_wrong_steps(steps: Any) -> None:
    with pytest.raises(InputError, match="steps must be a whole number >= 1"):
        Case().agent().learn(steps)


@pytest.mark.parametrize("env", [None, 3, ["CartPole-v1"], lambda: None, lambda: 3, object()])
def test_what_is_no_environment(env: Any) -> None:
    with pytest.raises(InputError):
        mvpi.TD3(env)


def test_every_registered_environment_can_be_used_or_is_refused_in_one_line() -> None:
    for name in sorted(gym.registry):
        if "/" in name and not name.startswith("mvpi"):
            continue
        message = ""
        try:
            mvpi.TD3(name)
        except InputError as error:
            message = str(error)
        assert "\n" not in message, name


WRONG_COMMANDS: dict[str, dict[str, Any]] = {
    "unknown environment": {"env": "NoSuch-v0"},
    "environment of an unknown module": {"env": "no_such_module:NoSuch-v0"},
    "no environment name": {"env": ""},
    "no module name": {"env": ":"},
    "half a module name": {"env": ".:x"},
    "environment without its arguments": {"env": "mvpi/NeedsMore-v0"},
    "old environment": {"env": "HalfCheetah-v2"},
    "discrete actions": {"env": "CartPole-v1"},
    "discrete actions and noise": {"env": "CartPole-v1", "action_noise": 0.1},
    "risk of words": {"risk": "bold"},
    "risk below 0": {"risk": "cvar:-0.1"},
    "risk nan": {"risk": "nan"},
    "risk inf": {"risk": "inf"},
    "cvar above 1": {"risk": "cvar:2"},
    "cvar without level": {"risk": "cvar:"},
    "too many numbers": {"risk": "cvar:0.1:0.5:3"},
    "budget of nothing": {"risk": "budget:0"},
    "negative noise": {"action_noise": "nan"},
    "no steps": {"steps": 0},
    "contradiction": {"train_freq": 3},
    "buffer beyond any disk": {"buffer_size": 10**17},
    "buffer beyond 64 bits": {"buffer_size": 10**30},
    "window beyond memory": {"window": 10**15},
    "window beyond 64 bits": {"window": 10**30},
}


@pytest.mark.parametrize("name", WRONG_COMMANDS)
def test_wrong_commands(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(
        gym.registry,
        "mvpi/NeedsMore-v0",
        gym.envs.registration.EnvSpec("mvpi/NeedsMore-v0", "mvpi.envs:RiskyZone"),
    )
    told(capsys, *options(tmp_path / "run", Case(), **WRONG_COMMANDS[name]))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--env"],
        ["--env", MARKOWITZ, "--steps", "many"],
        ["--env", MARKOWITZ, "--steps", "1e6"],
        ["--env", MARKOWITZ, "--steps", "-1"],
        ["--env", MARKOWITZ, "--seed", "-1"],
        ["--env", MARKOWITZ, "--risk", "-1"],
        ["--env", MARKOWITZ, "--action-noise", "-1"],
        ["--env", MARKOWITZ, "--gamma", "1.5"],
        ["--env", MARKOWITZ, "--hidden"],
        ["--env", MARKOWITZ, "--no-such-option", "1"],
        ["--env", MARKOWITZ, "sac"],
    ],
)
def test_mistaken_arguments(
    tmp_path: Path,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exited:
        cli.main(["train", "td3", *arguments])
    assert exited.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.strip() or captured.out.strip()
    assert "Traceback" not in captured.err + captured.out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("env", ["Walk", "Deaf"])
def test_divergence_is_not_blamed_on_the_environment(tmp_path: Path, env: str) -> None:
    """Steps far too large: weights and losses become infinite, which no checkpoint can hold."""
    case = Case([env], steps=300, settings={"learning_rate": 1e30})
    with files_left_open(), pytest.raises(Exception, match=r"learning_rate|diverge") as caught:
        case.agent().learn(300, tmp_path / "run")
    assert type(caught.value).__module__ == "mvpi.errors"


# ---- directories ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    run(Case(steps=300), out)
    return out


def contents(out: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in out.iterdir()
        if path.name != ".lock"
    }


def test_a_finished_run_asked_again_changes_nothing(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(finished)
    cli.main(["train", "td3", *options(finished, Case(steps=300)), "--json"])
    assert '"steps": 300' in capsys.readouterr().out
    assert contents(finished) == before


def test_fewer_steps_than_done(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(finished)
    line = told(capsys, *options(finished, Case(steps=299)))
    assert "300" in line
    assert "299" in line
    assert contents(finished) == before


def test_fewer_steps_than_the_checkpoint_when_its_policy_was_not_written(
    tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "policy.safetensors").unlink()
    line = told(capsys, *options(out, Case(steps=250)))
    assert "300" in line


def test_other_settings_are_all_named_with_both_values(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(finished)
    other: dict[str, Any] = {"gamma": 0.5, "hidden": [9], "window": 71, "seed": 4}
    other |= {"risk": "cvar:0.2", "action_noise": 0.25}
    line = told(capsys, *options(finished, Case(steps=300), **other))
    for phrase in (
        "gamma is 0.99 there and 0.5 here",
        "hidden is [8, 8] there and [9] here",
        "window is 70 there and 71 here",
        "seed is 3 there and 4 here",
        "risk is '1.0' there and 'cvar:0.2:1.0' here",
        "action_noise is 0.0 there and 0.25 here",
    ):
        assert phrase in line
    assert contents(finished) == before
    line = told(capsys, *options(finished, Case("Pendulum-v1", steps=300)))
    assert f"id is '{MARKOWITZ}' there and 'Pendulum-v1' here" in line


def test_a_run_without_its_settings_is_left_alone(
    tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "config.json").unlink()
    before = contents(out)
    assert "without its config.json" in told(capsys, *options(out, Case(steps=700)))
    assert contents(out) == before


def test_lost_rows_are_told(tmp_path: Path, finished: Path) -> None:
    """Refused, but in a directory of format 1, whose checkpoint does not know the rows."""
    out, old = tmp_path / "run", tmp_path / "old"
    shutil.copytree(finished, out)
    (out / "metrics.csv").unlink()
    with pytest.raises(InputError, match=r"metrics\.csv is damaged: it does not begin with"):
        Case(steps=500).agent().learn(500, out)
    shutil.copytree(Path(__file__).parent / "format_1" / "finished", old)
    (old / "metrics.csv").unlink()
    settings = {"buffer_size": 40, "hidden": [4], "window": 30, "saturation_penalty": 0.0}
    agent = Case(steps=500, settings=settings).agent()
    with pytest.warns(ResumeWarning, match=r"metrics\.csv lacks 1 rows of before step 300") as told:
        agent.learn(500, old)
    assert told[0].filename == __file__


def test_a_loaded_policy_does_not_begin_anew(tmp_path: Path, finished: Path) -> None:
    agent = mvpi.load(finished)
    with pytest.raises(InputError, match="a policy of 300 steps without the rest"):
        agent.learn(400, tmp_path / "new")
    agent.env_factory = None
    with pytest.raises(InputError, match="does not name its environment"):
        agent.learn(400, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_steps_of_numpy(tmp_path: Path) -> None:
    agent = Case().agent()
    for _ in range(2):  # learned, and found finished
        agent.learn(np.int64(120), tmp_path / "run")
    agent.save(tmp_path / "policy.safetensors")
    assert agent.steps == mvpi.load(tmp_path / "policy.safetensors").steps == 120


def test_the_risk_of_the_caller_is_checked_as_such(finished: Path) -> None:
    with pytest.raises(InputError, match=r"^risk_aversion must be >= 0, got -1"):
        mvpi.load(finished, risk=-1)


def test_two_agents_of_one_process_do_not_share_a_directory(tmp_path: Path) -> None:
    def second(row: Any) -> None:
        Case().agent().learn(700, tmp_path / "run")

    with pytest.raises(InputError, match="another process is training in"):
        Case().agent().learn(700, tmp_path / "run", on_row=second)
    # And the lock is free again.
    run(Case(steps=300), tmp_path / "run")


@pytest.mark.parametrize("out", ["a file", "below a file", "proc", "null", "a loop", "long"])
def test_directories_that_cannot_be_written(
    tmp_path: Path, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    path = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "run",
        "proc": Path("/proc/run"),
        "null": Path("/dev/null"),
        "a loop": tmp_path / "loop",
        "long": tmp_path / ("x" * 300),
    }[out]
    line = told(capsys, *options(path, Case()))
    assert str(path)[:40] in line
    assert (tmp_path / "file").read_text() == "mine"


def test_a_disk_that_became_read_only(
    tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "disk", kilobytes=1_024) as disk:
        shutil.copytree(finished, disk / "run")
        read_only(disk)
        line = told(capsys, *options(disk / "run", Case(steps=700)))
        assert "Read-only" in line
        writable(disk)
        run(Case(steps=700), disk / "run")
        run(Case(steps=700), tmp_path / "whole")
        assert results(disk / "run") == results(tmp_path / "whole")


@pytest.mark.parametrize("room", [0, 4, 8, 16, 28, 40, 60])
def test_a_full_disk(tmp_path: Path, room: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Fails in one line wherever the space ends; with space again the run goes on exactly."""
    case = Case(steps=700, settings={"buffer_size": 900, "checkpoint_every": 200})
    run(case, tmp_path / "whole")
    with small_disk(tmp_path / "disk", kilobytes=512) as disk:
        out = disk / "run"
        run(dataclasses.replace(case, steps=250), out)
        before = (out / "checkpoint.safetensors").read_bytes()
        free = shutil.disk_usage(disk).free
        (disk / "filler").write_bytes(bytes(max(0, free - 1024 * room)))
        status = status_of(["train", "td3", *options(out, case), "--json"])
        captured = capsys.readouterr()
        assert status or room > 0
        if status:
            assert status == 2
            assert captured.err.count("\n") == 1
            assert "No space left" in captured.err
            if room == 0:
                assert (out / "checkpoint.safetensors").read_bytes() == before
        (disk / "filler").unlink()
        run(case, out)
        assert results(out) == results(tmp_path / "whole")


def test_a_directory_deleted_while_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mvpi.rollout.guard import GuardedEnv

    step = GuardedEnv.step
    taken = 0

    def then_delete(self: Any, action: Any) -> Any:
        nonlocal taken
        taken += 1
        if taken == 150:
            shutil.rmtree(tmp_path / "run")
        return step(self, action)

    monkeypatch.setattr(GuardedEnv, "step", then_delete)
    line = told(capsys, *options(tmp_path / "run", Case()))
    assert str(tmp_path / "run") in line


@pytest.mark.parametrize(
    ("algorithm", "risk", "other"),
    [
        *((name, "1.0", "2.0") for name in ("ppo", "mvp", "tamar", "prashanth", "mean-gini")),
        ("cvar-pg", "cvar:0.25:1.0", "cvar:0.5:1.0"),
    ],
)
def test_every_algorithm_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], algorithm: str, risk: str, other: str
) -> None:
    """Train, evaluate, and a mistake: what a user would type."""
    out = str(tmp_path / "run")
    few = ["--evaluation-episodes", "2", "--hidden", "8"]
    train = ["train", algorithm, "--env", "mvpi/Liquidity-v0", "--out", out, "--json", *few]
    cli.main([*train, "--risk", risk, "--steps", "300"])
    facts = json.loads(capsys.readouterr().out)
    assert (facts["algorithm"], facts["steps"], facts["risk"]) == (algorithm, 300, risk)
    cli.main(["evaluate", out, "--episodes", "3", "--json"])
    assert len(json.loads(capsys.readouterr().out)["returns"]) == 3
    assert mvpi.load(out).name == algorithm
    with pytest.raises(SystemExit) as exited:
        cli.main([*train, "--risk", other, "--steps", "300"])
    assert exited.value.code == 2
    error = capsys.readouterr().err
    assert f"risk is '{risk}' there and '{other}' here" in error
    assert error.count("\n") == 1
