"""Which risk aversion: mean and standard deviation of each, the non-dominated ones, the knee.

The knee is the non-dominated point farthest above the chord between the two ends of the
non-dominated part, the least deviation and the largest mean, both axes scaled to [0, 1] between
these ends. Beyond it, on either side, a unit of one is paid for with more of the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mvpi._text import change
from mvpi.experiments.outcome import Outcome
from mvpi.report.agent_statistics import Estimate, efficient, estimates

_ABOVE = 1e-9
"""Points nearer to the chord than this are on it."""
RETURN, STEP = "return", "reward of a step"
"""What moments are of."""
KNEE = (
    "Knee: the non-dominated point farthest from the chord between the ends of the non-dominated "
    "part, both axes scaled to [0, 1]."
)


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation, each with its 95% interval."""

    mean: Estimate
    deviation: Estimate

    @property
    def point(self) -> tuple[float, float]:
        """Its place in the plane: deviation and mean, without rounding errors."""
        return _rounded(self.deviation.value), _rounded(self.mean.value)


@dataclass(frozen=True)
class Candidates:
    """Policies to choose from, by growing risk aversion; the first one is compared with.

    `names` are such as "risk aversion 0.3"; `of` is what the moments are of. `values` are the
    objectives, if they are of the same thing.
    """

    names: tuple[str, ...]
    moments: tuple[Moments, ...]
    of: str
    values: tuple[float, ...] = ()

    @cached_property
    def efficient(self) -> list[int]:
        """Those that no other one dominates, by growing deviation."""
        return efficient([one.point for one in self.moments])

    @cached_property
    def knee(self) -> int | None:
        """The knee; None if no point is above the chord."""
        return knee([one.point for one in self.moments])

    def recommendation(self) -> str:
        """One of them in words: what it brings and costs against the first."""
        distinct = {self.moments[i].point for i in self.efficient}
        if len(distinct) == 1:
            best = self.efficient[0]
            why = f"it has the largest mean and the least standard deviation of the {self.of}"
        elif self.knee is not None:
            best, why = self.knee, f"the knee of mean and standard deviation of the {self.of}"
        else:
            return (
                "No knee, since no point lies above the line between the least deviation and the "
                f"largest mean of the {self.of}; choose by the deviation that is acceptable."
            )
        if best == 0:
            return f"{self._named(0)}: {why}."
        return f"{self._named(best)}: {self._against_first(best)} ({why}{self._caution(best)})."

    def _named(self, i: int) -> str:
        return f"{self.names[i][0].upper()}{self.names[i][1:]}"

    def _against_first(self, i: int) -> str:
        before, after = self.moments[0], self.moments[i]
        spread = change(before.deviation.value, after.deviation.value)
        return (
            f"standard deviation {spread}, mean {change(before.mean.value, after.mean.value)} "
            f"against {self.names[0]}"
        )

    def _caution(self, i: int) -> str:
        ours, theirs = self.moments[i].deviation, self.moments[0].deviation
        unknown = math.isnan(ours.low) or math.isnan(theirs.low)
        if unknown or not ours.overlaps(theirs):
            return ""
        return "; the 95% intervals of the two deviations overlap, so it may be chance"


def knee(points: Sequence[tuple[float, float]]) -> int | None:
    """Which of the points (deviation, mean) is the knee.

    >>> knee([(10.0, 5.0), (4.0, 4.5), (3.0, 2.0), (2.0, 1.0)])
    1
    >>> knee([(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]) is None
    True
    """
    kept = efficient(points)
    plane = np.array([points[i] for i in kept])
    low, high = plane.min(axis=0), plane.max(axis=0)
    if not (high > low).all():
        return None
    x, y = ((plane - low) / (high - low)).T
    above = (y - x) / math.sqrt(2.0)
    best = int(np.argmax(above))
    return kept[best] if above[best] > _ABOVE else None


def of_outcomes(outcomes: Sequence[Outcome]) -> tuple[Moments, Moments]:
    """The same of the return and of the reward of a step, over runs that differ in their seed."""
    found = estimates(outcomes)
    steps = Moments(found["reward_mean"], found["reward_variance"].through(math.sqrt))
    return Moments(found["mean"], found["deviation"]), steps


def panels_of(
    names: Sequence[str], each: Iterable[Sequence[Outcome]]
) -> tuple[Candidates, Candidates]:
    """Policies by the reward of a step and by the return, each with the outcomes of its seeds."""
    of_return, of_step = zip(*map(of_outcomes, each), strict=True)
    names = tuple(names)
    return Candidates(names, of_step, STEP), Candidates(names, of_return, RETURN)


def _rounded(value: float) -> float:
    """Ten digits: of two policies that act alike, one must not dominate by a rounding error."""
    return float(f"{value:.10g}")
