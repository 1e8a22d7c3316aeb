"""Training runs that die at a chosen moment, in processes of their own or by a copy of their files.

What a run does to its files (`open`, `write`, `fsync`, `replace`, `unlink`), steps of the
environment (`step`) and stored transitions (`add`) are events, and it dies at the one it was told;
writes and stored transitions are then half done. `Server` starts real processes, killed with
SIGKILL. `snapshot` does without: it copies the directory as a kill would have left it, and gives
the run up; that is many times faster.
"""

from __future__ import annotations

import contextlib
import csv
import gc
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

TINY: dict[str, Any] = {
    "hidden": [8, 8],
    "learning_starts": 50,
    "batch_size": 8,
    "train_freq": 2,
    "buffer_size": 90,
    "window": 70,
    "evaluation_every": 200,
    "evaluation_episodes": 2,
    "checkpoint_every": 100,
}

# Neither evaluations nor checkpoints fall between two common steps of 16 actors, or two rollouts.
_TINY_ON_POLICY: dict[str, Any] = {
    "hidden": [8],
    "evaluation_every": 90,
    "evaluation_episodes": 2,
    "checkpoint_every": 70,
}

TINY_OF: dict[str, dict[str, Any]] = {
    "td3": TINY,
    "ppo": _TINY_ON_POLICY | {"n_steps": 48, "batch_size": 16, "n_epochs": 2},
    "mvp": _TINY_ON_POLICY,
    "tamar": _TINY_ON_POLICY | {"variance_limit": 1.0},
    "prashanth": _TINY_ON_POLICY | {"n_steps": 3},
    "mean-gini": _TINY_ON_POLICY | {"batch_episodes": 7, "n_epochs": 2},
    "cvar-pg": _TINY_ON_POLICY | {"batch_episodes": 7},
}


def risk_of(algorithm: str) -> str:
    """A risk that the algorithm takes."""
    return "cvar:0.4:0.9" if algorithm == "cvar-pg" else "1.0"


def another_risk_of(algorithm: str) -> str:
    """A risk that the algorithm takes, which leads to other results."""
    return "cvar:0.4:0.5" if algorithm == "cvar-pg" else "0.5"


FILES = ("open", "write", "fsync", "replace", "unlink")
ANY = (*FILES, "step", "add")
STEPS_UNTIL_KILLED = 300


@dataclass(frozen=True)
class Case:
    """What is trained; `env` is an id, or the name of a class in worlds.py and its arguments."""

    env: str | list[Any] = "mvpi/Markowitz-v0"
    risk: str = ""
    """Nothing: one that the algorithm takes."""
    steps: int = 700
    action_noise: float = 0.0
    settings: dict[str, Any] = field(default_factory=dict)
    algorithm: str = "td3"

    def __post_init__(self) -> None:
        object.__setattr__(self, "risk", self.risk or risk_of(self.algorithm))

    def agent(self) -> Any:
        from helpers import worlds
        from mvpi.agents.loading import agent_type
        from mvpi.envs import Task
        from mvpi.risk import parse_risk

        env: Any = (
            Task(self.env, self.action_noise)
            if isinstance(self.env, str)
            else worlds.make(*self.env)
        )
        settings = TINY_OF[self.algorithm] | self.settings
        return agent_type(self.algorithm)(env, parse_risk(self.risk), 3, **settings)


@dataclass(frozen=True)
class Death:
    """Die at the `at`-th of these events (from 0), after `share` of the work is done."""

    events: tuple[str, ...]
    at: int
    share: float = 0.5


@dataclass(frozen=True)
class End:
    """How a process ended: `status` is negative for a signal, `told` what it wrote to stderr."""

    status: int
    told: str
    counts: dict[str, int]

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL

    @property
    def finished(self) -> bool:
        return self.status == 0


class Server:
    """Starts training processes without importing JAX for each."""

    def __init__(self, cache: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "helpers.victims"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=cache,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._files = cache

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)
        self._process.stdout.close()

    def run(
        self,
        case: Case,
        out: Path,
        death: Death | None = None,
        *,
        after: float | None = None,
        limits: dict[str, Any] | None = None,
    ) -> End:
        """Train `case` in `out`; `after` seconds the process is killed from outside.

        Until then it makes `STEPS_UNTIL_KILLED` steps at most and waits: neither how it ends nor
        how far it gets depends on the machine.
        """
        order = {
            "case": vars(case),
            "out": str(out),
            "death": None if death is None else vars(death),
            "after": after,
            "limits": limits or {},
            "files": str(self._files),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return End(**json.loads(self._process.stdout.readline()))


def results(out: Path) -> tuple[bytes, list[list[str]]]:
    """What must not depend on interruptions: the policy's bytes, the metrics without the speed."""
    with (out / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    at = rows[0].index("steps_per_second")
    return (out / "policy.safetensors").read_bytes(), [r[:at] + r[at + 1 :] for r in rows]


def options(out: Path | None, case: Case, **others: Any) -> list[str]:
    """The command line of a case."""
    values: dict[str, Any] = {
        "env": case.env,
        "risk": case.risk,
        "steps": case.steps,
        "seed": 3,
        **TINY_OF[case.algorithm],
        **case.settings,
        **others,
    }
    if out is not None:
        values["out"] = out
    return [
        str(text)
        for name, value in values.items()
        for text in (
            f"--{name.replace('_', '-')}",
            *(value if isinstance(value, list) else [value]),
        )
    ]


def status_of(arguments: list[str]) -> Any:
    """The exit status of a command run in this process."""
    from mvpi import cli

    try:
        cli.main(arguments)
    except SystemExit as exited:
        return exited.code
    return 0


class Abandoned(BaseException):
    """The files were copied; the rest of this run does not matter."""


class Trap:
    """Counts events; at the one it was told, copies the directory, or dies."""

    def __init__(self, out: Path, death: Death | None, to: Path | None) -> None:
        self.out, self.death, self.to = out, death, to
        self.counts: Counter[str] = Counter()
        self._seen = 0
        self._sprung = False

    def springs(self, event: str) -> bool:
        if self._sprung:  # cleaning up after it must not matter
            return False
        self.counts[event] += 1
        if self.death is None or event not in self.death.events:
            return False
        self._seen += 1
        self._sprung = self._seen - 1 == self.death.at
        return self._sprung

    def die(self) -> None:
        if self.to is not None:
            shutil.copytree(self.out, self.to)
            raise Abandoned
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    def at(self, event: str) -> None:
        if self.springs(event):
            self.die()


class _Pause(Trap):
    """Waits to be killed from outside."""

    def die(self) -> None:
        time.sleep(600)


class _DyingFile:
    """A file whose write may be the last."""

    def __init__(self, file: Any, trap: Trap) -> None:
        self._file, self._trap = file, trap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _DyingFile:
        self._file.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._file.__exit__(*error)

    def write(self, data: Any) -> Any:
        if self._trap.springs("write"):
            assert self._trap.death is not None
            self._file.write(data[: int(self._trap.death.share * len(data))])
            self._file.flush()
            self._trap.die()
        return self._file.write(data)


def _arm(trap: Trap, patch: Callable[[Any, str, Any], None]) -> None:
    from mvpi._storage import files
    from mvpi.agents.replay import Replay
    from mvpi.rollout.guard import GuardedEnv

    open_file, path_replace, path_unlink = files.open_file, Path.replace, Path.unlink
    os_fsync, world_step, replay_add = os.fsync, GuardedEnv.step, Replay.add

    def opened(path: Path, mode: Any) -> Any:
        if mode == "r" or path.parent != trap.out or path.name in (".lock", "replay.rows"):
            return open_file(path, mode)
        trap.at("open")
        return _DyingFile(open_file(path, mode), trap)

    def fsync(descriptor: int) -> None:
        trap.at("fsync")
        os_fsync(descriptor)

    def replace(self: Path, target: Any) -> Any:
        if self.parent == trap.out:
            trap.at("replace")
        return path_replace(self, target)

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if self.parent == trap.out:
            trap.at("unlink")
        path_unlink(self, missing_ok=missing_ok)

    def step(self: Any, action: Any) -> Any:
        trap.at("step")
        return world_step(self, action)

    def add(self: Any, *transition: Any) -> None:
        if trap.springs("add"):
            self._files.prepare(self.count)
            self.rows[self.count % self.size, : self.layout.width // 2] = 1e6
            trap.die()
        replay_add(self, *transition)

    patch(files, "open_file", opened)
    patch(Path, "replace", replace)
    patch(Path, "unlink", unlink)
    patch(os, "fsync", fsync)
    patch(GuardedEnv, "step", step)
    patch(Replay, "add", add)


def run(case: Case, out: Path) -> dict[str, int]:
    """Train in this process; returns how many events there were."""
    trap = Trap(out, None, None)
    with pytest.MonkeyPatch.context() as patch:
        _arm(trap, patch.setattr)
        case.agent().learn(case.steps, out)
    return trap.counts


def snapshot(case: Case, out: Path, death: Death, to: Path) -> bool:
    """Train in `out`; `to` becomes what a kill would have left. False if the run ended before."""
    trap = Trap(out, death, to)
    try:
        trapped(lambda: case.agent().learn(case.steps, out), trap)
    except Abandoned:
        return True
    return False


def trapped(work: Callable[[], Any], trap: Trap) -> None:
    """Do what springs the trap, in this process."""
    with pytest.MonkeyPatch.context() as patch, files_left_open():
        _arm(trap, patch.setattr)
        work()


def survive(case: Case, seed: int, kills: int, tmp_path: Path) -> int:
    """Kill again and again, resume to the end, compare; returns how many kills there were."""
    counts = run(case, tmp_path / "whole")
    kinds = [FILES, ("write",), ("step",), ("add",), ("replace",), ANY]
    possible = [events for events in kinds if any(counts[event] for event in events)]
    rng = random.Random(seed)
    out = tmp_path / "0"
    done = 0
    while done < kills:
        events = rng.choice(possible)
        most = 1 + sum(counts[event] for event in events) // 4
        death = Death(events, rng.randrange(most), rng.choice([0.0, 0.3, 0.9, 1.0]))
        to = tmp_path / f"{done + 1}"
        if not snapshot(case, out, death, to):
            break
        done += 1
        out = to
    run(case, out)
    assert results(out) == results(tmp_path / "whole")
    return done


def die_at_every_event_of_files(case: Case, tmp_path: Path) -> int:
    """A run for each, resumed to the end and compared; returns how many events there were."""
    counts = run(case, tmp_path / "whole")
    events = sum(counts[event] for event in FILES)
    for at in range(events):
        killed = tmp_path / f"{at}"
        death = Death(FILES, at, share=0.7 * (at % 2))
        assert snapshot(case, tmp_path / f"{at}-before", death, killed)
        run(case, killed)
        assert results(killed) == results(tmp_path / "whole"), f"event {at}"
    return events


def kill_processes(
    case: Case,
    kills: int,
    tmp_path: Path,
    server: Server,
    inside: tuple[str, ...] = ("add",),
    within: int = 220,
) -> int:
    """SIGKILL from outside at random times, and from inside in the middle of a write.

    `inside` are events beside those of files; a process dies `within` so many events.
    """
    began = time.monotonic()
    assert server.run(case, tmp_path / "whole").finished
    duration = time.monotonic() - began
    rng = random.Random(5)
    done = 0
    while done < kills:
        if done % 3 == 2:
            end = server.run(case, tmp_path / "run", after=duration * rng.uniform(0.02, 0.2))
        else:
            death = Death(rng.choice([FILES, ("write",), inside]), rng.randrange(within))
            end = server.run(case, tmp_path / "run", death)
        if end.finished:
            break
        assert end.killed, end.told
        done += 1
    assert server.run(case, tmp_path / "run").finished
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    return done


def in_time(work: Callable[[], Any], seconds: float = 30.0) -> Any:
    """The result of `work`, or its exception; a failure when it does not end."""
    outcome: list[Any] = []

    def target() -> None:
        try:
            outcome.append((work(), None))
        except BaseException as error:  # noqa: BLE001 - handed to the test
            outcome.append((None, error))

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(seconds)
    assert outcome, "it hangs"
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


@contextlib.contextmanager
def files_left_open() -> Iterator[None]:
    """A killed process need not close its files: no warnings of that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.freeze()  # what was there before need not be gone through, which takes long
        try:
            yield
        finally:
            gc.collect()


# ---- the server -----------------------------------------------------------------------------


def _victim(order: dict[str, Any], counts: Path) -> None:
    if "file_size" in order["limits"]:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = order["limits"]["file_size"]
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    out, death = Path(order["out"]), order["death"]
    if order["after"] is None:
        trap = Trap(out, None if death is None else Death(**death), None)
    else:
        trap = _Pause(out, Death(("step",), STEPS_UNTIL_KILLED), None)
    _arm(trap, setattr)
    status = 0
    try:
        Case(**order["case"]).agent().learn(order["case"]["steps"], order["out"])
    except BaseException:  # noqa: BLE001 - the test looks at it
        traceback.print_exc()
        status = 1
    if order["after"] is not None and status == 0:
        trap.die()
    with contextlib.suppress(OSError):
        counts.write_text(json.dumps(trap.counts))
    sys.stderr.flush()
    os._exit(status)


def _serve() -> None:
    import gymnasium.envs.mujoco.mujoco_env

    from helpers import worlds  # noqa: F401
    from mvpi.agents.loading import agent_type
    from mvpi.agents.registry import AGENTS

    for algorithm in AGENTS:
        agent_type(algorithm)
    del gymnasium
    for line in sys.stdin:
        order = json.loads(line)
        told = Path(order["files"]) / f"told-{os.getpid()}"
        counts = Path(order["files"]) / f"counts-{os.getpid()}"
        counts.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            with told.open("wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            _victim(order, counts)
        if order["after"] is not None:
            time.sleep(order["after"])
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        end = {
            "status": status,
            "told": told.read_text(errors="replace"),
            "counts": json.loads(counts.read_text()) if counts.exists() else {},
        }
        sys.stdout.write(json.dumps(end) + "\n")
        sys.stdout.flush()


def serving(cache: Path) -> Iterator[Server]:
    """For a fixture."""
    cache.mkdir(parents=True, exist_ok=True)
    server = Server(cache)
    yield server
    server.close()


def refused_in_one_line(path: Path) -> None:
    """Loading the file raises `InputError`: one short line that names the file."""
    import mvpi

    with pytest.raises(mvpi.InputError) as caught:
        in_time(lambda: mvpi.load(path))
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    assert len(message) < 600


if __name__ == "__main__":
    _serve()
