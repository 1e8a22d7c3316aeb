"""Training as a run: evaluations, checkpoints, and a run directory that survives any kill.

The same settings on the same directory resume from the last checkpoint and end with the same
bytes as a run that was never interrupted.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from threadpoolctl import threadpool_limits

from mvpi._storage.metrics import Row
from mvpi._storage.run_directory import RunDirectory
from mvpi.agents.learner import Learner
from mvpi.errors import EnvironmentFailure

OnRow = Callable[[Row], None]

TIMING = "steps_per_second"


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop and did, at a checkpoint if the message says so."""


def tell_made_again(directory: RunDirectory, held: int, done: int, wanted: int, unit: str) -> None:
    """Log that a finished run which is prolonged makes some of its steps again."""
    if done < held < wanted:
        logging.getLogger("mvpi").warning(
            "%s holds %d %ss, its last checkpoint is of %s %d: what came after is made again, with "
            "the same result", directory.path, held, unit, unit, done,
        )  # fmt: skip


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

    def checkpoint() -> None:
        nonlocal saved
        if directory is not None:
            _write_checkpoint(learner, directory)
            if save_policy is not None:
                save_policy(directory.policy)
        saved = learner.steps

    with threadpool_limits(1), stop.listening():
        if directory is not None and learner.steps == steps and not directory.has_row(steps):
            _evaluate(learner, clock, directory, on_row)  # killed between checkpoint and row
        while learner.steps < steps:
            evaluation = _next_multiple(learner.steps, settings.evaluation_every)
            with _told_where(learner, directory, saved):
                learner.advance(min(steps, evaluation), due)
                # The row of an end between two evaluations goes when the run is prolonged: the
                # checkpoint from which that happens must not count on it.
                between = learner.steps == steps < evaluation
                if between and learner.at_rest:
                    checkpoint()
                if learner.steps in (steps, evaluation):
                    _evaluate(learner, clock, directory, on_row)
            if learner.steps == evaluation:
                learner.begin_period()
            if learner.at_rest and not between and (due() or learner.steps == steps):
                checkpoint()
                if stop.wanted and learner.steps < steps:
                    raise Interrupted(stop.message(saved))


def _write_checkpoint(learner: Learner[Any], directory: RunDirectory) -> None:
    learner.keep()
    directory.write_state(*learner.state())
    learner.forget()


def _evaluate(
    learner: Learner[Any], clock: _Clock, directory: RunDirectory | None, on_row: OnRow | None
) -> None:
    speed = clock.steps_per_second()
    seen = learner.evaluate()
    reward_mean, reward_variance = learner.reward_moments(seen)
    row: Row = {
        "steps": learner.steps,
        "episodes": learner.episodes,
        "return_mean": seen.mean,
        "return_variance": seen.variance,
        "reward_mean": reward_mean,
        "reward_variance": reward_variance,
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
