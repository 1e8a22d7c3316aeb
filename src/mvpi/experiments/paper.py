"""The paper's grid: its tasks, its algorithms, its protocol, and the figures it reports.

The grid is a list of experiments and nothing more; a runner runs it, `mvpi.report` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from mvpi.agents.settings import TD3Settings
from mvpi.errors import InputError
from mvpi.experiments.experiment import Experiment
from mvpi.stats import check_count, check_number

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
OFFLINE_RISK_AVERSIONS = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Of its off-line experiment."""


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
    """Tasks, methods, risk aversions and seeds; all combinations are one study.

    `settings` are those that all algorithms have, such as `evaluation_every`.
    """

    tasks: tuple[str, ...] = TASKS
    methods: tuple[str, ...] = tuple(METHODS)
    risk_aversions: tuple[float, ...] = RISK_AVERSIONS
    seeds: int = 10
    steps: int = 1_000_000
    action_noise: float = 0.1
    episodes: int = 100
    settings: Mapping[str, Any] = field(default_factory=dict)
    saturation_penalty: float = TD3Settings.saturation_penalty
    """Of TD3 and MVPI-TD3; the paper's have none."""

    def __post_init__(self) -> None:
        for name in self.methods:
            if name not in METHODS:
                raise InputError(f"methods must be among {', '.join(METHODS)}, got {name!r}")
        for name in ("tasks", "methods", "risk_aversions"):
            check_each_once(getattr(self, name), name)
        for lam in self.risk_aversions:
            check_number(lam, "risk aversion", above=0.0)
        check_count(self.seeds, "seeds")

    def experiments(self) -> list[Experiment]:
        """All of them, each once; the first seed of everything comes first."""
        order = product(range(self.seeds), self.tasks, self.methods, self.risk_aversions)
        named = (self.experiment(task, method, lam, seed) for seed, task, method, lam in order)
        return list({experiment.identity: experiment for experiment in named}.values())

    def experiment(self, task: str, method: str, risk_aversion: float, seed: int) -> Experiment:
        chosen = METHODS[method]
        settings = dict(self.settings)
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


def check_each_once(values: Sequence[Any], name: str) -> None:
    """An `InputError` if there are none, or some twice."""
    if not values or len(set(values)) < len(values):
        raise InputError(f"{name} must be at least one, each once, got {values!r}")


Deltas = tuple[float, float, float, float]
"""Changes relative to TD3, in percent: of J, of the mean, of the variance, of the Sharpe ratio."""

PUBLISHED: dict[float, dict[str, dict[str, Deltas]]] = {
    0.5: {
        "InvertedPendulum": {"TRVO": (-571, -2, 1e8, -100), "MVPI-TD3": (0, 0, 0, 0)},
        "InvertedDoublePendulum": {"TRVO": (-269, -31, 266, -64), "MVPI-TD3": (4, 9, -4, 11)},
        "HalfCheetah": {"TRVO": (81, -82, -81, -59), "MVPI-TD3": (97, -40, -96, 188)},
        "Walker2d": {"TRVO": (-17, -49, 15, -52), "MVPI-TD3": (81, -37, -80, 41)},
        "Swimmer": {"TRVO": (-2, 8, 165, -34), "MVPI-TD3": (1, -3, -69, 76)},
        "Hopper": {"TRVO": (-9, -17, 9, -20), "MVPI-TD3": (94, 27, -93, 364)},
        "Reacher": {"TRVO": (-34, -13, 98, 20), "MVPI-TD3": (-12, -5, 35, 10)},
        "Ant": {"TRVO": (94, -80, -94, -19), "MVPI-TD3": (80, -41, -80, 32)},
    },
    1.0: {
        "InvertedPendulum": {"TRVO": (-321, -1, 3e7, -100), "MVPI-TD3": (0, 0, 0, 0)},
        "InvertedDoublePendulum": {"TRVO": (-367, -17, 365, -62), "MVPI-TD3": (42, 1, -41, 32)},
        "HalfCheetah": {"TRVO": (92, -87, -92, -54), "MVPI-TD3": (99, -44, -98, 285)},
        "Walker2d": {"TRVO": (-1, -61, 0, -61), "MVPI-TD3": (88, -55, -88, 30)},
        "Swimmer": {"TRVO": (-10, -7, 18, -14), "MVPI-TD3": (4, -2, -53, 42)},
        "Hopper": {"TRVO": (57, -25, -57, 13), "MVPI-TD3": (72, -3, -71, 81)},
        "Reacher": {"TRVO": (-48, -12, 102, 21), "MVPI-TD3": (-1, -1, 0, -1)},
        "Ant": {"TRVO": (97, -85, -97, -18), "MVPI-TD3": (96, -53, -96, 130)},
    },
    2.0: {
        "InvertedPendulum": {"TRVO": (-4130, -5, 2e8, -100), "MVPI-TD3": (0, 0, 0, 0)},
        "InvertedDoublePendulum": {"TRVO": (-399, -13, 398, -61), "MVPI-TD3": (77, -31, -77, 44)},
        "HalfCheetah": {"TRVO": (98, -84, -98, 0), "MVPI-TD3": (96, -66, -95, 60)},
        "Walker2d": {"TRVO": (47, -71, -48, -60), "MVPI-TD3": (91, -65, -91, 16)},
        "Swimmer": {"TRVO": (-210, -23, 619, -71), "MVPI-TD3": (-6, -7, -13, -1)},
        "Hopper": {"TRVO": (64, -31, -64, 15), "MVPI-TD3": (90, -18, -89, 152)},
        "Reacher": {"TRVO": (-43, -2, 74, 23), "MVPI-TD3": (0, 1, 1, 1)},
        "Ant": {"TRVO": (97, -94, -97, -65), "MVPI-TD3": (97, -63, -97, 101)},
    },
}
"""The paper's three tables: by risk aversion, task and method. 10 seeds, 10^6 steps."""


def published(task: str, method: str, risk_aversion: float) -> Deltas | None:
    """What the paper reports, whatever the version of the task; None if it does not."""
    tasks = PUBLISHED.get(risk_aversion, {})
    return tasks.get(task.partition("-v")[0], {}).get(method)
