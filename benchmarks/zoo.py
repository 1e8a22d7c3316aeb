"""Writes the trained agents of `mvpi.agents.zoo` from run directories: policies and their index.

    python benchmarks/zoo.py RUN_DIRECTORY ...

Each run directory is one of `mvpi train` with its evaluation.json (`mvpi report` or an experiment
leaves one). An agent of the same task, risk and algorithm is replaced.
"""

from __future__ import annotations

import argparse
import csv
import shutil
from dataclasses import asdict, fields
from pathlib import Path

from mvpi.agents import zoo
from mvpi.agents.registry import AGENTS
from mvpi.experiments.outcome import judge_run
from mvpi.report.run_reader import read_runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--episodes", type=int, default=100)
    arguments = parser.parse_args()
    found = {}
    if (zoo.DIRECTORY / zoo.INDEX).exists():
        found = {one.name: one for one in zoo.agents()}
    zoo.DIRECTORY.mkdir(exist_ok=True)
    runs, notes = read_runs(arguments.runs)
    for run in runs:
        outcome = run.outcome or judge_run(run.directory, arguments.episodes)
        one = zoo.Trained(
            run.environment,
            float(run.risk),
            run.algorithm,
            outcome.steps,
            run.action_noise,
            *(round(x, 6) for x in (outcome.mean, outcome.deviation)),
            *(round(x, 6) for x in (outcome.reward_mean, outcome.reward_variance)),
        )
        shutil.copyfile(run.directory / "policy.safetensors", one.path)
        found[one.name] = one
        print(one)
    order = list(AGENTS)
    rows = sorted(
        found.values(), key=lambda one: (one.task, one.risk_aversion, order.index(one.algorithm))
    )
    with (zoo.DIRECTORY / zoo.INDEX).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(zoo.Trained)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(one) for one in rows)
    for note in notes:
        print(note)


if __name__ == "__main__":
    main()
