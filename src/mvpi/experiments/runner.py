"""The interface of runners, and what they share: starting workers and reading how they ended."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from mvpi._storage.files import read_bytes
from mvpi.errors import InputError
from mvpi.experiments import worker
from mvpi.experiments.experiment import LOG, Experiment

State = Literal["running", "waiting", "done", "failed"]

ATTEMPTS = 5
"""How often an experiment is started or resumed if its process is killed every time."""
LOCKED = "locked by another process"
BUSY_WAIT = 5.0
"""Seconds until an experiment that is locked by another process is tried again."""


@dataclass(frozen=True)
class Event:
    """A change of state of one experiment; `reason` says in one line why it failed or waits."""

    experiment: Experiment
    state: State
    reason: str = ""


class Runner(Protocol):
    """Runs experiments under `root`, in any order and side by side.

    Experiments that are finished already are "done" first. Every experiment ends as "done" or
    "failed", once; a failure does not stop the others. Closing the iterator stops those that are
    running; run again, they resume.
    """

    def __call__(self, experiments: Sequence[Experiment], root: Path) -> Iterator[Event]: ...


def finished(experiments: Sequence[Experiment], root: Path) -> Iterator[Experiment]:
    """The experiments that are finished."""
    for experiment in experiments:
        # Of an outcome that cannot be read the worker reports the error.
        with suppress(InputError, OSError):
            if experiment.finished(root):
                yield experiment


def parted(
    experiments: Sequence[Experiment], root: Path
) -> tuple[list[Experiment], list[Experiment]]:
    """The finished ones and the others, each once however often it was asked for."""
    unique = list({e.identity: e for e in experiments}.values())
    done = list(finished(unique, root))
    ready = {e.identity for e in done}
    return done, [e for e in unique if e.identity not in ready]


def begin(
    experiment: Experiment, root: Path, core: int | None = None
) -> subprocess.Popen[bytes] | Event:
    """Start its worker process; or the event to report where none is started.

    That is "waiting" while it is locked by another process, "done" if that one has finished it, and
    "failed" if no process can be started.
    """
    try:
        if experiment.busy(root):
            return Event(experiment, "waiting", LOCKED)
        if any(finished([experiment], root)):
            return Event(experiment, "done")
        return worker.start(experiment, root, core)
    except (InputError, OSError) as error:
        return Event(experiment, "failed", f"its process cannot be started: {error}")


def ended(experiment: Experiment, status: int, root: Path, kills: Counter[str]) -> Event:
    """What the exit status of its worker means; "waiting" is to be started again.

    `kills` counts how often processes were killed, by the name of their experiment.
    """
    if status == 0:
        return Event(experiment, "done")
    if status == worker.BUSY:
        return Event(experiment, "waiting", LOCKED)
    if status > 0 and status != worker.STOPPED:
        return Event(experiment, "failed", last_log_line(experiment, root))
    kills[experiment.name] += 1
    reason = f"its process was ended by {_signal(status)}"
    if kills[experiment.name] < ATTEMPTS:
        return Event(experiment, "waiting", reason)
    return Event(experiment, "failed", f"{reason}, {ATTEMPTS} times")


def _signal(status: int) -> str:
    """The signal that ended a worker; one that stopped at a checkpoint had been asked to."""
    number = -status if status < 0 else signal.SIGTERM
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal: few of them have names
        return f"signal {number}"


def last_log_line(experiment: Experiment, root: Path) -> str:
    """The last line of the experiment's log."""
    log = root / experiment.name / LOG
    lines = read_bytes(log).decode(errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
