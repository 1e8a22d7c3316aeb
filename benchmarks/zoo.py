"""Writes the trained agents of `mvpi.agents.zoo` from a recorded study: policies and their index.

    python benchmarks/zoo.py                    # of results/paper-1m
    python benchmarks/zoo.py DIRECTORY          # of another one that `mvpi paper --record` wrote

Seed 0 of every task, risk aversion and method whose policy was kept; all that is there now is
replaced.
"""

from __future__ import annotations

import argparse
import csv
import math
import shutil
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path

from mvpi.agents import zoo
from mvpi.agents.registry import AGENTS
from mvpi.paper.grid import METHODS, Grid
from mvpi.paper.rows import RunRow, read_rows
from mvpi.paper.study import POLICIES, RUNS

RECORDED = Path(__file__).parents[1] / "results/paper-1m"


def recorded(directory: Path) -> Iterator[tuple[zoo.Trained, Path]]:
    """The agents of seed 0 whose policies were kept, and these."""
    for row in read_rows(directory / RUNS, RunRow):
        policies = list((directory / POLICIES).glob(f"*-{row.experiment}.safetensors"))
        if row.seed == 0 and policies:
            earned = (row.mean, math.sqrt(row.variance), row.reward_mean, row.reward_variance)
            yield (
                zoo.Trained(
                    row.task,
                    row.risk_aversion,
                    METHODS[row.method].algorithm,
                    row.steps,
                    Grid.action_noise,
                    *(round(value, 6) for value in earned),
                ),
                policies[0],
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, nargs="?", default=RECORDED)
    found = dict(recorded(parser.parse_args().directory))
    zoo.DIRECTORY.mkdir(exist_ok=True)
    for path in zoo.DIRECTORY.glob("*.safetensors"):
        path.unlink()
    for one, policy in found.items():
        shutil.copyfile(policy, one.path)
    order = list(AGENTS)
    rows = sorted(found, key=lambda one: (one.task, one.risk_aversion, order.index(one.algorithm)))
    with (zoo.DIRECTORY / zoo.INDEX).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(zoo.Trained)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(one) for one in rows)
    print(f"Wrote {len(rows)} agents to {zoo.DIRECTORY}.")


if __name__ == "__main__":
    main()
