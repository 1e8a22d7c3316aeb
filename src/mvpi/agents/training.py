"""Training as a run: evaluations, checkpoints, and a run directory that survives any kill.

The same settings on the same directory resume from the last checkpoint and end with the same
bytes as a run that was never interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from mvpi._storage.interrupts import Interrupted, Stop
from mvpi._storage.interrupts import tell_made_again as tell_made_again  # noqa: PLC0414
from mvpi._storage.metrics import Row
from mvpi._storage.run_directory import RunDirectory
from mvpi.agents.learner import Learner
from mvpi.errors import EnvironmentFailure

OnRow = Callable[[Row], None]

TIMING = "steps_per_second"


def train(
    learner: Learner[Any],
    steps: int,
    directory: RunDirectory | None = None,
    write_policy: Callable[[Path], str] | None = None,
    on_row: OnRow | None = None,
) -> None:
    """Learn until the learner has made `steps` steps; writes what `directory` is to hold.

    `write_policy` writes the current policy to a file, and returns its checksum.
    """
    settings = learner.settings
    stop = Stop(directory)
    clock = _Clock(learner)
    saved, policy = learner.steps, ""

    def due() -> bool:
        late = learner.steps >= saved + settings.checkpoint_every
        return stop.wanted or (directory is not None and late)

    def checkpoint() -> None:
        nonlocal saved, policy
        if directory is not None and write_policy is not None:
            _write_checkpoint(learner, directory)
            policy = write_policy(directory.policy)
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
                if between and learner.can_checkpoint:
                    checkpoint()
                if learner.steps in (steps, evaluation):
                    _evaluate(learner, clock, directory, on_row)
            if learner.steps == evaluation:
                learner.begin_period()
            if learner.can_checkpoint and not between and (due() or learner.steps == steps):
                checkpoint()
                if stop.wanted and learner.steps < steps:
                    raise Interrupted(stop.message(saved))
    if directory is not None and write_policy is not None:
        # The last checkpoint was before the last step, or before the range was measured.
        measured = learner.measure_range()
        if saved < steps or not policy or len(measured.rows):
            policy = write_policy(directory.policy)
        directory.finish(steps, policy)


def _write_checkpoint(learner: Learner[Any], directory: RunDirectory) -> None:
    learner.flush()
    directory.write_state(*learner.state())
    learner.prune()


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
        **learner.objective(seen),
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


@contextmanager
def _told_where(
    learner: Learner[Any], directory: RunDirectory | None, saved: int
) -> Iterator[None]:
    """Adds the step, and the state of the run directory, to failures of the environment."""
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
