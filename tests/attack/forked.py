"""Training in processes of its own that die by real signals.

A server imports what all algorithms need and forks a process for each order. It never starts JAX
itself, whose threads a fork would lose: the processes do, and find what was compiled before in a
cache on disk. A process is sent its signal by itself, at a chosen event, or by the server, at any
moment. One that takes too long is killed and reported.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from helpers.victims import Death, Trap, trapped  # noqa: E402
from runs import CASES  # noqa: E402 - the path comes first

PATIENCE = 600.0
"""Seconds that a process may take; machines are busy, and hangs are for ever."""
_STOPPED = 130
"""Exit status of a process that was asked to stop, and did."""


@dataclass(frozen=True)
class Blow:
    """A signal, `times` times: at an event, or `after` so many seconds of training."""

    name: str
    death: Death | None = None
    after: float | None = None
    times: int = 1

    def __str__(self) -> str:
        return f"{self.name} x {self.times} at {self.death or f'{self.after:.3f} s'}"


class Forks:
    """The server, as its user sees it."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def train(self, name: str, out: Path, blow: Blow | None = None) -> str:
        """Train a case: "finished", "interrupted", "hang", or the last line of what it said."""
        order = {"name": name, "out": str(out), "blow": None if blow is None else _record(blow)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: str = json.loads(self._process.stdout.readline())
        return answer


def _record(blow: Blow) -> dict[str, Any]:
    death = None if blow.death is None else vars(blow.death)
    return {**vars(blow), "death": death}


class _Hit(Trap):
    """Sends the signal to its own process, once or twice, and goes on if that lets it."""

    def __init__(self, out: Path, blow: Blow) -> None:
        super().__init__(out, blow.death, None)
        self._blow = blow

    def die(self) -> None:
        for _ in range(self._blow.times):
            os.kill(os.getpid(), getattr(signal, self._blow.name))


def _train(name: str, out: Path, blow: Blow | None, ready: int) -> None:
    """All that a forked process does."""
    case = CASES[name]
    # Outside of training SIGTERM ends the process without a word; here that is an interrupt too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")
    status = 0
    try:
        os.write(ready, b".")
        if blow is None or blow.death is None:
            case.learn(out)
        else:
            trapped(lambda: case.learn(out), _Hit(case.directory(out), blow))
    except KeyboardInterrupt:
        status = _STOPPED
    except BaseException:  # noqa: BLE001 - the attack looks at it
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)


def _forked(order: dict[str, Any], told: Path) -> str:
    blow = None
    if order["blow"] is not None:
        death = order["blow"]["death"]
        given = Death(tuple(death["events"]), death["at"], death["share"]) if death else None
        blow = Blow(**{**order["blow"], "death": given})
    waiting, ready = os.pipe()
    child = os.fork()
    if child == 0:
        with told.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        _train(order["name"], Path(order["out"]), blow, ready)
    os.close(ready)
    os.read(waiting, 1)
    os.close(waiting)
    if blow is not None and blow.after is not None:
        time.sleep(blow.after)
        for _ in range(blow.times):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, getattr(signal, blow.name))
    return _ending(child, told)


def _ending(child: int, told: Path) -> str:
    deadline = time.monotonic() + PATIENCE
    pause = 0.001
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hang"
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return "finished"
    if code in (_STOPPED, -signal.SIGKILL):
        return "interrupted"
    said = told.read_text(errors="replace").strip().splitlines() or ["nothing"]
    return f"status {code}: {said[-1]}"


def _serve() -> None:
    import tempfile

    for case in CASES.values():
        case.prepare()
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        for line in sys.stdin:
            answer = _forked(json.loads(line), Path(scratch) / "told")
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    _serve()
