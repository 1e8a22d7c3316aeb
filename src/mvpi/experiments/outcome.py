"""The final evaluation of a run: statistics of the last episodes of its policy, evaluation.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count, check_number, check_path
from mvpi._storage.arrays import FORMAT, UNVERIFIED
from mvpi._storage.files import read_json, record_checksum, write_json
from mvpi._storage.run_directory import identity
from mvpi._text import reason
from mvpi.errors import InputError
from mvpi.rollout.evaluation import Evaluation, OfReturns, evaluate

EPISODES_SEED = 0
"""Of the final episodes: the same start states for every run, those of `mvpi evaluate`."""
EVALUATION = "evaluation.json"
QUANTILES = 201
_LARGEST = 1e100
"""Of returns and rewards: squares of more than this overflow."""
_BOUNDS = {"at_least": -_LARGEST, "at_most": _LARGEST}


class Sealed(Protocol):
    """What a file of a run directory holds, with a checksum that names the run."""

    def seal(self, directory: Path) -> tuple[str, str]:
        """The identity of the run in a directory, and the checksum of the contents there."""


Found = TypeVar("Found", bound=Sealed)


def read_sealed(
    path: Path, parse: Callable[[dict[str, Any]], Found], *, unverified: int = 0
) -> Found | None:
    """What `parse` makes of the JSON object in a file, its checksum verified; None without a file.

    Files of earlier versions are read as well; up to format `unverified` they have no checksum. An
    `InputError` if the file is damaged, of a newer version, or of another run.
    """
    if not path.exists():
        return None
    record = read_json(path)
    version = record.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise InputError(f"{path} was written by a newer mvpi; update this one")
    try:
        version = check_count(record.pop("format"), "format")
        run, checksum = record.pop("run", None), record.pop("checksum", None)
        found = parse(record)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {reason(error)}") from None
    if version > unverified and (run, checksum) != found.seal(path.parent):
        raise InputError(f"{path} is damaged, or of another run: its checksum is another one")
    return found


@dataclass(frozen=True)
class Outcome(OfReturns):
    """The final episodes of a run, without the rewards of every step.

    `mean`, `variance`, `sharpe`, `cvar` and `value` are of the returns, as of an `Evaluation`.
    `reward_quantiles` are at equal distances from the smallest to the largest of them; `in_zone`
    is the share of steps inside the noisy zone, None where there is none.
    """

    steps: int
    returns: tuple[float, ...]
    reward_mean: float
    reward_variance: float
    reward_quantiles: tuple[float, ...]
    in_zone: float | None = None

    @classmethod
    def of(cls, steps: int, seen: Evaluation, in_zone: float | None = None) -> Self:
        levels = np.linspace(0.0, 1.0, QUANTILES)
        return cls(
            steps,
            _plain(seen.returns),
            seen.reward_mean,
            seen.reward_variance,
            _plain(np.quantile(seen.rewards, levels)),
            in_zone,
        )

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The one in a run directory; None if it was not evaluated yet."""
        path = check_path(directory, "directory") / EVALUATION
        return read_sealed(path, cls.of_record, unverified=UNVERIFIED)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """The outcome whose fields a JSON object holds; checked, an error if it cannot be one."""
        lists = ("returns", "reward_quantiles")
        arrays = {name: _plain(np.array(record[name], np.float64)) for name in lists}
        found = cls(**{**record, **arrays})
        found._check()
        return found

    def _check(self) -> None:
        check_count(self.steps, "steps", at_least=0)
        check_number(self.reward_mean, "reward_mean", **_BOUNDS)
        check_number(self.reward_variance, "reward_variance", at_least=0.0, at_most=_LARGEST)
        if self.in_zone is not None:
            check_number(self.in_zone, "in_zone", at_least=0.0, at_most=1.0)
        for name in ("returns", "reward_quantiles"):
            values = getattr(self, name)
            check_count(len(values), f"the number of {name}", at_least=2)
            for value in values:
                check_number(value, name, **_BOUNDS)
        if list(self.reward_quantiles) != sorted(self.reward_quantiles):
            raise InputError("reward_quantiles must not decrease")

    def write(self, directory: Path) -> None:
        """Write it to a run directory, atomically."""
        run, checksum = self.seal(directory)
        facts = {"format": FORMAT, **asdict(self), "run": run, "checksum": checksum}
        write_json(directory / EVALUATION, facts)

    def seal(self, directory: Path) -> tuple[str, str]:
        """The identity of the run in a directory, and the checksum of what is found there."""
        run = identity(directory)
        return run, record_checksum({**asdict(self), "run": run})


def judge(agent: Any, episodes: int = 100) -> Outcome:
    """Run the final episodes of an agent, in its own environment."""
    env: gym.Env[Any, Any] = agent.env_factory.evaluation()
    seen = evaluate(agent, lambda: env, episodes, EPISODES_SEED)
    return Outcome.of(agent.steps, seen, share_in_zone(env))


def judge_run(directory: Path, episodes: int) -> Outcome:
    """Run the final episodes of the policy in a run directory; nothing is written.

    An `InputError` if the run names no environment that can be made.
    """
    from mvpi.agents.loading import load

    agent = load(directory)
    if agent.env_factory is None:
        raise InputError("it names no environment this program can make")
    return judge(agent, episodes)


def share_in_zone(env: gym.Env[Any, Any]) -> float | None:
    """Of the steps so far; None where there is no noisy zone."""
    return env.get_wrapper_attr("share_inside") if env.has_wrapper_attr("share_inside") else None


def _plain(array: npt.NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(array.tolist())
