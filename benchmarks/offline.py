"""Off-line MVPI with TD3+BC: what it reaches from data of mixed quality, and how it scales.

    python benchmarks/offline.py                    the tasks; takes hours
    python benchmarks/offline.py --parts scale      memory and time against the size of the data
    python benchmarks/offline.py --parts y          `y` of what was learned, against the truth

    tasks    transitions of random actions and of snapshots of MVPI-TD3 in training are collected
             once; then policies are learned from them at every risk, and by cloning (alpha = 0),
             which is the floor. On-line MVPI-TD3 at the same risk is the ceiling. All policies are
             evaluated in the environment itself.
    scale    opening a data set that is mapped from files, 1,000 updates and one estimate of `y`:
             seconds, and the most memory beyond the mapped files
    y        policies are learned from the same kind of data; `y` of the final one and its interval
             stand beside the mean reward in the environment itself, of the discounted steps of
             episodes from resets, and beside what one GenDICE network makes of it

A measurement is a process of its own, bound to one core. Rows go to a CSV file as they are
measured; those that are there already are not measured again, nor are data collected again.
"""

from __future__ import annotations

import shutil
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import tyro
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows
from training import chosen, in_process

import mvpi
from mvpi.envs import Task
from mvpi.offline import CoverageWarning, Dataset

# JAX is imported in the process that needs it.

Part = Literal["tasks", "scale", "y"]
Anything = npt.NDArray[Any]

COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminations", "starts")
OFFLINE, CLONE, ONLINE, DATA = "TD3+BC", "cloning", "on-line", "data"
METHODS = (DATA, CLONE, OFFLINE, ONLINE)
MEASURES = ("reward_mean", "reward_variance", "return_mean", "effective_size")
STAGES = ("open", "start", "updates", "estimate")
OBSERVATIONS, ACTIONS = 17, 6
"""Of the made-up data that are scaled."""
TIMED_UPDATES = 1_000
BEHAVIOUR_SEED = 1_000
PIECE = 100_000


@dataclass(frozen=True)
class Config:
    """Measures off-line learning for continuous actions."""

    parts: tuple[Part, ...] = ("tasks",)
    out: Path = Path("out/offline.csv")
    """Where rows are written, and read from to continue."""
    data: Path = Path("out/offline-data")
    """Where transitions are kept."""
    tasks: tuple[str, ...] = ("mvpi/RiskyPendulum-v0", "Hopper-v4")
    transitions: int = 120_000
    """Transitions collected in every task."""
    behaviour_steps: int = 60_000
    """Steps of training of the agents that collect; one at every risk."""
    snapshots: int = 3
    """Policies taken from each of these agents, at equal distances."""
    behaviour_noise: float = 0.1
    """Deviation of the noise on their actions, for actions in [-1, 1]."""
    risks: tuple[float, ...] = (0.0, 1.0)
    discount: float = 0.99
    alpha: float = 2.5
    updates: int = 100_000
    hidden: tuple[int, ...] = (256, 256)
    """Layers of actor and critics."""
    learning_rate: float = 3e-4
    """Of these."""
    online_steps: int = 100_000
    """Steps of training of the on-line agent."""
    random_steps: int = 10_000
    """Of which, for all agents, so many at first with random actions."""
    episodes: int = 50
    """Episodes of the evaluation."""
    longest: int = 1_000
    """Steps of an episode that `y` is compared with, where it does not end before."""
    seeds: int = 3
    sizes: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)
    """Transitions of the data that are scaled."""


@dataclass(frozen=True)
class Key:
    """What was measured; the task of `scale` is the size of the data."""

    part: str
    task: str
    method: str
    risk: float
    seed: int


@dataclass(frozen=True)
class Row(Key):
    """One number of a measurement."""

    measure: str
    value: float

    @property
    def key(self) -> Key:
        return Key(self.part, self.task, self.method, self.risk, self.seed)


# Data in files.


def opened(directory: Path) -> Dataset:
    """A data set that stays in its files."""
    return Dataset(*(np.load(directory / f"{name}.npy", mmap_mode="r") for name in COLUMNS))


@contextmanager
def new_files(target: Path, rows: int, seen: int, actions: int) -> Iterator[dict[str, Anything]]:
    """Columns to be filled, under names of the data set; they are there when all are full."""
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    shapes: dict[str, Any] = {
        "observations": ((rows, seen), np.float32),
        "actions": ((rows, actions), np.float32),
        "rewards": ((rows,), np.float64),
        "next_observations": ((rows, seen), np.float32),
        "terminations": ((rows,), np.bool_),
    }
    columns: dict[str, Anything] = {
        name: np.lib.format.open_memmap(part / f"{name}.npy", "w+", dtype, shape)
        for name, (shape, dtype) in shapes.items()
    }
    yield columns
    np.save(part / "starts.npy", columns.pop("starts"))
    part.rename(target)


# Tasks.


def new_agent(task: str, risk: float, seed: int, steps: int, config: Config) -> Any:
    return mvpi.TD3(
        task,
        risk=risk,
        seed=seed,
        gamma=config.discount,
        buffer_size=steps,
        learning_starts=min(config.random_steps, steps // 2),
        evaluation_every=steps,
        evaluation_episodes=1,
    )


def behaviours(task: str, config: Config) -> list[Any]:
    """Policies of different quality; None acts at random."""
    policies: list[Any] = [None]
    for risk in config.risks:
        agent = new_agent(task, risk, BEHAVIOUR_SEED, config.behaviour_steps, config)
        for i in range(config.snapshots):
            agent.learn((i + 1) * config.behaviour_steps // config.snapshots)
            policies.append(agent.policy)
    return policies


def collect(task: str, directory: Path, config: Config) -> None:
    """Transitions of all behaviours, as many of each, written to files."""
    policies = behaviours(task, config)
    env, rng = Task(task)(), np.random.default_rng(BEHAVIOUR_SEED)
    box: Any = env.action_space
    seen: Any = env.observation_space.shape
    noise = 0.5 * config.behaviour_noise * (box.high - box.low)
    shares = np.array_split(np.arange(config.transitions), len(policies))
    with new_files(directory, config.transitions, *seen, *box.shape) as columns:
        starts: list[Any] = []
        for policy, share in zip(policies, shares, strict=True):
            over = True
            for row in share:
                if over:
                    s, _ = env.reset(seed=int(rng.integers(2**31)))
                    starts.append(s)
                if policy is None:
                    a = rng.uniform(box.low, box.high)
                else:
                    a = policy.predict(s) + noise * rng.standard_normal(box.shape)
                a = np.clip(a, box.low, box.high).astype(np.float32)
                following, r, terminated, truncated, _ = env.step(a)
                step = (s, a, r, following, terminated)
                for name, value in zip(COLUMNS, step, strict=False):
                    columns[name][row] = value
                s, over = following, terminated or truncated
        columns["starts"] = np.asarray(starts, np.float32)
    env.close()


def live_mean(policy: Any, key: Key, config: Config) -> tuple[float, float]:
    """The mean reward of a discounted step before the end of an episode, and its standard error."""
    env = Task(key.task)().unwrapped  # a time limit is no end
    sums = np.zeros((config.episodes, 2))
    for episode, total in enumerate(sums):
        s, _ = env.reset(seed=10_000 * (key.seed + 1) + episode)
        weight, over, steps = 1.0, False, 0
        while not over and steps < config.longest:
            s, r, over, _, _ = env.step(policy.predict(s))
            total += weight * np.array([float(r), 1.0])
            weight, steps = weight * config.discount, steps + 1
    env.close()
    mean = float(sums[:, 0].sum() / sums[:, 1].sum())
    off = (sums[:, 0] - mean * sums[:, 1]) / sums[:, 1].mean()
    return mean, float(off.std(ddof=1) / np.sqrt(len(off)))


def against_truth(key: Key, directory: Path, config: Config) -> dict[str, float]:
    """`y` as it is reported, the truth, and what else could have been reported."""
    from mvpi.offline import density_ratio, weighted_dual

    if not directory.exists():
        collect(key.task, directory, config)
    policy, said = learned(key, directory, config)
    data = opened(directory)
    ratio = density_ratio(data, policy, config.discount, "gen-dice", steps=5_000, seed=key.seed)
    truth, error = live_mean(policy, key, config)
    return {
        "truth": truth,
        "error of truth": error,
        **said,
        "y by gen-dice": weighted_dual(data, ratio, key.risk).y,
        "mean of data": float(data.rewards.mean()),
    }


def learned(key: Key, directory: Path, config: Config) -> tuple[Any, dict[str, float]]:
    """The policy that a method finds, and what else it says."""
    if key.method == ONLINE:
        agent = new_agent(key.task, key.risk, key.seed, config.online_steps, config)
        return agent.learn(config.online_steps), {}
    from mvpi.offline.td3_bc import learn_continuous

    rows: list[dict[str, Any]] = []
    box: Any = Task(key.task)().action_space
    warnings.simplefilter("ignore", CoverageWarning)  # the effective size is in the table
    policy = learn_continuous(
        opened(directory),
        key.risk,
        config.discount,
        updates=config.updates,
        seed=key.seed,
        low=box.low,
        high=box.high,
        hidden=config.hidden,
        learning_rate=config.learning_rate,
        alpha=0.0 if key.method == CLONE else config.alpha,
        on_row=rows.append,
    )
    last = rows[-1]
    seen = {f"{name} by ratio": last[name] for name in ("reward_mean", "reward_variance")}
    named = ("effective_size", "y", "y_low", "y_high", "fitted_q_mean")
    return policy, seen | {name: last[name] for name in named}


def on_task(key: Key, directory: Path, config: Config) -> dict[str, float]:
    """Means and variances of a method, in the environment itself."""
    if not directory.exists():
        collect(key.task, directory, config)
    if key.method == DATA:
        rewards = opened(directory).rewards
        return {"reward_mean": float(rewards.mean()), "reward_variance": float(rewards.var())}
    start = time.perf_counter()
    policy, said = learned(key, directory, config)
    seconds = time.perf_counter() - start
    found = mvpi.evaluate(policy, key.task, episodes=config.episodes, seed=key.seed)
    return {
        "reward_mean": found.reward_mean,
        "reward_variance": found.reward_variance,
        "return_mean": found.mean,
        "return_variance": found.variance,
        **said,
        "seconds": seconds,
    }


# Scale.


def make_up(directory: Path, rows: int) -> None:
    """Random transitions, written piece by piece."""
    rng = np.random.default_rng(0)
    with new_files(directory, rows, OBSERVATIONS, ACTIONS) as columns:
        for i in range(0, rows, PIECE):
            piece = slice(i, min(i + PIECE, rows))
            count = piece.stop - i
            s, noise = rng.standard_normal((2, count, OBSERVATIONS), dtype=np.float32)
            a = rng.uniform(-1.0, 1.0, (count, ACTIONS))
            columns["observations"][piece] = s
            columns["actions"][piece] = a
            columns["rewards"][piece] = s[:, 0] + a[:, 0] + rng.standard_normal(count)
            columns["next_observations"][piece] = 0.9 * s + 0.4 * noise
            columns["terminations"][piece] = rng.random(count) < 0.001
        columns["starts"] = rng.standard_normal((1_000, OBSERVATIONS), dtype=np.float32)


class Usage:
    """The most memory that is no mapped file, watched while something runs, in MB."""

    def __init__(self) -> None:
        import psutil

        self._process = psutil.Process()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._first = self.most = self._now()
        self._thread.start()

    def growth(self) -> float:
        """Since the beginning; ends the watch."""
        self._over.set()
        self._thread.join()
        return self.most - self._first

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            self.most = max(self.most, self._now())

    def _now(self) -> float:
        memory = self._process.memory_info()
        return (memory.rss - memory.shared) / 1e6


def at_scale(key: Key, directory: Path, config: Config) -> dict[str, float]:
    """Seconds of every stage, and memory over all of them."""
    from mvpi.offline.td3_bc import TD3BC

    if not directory.exists():
        make_up(directory, int(key.task))
    warnings.simplefilter("ignore", CoverageWarning)
    small = directory.with_name("warm-up")
    if not small.exists():
        make_up(small, PIECE)
    TD3BC(opened(small), key.risk, config.discount).learn(100)  # compiles
    usage, times = Usage(), [time.perf_counter()]

    def done() -> None:
        times.append(time.perf_counter())

    data = opened(directory)
    done()
    learner = TD3BC(data, key.risk, config.discount)
    done()
    learner.improve(TIMED_UPDATES)
    done()
    learner.evaluate()
    done()
    stages = dict(zip(STAGES, np.diff(times).tolist(), strict=True))
    size = sum(path.stat().st_size for path in directory.glob("*.npy")) / 1e6
    return {**stages, "MB unmapped": usage.growth(), "MB of files": size}


# What to measure, and tables.


def wanted(config: Config) -> Iterator[Key]:
    if "tasks" in config.parts:
        for task in config.tasks:
            yield Key("tasks", task, DATA, 0.0, 0)
        for seed, task in product(range(config.seeds), config.tasks):
            yield Key("tasks", task, CLONE, 0.0, seed)
            for method, risk in product((OFFLINE, ONLINE), config.risks):
                yield Key("tasks", task, method, risk, seed)
    if "y" in config.parts:
        for task, risk, seed in product(config.tasks, config.risks, range(config.seeds)):
            yield Key("y", task, OFFLINE, risk, seed)
    if "scale" in config.parts:
        for size in config.sizes:
            yield Key("scale", str(size), OFFLINE, 1.0, 0)


def measure(key: Key, config: Config) -> list[Row]:
    directory = config.data.resolve() / key.task.replace("/", "-")
    jobs = {"tasks": on_task, "scale": at_scale, "y": against_truth}
    job = partial(jobs[key.part], key, directory, config)
    found: dict[str, float] = in_process(chosen("one"), job)
    return [Row(**vars(key), measure=name, value=value) for name, value in found.items()]


def values(rows: list[Row], name: str, **fixed: Any) -> list[float]:
    """Of all rows of that measure that agree with what is fixed."""
    return [
        row.value
        for row in rows
        if row.measure == name and all(getattr(row, field) == x for field, x in fixed.items())
    ]


def mean_and_error(sample: list[float]) -> str:
    if not sample:
        return "-"
    error = f" +- {np.std(sample, ddof=1) / np.sqrt(len(sample)):.3g}" if len(sample) > 1 else ""
    return f"{np.mean(sample):.4g}{error}"


def task_table(rows: list[Row], task: str) -> Table:
    table = Table(title=f"{task}: mean over seeds +- standard error")
    for heading in ("method", "risk", "seeds", *(name.replace("_", " ") for name in MEASURES)):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    there = {(row.method, row.risk) for row in rows if (row.part, row.task) == ("tasks", task)}
    for method, risk in sorted(there, key=lambda x: (METHODS.index(x[0]), x[1])):
        fixed = {"part": "tasks", "task": task, "method": method, "risk": risk}
        samples = [values(rows, name, **fixed) for name in MEASURES]
        shown = "" if method in (DATA, CLONE) else f"{risk:g}"
        table.add_row(method, shown, str(len(samples[0])), *map(mean_and_error, samples))
    return table


def y_table(rows: list[Row], task: str) -> Table:
    table = Table(title=f"{task}: y, and the mean reward that it should be")
    names = ("truth", "error of truth", "y", "y_low", "y_high", "y by gen-dice", "fitted_q_mean")
    for heading in ("risk", "seed", *(name.replace("_", " ") for name in names), "covered"):
        table.add_column(heading, justify="right")
    keys = {row.key for row in rows if (row.part, row.task) == ("y", task)}
    for key in sorted(keys, key=lambda key: (key.risk, key.seed)):
        found = {row.measure: row.value for row in rows if row.key == key}
        covered = found["y_low"] <= found["truth"] <= found["y_high"]
        shown = (f"{found[name]:.3f}" for name in names)
        table.add_row(f"{key.risk:g}", str(key.seed), *shown, "yes" if covered else "no")
    return table


def scale_table(rows: list[Row]) -> Table:
    table = Table(title=f"Seconds to open, to start, of {TIMED_UPDATES:,} updates, of an estimate")
    names = (*STAGES, "MB unmapped", "MB of files")
    for heading in ("transitions", *names):
        table.add_column(heading, justify="right")
    for size in sorted({int(row.task) for row in rows if row.part == "scale"}):
        found = (values(rows, name, part="scale", task=str(size)) for name in names)
        table.add_row(f"{size:,}", *map(mean_and_error, found))
    return table


def main(config: Config) -> None:
    console = Console()
    done = {row.key for row in read_rows(config.out, Row)}
    for key in wanted(config):
        if key not in done:
            console.print(f"measuring {key}")
            append_rows(config.out, measure(key, config))
    rows = read_rows(config.out, Row)
    if "tasks" in config.parts:
        for task in config.tasks:
            console.print(task_table(rows, task))
    if "y" in config.parts:
        for task in config.tasks:
            console.print(y_table(rows, task))
    if "scale" in config.parts:
        console.print(scale_table(rows))


if __name__ == "__main__":
    main(tyro.cli(Config))
