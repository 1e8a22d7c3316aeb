"""Trained agents that come with the package: `mvpi.load("zoo:HalfCheetah-v4:1.0")`.

A name is `zoo:TASK:RISK_AVERSION`, or `zoo:TASK:RISK_AVERSION:ALGORITHM` where there are several.
Every one is seed 0 of its kind, not the best of several. `benchmarks/zoo.py` wrote the files.
"""

from __future__ import annotations

import csv
import difflib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from mvpi.errors import InputError

PREFIX = "zoo:"
DIRECTORY = Path(__file__).with_name("trained")
INDEX = "index.csv"


@dataclass(frozen=True)
class Trained:
    """An agent of the zoo, and what it earned in its final episodes."""

    task: str
    risk_aversion: float
    algorithm: str
    steps: int
    action_noise: float
    mean: float
    deviation: float
    reward_mean: float
    reward_variance: float

    @property
    def name(self) -> str:
        """What `mvpi.load` and `mvpi evaluate` call it."""
        return f"{PREFIX}{self.task}:{self.risk_aversion:g}:{self.algorithm}"

    @property
    def path(self) -> Path:
        """Its policy."""
        return DIRECTORY / f"{self.task}-{self.risk_aversion:g}-{self.algorithm}.safetensors"


@cache
def agents() -> tuple[Trained, ...]:
    """All of them."""
    kinds = {"str": str, "int": int, "float": float}
    with (DIRECTORY / INDEX).open(encoding="utf-8", newline="") as file:
        return tuple(
            Trained(**{f.name: kinds[str(f.type)](row[f.name]) for f in fields(Trained)})
            for row in csv.DictReader(file)
        )


def find(name: str) -> Path:
    """The policy of a name such as `zoo:HalfCheetah-v4:1.0`; `InputError` if there is none.

    Without an algorithm, the first in the order of `mvpi.agents.registry`.
    """
    task, _, rest = name.removeprefix(PREFIX).partition(":")
    tasks = list(dict.fromkeys(one.task for one in agents()))
    if task not in tasks:
        near = difflib.get_close_matches(task, tasks, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"the zoo has no agent for {task!r}, only for {', '.join(tasks)}{hint}")
    risk_aversion, _, algorithm = rest.partition(":")
    for one in agents():
        if one.task == task and algorithm in ("", one.algorithm) and _same(risk_aversion, one):
            return one.path
    known = ", ".join(one.name for one in agents() if one.task == task)
    raise InputError(f"the zoo has no {name!r}; for {task} it has {known}")


def _same(text: str, one: Trained) -> bool:
    try:
        return float(text) == one.risk_aversion
    except ValueError:
        return False
