"""Stopping a run at a checkpoint by a signal, and what a resumed run repeats."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from mvpi._storage.run_directory import RunDirectory


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop and did, at a checkpoint if the message says so."""


def tell_made_again(directory: RunDirectory, held: int, done: int, wanted: int, unit: str) -> None:
    """Log that a finished run which is prolonged makes some of its steps again."""
    if done < held < wanted:
        logging.getLogger("mvpi").warning(
            "%s holds %d %ss, its last checkpoint is of %s %d: what came after is made again, with "
            "the same result", directory.path, held, unit, unit, done,
        )  # fmt: skip


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
