"""Runs experiments with progress on the console: done, running, failed, and the time left."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from mvpi._storage.metrics import read_metrics
from mvpi.experiments.experiment import LOG, Experiment
from mvpi.experiments.runner import Event, Runner

_LOOK = 2.0
"""Seconds between two updates of the bars."""


def run_experiments(
    experiments: Sequence[Experiment],
    root: Path,
    runner: Runner,
    *,
    quiet: bool = False,
    finished: Callable[[], object] | None = None,
) -> dict[str, str]:
    """Run the experiments that are not finished, with progress on standard error.

    `finished` is called whenever one of them has finished. Returns the reasons of failures by the
    name of the experiment. They are printed at the end, also after Ctrl-C or the loss of a cluster.
    """
    root.mkdir(parents=True, exist_ok=True)
    failures: dict[str, str] = {}
    try:
        events = iter(runner(experiments, root))
        left = {experiment.identity: experiment for experiment in experiments}
        total = len(left)
        for first in events:  # a runner begins with the experiments that are finished already
            if first.state != "done":
                break
            del left[first.experiment.identity]
        else:
            return failures
        estimate = ProgressEstimate(list(left.values()), total - len(left), root)
        with _watched(estimate, quiet) as tell:
            for event in chain([first], events):
                tell(event)
                if event.state == "failed":
                    failures[event.experiment.name] = event.reason
                elif event.state == "done" and finished is not None:
                    finished()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "stopped; all that is done is kept, the same command goes on"
        ) from None
    finally:
        tell_failures(failures, root)
    return failures


def tell_failures(failures: Mapping[str, str], root: Path) -> None:
    """A line on standard error for every failure: which experiment, why, and its log."""
    console = Console(stderr=True)
    for name, reason in failures.items():
        text = f"failed: {name}: {reason} (log: {root / name / LOG})"
        console.print(text, markup=False, soft_wrap=True)


@dataclass(frozen=True)
class _Start:
    """When a run was started or resumed, and the steps it had made before."""

    time: float
    steps: int


class ProgressEstimate:
    """How many experiments are done, and how long the others will take."""

    def __init__(self, left: Sequence[Experiment], done: int, root: Path) -> None:
        self.done, self.failed = done, 0
        self.total = done + len(left)
        self._root = root
        self._left = {experiment.identity: experiment for experiment in left}
        self._started: dict[str, _Start] = {}
        self._side_by_side = 1
        self._seconds: dict[str, float] = defaultdict(float)
        self._steps: dict[str, int] = defaultdict(int)

    @property
    def running(self) -> list[Experiment]:
        return [self._left[identity] for identity in self._started]

    def update(self, event: Event, now: float) -> None:
        """Account for an event at the time `now`, in seconds."""
        experiment, identity = event.experiment, event.experiment.identity
        if event.state == "running":
            self._started[identity] = _Start(now, self.steps_of(experiment))
            self._side_by_side = max(self._side_by_side, len(self._started))
            return
        began = self._started.pop(identity, None)
        # The speed is measured on experiments that made steps here.
        if event.state == "done" and began is not None and began.steps < experiment.steps:
            self._seconds[experiment.algorithm] += now - began.time
            self._steps[experiment.algorithm] += experiment.steps - began.steps
        self.done += event.state == "done"
        self.failed += event.state == "failed"
        if event.state in ("done", "failed"):
            del self._left[identity]

    def steps_of(self, experiment: Experiment) -> int:
        """The steps of the experiment so far, by its last evaluation."""
        try:
            rows = read_metrics(self._root / experiment.name)
            return int(rows[-1]["steps"] or 0) if rows else 0
        except (ValueError, KeyError, OverflowError, OSError):
            return 0  # it has not begun, or its metrics cannot be read

    def remaining(self) -> float | None:
        """Seconds until all are done, by the speed of the same algorithm; None at the beginning."""
        if not self._steps:
            return None
        average = sum(self._seconds.values()) / sum(self._steps.values())
        known = {name: self._seconds[name] / self._steps[name] for name in self._steps}
        work = 0.0
        for experiment in self._left.values():
            rest = max(0, experiment.steps - self.steps_of(experiment))
            work += rest * known.get(experiment.algorithm, average)
        return work / self._side_by_side

    def __str__(self) -> str:
        parts = [f"{self.done} of {self.total} done", f"{len(self._started)} running"]
        parts += [f"{self.failed} failed"] if self.failed else []
        seconds = self.remaining()
        parts += [] if seconds is None else [f"{timedelta(seconds=round(seconds))} left"]
        return ", ".join(parts)


@contextmanager
def _watched(estimate: ProgressEstimate, quiet: bool) -> Iterator[Callable[[Event], None]]:
    """Shows the estimate on standard error: bars on a terminal, elsewhere a line an event."""
    console = Console(stderr=True, quiet=quiet)
    lock = threading.Lock()
    stop = threading.Event()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
    )
    bars = Progress(*columns, console=console, disable=quiet or not console.is_terminal)
    whole = bars.add_task(str(estimate), total=estimate.total)
    shown: dict[str, TaskID] = {}

    def draw() -> None:
        bars.update(whole, description=str(estimate), completed=estimate.done)
        running = {experiment.name: experiment for experiment in estimate.running}
        for name in [name for name in shown if name not in running]:
            bars.remove_task(shown.pop(name))
        for name, experiment in running.items():
            if name not in shown:
                shown[name] = bars.add_task(f"  {name}", total=experiment.steps)
            bars.update(shown[name], completed=estimate.steps_of(experiment))

    def tell(event: Event) -> None:
        with lock:
            estimate.update(event, time.monotonic())
            if bars.disable and event.state != "running":
                why = f": {event.reason}" if event.reason else ""
                text = f"{event.state} {event.experiment.name}{why}; {estimate}"
                console.print(text, markup=False, soft_wrap=True)
            elif not bars.disable:
                draw()

    def follow() -> None:
        while not stop.wait(_LOOK):
            with lock:
                draw()

    with bars:
        follower = threading.Thread(target=follow, daemon=True)
        if not bars.disable:
            follower.start()
        try:
            yield tell
        finally:
            stop.set()
            if follower.is_alive():
                follower.join()
