"""How much each step of an episode counts: alike, or by the discounted occupancy.

The paper's per-step reward `R` is that of a time step drawn with probability `(1 - gamma) gamma^t`,
and a finished episode pays 0 for ever:

    E[f(R)] = sum over t of (1 - gamma) gamma^t (S(t) E[f(r_t) | not finished] + (1 - S(t)) f(0))

with `S(t)` the probability that an episode is not finished before step `t`. Its usual shortcut is
to count all recent steps alike, without the zeros. `discounted` is the definition, estimated from
steps in any order, of whole episodes or parts of them, by one environment or several:

* `S(t)` is the product-limit estimate (Kaplan and Meier 1958): of the steps seen at time `t`, the
  share that terminated is the chance to finish there. Episodes that were truncated, or whose
  beginning or end is not among the steps, are not taken for finished; they count as far as seen.
* What lies beyond the latest time seen, and times of which no step was seen, are like the mean of
  all steps: their rewards, and their share of terminations.

With whole episodes that all terminated this is the mean of their discounted sums.
"""

from __future__ import annotations

import math
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_choice, check_number
from mvpi._types import Array
from mvpi.errors import InputError

Occupancy = Literal["undiscounted", "discounted"]

OCCUPANCIES: tuple[Occupancy, ...] = ("undiscounted", "discounted")
LATE = 2**62
"""The time of steps of which only is known that their episode began earlier."""
_NEGLIGIBLE = 1e-9
"""Weight of all later times together that is left to the mean of all steps."""


def discounted(
    rewards: npt.ArrayLike, times: npt.ArrayLike, terminated: npt.ArrayLike, gamma: float
) -> tuple[Array, Array]:
    """Values of the per-step reward and their probabilities; the last value is the 0 of the end.

    `times` are how many steps of its episode came before each step, `terminated` which of them
    ended their episode other than by truncation.

    >>> values, weights = discounted([-1.0, -1.0], [0, 1], [False, True], gamma=0.5)
    >>> values.tolist(), weights.tolist()
    ([-1.0, -1.0, 0.0], [0.5, 0.25, 0.25])
    """
    r = np.ravel(np.asarray(rewards, np.float64))
    t = np.ravel(np.asarray(times, np.int64))
    ends = np.ravel(np.asarray(terminated, np.bool_))
    if not r.shape == t.shape == ends.shape:
        raise InputError(
            "times and terminated must be one per reward: "
            f"{r.size} rewards, {t.size} times, {ends.size} terminated"
        )
    if r.size == 0 or t.min() < 0:
        what = "none" if r.size == 0 else f"the time {t.min()}"
        raise InputError(f"an occupancy needs steps of times >= 0, got {what}")
    live = _live_weights(t, ends, check_gamma(gamma))
    finished = max(0.0, 1.0 - float(live.sum())) if ends.any() else 0.0
    return np.append(r, 0.0), np.append(live, finished)


def check_gamma(gamma: float | None) -> float:
    """`gamma` if it is the discount of an occupancy, or an `InputError`."""
    if gamma is None:
        raise InputError("the discounted occupancy needs gamma, the discount of the algorithm")
    if check_number(gamma, "gamma", at_least=0.0) >= 1.0:
        raise InputError(f"the discounted occupancy needs gamma < 1, got {gamma:g}")
    return float(gamma)


def check_occupancy(occupancy: str) -> Occupancy:
    """One of `OCCUPANCIES`, or an `InputError`."""
    return cast("Occupancy", check_choice(occupancy, "occupancy", OCCUPANCIES))


def _live_weights(t: npt.NDArray[np.int64], ends: npt.NDArray[np.bool_], gamma: float) -> Array:
    """The probability of each step; what they lack to 1 is that of being finished."""
    horizon = math.ceil(math.log(_NEGLIGIBLE) / math.log(gamma)) if gamma > 0.0 else 1
    t = np.minimum(t, horizon)  # beyond it all times are the same
    seen = np.bincount(t)
    known, usual = seen > 0, float(ends.mean())
    hazard = np.bincount(t[ends], minlength=seen.size) / np.maximum(seen, 1)
    survival = np.append(1.0, np.cumprod(1.0 - np.where(known, hazard, usual)))
    reached = gamma ** np.arange(seen.size + 1) * survival
    mass = (1.0 - gamma) * reached[:-1]
    later = (1.0 - gamma) / (1.0 - gamma * (1.0 - usual)) * reached[-1]
    unseen = float(mass[~known].sum() + later)
    return np.asarray(np.where(known, mass / np.maximum(seen, 1), 0.0)[t] + unseen / t.size)
