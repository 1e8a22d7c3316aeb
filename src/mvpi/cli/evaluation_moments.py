"""Mean and deviation of returns and of rewards of a step, with intervals, from an evaluation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from mvpi import stats
from mvpi._bootstrap import interval
from mvpi._types import Array
from mvpi.report.agent_statistics import Estimate
from mvpi.report.risk_choice import Moments
from mvpi.rollout.evaluation import Evaluation

_RESAMPLES = 1_000


def of_returns(seen: Evaluation) -> Moments:
    """Mean and deviation of the return."""
    mean = Estimate(seen.mean, *seen.interval(stats.mean))
    return Moments(mean, Estimate(seen.deviation, *seen.interval(_deviation)))


def of_steps(seen: Evaluation, gamma: float | None = None) -> Moments:
    """Mean and deviation of the reward of a step; the bootstrap draws whole episodes.

    With `gamma` of a step of the discounted occupancy, as for finite MDPs.
    """
    count = len(seen.lengths)
    drawn = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
    if gamma is None:
        value, again = _counted_alike(seen, drawn)
    else:
        value = _discounted(seen, gamma)
        again = np.array([_discounted(_redrawn(seen, some), gamma) for some in drawn]).T
    return Moments(*(Estimate(v, *interval(a)) for v, a in zip(value, again, strict=True)))


def _counted_alike(seen: Evaluation, drawn: npt.NDArray[np.int64]) -> tuple[Array, Array]:
    """Moments of all steps, and of those of the drawn episodes."""
    centre = seen.reward_mean
    starts = np.cumsum(seen.lengths) - seen.lengths
    sums = np.add.reduceat(seen.rewards - centre, starts)
    squares = np.add.reduceat(np.square(seen.rewards - centre), starts)
    steps, total, square = (each[drawn].sum(axis=1) for each in (seen.lengths, sums, squares))
    mean = total / steps
    deviation = np.sqrt(np.maximum(square / steps - mean**2, 0.0))
    value = np.array([centre, math.sqrt(seen.reward_variance)])
    return value, np.stack([centre + mean, deviation])


def _redrawn(seen: Evaluation, drawn: npt.NDArray[np.int64]) -> Evaluation:
    assert seen.terminated is not None  # an evaluation of this package knows
    parts = np.split(seen.rewards, np.cumsum(seen.lengths)[:-1])
    return replace(
        seen,
        returns=seen.returns[drawn],
        rewards=np.concatenate([parts[i] for i in drawn]),
        lengths=seen.lengths[drawn],
        terminated=seen.terminated[drawn],
    )


def _discounted(seen: Evaluation, gamma: float) -> Array:
    rewards, weights = seen.occupancy(gamma)
    return np.array([stats.mean(rewards, weights), math.sqrt(stats.variance(rewards, weights))])


def _deviation(values: Array) -> float:
    return float(values.std())
