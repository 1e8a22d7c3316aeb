"""Run directories as the report needs them: what was trained, its curve and its final episodes.

A run that cannot be shown does not keep the others from being shown: it becomes a note, a line
of text that names its directory.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mvpi._checks import check_count, check_number
from mvpi._storage.arrays import FORMAT
from mvpi._storage.files import read_json
from mvpi._storage.metrics import read_metrics
from mvpi.agents.settings import SETTINGS
from mvpi.errors import EnvironmentFailure, InputError
from mvpi.experiments.outcome import Outcome, judge

CONFIG, METRICS, POLICY = "config.json", "metrics.csv", "policy.safetensors"
_OF_AN_EXPERIMENT = ".experiment"
"""A file of `mvpi.experiments`, which takes an evaluation.json to mean that the run is over."""
_LONGEST_TEXT = 80

AgentId = tuple[str, str, tuple[tuple[str, str], ...]]
Track = Callable[[Sequence["Run"]], Iterable["Run"]]


@dataclass(frozen=True)
class Run:
    """One trained agent: a seed. `settings` are texts, sorted by name.

    `curve` has a pair for every evaluation in training, steps and mean return. `outcome` is None
    while there is no evaluation of the final episodes; `waits_for` then says why.
    """

    directory: Path
    algorithm: str
    environment: str
    action_noise: float
    risk: str
    seed: int
    settings: tuple[tuple[str, str], ...]
    curve: tuple[tuple[int, float], ...] = ()
    outcome: Outcome | None = None
    waits_for: str = ""

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for runs that repeat each other: the same seed of the same agent."""
        steps = None if self.outcome is None else self.outcome.steps
        return (*self.agent, self.environment, self.action_noise, self.seed, steps)

    @property
    def agent(self) -> AgentId:
        """What runs with other seeds have in common, but for the steps."""
        return self.algorithm, self.risk, self.settings


def read_runs(
    directories: Sequence[Path], episodes: int = 100, track: Track = iter
) -> tuple[list[Run], list[str]]:
    """All runs in or below the directories, and notes on those that are not shown in full.

    Runs without final episodes are evaluated now; `track` gets them and may show progress. Raises
    `InputError` if there is nothing to show.
    """
    check_count(episodes, "episodes", at_least=2)
    runs: list[Run] = []
    found, notes = _found(directories)
    for path in found:
        try:
            runs.append(_read(path))
        except InputError as error:
            notes.append(str(error))
        except OSError as error:
            notes.append(_unreadable(path, error))
    if not runs:
        raise InputError(notes[0])
    due = [run for run in runs if run.outcome is None and not run.waits_for]
    if due:
        judged = {}
        for run in track(due):
            judged[run.directory], not_kept = _judged(run, episodes)
            notes += not_kept
        runs = [judged.get(run.directory, run) for run in runs]
    runs, repeated = _without_repetitions(runs)
    waiting = [
        f"{run.directory} is not evaluated yet: {run.waits_for}" for run in runs if run.waits_for
    ]
    return runs, [*notes, *repeated, *waiting]


def _found(directories: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The run directories in or below the given ones, each once, and notes on unreadable ones."""
    if not directories:
        raise InputError("give at least one run directory of `mvpi train`")
    found: dict[Path, Path] = {}
    notes: list[str] = []
    for given in directories:
        if not given.is_dir():
            what = "is not a directory" if given.exists() else "does not exist"
            raise InputError(f"{given} {what}; give run directories of `mvpi train`")
        errors: list[OSError] = []
        below = list(_below(given, errors))
        notes += [_unreadable(error.filename, error) for error in errors]
        if not below and not errors:
            raise InputError(f"{given} holds no run: there is no {CONFIG} in it or below it")
        for path in below:
            found.setdefault(path.resolve(), path)
    return list(found.values()), notes


def _below(given: Path, errors: list[OSError]) -> Iterator[Path]:
    """Links are followed, each directory is entered once; those that cannot be are `errors`."""
    entered: set[str] = set()
    for here, folders, files in os.walk(given, onerror=errors.append, followlinks=True):
        real = os.path.realpath(here)
        if real in entered:
            folders.clear()
            continue
        entered.add(real)
        folders.sort()
        if CONFIG in files:
            folders.clear()  # what is inside a run belongs to it
            yield Path(here)


def _read(path: Path) -> Run:
    run = _configured(path)
    run = replace(run, curve=_curve(path))
    outcome = Outcome.read(path)
    policy_steps = _policy_steps(path / POLICY)
    if outcome is not None and policy_steps in (None, outcome.steps):
        return replace(run, outcome=outcome)
    if policy_steps is None:
        return replace(run, waits_for=f"there is no {POLICY} yet")
    if (path / _OF_AN_EXPERIMENT).exists():
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
        raise InputError(f"{file} is damaged: {_reason(error)}") from None


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


def _curve(directory: Path) -> tuple[tuple[int, float], ...]:
    """Steps and mean returns of the evaluations in training."""
    path = directory / METRICS
    if not path.exists():
        return ()
    curve: list[tuple[int, float]] = []
    for row in read_metrics(directory):
        steps, value = row.get("steps"), row.get("return_mean")
        if steps is None or value is None or not math.isfinite(value):
            raise InputError(f"{path} is damaged: steps and return_mean must be numbers")
        if steps <= (curve[-1][0] if curve else 0):
            raise InputError(f"{path} is damaged: its steps must increase")
        curve.append((int(steps), value))
    return tuple(curve)


def _policy_steps(path: Path) -> int | None:
    """How many steps the policy in a file has learned from; None if there is no file."""
    from mvpi.agents.policy import Policy

    if not path.exists():
        return None
    _, record = Policy.load(path)
    try:
        return check_count(record["steps"], "steps", at_least=0)
    except (KeyError, InputError) as error:
        raise InputError(f"{path} is damaged: {_reason(error)}") from None


def _judged(run: Run, episodes: int) -> tuple[Run, list[str]]:
    """The run with its final episodes, and a note if they cannot be kept in its directory."""
    from mvpi.agents.agent import load

    try:
        agent = load(run.directory)
        if agent.source is None:
            raise InputError("it names no environment this program can make")
        kept, notes = _kept(judge(agent, episodes), run.directory)
        return replace(run, outcome=kept), notes
    except (InputError, EnvironmentFailure, OSError) as error:
        return replace(run, waits_for=f"it cannot be evaluated: {_reason(error)}"), []


def _kept(outcome: Outcome, directory: Path) -> tuple[Outcome | None, list[str]]:
    """What is in the directory afterwards; if nothing can be, what there is in memory, and why."""
    try:
        outcome.write(directory)
        return Outcome.read(directory), []
    except OSError as error:
        return outcome, [f"the evaluation of {directory} is not kept: {_reason(error)}"]


def _without_repetitions(runs: Iterable[Run]) -> tuple[list[Run], list[str]]:
    """A run counts once: a copy of it says nothing new about the spread between seeds."""
    first: dict[tuple[Any, ...], Run] = {}
    notes = []
    for run in runs:
        there = first.setdefault(run.identity, run)
        if there is not run:
            notes.append(f"{run.directory} is left out: it repeats {there.directory}")
    return list(first.values()), notes


def _unreadable(path: Path | str, error: OSError) -> str:
    return f"{path} cannot be read: {_reason(error)}"


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    what = error.strerror if isinstance(error, OSError) else None
    return " ".join((what or str(error)).split())[:200]
