"""Reads run directories: what was trained, its learning curve and its final episodes.

A run that cannot be read does not keep the others from being shown: it becomes a note, a line
of text that names its directory. Nothing is run and nothing is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mvpi._checks import check_count, check_number
from mvpi._storage.arrays import FORMAT
from mvpi._storage.files import read_json
from mvpi._storage.metrics import Row, read_metrics
from mvpi._storage.names import CONFIG, EXPERIMENT_LOCK, METRICS, POLICY
from mvpi._text import reason
from mvpi.agents.registry import SETTINGS
from mvpi.errors import InputError
from mvpi.experiments.outcome import Outcome
from mvpi.experiments.range_outcome import RangeOutcome
from mvpi.report.run_search import find_runs
from mvpi.risk import parse_risk
from mvpi.risk.extended import range_of, simplified

_LONGEST_TEXT = 80
_DUE = "it has no evaluation of its final policy"

Of = Callable[[Row], float | None]
AgentId = tuple[str, str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Run:
    """One trained agent: a seed. `settings` are texts, sorted by name.

    `metrics` has a row for every evaluation in training. `outcome` is None
    while there is no evaluation of the final policy; `waits_for` says why there cannot be one yet.
    A run trained with a range of risk aversions has `along` instead: an outcome at each of several.
    """

    directory: Path
    algorithm: str
    environment: str
    action_noise: float
    risk: str
    seed: int
    settings: tuple[tuple[str, str], ...]
    metrics: tuple[Row, ...] = ()
    outcome: Outcome | None = None
    waits_for: str = ""
    along: RangeOutcome | None = None

    def curve(self, of: Of = lambda row: row.get("return_mean")) -> list[tuple[int, float]]:
        """Steps and values of a quantity of `metrics`, the mean return, where there is one."""
        cells = ((row["steps"], of(row)) for row in self.metrics)
        return [(int(steps), value) for steps, value in cells if steps is not None is not value]

    @property
    def evaluated(self) -> Outcome | RangeOutcome | None:
        """Its final episodes."""
        return self.outcome or self.along

    @property
    def due(self) -> bool:
        """Whether its final policy can be evaluated, and has not been."""
        return self.evaluated is None and not self.waits_for

    @property
    def has_range(self) -> bool:
        """Whether it was trained for more than one risk aversion."""
        try:
            return range_of(simplified(parse_risk(self.risk))) is not None
        except InputError:  # a measure of the user's own
            return False

    def with_episodes(self, found: Outcome | RangeOutcome) -> Run:
        """The same run with its final episodes."""
        if isinstance(found, Outcome):
            return replace(self, outcome=found)
        return replace(self, along=found)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for runs that repeat each other: the same seed of the same agent."""
        steps = None if self.evaluated is None else self.evaluated.steps
        return (*self.agent, self.environment, self.action_noise, self.seed, steps)

    @property
    def agent(self) -> AgentId:
        """What runs with other seeds have in common, but for the steps."""
        return self.algorithm, self.risk, self.settings


def read_runs(directories: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """All runs in or below the directories, and notes on those that cannot be read.

    Raises `InputError` if there is none to show.
    """
    runs: list[Run] = []
    found, notes = find_runs(directories)
    for path in found:
        try:
            runs.append(_read(path))
        except InputError as error:
            notes.append(str(error))
        except OSError as error:
            notes.append(f"{path} cannot be read: {reason(error)}")
    if not runs:
        raise InputError(notes[0])
    return runs, notes


def distinct(runs: Iterable[Run]) -> tuple[list[Run], list[str]]:
    """The runs without copies, and notes on copies and on runs without final episodes.

    A run counts once: a copy of it says nothing about the spread between seeds.
    """
    first: dict[tuple[Any, ...], Run] = {}
    notes = []
    for run in runs:
        there = first.setdefault(run.identity, run)
        if there is not run:
            notes.append(f"{run.directory} is left out: it repeats {there.directory}")
    kept = list(first.values())
    waiting = (run for run in kept if run.evaluated is None)
    notes += [f"{r.directory} is not evaluated yet: {r.waits_for or _DUE}" for r in waiting]
    return kept, notes


def _read(path: Path) -> Run:
    run = _configured(path)
    run = replace(run, metrics=_metrics(path))
    found = RangeOutcome.read(path) if run.has_range else Outcome.read(path)
    policy_steps = _policy_steps(path / POLICY)
    if found is not None and policy_steps in (None, found.steps):
        return run.with_episodes(found)
    if policy_steps is None:
        return replace(run, waits_for=f"there is no {POLICY} yet")
    if (path / EXPERIMENT_LOCK).exists():  # an evaluation.json would mean that it is finished
        return replace(run, waits_for="still in training; its experiment evaluates it at the end")
    return run


def _configured(path: Path) -> Run:
    file = path / CONFIG
    record = read_json(file)
    algorithm, version = record.get("algorithm"), record.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise InputError(f"{file} was written by a newer mvpi; update this one")
    if algorithm == "td3-bc":
        raise InputError(
            f"{path} holds an off-line run, which names no environment to run episodes in; "
            "use `mvpi offline evaluate`"
        )
    if not isinstance(algorithm, str) or algorithm not in SETTINGS:
        raise InputError(
            f"{file} is not of a run: its algorithm must be one of {', '.join(SETTINGS)}, "
            f"got {_shown(algorithm)}"
        )
    try:
        environment = record["environment"]
        return Run(
            directory=path,
            algorithm=algorithm,
            environment=_text(_name(environment), "the environment"),
            action_noise=check_number(
                environment.get("action_noise", 0.0), "action_noise", at_least=0.0
            ),
            risk=_text(record["risk"], "risk"),
            seed=check_count(record["seed"], "seed", at_least=0),
            settings=_settings(record["settings"]),
        )
    except (KeyError, TypeError, AttributeError, InputError) as error:
        raise InputError(f"{file} is damaged: {reason(error)}") from None


def _name(environment: Mapping[str, Any]) -> Any:
    """The id of an environment; of one that was made by other means, what is known of it."""
    return environment.get("id") or environment.get("function") or environment.get("env")


def _settings(record: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((_clean(name), _shown(value)) for name, value in record.items()))


def _shown(value: Any) -> str:
    """A value as a short text of one line."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return _clean(", ".join(map(str, value)))
    return _clean(value if isinstance(value, str) else json.dumps(value))


def _clean(text: str) -> str:
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return clean if len(clean) <= _LONGEST_TEXT else f"{clean[:_LONGEST_TEXT]} ..."


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or not value:
        raise InputError(f"{what} must be a readable text, got {_shown(value)}")
    return _clean(value)


def _metrics(directory: Path) -> tuple[Row, ...]:
    """The evaluations in training, by growing steps."""
    path = directory / METRICS
    if not path.exists():
        return ()
    rows = read_metrics(directory)
    last = 0.0
    for row in rows:
        steps, value = row.get("steps"), row.get("return_mean")
        if steps is None or value is None or not math.isfinite(value):
            raise InputError(f"{path} is damaged: steps and return_mean must be numbers")
        if steps <= last:
            raise InputError(f"{path} is damaged: its steps must increase")
        last = steps
    return tuple(rows)


def _policy_steps(path: Path) -> int | None:
    """How many steps the policy in a file has learned from; None if there is no file."""
    from mvpi.agents.policy import Policy

    if not path.exists():
        return None
    _, record = Policy.load(path)
    try:
        return check_count(record["steps"], "steps", at_least=0)
    except (KeyError, InputError) as error:
        raise InputError(f"{path} is damaged: {reason(error)}") from None
