"""The efficient frontier of an agent trained with a `RiskRange`, from what training measured.

Every evaluation in training runs its episodes at equal distances over the range, one at each risk
aversion, and the final policy a few at each. Together they are a sample of episodes at every risk
aversion: mean and variance there, made monotone (both fall as the risk aversion rises), and
bootstrap intervals over episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_number
from mvpi._types import Array
from mvpi.augmenter.monotone_regression import non_increasing
from mvpi.errors import InputError
from mvpi.risk import RiskRange
from mvpi.rollout.evaluation import Evaluation

KEPT = 5
"""Episodes that are kept at every risk aversion: the latest."""
_FIELDS = 5
_ARRAYS = ("risk_aversions", "means", "variances", "mean_intervals", "variance_intervals")
_RESAMPLES = 1_000
_TAIL = 0.025


class Measured:
    """Episodes at every risk aversion, of the latest evaluations.

    A row is an episode: risk aversion, steps, sum and sum of squares of rewards, return.
    """

    def __init__(self, rows: npt.ArrayLike | None = None) -> None:
        given = np.asarray([] if rows is None else rows, np.float64)
        self.rows = np.zeros((0, _FIELDS)) if given.shape == (0,) else given
        if self.rows.ndim != 2 or self.rows.shape[1] != _FIELDS or not np.isfinite(self.rows).all():
            raise ValueError(f"{self.rows.shape} numbers are no rows of episodes")

    def add(self, risk_aversions: Array, seen: Evaluation) -> None:
        """The episodes of an evaluation, one at each risk aversion."""
        ends = np.cumsum(seen.lengths)
        parts = np.split(seen.rewards, ends[:-1])
        new = [
            (lam, r.size, r.sum(), np.square(r).sum(), r.sum())
            for lam, r in zip(risk_aversions.tolist(), parts, strict=True)
        ]
        self.rows = np.concatenate([self.rows, new])[-KEPT * len(new) :]

    def summed(self, *, of_return: bool) -> Array:
        """Rows for `best_of_range`: of the rewards of steps, or of the returns."""
        if not of_return:
            return self.rows[:, :4]
        lam, returns = self.rows[:, 0], self.rows[:, 4]
        return np.stack([lam, np.ones_like(lam), returns, np.square(returns)], axis=1)


@dataclass(frozen=True, eq=False)
class LearnedFrontier:
    """Mean and variance at every risk aversion of a range, with 95% intervals.

    Of the reward of a step, or, for an agent trained with `OfReturn`, of the return.
    """

    risk_aversions: Array
    means: Array
    variances: Array
    mean_intervals: Array
    """`(n, 2)`."""
    variance_intervals: Array
    _range: RiskRange

    def record(self) -> dict[str, Any]:
        """As a file holds it; estimates from data are kept like that."""
        return {name: getattr(self, name).tolist() for name in _ARRAYS}

    @classmethod
    def of_record(cls, known: RiskRange, record: Any) -> Self:
        """The frontier that a file holds; `ValueError` if it cannot be one."""
        arrays = {name: np.array(record[name], np.float64) for name in _ARRAYS}
        count = arrays["risk_aversions"].size
        for name, array in arrays.items():
            shape = (count, 2) if name.endswith("intervals") else (count,)
            if not count or array.shape != shape or not np.isfinite(array).all():
                raise ValueError(f"{name} of a frontier must be {shape} numbers")
        return cls(**arrays, _range=known)

    def with_variance_at_most(self, limit: float) -> float:
        """The smallest risk aversion whose variance is at most `limit`."""
        limit = check_number(limit, "limit", at_least=0.0)
        if self.variances[-1] > limit:
            raise InputError(
                f"limit must be >= {self.variances[-1]:.6g}, the least variance that was measured "
                f"(at risk aversion {self.risk_aversions[-1]:g}), got {limit:g}"
            )
        return self._first(self.variances <= limit, self.variances - limit)

    def with_mean_at_least(self, target: float) -> float:
        """The largest risk aversion whose mean is at least `target`."""
        target = check_number(target, "target")
        if self.means[0] < target:
            raise InputError(
                f"target must be <= {self.means[0]:.6g}, the largest mean that was measured "
                f"(at risk aversion {self.risk_aversions[0]:g}), got {target:g}"
            )
        if self.means[-1] >= target:
            return float(self.risk_aversions[-1])
        return self._first(self.means < target, self.means - target)

    def _first(self, beyond: npt.NDArray[np.bool_], distance: Array) -> float:
        """Where a falling line through `distance` crosses 0, just before the first `beyond`."""
        k = int(np.argmax(beyond))
        if k == 0:
            return float(self.risk_aversions[0])
        x = self._range.coordinate(self.risk_aversions)
        share = distance[k - 1] / (distance[k - 1] - distance[k])
        return float(self._range.from_coordinate(x[k - 1] + share * (x[k] - x[k - 1])))


def learned_frontier(
    known: RiskRange, measured: Measured, *, of_return: bool, seed: int = 0
) -> LearnedFrontier:
    """The frontier that was measured; `InputError` before the first evaluation."""
    if not len(measured.rows):
        raise InputError(
            "nothing was measured yet: train beyond the first evaluation (evaluation_every), or "
            "evaluate agent.at(risk_aversion) with mvpi.evaluate"
        )
    moments = _return_moments if of_return else _step_moments
    lam, groups = _by_risk_aversion(measured)
    means, variances = _monotone(measured.rows, groups, moments)
    rng = np.random.default_rng(seed)
    drawn = np.array(
        [
            _monotone(measured.rows, [rng.choice(g, g.size) for g in groups], moments)
            for _ in range(_RESAMPLES)
        ]
    )
    low, high = np.quantile(drawn, [_TAIL, 1.0 - _TAIL], axis=0)
    return LearnedFrontier(
        risk_aversions=lam,
        means=means,
        variances=variances,
        mean_intervals=np.stack([low[0], high[0]], axis=1),
        variance_intervals=np.stack([low[1], high[1]], axis=1),
        _range=known,
    )


def objectives(measured: Measured, *, of_return: bool) -> dict[str, float]:
    """`mean - lam variance` at both ends and in the middle of the range, as columns of metrics."""
    moments = _return_moments if of_return else _step_moments
    lam, groups = _by_risk_aversion(measured)
    means, variances = _monotone(measured.rows, groups, moments)
    values = means - lam * variances
    places = {"low": 0, "middle": lam.size // 2, "high": -1}
    return {f"value_{name}": float(values[place]) for name, place in places.items()}


def _by_risk_aversion(measured: Measured) -> tuple[Array, list[npt.NDArray[np.intp]]]:
    """The risk aversions of the episodes, and which rows belong to each."""
    lam, group = np.unique(measured.rows[:, 0], return_inverse=True)
    return lam, [np.flatnonzero(group == k) for k in range(lam.size)]


def _step_moments(rows: Array) -> tuple[float, float, float]:
    """Mean and variance of the reward of a step, and how many there were."""
    steps, total, squares = rows[:, 1:4].sum(axis=0)
    mean = total / steps
    return mean, max(squares / steps - mean**2, 0.0), steps


def _return_moments(rows: Array) -> tuple[float, float, float]:
    """The same of returns."""
    return float(rows[:, 4].mean()), float(rows[:, 4].var()), float(len(rows))


def _monotone(
    rows: Array,
    groups: list[npt.NDArray[np.intp]],
    moments: Callable[[Array], tuple[float, float, float]],
) -> tuple[Array, Array]:
    """Means and variances at every risk aversion, both non-increasing."""
    means, variances, weights = np.array([moments(rows[g]) for g in groups]).T
    return non_increasing(means, weights), non_increasing(variances, weights)
