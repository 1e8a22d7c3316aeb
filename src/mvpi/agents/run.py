"""Training as a run: evaluations, checkpoints, and a directory that survives any kill.

    config.json            what is trained: algorithm, environment, risk, seed, settings
    metrics.csv            a row per evaluation; only `steps_per_second` depends on the machine
    policy.safetensors     the policy, at every checkpoint and at the end
    checkpoint.safetensors everything needed to go on, replaced atomically at the end of an episode
    replay.rows            the replay, mapped into memory; replaced-*.rows is its journal

The same settings on the same directory resume from the last checkpoint and end with the same
bytes as a run that was never interrupted.
"""

from __future__ import annotations

import csv
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from threadpoolctl import threadpool_limits

from mvpi.agents.files import (
    FORMAT,
    Arrays,
    Row,
    read_arrays,
    read_json,
    read_text,
    write_arrays,
    write_file,
    write_json,
)
from mvpi.agents.learner import Learner
from mvpi.environment import ResumeWarning
from mvpi.errors import EnvironmentFailure, InputError, warn
from mvpi.locks import lock

Checkpoint = tuple[Arrays, dict[str, Any], Path]
OnRow = Callable[[Row], None]

CHECKPOINT = "checkpoint"
TIMING = "steps_per_second"
_CHECKPOINT_FILE = f"{CHECKPOINT}.safetensors"
_POLICY_FILE = "policy.safetensors"


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop and did, at a checkpoint if the message says so."""


class RunDirectory:
    """The files of one run, locked against a second process."""

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self.path = path
        file = path / ".lock"
        try:
            path.mkdir(parents=True, exist_ok=True)
            if file.exists() and not file.is_file():
                raise InputError(f"{file} is not a file; use another directory")
            self._lock = file.open("w")
        except OSError as error:
            raise InputError(f"cannot write to the directory {path}: {error.strerror}") from None
        try:
            if not lock(self._lock):
                raise InputError(f"another process is training in {path}, or reads its replay")
            self._check_config(config)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._lock.close()

    @property
    def policy(self) -> Path:
        return self.path / _POLICY_FILE

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def _checkpoint(self) -> Path:
        return self.path / _CHECKPOINT_FILE

    def checkpoint(self) -> Checkpoint | None:
        """What the last checkpoint holds; None before the first."""
        if not self._checkpoint.exists():
            return None
        return (*read_arrays(self._checkpoint, CHECKPOINT), self._checkpoint)

    def write_checkpoint(self, learner: Learner[Any]) -> None:
        """Replace the checkpoint by the learner's state of now."""
        learner.keep()
        self.write_state(*learner.state())
        learner.forget()

    def write_state(self, arrays: Arrays, record: dict[str, Any]) -> None:
        """Replace the checkpoint by this one."""
        write_arrays(self._checkpoint, CHECKPOINT, arrays, record)

    def keep_rows(self, done: int, wanted: int, every: int) -> None:
        """Drop rows of `metrics.csv` that a run resumed at step `done` will write again, and the
        last row of a shorter run that ended between two evaluations."""
        header, lines = self._lines()
        kept = [line for line in lines if _belongs(int(_steps_of(line)), done, wanted, every)]
        lost = done // every - sum(int(_steps_of(line)) % every == 0 for line in kept)
        if lost > 0:
            what = f"{self.metrics} lacks {lost} rows of before step {done}; they are lost"
            warn(what, ResumeWarning)
        write_file(self.metrics, "".join([header, *kept] if kept else []).encode())

    def has_row(self, steps: int) -> bool:
        """Whether `metrics.csv` has a row of that step."""
        return any(int(_steps_of(line)) == steps for line in self._lines()[1])

    def _lines(self) -> tuple[str, list[str]]:
        """The header of `metrics.csv` and its complete rows."""
        if not self.metrics.exists():
            return "", []
        header, *lines = read_text(self.metrics).splitlines(keepends=True) or [""]
        columns = header.count(",")
        complete = (x for x in lines if x.endswith("\n") and x.count(",") == columns)
        return header, [line for line in complete if _steps_of(line).isdecimal()]

    def add_row(self, row: Row) -> None:
        """Append to `metrics.csv`."""
        with self.metrics.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            os.fsync(file.fileno())

    def _check_config(self, config: dict[str, Any]) -> None:
        path = self.path / "config.json"
        if not path.exists():
            if begun(self.path):
                raise InputError(
                    f"{self.path} holds a run without its config.json, so its settings are not "
                    "known; use another directory"
                )
            write_json(path, config)
            return
        there = read_json(path)
        version = there.get("format")
        if not isinstance(version, int) or version > FORMAT:
            raise InputError(f"{path} is of format {version!r}, this program reads {FORMAT}")
        found = list(differences(there, config))
        if found:
            raise InputError(
                f"{self.path} holds a run with other settings: {'; '.join(found)}; use the same "
                "settings to resume it, or another directory"
            )


def tell_made_again(directory: RunDirectory, held: int, done: int, unit: str) -> None:
    """Warn that a run which is prolonged makes some of its steps again."""
    if held > done:
        what = f"{directory.path} holds {held} {unit}s, its last checkpoint is of {unit} {done}"
        warn(f"{what}: what came after is made again, with the same result", ResumeWarning)


def begun(path: Path) -> bool:
    """Whether a directory holds something that was trained."""
    return any((path / name).exists() for name in (_CHECKPOINT_FILE, _POLICY_FILE))


def differences(there: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    """How two configurations differ, a phrase each."""
    for key in dict.fromkeys([*there, *here]):
        old, new = there.get(key), here.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from differences(old, new)
        elif old != new and key not in ("format", "mvpi"):
            told = (repr(c[key]) if key in c else "not given" for c in (there, here))
            yield "{} is {} there and {} here".format(key, *told)


def train(
    learner: Learner[Any],
    steps: int,
    directory: RunDirectory | None = None,
    save_policy: Callable[[Path], None] | None = None,
    on_row: OnRow | None = None,
) -> None:
    """Learn until the learner has made `steps` steps; writes what `directory` is to hold."""
    settings = learner.settings
    stop = Stop(directory)
    clock = _Clock(learner)
    saved = learner.steps

    def due() -> bool:
        late = learner.steps >= saved + settings.checkpoint_every
        return stop.wanted or (directory is not None and late)

    with threadpool_limits(1), stop.listening():
        if directory is not None and learner.steps == steps and not directory.has_row(steps):
            _evaluate(learner, clock, directory, on_row)  # killed between checkpoint and row
        while learner.steps < steps:
            evaluation = _next_multiple(learner.steps, settings.evaluation_every)
            with _told_where(learner, directory, saved):
                learner.advance(min(steps, evaluation), due)
                if learner.steps in (steps, evaluation):
                    _evaluate(learner, clock, directory, on_row)
            if learner.steps == evaluation:
                learner.begin_period()
            ended = directory is not None and learner.steps == steps  # it may be prolonged
            if learner.at_rest and (due() or ended):
                if directory is not None:
                    directory.write_checkpoint(learner)
                    if save_policy is not None:
                        save_policy(directory.policy)
                saved = learner.steps
                if stop.wanted and learner.steps < steps:
                    raise Interrupted(stop.message(saved))


def _evaluate(
    learner: Learner[Any], clock: _Clock, directory: RunDirectory | None, on_row: OnRow | None
) -> None:
    speed = clock.steps_per_second()
    seen = learner.evaluate()
    row: Row = {
        "steps": learner.steps,
        "episodes": learner.episodes,
        "return_mean": seen.mean,
        "return_variance": seen.variance,
        "reward_mean": seen.reward_mean,
        "reward_variance": seen.reward_variance,
        **learner.metrics(),
        TIMING: round(speed, 1),
    }
    if directory is not None:
        directory.add_row(row)
    if on_row is not None:
        on_row(row)
    clock.start()


class _Clock:
    """Steps per second of training, evaluations left out."""

    def __init__(self, learner: Learner[Any]) -> None:
        self._learner = learner
        self.start()

    def start(self) -> None:
        self._steps, self._time = self._learner.steps, time.perf_counter()

    def steps_per_second(self) -> float:
        return (self._learner.steps - self._steps) / (time.perf_counter() - self._time)


class Stop:
    """Ctrl-C and SIGTERM: the first asks for a stop at the next episode's end, the second stops.

    Without a directory only Ctrl-C is listened to, and the agent can learn on where it stopped.
    """

    def __init__(self, directory: RunDirectory | None) -> None:
        self._in_memory = directory is None
        self.wanted = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT,) if self._in_memory else (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._ask) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def message(self, saved: int, unit: str = "step") -> str:
        if self._in_memory:
            return f"stopped at {unit} {saved}; learn again goes on from there"
        return f"stopped after a checkpoint at {unit} {saved}; the same command resumes it"

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.wanted:
            resume = "the same command resumes the last checkpoint"
            remedy = "make a new agent" if self._in_memory else resume
            raise Interrupted(f"stopped at once; {remedy}")
        self.wanted = True


@contextmanager
def _told_where(
    learner: Learner[Any], directory: RunDirectory | None, saved: int
) -> Iterator[None]:
    """Failures of the environment say at which step, and what is left."""
    try:
        yield
    except EnvironmentFailure as error:
        left = ""
        if directory is not None and saved > 0:
            left = f"; the checkpoint at step {saved} in {directory.path} is intact"
        message = f"{error} after {learner.steps} steps{left}"
        raise EnvironmentFailure(message) from error.__cause__


def _next_multiple(steps: int, every: int) -> int:
    return (steps // every + 1) * every


def _steps_of(line: str) -> str:
    return line.partition(",")[0]


def _belongs(at: int, done: int, wanted: int, every: int) -> bool:
    return at <= done and (at % every == 0 or at == wanted)
