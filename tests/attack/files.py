"""Files are mutated and read: an `InputError` or a valid result, and never anything else.

Policies, checkpoints, arrays, metrics, configurations, evaluations, rows of studies, journals and
rings of the replay, Minari data sets. Reading must not run what is in a file, write anywhere, take
gigabytes or crash the process: it happens in a process of its own, with a limit on its memory.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from mutations import MUTATIONS, Hang, at_most
from runs import CASES, place
from tally import Tally

import mvpi
from mvpi._storage.arrays import read_arrays
from mvpi._storage.metrics import read_metrics
from mvpi._storage.npz import read_npz
from mvpi._storage.rows import read_rows
from mvpi.cli.report import runs_to_show
from mvpi.errors import EnvironmentFailure, InputError
from mvpi.experiments.outcome import Outcome, judge
from mvpi.offline import Dataset
from mvpi.paper.rows import RunRow, write_rows
from mvpi.paper.rows import read_rows as read_study

sys.path.insert(0, str(Path(__file__).parents[1]))

COUNT = 10_000
_SECONDS = 120.0
_MEMORY = 2**30
"""Bytes that reading a small file may take beyond what the process has."""
_CHUNK = 250
"""Files that one process reads."""


@dataclass(frozen=True)
class _Target:
    """A file that is mutated, and what reads it."""

    name: str
    path: Path
    read: Callable[[], Any]


def run(count: int, seed: int) -> Tally:
    """Mutate and read `count` files, a process for some of them at a time."""
    tally = Tally("mutated files")
    with place() as top:
        targets = list(_targets(top))
        for target in targets:
            target.read()  # unharmed, all of them can be read
        for first in range(0, count, _CHUNK):
            _in_a_process(targets, range(first, min(first + _CHUNK, count)), seed, top, tally)
    return tally


def _in_a_process(
    targets: list[_Target], numbers: range, seed: int, top: Path, tally: Tally
) -> None:
    """Attack in a copy of this process; what it tells is a line of JSON an attack."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX has threads; what reads files does not use it
        child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "w", buffering=1) as out:
            _limit_memory()
            for number in numbers:
                out.write(json.dumps(["begin", _told(targets, number, seed)]) + "\n")
                for outcome in _attack(targets, number, seed, top):
                    out.write(json.dumps(outcome) + "\n")
        os._exit(0)
    os.close(writing)
    last = ""
    with os.fdopen(reading) as lines:
        for line in lines:
            kind, what = json.loads(line)
            if kind == "begin":
                last = what
            elif kind == "held":
                tally.add(what)
            else:
                tally.fail(kind, what)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        tally.fail("crash", f"{last}: the process ended with {status}")


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _choice(targets: list[_Target], number: int, seed: int) -> tuple[_Target, Any, random.Random]:
    rng = random.Random(f"{seed} {number}")
    return targets[number % len(targets)], rng.choice(MUTATIONS), rng


def _told(targets: list[_Target], number: int, seed: int) -> str:
    target, mutation, _ = _choice(targets, number, seed)
    return f"{target.name}, number {number}, seed {seed}: {mutation.__name__}"


def _attack(targets: list[_Target], number: int, seed: int, top: Path) -> Iterator[tuple[str, str]]:
    target, mutation, rng = _choice(targets, number, seed)
    told = _told(targets, number, seed)
    whole = target.path.read_bytes()
    target.path.write_bytes(mutation(whole, rng))
    before = _state(top)
    try:
        with at_most(_SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read()
    except (InputError, EnvironmentFailure) as error:
        if "\n" in str(error) or len(str(error)) > 2_000:
            yield "more than a line", f"{told}: {error}"
        else:
            yield "held", "refused"
    except Hang:
        yield "hang", told
    except BaseException as error:  # noqa: BLE001 - whatever it is, it must not be
        yield type(error).__name__, f"{told}: {error}"
    else:
        yield "held", "read"
    if _state(top) != before:
        yield "write", told
    target.path.write_bytes(whole)


def _state(top: Path) -> dict[str, tuple[int, int]]:
    """All files, with their sizes and the times they were changed."""
    found = {}
    for here, _, names in os.walk(top):
        for name in names:
            facts = os.lstat(os.path.join(here, name))  # noqa: PTH118 - ten thousand times
            found[f"{here}/{name}"] = facts.st_size, facts.st_mtime_ns
    return found


def _targets(top: Path) -> Iterator[_Target]:
    out = top / "td3"
    CASES["td3, long ring"].learn(out)
    policy = out / "policy.safetensors"
    yield _Target("policy", policy, lambda: mvpi.load(policy).predict([0.5]))
    checkpoint = out / "checkpoint.safetensors"
    yield _Target("checkpoint", checkpoint, lambda: read_arrays(checkpoint, "checkpoint"))
    yield _Target("checkpoint of data", checkpoint, lambda: Dataset.from_run(out))
    yield _Target("configuration of data", out / "config.json", lambda: Dataset.from_run(out))
    yield _Target("replay", out / "replay.rows", lambda: Dataset.from_run(out))
    yield from _journal(top)
    yield from _reported(top)
    yield from _arrays(top)
    yield from _minari(top)


def _journal(top: Path) -> Iterator[_Target]:
    from mvpi.agents.replay import Replay

    where = top / "ring"
    where.mkdir()
    replay, one = Replay(7, 1, 1, where), np.ones(1, np.float32)
    for i in range(20):
        replay.add(i * one, one, 0.5, False, one)
        if i == 12:
            replay.flush()
    replay.close()
    checksum = replay._files.checksum  # type: ignore[union-attr]
    read = lambda: read_rows(where, (7, 5), 13, checksum)  # noqa: E731
    yield _Target("journal", where / "replaced-13.journal", read)


def _reported(top: Path) -> Iterator[_Target]:
    out = top / "runs" / "mvp"
    agent = mvpi.MVP("mvpi/Markowitz-v0", 1.0, hidden=(4,), evaluation_every=50)
    agent.learn(120, out)
    judge(agent, 3).write(out)
    report = lambda: runs_to_show([out], episodes=2)  # noqa: E731
    for name in ("config.json", "evaluation.json", "metrics.csv", "policy.safetensors"):
        yield _Target(f"{name} of a report", out / name, report)
    yield _Target("metrics", out / "metrics.csv", lambda: read_metrics(out))
    yield _Target("evaluation", out / "evaluation.json", lambda: Outcome.read(out))
    rows = top / "runs.csv"
    write_rows(rows, [RunRow("a", "TD3", 0.0, i, 9, 1.5, *[2.0] * 5, str(i)) for i in range(3)])
    yield _Target("rows of a study", rows, lambda: read_study(rows, RunRow))


def _arrays(top: Path) -> Iterator[_Target]:
    rng = np.random.default_rng(0)
    model, dense = top / "model.npz", top / "dense.npz"
    chances = rng.dirichlet(np.ones(4), (4, 2))
    mvpi.MDP(chances, rng.normal(size=(4, 2))).save(model)
    np.savez_compressed(dense, transitions=chances, rewards=rng.normal(size=(4, 2)))
    for path in (model, dense):
        yield _Target(path.name, path, lambda path=path: mvpi.MDP.load(path))
    data = top / "data.npz"
    s = rng.integers(3, size=30)
    ends = np.zeros(30, bool)
    Dataset(s, s % 2, s + 0.5, s[::-1], ends, s[:2], n_states=3, n_actions=2).save(data)
    yield _Target("data.npz", data, lambda: Dataset.load(data))
    policy = top / "policy.npz"
    np.savez(policy, policy=np.full((3, 2), 0.5))
    read = lambda: read_npz(policy, {"policy"}, written_by="this")  # noqa: E731
    yield _Target("policy.npz", policy, read)


def _minari(top: Path) -> Iterator[_Target]:
    from helpers.minari_data import collected

    os.environ["MINARI_DATASETS_PATH"] = str(top / "minari")
    (top / "minari").mkdir()
    collected(gym.make("mvpi/Markowitz-v0", horizon=5), "raw-v0", 20)
    for name in ("main_data.hdf5", "metadata.json"):
        path = top / "minari" / "raw-v0" / "data" / name
        yield _Target(f"Minari {name}", path, lambda: Dataset.from_minari("raw-v0"))
