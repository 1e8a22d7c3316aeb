"""An experiment is a value: what is trained, where, how long, and how it is judged.

Its identity is a hash of all of that, its name the directory it runs in, its outcome a file there.
Asked again, a finished one returns its outcome, an interrupted one goes on where it was.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from mvpi.agents.settings import SETTINGS, make_settings
from mvpi.envs import Task
from mvpi.errors import InputError
from mvpi.experiments.outcome import Outcome, judge
from mvpi.risk import parse_risk, risk_text
from mvpi.stats import check_count, check_number

LOG = "log.txt"
_ONLY_TO_GO_ON = ("checkpoint.safetensors", "replay.rows", "replaced-*.rows")
"""What a run directory holds for resuming: most of its size, and of no use when it is finished."""


class Busy(InputError):
    """Another process is at this very experiment."""


@dataclass(frozen=True)
class Experiment:
    """One training run and the episodes that judge it.

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

    def __post_init__(self) -> None:
        if self.algorithm not in SETTINGS:
            raise InputError(
                f"algorithm must be one of {', '.join(SETTINGS)}, got {self.algorithm!r}"
            )
        canonical: dict[str, Any] = {
            "risk": risk_text(parse_risk(str(self.risk))),
            "seed": check_count(self.seed, "seed", at_least=0),
            "steps": check_count(self.steps, "steps"),
            "action_noise": check_number(self.action_noise, "action_noise", at_least=0.0),
            "episodes": check_count(self.episodes, "episodes", at_least=2),
        }
        checked = make_settings(SETTINGS[self.algorithm], dict(self.settings))
        canonical["settings"] = {name: getattr(checked, name) for name in self.settings}
        for name, value in canonical.items():
            object.__setattr__(self, name, value)

    @cached_property
    def identity(self) -> str:
        """The same for equal experiments, another one if anything differs, settings included."""
        settings = make_settings(SETTINGS[self.algorithm], dict(self.settings))
        facts = {**self.record(), "settings": asdict(settings)}
        text = json.dumps(facts, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()

    @property
    def name(self) -> str:
        """Its directory: what a person looks for, and the identity."""
        task = f"{self.algorithm}-{self.environment}-risk-{self.risk}-seed-{self.seed}"
        clean = "".join(c if c.isalnum() or c in "-._" else "-" for c in task)
        return f"{clean}-{self.identity}"

    def record(self) -> dict[str, Any]:
        """As plain facts; `of_record` takes them back."""
        return {**asdict(self), "settings": dict(self.settings)}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        return cls(**record)

    def outcome(self, root: Path) -> Outcome | None:
        """What it found, if it was finished under `root`."""
        return Outcome.read(root / self.name)

    def finished(self, root: Path) -> bool:
        """Whether there is nothing left to do: judged, and what only served to go on removed."""
        return self.outcome(root) is not None and not any(_left_over(root / self.name))

    def run(self, root: Path) -> Outcome:
        """Train, or go on training, in a directory under `root`; then judge the policy.

        Raises `Busy` while another process does the same.
        """
        directory = root / self.name
        with _alone(directory):
            found = self.outcome(root)
            if found is None:
                from mvpi.agents.agent import agent_type

                task = Task(self.environment, self.action_noise)
                agent = agent_type(self.algorithm)(
                    task, parse_risk(str(self.risk)), self.seed, **self.settings
                )
                agent.learn(self.steps, directory)
                found = judge(agent, directory, self.episodes)
            for path in list(_left_over(directory)):
                path.unlink()
        return found


def _left_over(directory: Path) -> Iterator[Path]:
    return (path for pattern in _ONLY_TO_GO_ON for path in directory.glob(pattern))


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".experiment").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Busy(f"another process is at {directory}") from None
        yield
