"""Small runs of every algorithm, that are interrupted and damaged.

The same call again resumes a run; `results` are the bytes that must not depend on what happened.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import victims
from victims import Case

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

for _name, _value in {
    "JAX_COMPILATION_CACHE_DIR": f"{tempfile.gettempdir()}/mvpi-tests-{os.getuid()}",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}.items():
    os.environ.setdefault(_name, _value)  # compiled functions are kept on disk

ONLINE = {
    "td3, small ring": Case(["Walk"], steps=330, settings={"buffer_size": 41}),
    "td3, long ring": Case(steps=330, settings={"buffer_size": 5_000}),
    "ppo": Case(["Walk"], steps=200, algorithm="ppo"),
    "mvp": Case(["Walk"], steps=200, algorithm="mvp"),
    "tamar": Case(["Walk"], steps=200, algorithm="tamar"),
    "prashanth": Case(["Walk"], steps=200, algorithm="prashanth"),
}


@dataclass(frozen=True)
class Offline:
    """Learning from data: networks, or a table."""

    finite: bool
    seed: int = 0

    def learn(self, out: Path) -> None:
        from mvpi.offline import Dataset
        from mvpi.offline.run import learn_finite_in, learn_in
        from mvpi.offline.td3_bc import TD3BC
        from mvpi.risk import MeanVariance

        rng = np.random.default_rng(1)
        n, risk = 60, MeanVariance(1.0)
        if self.finite:
            s, a, after = rng.integers(3, size=n), rng.integers(2, size=n), rng.integers(3, size=n)
            ends = np.zeros(n, bool)
            data = Dataset(s, a, s + 0.5 * a, after, ends, s[:5], n_states=3, n_actions=2)
            learn_finite_in(out, data, risk, 0.9 - 0.1 * self.seed)
            return
        seen, after = rng.normal(size=(2, n, 2))
        actions = rng.uniform(-1, 1, (n, 1))
        data = Dataset(
            seen, actions, seen[:, 0], after, np.zeros(n, bool), seen[:5], low=[-1.0], high=[1.0]
        )
        from mvpi.offline.settings import TD3BCSettings

        settings = TD3BCSettings(hidden=(4, 4), batch_size=8, ratio_every=10, ratio_steps=5)
        learn_in(out, TD3BC(data, risk, 0.9, seed=self.seed, settings=settings), 36)


OFFLINE = {"td3-bc": Offline(finite=False), "finite data": Offline(finite=True)}


def learn(case: Case | Offline, out: Path) -> None:
    """Train in this process, or go on training."""
    if isinstance(case, Offline):
        case.learn(out)
    else:
        case.agent().learn(case.steps, out)


def results(out: Path) -> Any:
    """The bytes of the policy, and the metrics but for the speed."""
    if (out / "policy.npz").exists():
        return (out / "policy.npz").read_bytes(), (out / "metrics.csv").read_bytes()
    if "steps_per_second" not in (out / "metrics.csv").read_text():
        return (out / "policy.safetensors").read_bytes(), (out / "metrics.csv").read_bytes()
    return victims.results(out)


@contextmanager
def place() -> Iterator[Path]:
    """A directory in memory, where it costs nothing to make a file durable."""
    with tempfile.TemporaryDirectory(prefix="mvpi-attack-", dir=MEMORY) as name:
        yield Path(name)


def copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)
    return target
