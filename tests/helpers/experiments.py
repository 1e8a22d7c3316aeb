"""Small experiments, the gate that holds them up, their processes, and what they leave behind."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from mvpi.agents.training import TIMING
from mvpi.experiments.experiment import LOG, Experiment
from mvpi.experiments.outcome import Outcome
from mvpi.experiments.runner import Event, Runner

TESTS = str(Path(__file__).parents[1])
"""Worker processes find this package there: to be put in front of PYTHONPATH."""
GATE = "MVPI_TEST_GATE"
"""The environment variable that names the directory of the gate."""
PATIENCE = 180.0
"""Seconds until something that has to happen is said not to; the machine may be slow."""
_COMMON: dict[str, Any] = {
    "hidden": (8,),
    "evaluation_every": 500,
    "evaluation_episodes": 2,
    "checkpoint_every": 100,
}
TD3 = {**_COMMON, "learning_starts": 100, "batch_size": 16, "buffer_size": 150}
PPO = {**_COMMON, "n_steps": 100, "batch_size": 50, "n_epochs": 2}


def td3(seed: int = 0, environment: str = "helpers.experiments:Walk-v0", **more: Any) -> Experiment:
    given: dict[str, Any] = {"steps": 1_500, "episodes": 5, "settings": TD3, **more}
    return Experiment("td3", environment, 1.0, seed, **given)


def ppo(seed: int = 0, environment: str = "helpers.experiments:Walk-v0", **more: Any) -> Experiment:
    given: dict[str, Any] = {"steps": 1_500, "episodes": 5, "settings": PPO, **more}
    return Experiment("ppo", environment, "cvar:0.5", seed, **given)


# ---- environments ---------------------------------------------------------------------------


class Walk(gym.Env[Any, Any]):
    """A walk on a line. Training comes to the gate at its 300th step, evaluations never do."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.taken = self.time = 0
        self.x = np.zeros(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        self.x = self.np_random.standard_normal(2)
        return self.x.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.taken += 1
        if self.taken == 300 and GATE in os.environ:
            Gate(Path(os.environ[GATE])).pass_through()
        self.time += 1
        self.x = 0.9 * self.x + 0.1 * float(action[0]) + 0.1 * self.np_random.standard_normal(2)
        reward = float(self.x[0] + 0.3 * self.np_random.standard_normal())
        return self.x.copy(), reward, bool(self.np_random.random() < 0.03), self.time >= 20, {}


class Broken(Walk):
    """Breaks."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.taken == 150:
            raise ZeroDivisionError("a wheel came off")
        return super().step(action)


for _name, _kind in {"Walk-v0": Walk, "Broken-v0": Broken}.items():
    if _name not in gym.registry:  # a search for doctests imports this file a second time
        gym.register(_name, _kind)


class Gate:
    """Holds training up in its middle, after some checkpoints: no need to be quick to kill it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._closed = directory / "closed"

    def close(self) -> None:
        self._closed.touch()

    def open(self) -> None:
        self._closed.unlink(missing_ok=True)

    def pass_through(self) -> None:
        (self._directory / f"{os.getpid()}").touch()
        while self._closed.exists():
            time.sleep(0.02)

    @property
    def reached(self) -> set[int]:
        """The processes that have come here so far."""
        return {int(path.name) for path in self._directory.iterdir() if path.name.isdecimal()}

    def forget(self) -> None:
        for path in self._directory.iterdir():
            path.unlink()


# ---- processes ------------------------------------------------------------------------------


def workers(root: Path) -> dict[str, int]:
    """The processes at experiments under `root`, by the name of the experiment they log for."""
    found = {}
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            log = (path / "fd/1").readlink() if path.name.isdecimal() else Path()
            if log.name == LOG and log.parent.parent == root:
                found[log.parent.name] = int(path.name)
    return found


def parent(process: int) -> int:
    """The process that started this one."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def processes(words: str, file: Literal["cmdline", "environ"]) -> list[int]:
    """Those that have these words in their command line, or among their environment variables."""
    found = []
    for path in Path("/proc").iterdir():
        with suppress(OSError):
            if path.name.isdecimal() and words.encode() in (path / file).read_bytes():
                found.append(int(path.name))
    return found


def kill(process: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def wait_for(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """What the condition returns once that is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.05)
    return found


def at_the_gate(
    gate: Gate, root: Path, *experiments: Experiment, but: Collection[int] = ()
) -> list[int]:
    """Wait until these are held up there, in other processes than those that were killed before."""

    def held() -> list[int]:
        found = workers(root)
        here = [found.get(e.name, 0) for e in experiments]
        return here if set(here) <= gate.reached - set(but) else []

    return wait_for(held, "training to come to the gate")  # type: ignore[no-any-return]


class InBackground:
    """A runner at work in a thread."""

    def __init__(self, runner: Runner, experiments: Sequence[Experiment], root: Path) -> None:
        self.events: list[Event] = []
        self._error: BaseException | None = None
        self._work = lambda: runner(experiments, root)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.events.extend(self._work())
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self._error = error

    def end(self) -> list[Event]:
        """All that it told; raises what it raised."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the runner hangs"
        if self._error is not None:
            raise self._error
        return self.events


class InProcess:
    """A runner in this process, one experiment after the other: no time to start workers."""

    def __init__(self, workers: int | None = None) -> None:
        del workers

    def __call__(self, experiments: Sequence[Experiment], root: Path) -> Iterator[Event]:
        for experiment in experiments:
            yield Event(experiment, "running")
            experiment.run(root)
            yield Event(experiment, "done")


def told(events: Sequence[Event]) -> dict[str, list[str]]:
    """The states that every experiment went through."""
    states: dict[str, list[str]] = {}
    for event in events:
        states.setdefault(event.experiment.name, []).append(event.state)
    return states


def reason(events: Sequence[Event], experiment: Experiment, state: str) -> str:
    """What was said of the experiment in that state."""
    (found,) = {e.reason for e in events if e.experiment == experiment and e.state == state}
    return found


# ---- files ----------------------------------------------------------------------------------


def results(root: Path, experiment: Experiment) -> dict[str, Any]:
    """All that is to be the same whoever ran the experiment, and however often it was killed."""
    directory = root / experiment.name
    with (directory / "metrics.csv").open(newline="") as file:
        rows = [{k: v for k, v in row.items() if k != TIMING} for row in csv.DictReader(file)]
    files = {f: (directory / f).read_bytes() for f in ("evaluation.json", "policy.safetensors")}
    return {"metrics.csv": rows, **files}


def finish(experiment: Experiment, root: Path, in_zone: float | None = None) -> Path:
    """The directory the experiment would leave behind, without running it."""
    directory = root / experiment.name
    directory.mkdir(parents=True)
    returns = tuple(float(experiment.seed + i) for i in range(experiment.episodes))
    Outcome(experiment.steps, returns, 0.5, 0.25, (0.0, 1.0), in_zone).write(directory)
    header = "steps,return_mean,return_variance,reward_mean,reward_variance"
    (directory / "metrics.csv").write_text(f"{header}\n{experiment.steps},1.0,2.0,3.0,4.0\n")
    return directory


def stamps(root: Path) -> dict[str, tuple[int, int]]:
    """When every file was written, and which one it is on the disk."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(f.relative_to(root)): (f.stat().st_mtime_ns, f.stat().st_ino) for f in files}


# ---- a runner in a process of its own -------------------------------------------------------


def start_runner(
    address: str, root: Path, experiments: Sequence[Experiment]
) -> subprocess.Popen[bytes]:
    """At the address of a Ray cluster; at none on this machine."""
    records = json.dumps([e.record() for e in experiments])
    return subprocess.Popen([sys.executable, __file__, address, str(root), records])


def _main(address: str, root: str, records: str) -> None:
    experiments = [Experiment.of_record(record) for record in json.loads(records)]
    runner: Runner
    if address:
        from mvpi.experiments import cluster

        cluster._CONNECT = PATIENCE
        runner = cluster.RayRunner(address)
    else:
        from mvpi.experiments.local import LocalRunner

        runner = LocalRunner(2)
    for _ in runner(experiments, Path(root)):
        pass


if __name__ == "__main__":
    _main(*sys.argv[1:])
