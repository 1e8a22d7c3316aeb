"""Training is interrupted again and again; in the end its bytes are as if nothing had been.

Processes are sent SIGKILL; SIGTERM and SIGINT come once, which asks for a checkpoint, or twice,
which stops at once. All that at random moments, or at random events: files that are opened,
written, synced, renamed and removed, steps of the environment, transitions that are stored. Between
them, a copy of the directory is what a kill would have left in the middle of an event; that needs
no process.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from forked import Blow, Forks
from helpers.victims import ANY, FILES, Abandoned, Death, Trap, trapped
from mutations import Hang, at_most
from runs import CASES, place
from tally import Tally

COUNT = 1_000
_SECONDS = 600.0
_MOST = 25
"""Interrupts of one run."""
_KINDS = ("SIGKILL", "SIGKILL", "SIGTERM", "SIGINT", "copy")


@dataclass(frozen=True)
class _Whole:
    """A run that nobody interrupted: where it is, how many events and seconds it took."""

    out: Path
    events: int
    seconds: float


def run(count: int, seed: int) -> Tally:
    """Interrupt `count` times, all algorithms in turn."""
    tally, rng = Tally("interrupts"), random.Random(seed)
    with place() as top, Forks() as forks:
        names = list(CASES)[: max(1, count)]
        wholes = {name: _whole(name, top / name, forks) for name in names}
        while tally.attacks < count:
            name = names.pop(0)
            names.append(name)
            most = min(_MOST, count - tally.attacks)
            _until_done(name, top, wholes[name], forks, rng, tally, most)
    return tally


def _whole(name: str, out: Path, forks: Forks) -> _Whole:
    """Train without interrupts: in this process, and in one of its own for the time it takes."""
    case = CASES[name]
    trap = Trap(case.directory(out), None, None)
    trapped(partial(case.learn, out), trap)
    forked, began = out.with_name(f"{out.name}, forked"), time.monotonic()
    end = forks.train(name, forked)
    seconds = time.monotonic() - began
    if end != "finished" or case.results(forked) != case.results(out):
        raise RuntimeError(f"{name}: not even without interrupts is it the same: {end}")
    return _Whole(out, trap.counts.total(), seconds)


def _until_done(
    name: str,
    top: Path,
    whole: _Whole,
    forks: Forks,
    rng: random.Random,
    tally: Tally,
    most: int,
) -> None:
    """Interrupt one run `most` times, or until it is done before; compare."""
    told: list[str] = []
    out = top / f"{name}-{tally.attacks}"
    while len(told) < most:
        kind = rng.choice(_KINDS)
        if kind == "copy":
            end, out = _copied(name, out, _death(whole, rng))
        else:
            blow = _blow(kind, whole, rng)
            end = forks.train(name, out, blow)
            kind = f"{kind} at {'an event' if blow.death else 'a moment'}"
        if end not in ("interrupted", "finished"):
            tally.fail(end.split(":")[0], f"{name}: after {told}, by {kind}: {end}")
            return
        if end == "finished":
            break
        told.append(kind)
    end = forks.train(name, out)
    if end != "finished":
        tally.fail(end.split(":")[0], f"{name}: resumed after {told}: {end}")
        return
    for kind in told:
        tally.add(f"{kind}, same bytes")
    if CASES[name].results(out) != CASES[name].results(whole.out):
        tally.fail("other bytes", f"{name}: after {told}")


def _death(whole: _Whole, rng: random.Random) -> Death:
    return Death(rng.choice([FILES, ANY]), rng.randrange(1 + whole.events // 4), rng.random())


def _blow(kind: str, whole: _Whole, rng: random.Random) -> Blow:
    """A signal at an event, or at a moment: the longer a run takes, the later."""
    times = 1 if kind == "SIGKILL" else rng.choice([1, 1, 2])
    if rng.random() < 0.5:
        return Blow(kind, after=rng.random() * whole.seconds / 2, times=times)
    death = _death(whole, rng)
    if kind != "SIGKILL":  # a write that is half done is what only a kill leaves
        death = Death(tuple(e for e in death.events if e not in ("write", "add")), death.at)
    return Blow(kind, death, times=times)


def _copied(name: str, out: Path, death: Death) -> tuple[str, Path]:
    """Train until the event and give up; the copy, and how it ended."""
    case, to = CASES[name], out.with_name(f"{out.name}+")
    try:
        with at_most(_SECONDS):
            trapped(partial(case.learn, out), Trap(case.directory(out), death, case.directory(to)))
    except Abandoned:
        return "interrupted", to
    except Hang:
        return "hang", out
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not be
        return f"{type(error).__name__}: {error}", out
    return "finished", out
