"""Experiments an hour: with one worker, with several, and on Ray.

    python benchmarks/runners.py                            all three; takes a quarter of an hour
    python benchmarks/runners.py --steps 500 --rounds 1     a quick look

A measurement is a few equal experiments, MVPI-TD3 on HalfCheetah-v4 with other seeds, from the call
of the runner to the last outcome: processes are started, functions compiled, policies judged. Ray
runs on this machine with as many CPUs as there are workers, and is started before. Runners take
turns; ratios are of measurements of the same round.

Rows go to a CSV file as they are measured; those that are there already are not measured again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Literal

import tyro
from rich.console import Console
from rich.table import Table
from rows import append_rows, read_rows
from training import environment

from mvpi.experiments.cluster import RayRunner
from mvpi.experiments.experiment import Experiment
from mvpi.experiments.local import LocalRunner
from mvpi.experiments.runner import Runner

Contestant = Literal["one worker", "workers", "Ray"]

CONTESTANTS: tuple[Contestant, ...] = ("one worker", "workers", "Ray")
PAIRS: tuple[tuple[Contestant, Contestant, str], ...] = (
    ("workers", "one worker", ">= 1.8 with two workers"),
    ("Ray", "workers", ">= 0.95"),
)
"""Whose throughput is divided by whose, and the aim."""


@dataclass(frozen=True)
class Row:
    """One measurement."""

    contestant: str
    round: int
    workers: int
    experiments: int
    steps: int
    seconds: float

    @property
    def throughput(self) -> float:
        """Experiments an hour."""
        return 3_600 * self.experiments / self.seconds


@dataclass(frozen=True)
class Config:
    """Times experiments with one worker, with several, and on Ray."""

    out: Path = Path("out/runners.csv")
    """Where rows are written, and read from to continue."""
    rounds: int = 3
    """Repetitions of every measurement."""
    workers: int = 2
    """Processes side by side; as many CPUs on Ray."""
    experiments: int = 4
    """Experiments of a measurement, a multiple of workers."""
    steps: int = 20_000
    """Steps of an experiment."""
    random_steps: int = 1_000
    """Of these, steps with random actions at the beginning."""

    def __post_init__(self) -> None:
        if self.experiments % self.workers:
            raise SystemExit(
                f"experiments must be a multiple of workers, got {self.experiments} and "
                f"{self.workers}"
            )

    def work(self) -> list[Experiment]:
        settings = {
            "learning_starts": self.random_steps,
            "evaluation_every": self.steps,
            "evaluation_episodes": 1,
        }
        return [
            Experiment("td3", "HalfCheetah-v4", 1.0, seed, self.steps, 0.1, 2, settings)
            for seed in range(self.experiments)
        ]

    def rows(self) -> list[Row]:
        """The rows of these sizes in the file."""
        sizes = (self.workers, self.experiments, self.steps)
        rows = read_rows(self.out, Row)
        return [r for r in rows if (r.workers, r.experiments, r.steps) == sizes]


@contextmanager
def ray_on_this_machine(cpus: int) -> Iterator[str]:
    """The address of a Ray of our own."""
    import ray

    ray.init(
        "local",
        num_cpus=cpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()


def seconds(runner: Runner, work: list[Experiment]) -> float:
    """From the call of the runner to the last outcome."""
    with TemporaryDirectory() as root:
        start = time.perf_counter()
        for event in runner(work, Path(root)):
            if event.state == "failed":
                raise SystemExit(f"{event.experiment.name} failed: {event.reason}")
        return round(time.perf_counter() - start, 2)


def measure(config: Config) -> None:
    """Whatever is not in the file yet."""
    done = {(row.round, row.contestant) for row in config.rows()}
    missing = [k for k in product(range(config.rounds), CONTESTANTS) if k not in done]
    if not missing:
        return
    with ray_on_this_machine(config.workers) as address:
        runners: dict[Contestant, Runner] = {
            "one worker": LocalRunner(1),
            "workers": LocalRunner(config.workers),
            "Ray": RayRunner(address),
        }
        for i, contestant in missing:
            taken = seconds(runners[contestant], config.work())
            row = Row(contestant, i, config.workers, config.experiments, config.steps, taken)
            append_rows(config.out, [row])


def speed_table(rows: list[Row], config: Config) -> Table:
    sizes = f"{config.experiments} experiments of {config.steps:,} steps, {config.workers} workers"
    table = Table(title=f"Experiments an hour: {sizes}")
    for column in ("", "best", "median", "all rounds"):
        table.add_column(column, justify="right" if column in ("best", "median") else "left")
    for contestant in CONTESTANTS:
        speeds = [row.throughput for row in rows if row.contestant == contestant]
        each = " ".join(f"{speed:.1f}" for speed in speeds)
        table.add_row(contestant, f"{max(speeds):.1f}", f"{median(speeds):.1f}", each)
    return table


def ratio_table(rows: list[Row]) -> Table:
    speeds = {(row.round, row.contestant): row.throughput for row in rows}
    rounds = sorted({row.round for row in rows})
    table = Table(title="Throughput, divided within a round")
    for column in ("", "median", "best", "all rounds", "aim"):
        table.add_column(column, justify="right" if column in ("best", "median") else "left")
    for one, other, aim in PAIRS:
        ratios = [speeds[i, one] / speeds[i, other] for i in rounds]
        each = " ".join(f"{ratio:.3f}" for ratio in ratios)
        table.add_row(f"{one} / {other}", f"{median(ratios):.3f}", f"{max(ratios):.3f}", each, aim)
    return table


def main(config: Config) -> None:
    console = Console()
    console.print(environment(), highlight=False)
    measure(config)
    rows = config.rows()
    console.print(speed_table(rows, config))
    console.print(ratio_table(rows))


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
