"""An experiment: one training run and its final evaluation, identified by a hash of its settings.

The settings are the algorithm with its hyperparameters, the environment, the risk measure, the
seed, the steps and the number of final episodes. The name of the run directory ends in the hash.
Run again, a finished experiment returns its outcome, and an interrupted one resumes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

from mvpi._checks import check_choice, check_count, check_kind, check_number
from mvpi._storage.locks import lock, open_lock
from mvpi._storage.names import EXPERIMENT_LOCK, ONLY_TO_RESUME
from mvpi.agents.registry import SETTINGS
from mvpi.agents.settings import CommonSettings, make_settings
from mvpi.envs import Task
from mvpi.errors import InputError
from mvpi.experiments.outcome import EVALUATION, Outcome, judge
from mvpi.risk import parse_risk, risk_text

LOG = "log.txt"


class Busy(InputError):
    """The experiment is locked by another process."""


@dataclass(frozen=True)
class Experiment:
    """One training run and the episodes in which its final policy is evaluated.

    >>> a = Experiment("td3", "Hopper-v4", risk=1, seed=0, steps=100_000)
    >>> b = Experiment("td3", "Hopper-v4", risk="1.0", seed=0, steps=100_000)
    >>> a.identity == b.identity
    True
    """

    algorithm: str
    environment: str
    risk: float | str
    seed: int
    steps: int
    action_noise: float = 0.1
    episodes: int = 100
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Hyperparameters other than the defaults."""

    _chosen: ClassVar[CommonSettings]
    """All settings, checked: set once for every experiment."""

    def __post_init__(self) -> None:
        check_choice(self.algorithm, "algorithm", SETTINGS)
        check_kind(self.environment, str, "environment", "the id of an environment")
        check_kind(self.settings, Mapping, "settings", "a mapping of names to values")
        if not isinstance(self.risk, str):
            check_number(self.risk, "risk", at_least=0.0)
        canonical: dict[str, Any] = {
            "risk": risk_text(parse_risk(str(self.risk))),
            "seed": check_count(self.seed, "seed", at_least=0),
            "steps": check_count(self.steps, "steps"),
            "action_noise": check_number(self.action_noise, "action_noise", at_least=0.0),
            "episodes": check_count(self.episodes, "episodes", at_least=2),
        }
        chosen = make_settings(SETTINGS[self.algorithm], dict(self.settings))
        settings = {name: getattr(chosen, name) for name in self.settings}
        canonical["settings"] = MappingProxyType(settings)
        canonical["_chosen"] = chosen
        for name, value in canonical.items():
            object.__setattr__(self, name, value)

    def __hash__(self) -> int:
        return hash(self.identity)

    def __reduce__(self) -> tuple[Callable[[Mapping[str, Any]], Self], tuple[dict[str, Any]]]:
        return self.of_record, (self.record(),)  # a read-only mapping cannot be pickled

    @cached_property
    def identity(self) -> str:
        """Hash of all fields, and of all settings including the defaults."""
        facts = {**self.record(), "settings": self._chosen.record()}
        text = json.dumps(facts, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()

    @property
    def name(self) -> str:
        """The name of its directory: algorithm, environment, risk, seed and identity."""
        task = f"{self.algorithm}-{self.environment}-risk-{self.risk}-seed-{self.seed}"
        clean = "".join(c if c.isalnum() or c in "-._" else "-" for c in task)
        return f"{clean}-{self.identity}"

    def record(self) -> dict[str, Any]:
        """The fields as a JSON object; `of_record` is the inverse."""
        facts = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**facts, "settings": dict(self.settings)}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        return cls(**record)

    def outcome(self, root: Path) -> Outcome | None:
        """The result of its final evaluation under `root`; None if there is none yet."""
        found = Outcome.read(root / self.name)
        if found is not None and (found.steps, len(found.returns)) != (self.steps, self.episodes):
            raise InputError(
                f"{root / self.name / EVALUATION} is damaged: it has {len(found.returns)} episodes "
                f"after {found.steps} steps, the experiment {self.episodes} after {self.steps}"
            )
        return found

    def finished(self, root: Path) -> bool:
        """Whether it is evaluated, and the files that served to resume are removed."""
        return self.outcome(root) is not None and not any(_left_over(root / self.name))

    def busy(self, root: Path) -> bool:
        """Whether it is locked by a process now."""
        path = root / self.name / EXPERIMENT_LOCK
        if not path.exists():
            return False
        with open_lock(path) as file:
            return not lock(file)

    def run(self, root: Path) -> Outcome:
        """Train, or resume, in a directory under `root`; then evaluate the final policy.

        Raises `Busy` while another process holds the lock.
        """
        directory = root / self.name
        with _alone(directory):
            found = self.outcome(root)
            if found is None:
                from mvpi.agents.loading import agent_type

                task = Task(self.environment, self.action_noise)
                agent = agent_type(self.algorithm).from_settings(
                    task, parse_risk(str(self.risk)), self.seed, self._chosen
                )
                agent.learn(self.steps, directory)
                found = judge(agent, self.episodes)
                found.write(directory)
            for path in list(_left_over(directory)):
                path.unlink()
        return found


def _left_over(directory: Path) -> Iterator[Path]:
    return (path for pattern in ONLY_TO_RESUME for path in directory.glob(pattern))


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    with open_lock(directory / EXPERIMENT_LOCK) as file:
        if not lock(file):
            raise Busy(f"{directory} is locked by another process")
        yield
