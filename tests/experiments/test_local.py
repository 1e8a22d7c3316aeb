"""Experiments as values, and the runner on one machine: killed in every way it ends the same."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import shutil
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.experiments import (
    Gate,
    InBackground,
    at_the_gate,
    finish,
    kill,
    ppo,
    reason,
    results,
    stamps,
    start_runner,
    td3,
    told,
    wait_for,
    workers,
)

from mvpi import InputError
from mvpi._storage.locks import lock
from mvpi._storage.run_directory import RunDirectory
from mvpi.experiments import local
from mvpi.experiments.experiment import Experiment
from mvpi.experiments.local import LocalRunner
from mvpi.experiments.runner import ATTEMPTS, LOCKED, ended

BASE = Experiment("td3", "Hopper-v4", 1.0, 0, 1_000)


# ---- an experiment is a value ---------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "ppo"},
        {"environment": "Hopper-v5"},
        {"risk": 2.0},
        {"risk": "cvar:0.1"},
        {"seed": 1},
        {"steps": 1_001},
        {"action_noise": 0.2},
        {"episodes": 99},
        {"settings": {"gamma": 0.98}},
        {"settings": {"checkpoint_every": 9_999}},
    ],
)
def test_another_experiment_has_another_identity_and_name(change: dict[str, Any]) -> None:
    other = replace(BASE, **change)
    assert other.identity != BASE.identity
    assert other.name != BASE.name


@pytest.mark.parametrize(
    "same",
    [
        {"risk": 1},
        {"risk": "1"},
        {"seed": np.int64(0)},
        {"action_noise": np.float64(0.1)},
        {"settings": {"gamma": 0.99}},
        {"settings": {"hidden": [400, 300], "batch_size": np.int32(100)}},
    ],
)
def test_the_same_experiment_said_otherwise_has_the_same_identity(same: dict[str, Any]) -> None:
    other = replace(BASE, **same)
    assert other.identity == BASE.identity
    assert other.name == BASE.name
    assert Experiment.of_record(json.loads(json.dumps(other.record()))).name == BASE.name


def test_the_identity_of_today_is_that_of_earlier_versions() -> None:
    """Finished runs are found by it: a change would repeat them all."""
    assert BASE.name == "td3-Hopper-v4-risk-1.0-seed-0-d16e7df36d"
    earlier = replace(BASE, settings={"saturation_penalty": 0.0})  # which there was not
    assert earlier.name == "td3-Hopper-v4-risk-1.0-seed-0-19592acfd0"


def test_an_experiment_keeps_the_settings_it_was_made_with() -> None:
    settings = {"gamma": 0.9}
    experiment = replace(BASE, settings=settings)
    settings["gamma"] = 0.5
    assert experiment.settings == {"gamma": 0.9}
    with pytest.raises(TypeError, match="does not support item assignment"):
        experiment.settings["gamma"] = 0.5  # type: ignore[index]


def test_equal_experiments_are_one_in_a_set_also_after_a_journey() -> None:
    experiment = replace(BASE, settings={"hidden": [64, 64]})
    other = pickle.loads(pickle.dumps(experiment))
    assert other == experiment
    assert len({BASE, experiment, other}) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"algorithm": "sac"}, "algorithm must be one of td3, ppo, .*got 'sac'"),
        ({"settings": {"gama": 0.9}}, "unknown setting gama; did you mean gamma?"),
        ({"settings": {"gamma": 2.0}}, "gamma must be < 1, got 2.0"),
        ({"steps": -1}, "steps must be .*got -1"),
        ({"steps": 0}, "steps must be .*got 0"),
        ({"steps": 1_000.0}, "steps must be .*got 1000.0"),
        ({"seed": -1}, "seed must be .*got -1"),
        ({"episodes": 1}, "episodes must be .*got 1"),
        ({"action_noise": -0.1}, "action_noise must be .*got -0.1"),
        ({"action_noise": float("nan")}, "action_noise"),
        ({"risk": "cvar:2"}, "2"),
    ],
)
def test_an_experiment_that_makes_no_sense_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(BASE, **change)


def test_no_name_leads_out_of_the_root(tmp_path: Path) -> None:
    experiment = replace(BASE, environment="../../etc/x y")
    assert (tmp_path / experiment.name).resolve().parent == tmp_path.resolve()


def test_a_process_that_is_killed_again_and_again_is_given_up(tmp_path: Path) -> None:
    kills: Counter[str] = Counter()
    events = [ended(BASE, -signal.SIGSEGV, tmp_path, kills) for _ in range(ATTEMPTS)]
    assert [e.state for e in events] == ["waiting"] * (ATTEMPTS - 1) + ["failed"]
    assert events[-1].reason == f"its process was ended by SIGSEGV, {ATTEMPTS} times"
    assert ended(replace(BASE, seed=1), -signal.SIGSEGV, tmp_path, kills).state == "waiting"


def test_a_signal_without_a_name_has_its_number(tmp_path: Path) -> None:
    number = signal.SIGRTMIN + 3
    event = ended(BASE, -number, tmp_path, Counter())
    assert event.reason == f"its process was ended by signal {number}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 999}, "is damaged, or of another run: its checksum is another one"),
        ({"reward_mean": 0.25}, "is damaged, or of another run: its checksum is another one"),
        ({"run": "0" * 32}, "is damaged, or of another run: its checksum is another one"),
        (
            {"format": 1, "steps": 999},  # without a checksum
            "is damaged: it has 100 episodes after 999 steps, the experiment 100",
        ),
        (
            {"format": 1, "returns": [1.0, 2.0]},
            "is damaged: it has 2 episodes after 1000 steps, the experiment",
        ),
        ({"format": 3}, "was written by a newer mvpi; update this one"),
        ({"format": "1"}, "is damaged: format must be a whole number >= 1, got '1'"),
        ({"format": None}, "is damaged: format must be a whole number >= 1, got None"),
    ],
)
def test_an_outcome_of_something_else_is_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    file = finish(BASE, tmp_path) / "evaluation.json"
    assert BASE.outcome(tmp_path) is not None
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError) as caught:
        BASE.outcome(tmp_path)
    assert str(caught.value).startswith(f"{file} {words}")


# ---- nothing in the way ---------------------------------------------------------------------


def test_asking_again_starts_nothing_and_touches_nothing(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stamps(finished)
    monkeypatch.setattr(local.worker, "start", lambda *_: pytest.fail("a process was started"))
    experiments = [td3(), ppo(), td3()]
    assert told(list(LocalRunner(2)(experiments, finished))) == {
        e.name: ["done"] for e in (td3(), ppo())
    }
    assert stamps(finished) == before


def test_a_finished_run_is_tidied_up_and_a_damaged_outcome_is_told(
    finished: Path, undisturbed: Path
) -> None:
    """Killed after its outcome was written, a run still has the files that resume it."""
    replay = finished / td3().name / "replay.rows"
    replay.touch()
    damaged = finished / ppo().name / "evaluation.json"
    damaged.write_text("{")
    events = list(LocalRunner(2)([td3(), ppo()], finished))
    assert told(events) == {td3().name: ["running", "done"], ppo().name: ["running", "failed"]}
    assert str(damaged) in reason(events, ppo(), "failed")
    assert not replay.exists()
    assert results(finished, td3()) == results(undisturbed, td3())


def test_a_failure_is_told_with_its_reason_and_does_not_stop_the_others(
    tmp_path: Path, undisturbed: Path
) -> None:
    missing, broken, sound = (
        td3(environment="No-v0"),
        td3(environment="helpers.experiments:Broken-v0"),
        td3(),
    )
    events = list(LocalRunner(2)([missing, broken, sound], tmp_path))
    assert told(events) == {
        missing.name: ["running", "failed"],
        broken.name: ["running", "failed"],
        sound.name: ["running", "done"],
    }
    assert reason(events, missing, "failed").startswith("environment 'No-v0' cannot be made: ")
    assert "ZeroDivisionError" in reason(events, broken, "failed")
    assert "a wheel came off" in reason(events, broken, "failed")
    assert results(tmp_path, sound) == results(undisturbed, sound)


def test_an_experiment_that_cannot_be_started_does_not_stop_the_others(finished: Path) -> None:
    (finished / td3().name / "replay.rows").touch()  # something is left to do
    shutil.rmtree(finished / ppo().name)
    (finished / ppo().name).touch()
    events = list(LocalRunner(1)([ppo(), td3()], finished))
    assert told(events) == {ppo().name: ["failed"], td3().name: ["running", "done"]}
    words = reason(events, ppo(), "failed")
    assert words.startswith("its process cannot be started: ")
    assert words.endswith(f"File exists: '{finished / ppo().name}'")


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    words = "No locks available; this file system cannot lock files: use another directory"
    with pytest.raises(InputError, match=words):
        RunDirectory(tmp_path, {})
    with pytest.raises(InputError, match=words):
        BASE.run(tmp_path)
    events = list(LocalRunner(1)([BASE], tmp_path))
    assert told(events) == {BASE.name: ["failed"]}
    assert reason(events, BASE, "failed").endswith(words)


# ---- attacks --------------------------------------------------------------------------------


def test_workers_that_are_killed_or_stopped_go_on_and_end_the_same(
    tmp_path: Path, gate: Gate, undisturbed: Path
) -> None:
    experiments = [td3(), ppo()]
    gate.close()
    work = InBackground(LocalRunner(2), experiments, tmp_path)
    first, second = at_the_gate(gate, tmp_path, *experiments)
    kill(first, signal.SIGKILL)
    kill(second, signal.SIGTERM)
    gate.open()
    events = work.end()
    assert told(events) == {e.name: ["running", "waiting", "running", "done"] for e in experiments}
    assert reason(events, td3(), "waiting") == "its process was ended by SIGKILL"
    assert reason(events, ppo(), "waiting") == "its process was ended by SIGTERM"
    for experiment in experiments:
        assert results(tmp_path, experiment) == results(undisturbed, experiment)
    assert not workers(tmp_path)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_killed_runner_takes_its_workers_along_and_the_next_one_goes_on(
    finished: Path, gate: Gate, undisturbed: Path, number: signal.Signals
) -> None:
    shutil.rmtree(finished / td3().name)
    before = stamps(finished / ppo().name)
    gate.close()
    runner = start_runner("", finished, [td3(), ppo()])
    at_the_gate(gate, finished, td3())
    runner.send_signal(number)
    assert runner.wait() == -number
    wait_for(lambda: not td3().busy(finished), "workers to end with their runner")
    assert not workers(finished)
    gate.open()
    events = list(LocalRunner(2)([td3(), ppo()], finished))
    assert told(events) == {ppo().name: ["done"], td3().name: ["running", "done"]}
    assert results(finished, td3()) == results(undisturbed, td3())
    assert stamps(finished / ppo().name) == before


def test_two_runners_at_once_share_the_work(
    tmp_path: Path, gate: Gate, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "BUSY_WAIT", 0.5)
    gate.close()
    first = InBackground(LocalRunner(1), [td3()], tmp_path)
    (process,) = at_the_gate(gate, tmp_path, td3())
    second = InBackground(LocalRunner(1), [td3()], tmp_path)
    wait_for(lambda: "waiting" in told(second.events).get(td3().name, []), "the second to wait")
    gate.open()
    assert told(first.end()) == {td3().name: ["running", "done"]}
    assert told(second.end())[td3().name][-1] == "done"
    assert {e.reason for e in second.events} == {"", "locked by another process"}
    assert gate.reached == {process}
    assert results(tmp_path, td3()) == results(undisturbed, td3())


def test_what_another_process_is_at_is_told_once_and_costs_no_process(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "BUSY_WAIT", 0.1)
    monkeypatch.setattr(local.worker, "start", lambda *_: pytest.fail("a process was started"))
    directory = finished / td3().name
    (directory / "replay.rows").touch()  # something is left to do
    with (directory / ".experiment").open("w") as file:
        assert lock(file)
        work = InBackground(LocalRunner(1), [td3()], finished)
        wait_for(lambda: work.events, "the runner to wait")
        time.sleep(1.0)  # the lock is tried a few times
        (directory / "replay.rows").unlink()
    assert told(work.end()) == {td3().name: ["waiting", "done"]}
    assert reason(work.events, td3(), "waiting") == LOCKED


def test_closing_stops_workers_at_a_checkpoint(tmp_path: Path, gate: Gate) -> None:
    gate.close()
    events = LocalRunner(1)([td3(), ppo()], tmp_path)
    assert next(events).state == "running"
    (process,) = at_the_gate(gate, tmp_path, td3())
    assert b"\0JAX_PLATFORMS=cpu\0" in Path(f"/proc/{process}/environ").read_bytes()
    opened = threading.Timer(0.5, gate.open)
    opened.start()
    events.close()  # type: ignore[attr-defined]
    opened.join()
    assert not workers(tmp_path)
    assert (tmp_path / td3().name / "checkpoint.safetensors").exists()
    assert td3().outcome(tmp_path) is None
    assert not (tmp_path / ppo().name).exists()


@pytest.mark.slow
def test_closing_kills_workers_that_take_too_long(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_STOP_TIMEOUT", 0.5)
    gate.close()
    events = LocalRunner(1)([td3()], tmp_path)
    next(events)
    at_the_gate(gate, tmp_path, td3())
    events.close()  # type: ignore[attr-defined]
    assert not workers(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_runners_and_workers_killed_at_random_times(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    experiments = [td3(i, steps=6_000) for i in range(4)]
    list(LocalRunner(2)(experiments, tmp_path / "undisturbed"))
    root = tmp_path / "killed"
    for _ in range(8):
        runner = start_runner("", root, experiments)
        for _ in range(rng.randrange(3)):
            time.sleep(rng.uniform(0.0, 6.0))
            for process in workers(root).values():
                kill(process)
        time.sleep(rng.uniform(0.0, 6.0))
        runner.kill()
        runner.wait()
        wait_for(lambda: not workers(root), "workers to end with their runner")
    assert {states[-1] for states in told(list(LocalRunner(2)(experiments, root))).values()} == {
        "done"
    }
    for experiment in experiments:
        assert results(root, experiment) == results(tmp_path / "undisturbed", experiment)
