"""What runners have in common: they take experiments and tell what becomes of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from mvpi.experiments.experiment import LOG, Experiment

State = Literal["running", "waiting", "done", "failed"]

ATTEMPTS = 5
"""How often an experiment whose process was killed is begun again; it goes on where it was."""


@dataclass(frozen=True)
class Event:
    """News of one experiment; `reason` says in one line why it failed or has to wait."""

    experiment: Experiment
    state: State
    reason: str = ""


class Runner(Protocol):
    """Runs experiments under `root`, in any order and side by side.

    Every experiment ends as "done" or "failed", once; a failure does not stop the others. Closing
    the iterator stops those that are running; asked again, they go on.
    """

    def __call__(self, experiments: Sequence[Experiment], root: Path) -> Iterator[Event]: ...


def finished(experiments: Sequence[Experiment], root: Path) -> Iterator[Experiment]:
    """Those of the experiments whose outcome is there already."""
    return (e for e in experiments if e.outcome(root) is not None)


def last_words(experiment: Experiment, root: Path) -> str:
    """The last line of the experiment's log."""
    log = root / experiment.name / LOG
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
