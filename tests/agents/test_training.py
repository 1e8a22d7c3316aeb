"""Runs that are killed: resumed with the same settings they end with the same bytes."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.victims import (
    Case,
    Death,
    Server,
    die_at_every_event_of_files,
    kill_processes,
    options,
    results,
    run,
    snapshot,
    survive,
)

import mvpi
from mvpi import cli
from mvpi._storage.arrays import read_arrays
from mvpi.rollout.guard import GuardedEnv

CASES = {
    # Between two checkpoints at least 100 transitions are stored.
    "ring wraps several times": Case(settings={"buffer_size": 17}),
    "ring wraps about once": Case(settings={"buffer_size": 90}),
    "ring wraps exactly at a checkpoint": Case(settings={"buffer_size": 100}),
    "ring of two checkpoints": Case(settings={"buffer_size": 200}),
    "ring of one row": Case(settings={"buffer_size": 1}),
    "ring never wraps": Case(settings={"buffer_size": 10_000}),
    "cvar": Case(risk="cvar:0.2"),
    "budget": Case(risk="budget:0.01", steps=400, settings={"budget_every": 50}),
    "smoothed actor": Case(["Walk"], settings={"actor_smoothing": 0.3}),
    "random episodes": Case(["Walk"], settings={"buffer_size": 37}),
    "random episodes, long ring": Case(["Walk"], risk="entropic:0.5"),
    "noisy actions": Case(action_noise=0.2, risk="0"),
    "pendulum": Case("InvertedPendulum-v5", settings={"buffer_size": 64}),
    "no learning": Case(["Walk"], settings={"learning_starts": 10_000}),
    "a checkpoint at every episode": Case(["Walk"], settings={"checkpoint_every": 1}),
    "no checkpoint": Case(["Walk"], steps=150, settings={"checkpoint_every": 10_000}),
}


# In every run of the tests; all of them are in the slow one below.
FAST = (
    "ring wraps several times",
    "ring wraps exactly at a checkpoint",
    "ring never wraps",
    "cvar",
    "budget",
    "random episodes",
    "pendulum",
    "no checkpoint",
)


@pytest.mark.parametrize("name", FAST)
def test_killed_again_and_again(tmp_path: Path, name: str) -> None:
    assert survive(CASES[name], seed=1, kills=6, tmp_path=tmp_path) > 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", CASES)
def test_killed_forty_times(tmp_path: Path, name: str, seed: int) -> None:
    survive(CASES[name], seed=seed + 100, kills=40, tmp_path=tmp_path)


@pytest.mark.slow
def test_half_cheetah_with_noisy_actions(tmp_path: Path) -> None:
    settings = {"checkpoint_every": 1_000, "evaluation_every": 2_000, "buffer_size": 700}
    case = Case("HalfCheetah-v4", steps=6_000, action_noise=0.1, settings=settings)
    run(case, tmp_path / "whole")
    out = tmp_path / "0"
    for i, at in enumerate([500, 1_400, 900, 2_600, 1_001, 300, 1_900]):
        assert snapshot(case, out, Death(("add",), at), tmp_path / f"{i + 1}")
        out = tmp_path / f"{i + 1}"
    run(case, out)
    assert results(out) == results(tmp_path / "whole")


def test_killed_once_at_every_event_of_files_that_is_no_journal_entry(tmp_path: Path) -> None:
    settings = {"buffer_size": 10_000, "evaluation_every": 60, "checkpoint_every": 30}
    case = Case(["Walk"], steps=100, settings=settings)
    assert die_at_every_event_of_files(case, tmp_path) > 30


def test_killed_once_at_journal_entries_of_a_small_ring(tmp_path: Path) -> None:
    case = Case(steps=330, settings={"buffer_size": 40})
    counts = run(case, tmp_path / "whole")
    for at in range(0, counts["write"], 16):
        killed = tmp_path / f"{at}"
        assert snapshot(case, tmp_path / f"{at}-before", Death(("write",), at, 0.6), killed)
        run(case, killed)
        assert results(killed) == results(tmp_path / "whole"), f"write {at}"


def test_killed_three_times_at_the_same_place(tmp_path: Path) -> None:
    case = CASES["ring wraps several times"]
    run(case, tmp_path / "whole")
    out = tmp_path / "0"
    assert snapshot(case, out, Death(("add",), 250), tmp_path / "1")
    # The last checkpoint is that of step 200.
    for i in (1, 2, 3):
        assert snapshot(case, tmp_path / f"{i}", Death(("add",), 50), tmp_path / f"{i + 1}")
    run(case, tmp_path / "4")
    assert results(tmp_path / "4") == results(tmp_path / "whole")


def test_killed_before_the_first_checkpoint(tmp_path: Path) -> None:
    case = CASES["ring wraps several times"]
    run(case, tmp_path / "whole")
    for at in (0, 5, 17, 60, 99):
        to = tmp_path / f"{at}"
        assert snapshot(case, tmp_path / f"{at}-before", Death(("add",), at), to)
        assert not (to / "checkpoint.safetensors").exists()
        # A second kill, earlier than the first, finds the files of the first.
        assert snapshot(case, to, Death(("add",), at // 2), tmp_path / f"{at}-again")
        run(case, tmp_path / f"{at}-again")
        assert results(tmp_path / f"{at}-again") == results(tmp_path / "whole")


@pytest.mark.parametrize("steps", [300, 350])
def test_killed_after_the_last_step_before_the_policy_is_written(
    tmp_path: Path, steps: int
) -> None:
    case = Case(steps=steps)
    counts = run(case, tmp_path / "whole")
    for back in (1, 2):
        death = Death(("replace",), counts["replace"] - back)
        assert snapshot(case, tmp_path / f"{back}-before", death, tmp_path / f"{back}")
        run(case, tmp_path / f"{back}")
        assert results(tmp_path / f"{back}") == results(tmp_path / "whole")


@pytest.mark.parametrize("env", ["mvpi/Markowitz-v0", ["Walk"]])
@pytest.mark.parametrize("steps", [[300, 600], [200, 600], [50, 600], [310, 311, 455, 600]])
def test_prolonged_is_the_same_as_at_once(
    tmp_path: Path, steps: list[int], env: str | list[str]
) -> None:
    for part in steps:
        run(Case(env, steps=part), tmp_path / "parts")
        run(Case(env, steps=part), tmp_path / f"{part}")
        assert results(tmp_path / "parts") == results(tmp_path / f"{part}")


def test_a_run_that_ended_with_an_episode_is_prolonged_from_there(tmp_path: Path) -> None:
    """Although no checkpoint was due yet, and without a warning."""
    rare = {"checkpoint_every": 10_000}
    run(Case(steps=300, settings=rare), tmp_path / "parts")
    _, record = read_arrays(tmp_path / "parts" / "checkpoint.safetensors", "checkpoint")
    assert record["steps"] == 300
    run(Case(steps=600, settings=rare), tmp_path / "parts")
    run(Case(steps=600, settings=rare), tmp_path / "whole")
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


def test_what_is_made_again_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(Case(steps=250), tmp_path / "run")
    assert caplog.messages == []
    run(Case(steps=300), tmp_path / "run")
    assert "holds 250 steps, its last checkpoint is of step 200" in caplog.text


def test_prolonging_is_killed_and_resumed(tmp_path: Path) -> None:
    run(Case(steps=600), tmp_path / "whole")
    run(Case(steps=350), tmp_path / "0")
    assert snapshot(Case(steps=600), tmp_path / "0", Death(("add",), 120), tmp_path / "1")
    run(Case(steps=600), tmp_path / "1")
    assert results(tmp_path / "1") == results(tmp_path / "whole")


def test_one_agent_in_memory_and_in_a_directory_learn_the_same(tmp_path: Path) -> None:
    case = CASES["random episodes"]
    run(case, tmp_path / "run")
    case.agent().learn(case.steps).save(tmp_path / "memory.safetensors")
    assert (tmp_path / "memory.safetensors").read_bytes() == results(tmp_path / "run")[0]


def test_an_interrupted_longer_run_is_not_taken_for_a_finished_shorter_one(
    tmp_path: Path,
) -> None:
    """The checkpoint at step 300 of a longer run has a policy, but no evaluation at step 300."""
    run(Case(steps=300), tmp_path / "whole")
    assert snapshot(Case(steps=700), tmp_path / "0", Death(("step",), 350), tmp_path / "1")
    run(Case(steps=300), tmp_path / "1")
    assert results(tmp_path / "1") == results(tmp_path / "whole")


def test_a_finished_run_whose_prolonging_was_killed_at_once_is_whole(tmp_path: Path) -> None:
    run(Case(steps=350), tmp_path / "whole")
    run(Case(steps=350), tmp_path / "0")
    assert snapshot(Case(steps=700), tmp_path / "0", Death(("step",), 5), tmp_path / "1")
    run(Case(steps=350), tmp_path / "1")
    assert results(tmp_path / "1") == results(tmp_path / "whole")


# ---- real processes -------------------------------------------------------------------------


def test_processes_killed_five_times(tmp_path: Path, server: Server) -> None:
    case = Case(["Walk"], steps=1_000, settings={"buffer_size": 41})
    assert kill_processes(case, 5, tmp_path, server, within=60) == 5


@pytest.mark.slow
def test_processes_killed_twenty_times(tmp_path: Path, server: Server) -> None:
    case = Case(["Walk"], steps=6_000, settings={"buffer_size": 41})
    assert kill_processes(case, 20, tmp_path, server, within=60) == 20


@pytest.mark.slow
@pytest.mark.parametrize("size", [100, 100_000])
def test_processes_killed_twenty_times_with_a_long_ring(
    tmp_path: Path, server: Server, size: int
) -> None:
    case = Case(["Walk"], steps=6_000, settings={"buffer_size": size})
    assert kill_processes(case, 20, tmp_path, server) >= 10


def test_processes_and_copies_agree(tmp_path: Path, server: Server) -> None:
    case = CASES["ring wraps several times"]
    counts = run(case, tmp_path / "here")
    assert server.run(case, tmp_path / "there").counts == counts
    assert results(tmp_path / "here") == results(tmp_path / "there")
    death = Death(("add",), 266)
    assert server.run(case, tmp_path / "killed", death).killed
    assert snapshot(case, tmp_path / "given up", death, tmp_path / "copied")
    for file in ("replay.rows", "replaced-200.journal"):
        assert (tmp_path / "killed" / file).read_bytes() == (
            tmp_path / "copied" / file
        ).read_bytes()
    left = [
        read_arrays(tmp_path / name / "checkpoint.safetensors", "checkpoint")
        for name in ("killed", "copied")
    ]
    for arrays, record in left:
        del record["metrics"], record["checksum"]  # of rows that say how fast the machine is
        assert record == left[0][1]
        assert all(np.array_equal(arrays[name], left[0][0][name]) for name in arrays)


# ---- signals --------------------------------------------------------------------------------


def start(arguments: list[str], until: Path) -> subprocess.Popen[str]:
    """`mvpi train`, running, once it has changed that file."""
    before = until.stat().st_mtime_ns if until.exists() else 0
    process = subprocess.Popen(
        [sys.executable, "-m", "mvpi", "train", "td3", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: until.exists() and until.stat().st_mtime_ns != before, process)
    return process


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Something that the process, still running, is to do."""
    deadline = time.monotonic() + 180
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow  # the quick one is that of two signals
def test_asked_to_stop_twice_and_then_left_alone(tmp_path: Path) -> None:
    """One line, status 130, a checkpoint; in the end the result is as if nothing had been."""
    out = tmp_path / "run"
    case = Case(steps=20_000, settings={"evaluation_every": 9_000})
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start(options(out, case), until=out / "policy.safetensors")
        process.send_signal(number)
        _, errors = process.communicate(timeout=180)
        assert process.returncode == 130
        assert "Traceback" not in errors
        _, record = read_arrays(out / "checkpoint.safetensors", "checkpoint")
        at = f"stopped after a checkpoint at step {record['steps']}"
        assert errors.strip().splitlines()[-1] == f"mvpi: {at}; the same command resumes it"
        assert mvpi.load(out).steps == record["steps"] < case.steps
    # The rest of 20,000 steps would take long: another run is compared where this one ended.
    steps = int(record["steps"]) + 150
    shorter = dataclasses.replace(case, steps=steps)
    run(shorter, out)
    run(shorter, tmp_path / "whole")
    assert results(out) == results(tmp_path / "whole")


TWICE_INTERRUPTED = """
import os, runpy, signal, sys, time
from pathlib import Path
from mvpi.errors import ResumeWarning
from mvpi.rollout.guard import GuardedEnv

ready, go = Path(sys.argv.pop(1)), Path(sys.argv.pop(1))
step, taken = GuardedEnv.step, 0

def interrupted(self, action):
    global taken
    taken += 1
    if taken == 250:
        ready.touch()
        while not go.exists():
            time.sleep(0.01)
    if taken in (250, 252):
        os.kill(os.getpid(), signal.SIGINT)
    return step(self, action)

GuardedEnv.step = interrupted
runpy.run_module("mvpi", run_name="__main__")
"""


def test_two_signals_stop_at_once_and_the_directory_is_locked_until_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both come in the middle of an episode, which the first of them would let end."""
    out, ready, go = tmp_path / "run", tmp_path / "ready", tmp_path / "go"
    arguments = options(out, Case(steps=100_000, settings={"checkpoint_every": 2_000}))
    process = subprocess.Popen(
        [sys.executable, "-c", TWICE_INTERRUPTED, ready, go, "train", "td3", *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(ready.exists, process)
    with pytest.raises(SystemExit) as exited:
        cli.main(["train", "td3", *arguments])
    assert exited.value.code == 2
    assert f"another process is training in {out}" in capsys.readouterr().err
    go.touch()
    output, errors = process.communicate(timeout=180)
    assert process.returncode == 130
    assert output == ""
    assert errors.count("\n") == 1
    assert "resumes" in errors


def test_stopped_in_memory_it_can_learn_on() -> None:
    """The first Ctrl-C waits for the end of the episode; nothing is lost."""
    agent, whole = (Case().agent() for _ in range(2))
    step, taken = GuardedEnv.step, 0

    def then_interrupt(self: Any, action: Any) -> Any:
        nonlocal taken
        taken += 1
        if taken == 250:
            signal.raise_signal(signal.SIGINT)
        return step(self, action)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GuardedEnv, "step", then_interrupt)
        with pytest.raises(KeyboardInterrupt, match="stopped at step 300; learn again goes on"):
            agent.learn(700)
    assert agent.steps == 300
    observation = np.ones((1, 1))
    assert agent.learn(700).predict(observation) == pytest.approx(
        whole.learn(700).predict(observation), abs=0.0
    )


INTERRUPTED_IMPORT = """
import os, runpy, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)
module = sys.argv.pop(1)

class Interrupter:
    def find_spec(self, name, *rest):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupter())
runpy.run_module("mvpi", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["tyro", "gymnasium", "jax"])
def test_a_signal_while_importing_is_no_traceback(tmp_path: Path, module: str) -> None:
    """Importing takes seconds, a good time for a Ctrl-C."""
    arguments = [module, "train", "td3", *options(tmp_path / "run", Case())]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in done.stderr
