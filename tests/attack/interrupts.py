"""Training is interrupted again and again; in the end its bytes are as if nothing had been.

Processes are killed by SIGKILL; a copy of the directory is what a kill would have left in the
middle of a write; SIGTERM and SIGINT come once, which asks for a checkpoint, or twice, which stops
at once. All at random events: files that are opened, written, synced, renamed and removed, steps of
the environment, transitions that are stored.
"""

from __future__ import annotations

import random
import signal
import warnings
from pathlib import Path

from mutations import Hang, at_most
from runs import OFFLINE, ONLINE, Offline, learn, place, results
from tally import Tally
from victims import ANY, FILES, Abandoned, Case, Death, Server, Trap, trapped

COUNT = 1_000
_SECONDS = 600.0
_KINDS = ("SIGKILL", "SIGKILL", "copy", "SIGTERM", "SIGINT")


class _Signals(Trap):
    """Sends a signal to this process, once or twice, and goes on if that lets it."""

    def __init__(self, out: Path, death: Death, number: int, times: int) -> None:
        super().__init__(out, death, None)
        self._number, self._times = number, times

    def die(self) -> None:
        for _ in range(self._times):
            signal.raise_signal(self._number)


def run(count: int, seed: int) -> Tally:
    """Interrupt `count` times, all algorithms in turn."""
    tally, rng = Tally("interrupts"), random.Random(seed)
    cases: dict[str, Case | Offline] = {**ONLINE, **OFFLINE}
    # Outside of training these end the process; here they shall only end the call.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    with place() as top:
        server = Server(top)
        try:
            events = {name: _whole(case, top / name) for name, case in cases.items()}
            names = list(cases)
            while tally.attacks < count:
                name = names.pop(0)
                names.append(name)
                most = min(25, count - tally.attacks)
                _until_done(cases[name], name, top, events[name], server, rng, tally, most)
        finally:
            server.close()
            signal.signal(signal.SIGTERM, before)
    return tally


def _whole(case: Case | Offline, out: Path) -> int:
    """Train without interrupts; how many events there were."""
    trap = Trap(out, None, None)
    trapped(lambda: learn(case, out), trap)
    return trap.counts.total()


def _until_done(
    case: Case | Offline,
    name: str,
    top: Path,
    events: int,
    server: Server,
    rng: random.Random,
    tally: Tally,
    most: int,
) -> None:
    """Interrupt one run `most` times, or until it is done before; compare."""
    told: list[str] = []
    out = top / f"{name}-{tally.attacks}"
    while len(told) < most:
        kind = rng.choice(_KINDS[2:] if isinstance(case, Offline) else _KINDS)
        death = Death(rng.choice([FILES, ANY]), rng.randrange(1 + events // 4), rng.random())
        to = out.with_name(f"{out.name}+")
        try:
            with at_most(_SECONDS):
                if not _interrupted(case, kind, death, out, to, server, rng):
                    break
        except Hang:
            tally.fail("hang", f"{name}: {kind} at {death}")
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not be
            tally.fail(type(error).__name__, f"{name}: {told} {kind} at {death}: {error}")
            return
        told.append(kind)
        out = to if kind == "copy" else out
    try:
        with at_most(_SECONDS):
            learn(case, out)
    except (Hang, Exception) as error:  # noqa: BLE001
        tally.fail(type(error).__name__, f"{name}: resumed after {told}: {error}")
        return
    same = results(out) == results(top / name)
    for kind in told:
        tally.add(f"{kind}, same bytes")
    if not same:
        tally.fail("other bytes", f"{name}: after {told}")


def _interrupted(
    case: Case | Offline,
    kind: str,
    death: Death,
    out: Path,
    to: Path,
    server: Server,
    rng: random.Random,
) -> bool:
    """Whether the run was interrupted before it was done."""
    if kind == "SIGKILL":
        assert isinstance(case, Case)
        end = server.run(case, out, death)
        if not (end.killed or end.finished):
            raise RuntimeError(end.told.strip().splitlines()[-1])
        return end.killed
    try:
        if kind == "copy":
            trapped(lambda: learn(case, out), Trap(out, death, to))
        else:
            safe = tuple(event for event in death.events if event != "write")
            death = Death(safe, death.at)
            trap = _Signals(out, death, getattr(signal, kind), rng.choice([1, 1, 2]))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                trapped(lambda: learn(case, out), trap)
    except (Abandoned, KeyboardInterrupt):
        return True
    return False
