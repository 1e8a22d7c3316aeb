"""The paper's off-line experiment: Algorithm 2 on the four-state problem.

The data are 1,000 transitions in which the pairs (s0, a0) and (s0, a1) and the states s1, s2 and s3
are equally likely; the behaviour policy is unknown. A run draws its own data. Reported is the
probability of a0, the gamble, in s0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from mvpi._checks import check_count, check_number
from mvpi.envs import FourState
from mvpi.errors import InputError
from mvpi.experiments.paper import OFFLINE_RISK_AVERSIONS, check_each_once
from mvpi.offline import Dataset
from mvpi.offline.published import Runs
from mvpi.risk import MeanVariance

DISCOUNT = 0.7
TRANSITIONS = 1_000

THRESHOLD = (1.0 + DISCOUNT) / DISCOUNT
"""The risk aversion up to which the gamble is best."""


@dataclass(frozen=True)
class OfflineRow:
    """How likely the gamble is after an iteration, over independent runs."""

    risk_aversion: float
    iteration: int
    mean: float
    standard_error: float
    runs: int


def gathered(rng: np.random.Generator) -> Dataset:
    """The paper's data, drawn anew."""
    pair = rng.integers(5, size=TRANSITIONS)
    states, actions = np.array([0, 0, 1, 2, 3])[pair], (pair == 1).astype(int)
    after_gamble = rng.integers(1, 3, size=TRANSITIONS)
    following = np.select([pair == 0, pair == 1], [after_gamble, 3], 0)
    rewards = np.array(FourState.REWARDS)[states]
    return Dataset(states, actions, rewards, following, np.zeros(TRANSITIONS, bool), starts=[0])


def run(
    risk_aversions: Sequence[float] = OFFLINE_RISK_AVERSIONS,
    runs: int = 30,
    iterations: int = 200,
    seed: int = 0,
) -> Iterator[list[OfflineRow]]:
    """The rows of iteration 0, 1, ...: one for every risk aversion."""
    check_count(runs, "runs", at_least=2)
    check_count(iterations, "iterations")
    check_each_once(risk_aversions, "risk_aversions")
    for lam in risk_aversions:
        check_number(lam, "risk aversion", at_least=0.0)
    rng = np.random.default_rng(check_count(seed, "seed", at_least=0))
    data = [gathered(rng) for _ in range(runs)]
    pairs = list(product(risk_aversions, data))
    learners = Runs([d for _, d in pairs], [MeanVariance(x) for x, _ in pairs], DISCOUNT, seed)
    yield _rows(learners.policies, risk_aversions, 0)
    try:
        for i, policies in enumerate(learners.iterations(iterations), start=1):
            yield _rows(policies, risk_aversions, i)
    except InputError as error:
        raise InputError(
            f"off-line learning diverged: {error}; use smaller risk aversions or fewer iterations"
        ) from None


def best_probability(risk_aversion: float) -> float:
    """Of the gamble, for the exact optimum."""
    return 1.0 if risk_aversion < THRESHOLD else 0.0


def _rows(
    policies: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    risk_aversions: Sequence[float],
    iteration: int,
) -> list[OfflineRow]:
    gamble = policies[:, 0, 0].reshape(len(risk_aversions), -1)
    for lam, probabilities in zip(risk_aversions, gamble, strict=True):
        if not np.isfinite(probabilities).all():
            raise InputError(f"no probabilities after iteration {iteration} at lam = {lam:g}")
    runs = gamble.shape[1]
    errors = gamble.std(axis=1, ddof=1) / np.sqrt(runs)
    return [
        OfflineRow(lam, iteration, float(mean), float(error), runs)
        for lam, mean, error in zip(risk_aversions, gamble.mean(axis=1), errors, strict=True)
    ]
