"""The final evaluation of a run trained with a range: episodes along it, frontier.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from mvpi._checks import check_count, check_number, check_path
from mvpi._storage.arrays import FORMAT
from mvpi._storage.files import record_checksum, write_json
from mvpi._storage.run_directory import identity
from mvpi.errors import InputError
from mvpi.experiments.outcome import Outcome, judge, read_sealed
from mvpi.risk.extended import range_of

FRONTIER = "frontier.json"
_FEWEST = 2
"""Risk aversions: the two ends of the range."""


@dataclass(frozen=True)
class RangeOutcome:
    """The final episodes of a run at every one of some risk aversions, which increase."""

    risk_aversions: tuple[float, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def steps(self) -> int:
        """Environment steps that the policy was trained for."""
        return self.outcomes[0].steps

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The one in a run directory; None if it was not evaluated yet."""
        return read_sealed(check_path(directory, "directory") / FRONTIER, cls._of_record)

    @classmethod
    def _of_record(cls, record: Mapping[str, Any]) -> Self:
        lams = tuple(float(lam) for lam in record["risk_aversions"])
        found = cls(lams, tuple(Outcome.of_record(facts) for facts in record["outcomes"]))
        found._check()
        return found

    def _check(self) -> None:
        check_count(len(self.outcomes), "the number of risk aversions", at_least=_FEWEST)
        if len(self.outcomes) != len(self.risk_aversions):
            raise InputError("there must be an outcome for every risk aversion")
        for lam in self.risk_aversions:
            check_number(lam, "risk_aversion", at_least=0.0)
        if (np.diff(self.risk_aversions) <= 0.0).any():
            raise InputError("risk_aversions must increase")
        if len({outcome.steps for outcome in self.outcomes}) > 1:
            raise InputError("all outcomes must be after the same steps")

    def write(self, directory: Path) -> None:
        """Write it to a run directory, atomically."""
        run, checksum = self.seal(directory)
        write_json(directory / FRONTIER, {**self._record(), "run": run, "checksum": checksum})

    def _record(self) -> dict[str, Any]:
        outcomes = [asdict(outcome) for outcome in self.outcomes]
        lams = list(self.risk_aversions)
        return {"format": FORMAT, "risk_aversions": lams, "outcomes": outcomes}

    def seal(self, directory: Path) -> tuple[str, str]:
        """The identity of the run in a directory, and the checksum of what is found there."""
        run = identity(directory)
        return run, record_checksum({**self._record(), "run": run})


def judge_range(directory: Path, points: int, episodes: int) -> RangeOutcome:
    """Run the final episodes of the policy in a run directory along its range; writes nothing.

    An `InputError` if the run names no environment that can be made, or has no range.
    """
    from mvpi.agents.loading import load

    agent = load(directory)
    known = range_of(agent.risk)
    if known is None:
        raise InputError(f"it was trained at {agent.risk.label} alone")
    if agent.env_factory is None:
        raise InputError("it names no environment this program can make")
    grid = known.grid(check_count(points, "points", at_least=_FEWEST)).tolist()

    def outcomes() -> Iterator[Outcome]:
        for lam in grid:
            yield judge(agent.at(lam), episodes)

    return RangeOutcome(tuple(grid), tuple(outcomes()))
