"""Run directories are damaged and resumed: to the same bytes, or to a refusal in one line.

Files are changed, cut short, prolonged, removed, exchanged with each other, with those of another
run and with earlier ones of the same run, and replaced by links, FIFOs and directories. Nothing
outside of the directory may change, and nothing may hang.
"""

from __future__ import annotations

import os
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from helpers.victims import ANY, Abandoned, Death, Trap, trapped
from mutations import DAMAGES, Hang, at_most
from runs import CASES, Run, copy, place
from tally import Tally

from mvpi.errors import InputError

COUNT = 1_000
_SECONDS = 300.0


@dataclass(frozen=True)
class _Base:
    """A run to be damaged, what it ends with, and where files come from that are put into it."""

    name: str
    case: Run
    directory: Path
    whole: Path
    others: tuple[Path, ...]
    found: Callable[[Path], Any]


def run(count: int, seed: int) -> Tally:
    """Damage `count` directories and resume each."""
    tally, rng = Tally("damaged directories"), random.Random(seed)
    with place() as top:
        bases = list(_bases(top))
        outside = top / "outside"
        outside.write_bytes(b"not yours")
        for number in range(count):
            base = bases[number % len(bases)]
            out = copy(base.directory, top / "run" / "damaged")
            what = _damage(base.case.directory(out), base, outside, rng)
            _attack(base, out, what, tally)
            if outside.read_bytes() != b"not yours":
                tally.fail("write outside", f"{base.name}: {what}")
                outside.write_bytes(b"not yours")
            if [path.name for path in out.parent.iterdir()] != [out.name]:
                tally.fail("file outside", f"{base.name}: {what}")
                shutil.rmtree(out.parent)
    return tally


def _attack(base: _Base, out: Path, what: str, tally: Tally) -> None:
    told = f"{base.name}: {what}"
    try:
        with at_most(_SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            base.case.learn(out)
    except (InputError, OSError) as error:  # the command line prints these in a line, status 2
        if "\n" in str(error) or len(str(error)) > 2_000:
            tally.fail("more than a line", f"{told}: {error}")
        else:
            tally.add("refused")
    except Hang:
        tally.fail("hang", told)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not be
        tally.fail("traceback", f"{told}: {type(error).__name__} {error}")
    else:
        try:
            same = base.found(out) == base.found(base.whole)
        except (OSError, ValueError):  # gone, or not even of that form
            same = False
        if same:
            tally.add("same bytes")
        else:
            tally.fail("other bytes", told)


def _bases(top: Path) -> list[_Base]:
    """Of every algorithm: a run that was killed, one that is finished; others to take from."""
    found = []
    for name, case in CASES.items():
        where = top / "bases" / name
        whole = where / "whole"
        trap = Trap(case.directory(whole), None, None)
        trapped(partial(case.learn, whole), trap)
        early, late = where / "early", where / "late"
        for at, to in ((0.5, early), (0.8, late)):
            out = where / f"{to.name}-given-up"
            death = Death(ANY, int(at * trap.counts.total()))
            end = Trap(case.directory(out), death, case.directory(to))
            try:
                trapped(partial(case.learn, out), end)
            except Abandoned:
                pass
            else:
                copy(out, to)
        other = where / "other"
        case.another().learn(other)
        rest = (early, other)
        found += [
            _Base(f"{name}, killed", case, late, whole, rest, case.results),
            _Base(f"{name}, finished", case, whole, whole, (late, *rest), case.answer),
        ]
    return found


def _damage(out: Path, base: _Base, outside: Path, rng: random.Random) -> str:
    """Damage the directory; what was done."""
    weights = [6, 1, 2, 1, 1]
    kinds: list[Callable[..., str]] = [_mutated, _removed, _from_another, _exchanged, _irregular]
    for _ in range(20):
        kind = rng.choices(kinds, weights)[0]
        files = sorted(path for path in out.iterdir() if path.is_file() and path.name != ".lock")
        what = kind(out, files, base, outside, rng)
        if what:
            return what
    raise AssertionError(f"nothing to damage in {out}")


def _mutated(out: Path, files: list[Path], base: _Base, outside: Path, rng: random.Random) -> str:
    path, mutation = rng.choice(files), rng.choice(DAMAGES)
    data = path.read_bytes()
    seed = rng.randrange(2**32)
    changed = mutation(data, random.Random(seed))
    path.write_bytes(changed)
    return f"{path.name}: {mutation.__name__} {seed}" if changed != data else ""


def _removed(out: Path, files: list[Path], base: _Base, outside: Path, rng: random.Random) -> str:
    chosen = rng.sample(files, min(len(files), rng.choice([1, 1, 2])))
    for path in chosen:
        path.unlink()
    return f"removed {', '.join(path.name for path in chosen)}"


def _from_another(
    out: Path, files: list[Path], base: _Base, outside: Path, rng: random.Random
) -> str:
    """A file, or all but config.json, of another run or of an earlier time."""
    source = rng.choice(base.others)
    there = [path for path in sorted(source.rglob("*")) if path.is_file() and path.name != ".lock"]
    if rng.random() < 0.1:
        chosen = [path for path in there if path.name != "config.json"]
    else:
        chosen = [rng.choice(there)]
    for path in chosen:
        shutil.copyfile(path, out / path.name)
    return f"{', '.join(path.name for path in chosen)} of {source.name}"


def _exchanged(out: Path, files: list[Path], base: _Base, outside: Path, rng: random.Random) -> str:
    if len(files) < 2:
        return ""
    first, second = rng.sample(files, 2)
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(b)
    second.write_bytes(a)
    return f"{first.name} and {second.name} exchanged"


def _irregular(out: Path, files: list[Path], base: _Base, outside: Path, rng: random.Random) -> str:
    """A link to a file outside, to itself, to a device; a FIFO; a directory."""
    names = [*(path.name for path in files), ".lock", "finished.json", "evaluation.json"]
    names += [".metrics.csv.part", ".policy.safetensors.part", ".checkpoint.safetensors.part"]
    names += ["replaced-200.journal", "replaced-300.journal", "replaced-200.rows"]
    path, kind = out / rng.choice(names), rng.randrange(5)
    path.unlink(missing_ok=True)
    match kind:
        case 0:
            path.symlink_to(outside)
        case 1:
            path.symlink_to(path)
        case 2:
            path.symlink_to("/dev/zero")
        case 3:
            os.mkfifo(path)
        case 4:
            path.mkdir()
    kinds = ("link outside", "link to itself", "link to a device", "FIFO", "directory")
    return f"{path.name} is a {kinds[kind]}"
