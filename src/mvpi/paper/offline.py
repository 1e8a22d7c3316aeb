"""Figure 3 of the paper, the off-line experiment: Algorithm 2 on the four-state problem.

The data are 1,000 transitions in which the pairs (s0, a0) and (s0, a1) and the states s1, s2 and s3
are equally likely; the behaviour policy is unknown. Each run draws its own data. Reported is the
probability of a0, the gamble, in s0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mvpi._checks import check_count, check_number
from mvpi.envs import FourState
from mvpi.errors import InputError
from mvpi.offline import Dataset
from mvpi.offline.published import Runs
from mvpi.paper.grid import OfflineGrid, check_each_once
from mvpi.risk import MeanVariance

DISCOUNT = 0.7
TRANSITIONS = 1_000

THRESHOLD = (1.0 + DISCOUNT) / DISCOUNT
"""The risk aversion up to which the gamble is optimal."""


@dataclass(frozen=True)
class OfflineRow:
    """Probability of the gamble after an iteration, over independent runs."""

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
    next_states = np.select([pair == 0, pair == 1], [after_gamble, 3], 0)
    rewards = np.array(FourState.REWARDS)[states]
    return Dataset(states, actions, rewards, next_states, np.zeros(TRANSITIONS, bool), starts=[0])


def run(
    risk_aversions: Sequence[float] = OfflineGrid.risk_aversions,
    runs: int = OfflineGrid.runs,
    iterations: int = OfflineGrid.iterations,
    seed: int = OfflineGrid.seed,
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
    """Probability of the gamble under the optimal policy."""
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


def draw(rows: Sequence[OfflineRow], path: Path) -> None:
    """Mean and standard error of pi(a0 | s0) against iterations, a curve a risk aversion."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    risk_aversions = list(dict.fromkeys(row.risk_aversion for row in rows))
    for i, lam in enumerate(risk_aversions):
        curve = [row for row in rows if row.risk_aversion == lam]
        x = [row.iteration for row in curve]
        mean = np.array([row.mean for row in curve])
        error = np.array([row.standard_error for row in curve])
        color = f"C{i}"
        axes.plot(x, mean, color=color)
        axes.fill_between(x, mean - error, mean + error, color=color, alpha=0.3, linewidth=0)
        axes.annotate(
            rf"$\lambda = {lam:g}$",
            (x[-1], mean[-1]),
            xytext=(6, 0),
            textcoords="offset points",
            color=color,
            va="center",
        )
    axes.axhline(0.5, color="0.8", linewidth=1, zorder=0)
    axes.set(
        xlabel="iterations",
        ylabel=r"$\pi(a_0 \mid s_0)$, the probability of the gamble",
        title=f"Off-line MVPI on the four-state problem, {rows[0].runs} runs",
    )
    axes.set_xlim(0, rows[-1].iteration * 1.12)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
