"""Experiments on this machine: one process each, as many at a time as there are cores.

A worker is bound to a core of its own. One that is killed is started again and resumes. If the
runner itself is killed, its workers end with it; run again, it resumes.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mvpi._checks import check_count
from mvpi.experiments import worker
from mvpi.experiments.experiment import Experiment
from mvpi.experiments.runner import BUSY_WAIT, Event, begin, ended, parted

_POLL = 0.2
"""Seconds between two polls of the workers."""
_STOP_TIMEOUT = 60.0
"""Seconds that a worker has to write a checkpoint when the runner is stopped."""


@dataclass
class _Slot:
    """A core, and what runs on it."""

    core: int
    experiment: Experiment
    process: subprocess.Popen[bytes]


def cores() -> list[int]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class LocalRunner:
    """Runs experiments in `workers` processes side by side; by default one for every core."""

    def __init__(self, workers: int | None = None) -> None:
        self._cores = cores()
        self.workers = len(self._cores) if workers is None else check_count(workers, "workers")

    def __call__(self, experiments: Sequence[Experiment], root: Path) -> Iterator[Event]:
        """Run them; an event when each begins and ends."""
        done, others = parted(experiments, root)
        yield from (Event(e, "done") for e in done)
        queue = deque((0.0, e) for e in others)
        free = deque(self._cores[i % len(self._cores)] for i in range(self.workers))
        kills: Counter[str] = Counter()
        reported_waiting: set[str] = set()
        slots: list[_Slot] = []
        try:
            while queue or slots:
                for _ in range(len(queue)):
                    not_before, experiment = queue.popleft()
                    if not free or time.monotonic() < not_before:
                        queue.append((not_before, experiment))
                        continue
                    begun = begin(experiment, root, free[0])
                    if not isinstance(begun, Event):
                        slots.append(_Slot(free.popleft(), experiment, begun))
                        yield Event(experiment, "running")
                        continue
                    if begun.state == "waiting":
                        queue.append((time.monotonic() + BUSY_WAIT, experiment))
                        if experiment.identity in reported_waiting:
                            continue
                        reported_waiting.add(experiment.identity)
                    yield begun
                time.sleep(_POLL)
                for slot in [s for s in slots if s.process.poll() is not None]:
                    slots.remove(slot)
                    free.append(slot.core)
                    worker.release(slot.process)
                    status = slot.process.returncode
                    event = ended(slot.experiment, status, root, kills)
                    if event.state == "waiting":
                        again = BUSY_WAIT if status == worker.BUSY else 0.0
                        queue.appendleft((time.monotonic() + again, slot.experiment))
                    yield event
        finally:
            _stop(slots)


def _stop(slots: list[_Slot]) -> None:
    """Ask the workers to stop at a checkpoint; those that take too long are killed."""
    for slot in slots:
        slot.process.terminate()
    deadline = time.monotonic() + _STOP_TIMEOUT
    try:
        for slot in slots:
            slot.process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        for slot in slots:
            slot.process.kill()
            slot.process.wait()
            worker.release(slot.process)
