"""What a finished run is judged by: the final episodes of its policy, in evaluation.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from mvpi import stats
from mvpi.agents.files import FORMAT, read_json, write_json
from mvpi.errors import InputError
from mvpi.evaluation import Evaluation, evaluate

EPISODES_SEED = 0
"""Of the final episodes: the same start states for every run, those of `mvpi evaluate`."""
QUANTILES = 201
_FILE = "evaluation.json"


@dataclass(frozen=True)
class Outcome:
    """The final episodes of a run, without the rewards of every step.

    `reward_quantiles` are at equal distances from the smallest to the largest of them; `in_zone`
    is the share of steps inside the noisy zone, None where there is none.
    """

    steps: int
    returns: tuple[float, ...]
    reward_mean: float
    reward_variance: float
    reward_quantiles: tuple[float, ...]
    in_zone: float | None = None

    @cached_property
    def mean(self) -> float:
        """Mean return."""
        return stats.mean(self.returns)

    @cached_property
    def variance(self) -> float:
        """Variance of the return."""
        return stats.variance(self.returns)

    @property
    def sharpe(self) -> float:
        """Mean return over its standard deviation."""
        return stats.sharpe(self.returns)

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
        """The one in a run directory; None if it was not judged yet."""
        path = directory / _FILE
        if not path.exists():
            return None
        record = read_json(path)
        try:
            if record.pop("format") > FORMAT:
                raise InputError(f"{path} was written by a newer mvpi; update this one")
            lists: dict[str, Any] = {
                name: _plain(np.array(record.pop(name), np.float64))
                for name in ("returns", "reward_quantiles")
            }
            return cls(**record, **lists)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} is damaged: {error}") from None

    def write(self, directory: Path) -> None:
        """Into a run directory, at once."""
        write_json(directory / _FILE, {"format": FORMAT, **asdict(self)})


def judge(agent: Any, directory: Path, episodes: int = 100) -> Outcome:
    """Run the final episodes of an agent and keep what they say in its run directory."""
    env: gym.Env[Any, Any] = agent.source.evaluation()
    seen = evaluate(agent, lambda: env, episodes, EPISODES_SEED)
    in_zone = env.get_wrapper_attr("share_inside") if env.has_wrapper_attr("share_inside") else None
    outcome = Outcome.of(agent.steps, seen, in_zone)
    outcome.write(directory)
    return outcome


def _plain(array: npt.NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(array.tolist())
