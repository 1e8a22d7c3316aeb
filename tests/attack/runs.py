"""Small runs of every algorithm, that are interrupted and damaged.

`learn` again resumes a run; `results` are the bytes that must not depend on what happened.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from helpers import victims
from helpers.victims import Case

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

for _name, _value in {
    "JAX_COMPILATION_CACHE_DIR": f"{tempfile.gettempdir()}/mvpi-tests-{os.getuid()}",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}.items():
    os.environ.setdefault(_name, _value)  # compiled functions are kept on disk


class Run(Protocol):
    """Something to train in a directory."""

    def prepare(self) -> None:
        """Import what training needs, and start nothing."""

    def learn(self, out: Path) -> Any:
        """Train, or go on training."""

    def directory(self, out: Path) -> Path:
        """Where the files of the run are."""

    def results(self, out: Path) -> Any:
        """The bytes that interrupts must not change."""

    def answer(self, out: Path) -> Any:
        """Of a finished run: the bytes that `learn` goes by when it is called once more."""

    def another(self) -> Run:
        """A run of the same kind that has other results."""


@dataclass(frozen=True)
class Online:
    """An agent that learns in an environment."""

    case: Case

    def prepare(self) -> None:
        import gymnasium.envs.mujoco.mujoco_env
        from helpers import worlds  # noqa: F401

        from mvpi.agents.loading import agent_type

        agent_type(self.case.algorithm)
        del gymnasium

    def learn(self, out: Path) -> None:
        self.case.agent().learn(self.case.steps, out)

    def directory(self, out: Path) -> Path:
        return out

    def results(self, out: Path) -> Any:
        return victims.results(out)

    answer = results

    def another(self) -> Run:
        return Online(replace(self.case, risk=victims.another_risk_of(self.case.algorithm)))


@dataclass(frozen=True)
class Offline:
    """Learning from data: networks, or a table."""

    finite: bool
    seed: int = 0

    def prepare(self) -> None:
        from mvpi.offline import td3_bc, training

        del td3_bc, training

    def learn(self, out: Path) -> None:
        from mvpi.offline import Dataset
        from mvpi.offline.settings import TD3BCSettings
        from mvpi.offline.td3_bc import TD3BC
        from mvpi.offline.training import learn_finite_in, learn_in
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
        settings = TD3BCSettings(hidden=(4, 4), batch_size=8, ratio_every=10, ratio_steps=5)
        learn_in(out, TD3BC(data, risk, 0.9, seed=self.seed, settings=settings), 36)

    def directory(self, out: Path) -> Path:
        return out

    def results(self, out: Path) -> Any:
        policy = "policy.npz" if self.finite else "policy.safetensors"
        return (out / policy).read_bytes(), (out / "metrics.csv").read_bytes()

    answer = results

    def another(self) -> Run:
        return replace(self, seed=1)


@dataclass(frozen=True)
class Study:
    """An experiment as a runner's worker runs it: training, then the final episodes."""

    algorithm: str
    steps: int
    seed: int = 0

    @property
    def experiment(self) -> Any:
        from mvpi.experiments import Experiment

        settings = victims.TINY_OF[self.algorithm]
        given = {"steps": self.steps, "episodes": 3, "settings": settings}
        return Experiment(self.algorithm, "mvpi/Markowitz-v0", 1.0, self.seed, **given)

    def prepare(self) -> None:
        Online(Case(algorithm=self.algorithm)).prepare()
        assert self.experiment.name

    def learn(self, out: Path) -> None:
        self.experiment.run(out)

    def directory(self, out: Path) -> Path:
        return out / self.experiment.name

    def results(self, out: Path) -> Any:
        where = self.directory(out)
        return victims.results(where), self.answer(out)

    def answer(self, out: Path) -> Any:
        return (self.directory(out) / "evaluation.json").read_bytes()

    def another(self) -> Run:
        return replace(self, seed=1)


CASES: dict[str, Run] = {
    "td3, small ring": Online(Case(["Walk"], steps=330, settings={"buffer_size": 41})),
    "td3, long ring": Online(Case(steps=330, settings={"buffer_size": 5_000})),
    "td3, jax": Online(Case(["Walk"], steps=330, settings={"engine": "jax"})),
    "ppo": Online(Case(["Walk"], steps=200, algorithm="ppo")),
    "mvp": Online(Case(["Walk"], steps=200, algorithm="mvp")),
    "tamar": Online(Case(["Walk"], steps=200, algorithm="tamar")),
    "prashanth": Online(Case(["Walk"], steps=200, algorithm="prashanth")),
    "mean-gini": Online(Case(["Walk"], steps=200, algorithm="mean-gini")),
    "cvar-pg": Online(Case(["Walk"], steps=200, algorithm="cvar-pg")),
    "td3-bc": Offline(finite=False),
    "finite data": Offline(finite=True),
    "experiment, td3": Study("td3", 330),
    "experiment, mvp": Study("mvp", 200),
}


@contextmanager
def place() -> Iterator[Path]:
    """A directory in memory, where it costs nothing to make a file durable.

    The working directory is another one, in which nothing may be left.
    """
    with (
        tempfile.TemporaryDirectory(prefix="mvpi-attack-", dir=MEMORY) as name,
        tempfile.TemporaryDirectory(prefix="mvpi-attack-", dir=MEMORY) as working,
    ):
        with chdir(working):
            yield Path(name)
        left = sorted(path.name for path in Path(working).iterdir())
        if left:
            raise RuntimeError(f"left in the working directory: {', '.join(left)[:500]}")


def copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)
    return target
