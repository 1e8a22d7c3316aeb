"""The paper's grid of experiments: tasks, methods, risk aversions, seeds, and the protocol.

`Grid` holds the defaults of `mvpi paper`, and its fields are options of the command line. A runner
of `mvpi.experiments` runs the experiments of a grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

import tyro

from mvpi._checks import check_count, check_number
from mvpi.agents.settings import CommonSettings, TD3Settings
from mvpi.errors import InputError
from mvpi.experiments.experiment import Experiment

TASKS = (
    "InvertedPendulum-v4",
    "InvertedDoublePendulum-v4",
    "HalfCheetah-v4",
    "Walker2d-v4",
    "Swimmer-v4",
    "Hopper-v4",
    "Reacher-v4",
    "Ant-v4",
)
"""The paper has version 2 of these; version 4 is the closest that runs today."""

RISKY_TASKS = (
    "mvpi/NoisyInvertedPendulum-v0",
    "mvpi/NoisySwimmer-v0",
    "mvpi/NoisyHalfCheetah-v0",
    "mvpi/NoisyAnt-v0",
)

RISK_AVERSIONS = (0.5, 1.0, 2.0)
"""Of the paper's tables and curves."""


@dataclass(frozen=True)
class Method:
    """An algorithm under the name it has in the paper."""

    label: str
    algorithm: str
    averse: bool = True
    """Whether it is given the risk aversion; otherwise its risk is 0."""

    def risk(self, risk_aversion: float) -> float:
        return risk_aversion if self.averse else 0.0


METHODS = {
    method.label: method
    for method in (
        Method("TD3", "td3", averse=False),
        Method("MVPI-TD3", "td3"),
        Method("TRVO", "ppo"),
        Method("MVP", "mvp"),
        Method("Tamar", "tamar"),
        Method("Prashanth", "prashanth"),
    )
}
BASELINE = "TD3"
COMPARED = ("TRVO", "MVPI-TD3")
"""The methods in the paper's tables, in their order; all are relative to the baseline."""


@dataclass(frozen=True)
class Grid:
    """What is run: every combination of task, method, risk aversion and seed."""

    tasks: tuple[str, ...] = TASKS
    """Environment ids."""
    methods: tuple[str, ...] = tuple(METHODS)
    """Of TD3, MVPI-TD3, TRVO, MVP, Tamar, Prashanth."""
    risk_aversions: tuple[float, ...] = RISK_AVERSIONS
    """Of all methods but TD3."""
    seeds: int = 10
    """Runs of everything, with seeds 0, 1, ..."""
    steps: int = 1_000_000
    """Environment steps of a run."""
    action_noise: float = 0.1
    """Standard deviation of the noise on every action, in training and evaluation."""
    evaluation_every: int = CommonSettings.evaluation_every
    """Steps between two evaluations."""
    evaluation_episodes: int = CommonSettings.evaluation_episodes
    """Episodes of each."""
    episodes: Annotated[int, tyro.conf.arg(aliases=["--final-episodes"])] = 100
    """Episodes in which the final policy is evaluated."""
    saturation_penalty: float = TD3Settings.saturation_penalty
    """Of TD3 and MVPI-TD3; 0: none, as in the paper. Actors may then get stuck."""

    def __post_init__(self) -> None:
        for name in self.methods:
            if name not in METHODS:
                raise InputError(f"methods must be among {', '.join(METHODS)}, got {name!r}")
        for name in ("tasks", "methods", "risk_aversions"):
            check_each_once(getattr(self, name), name)
        for lam in self.risk_aversions:
            check_number(lam, "risk aversion", above=0.0)
        check_count(self.seeds, "seeds")
        for method in self.methods:  # an experiment checks its own settings
            self.experiment(self.tasks[0], method, self.risk_aversions[0], seed=0)

    def experiments(self) -> list[Experiment]:
        """All of them, each once; the first seed of everything comes first."""
        order = product(range(self.seeds), self.tasks, self.methods, self.risk_aversions)
        named = (self.experiment(task, method, lam, seed) for seed, task, method, lam in order)
        return list({experiment.identity: experiment for experiment in named}.values())

    def experiment(self, task: str, method: str, risk_aversion: float, seed: int) -> Experiment:
        """One cell of the grid; that of TD3 is the same at every risk aversion."""
        chosen = METHODS[method]
        settings: dict[str, Any] = {
            "evaluation_every": self.evaluation_every,
            "evaluation_episodes": self.evaluation_episodes,
        }
        if chosen.algorithm == "td3":
            settings["saturation_penalty"] = self.saturation_penalty
        return Experiment(
            chosen.algorithm,
            task,
            chosen.risk(risk_aversion),
            seed,
            self.steps,
            self.action_noise,
            self.episodes,
            settings,
        )


@dataclass(frozen=True)
class OfflineGrid:
    """What is run in the off-line experiment."""

    risk_aversions: tuple[float, ...] = (0.0, 1.0, 2.0, 4.0, 8.0)
    """Each has runs of its own."""
    runs: int = 30
    """Independent runs of each, with data of their own."""
    iterations: int = 200
    """The paper has 200; a few thousand settle."""
    seed: int = 0
    """Makes the runs repeatable."""


def check_each_once(values: Sequence[Any], name: str) -> None:
    """An `InputError` if there are none, or some twice."""
    if not values or len(set(values)) < len(values):
        raise InputError(f"{name} must be at least one, each once, got {values!r}")
