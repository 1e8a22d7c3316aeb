"""The largest mean reward within a limit of the variance, on finite data.

The mean and the second moment of all policies are a convex polygon. Its corners are policies that
are best in a direction, a risk-neutral problem, and mixtures of two are on the line between them.

    1. The corner with the largest mean. If it keeps to the limit, that is it.
    2. A corner that does: of those with the least `E[(R - y)^2]`, the first as `y` falls. The one
       with the least variance is among them, at `y` its mean.
    3. Between the two, the corner farthest below their chord replaces one of them, until there is
       none below.
    4. The mixture of the two that just keeps to the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mvpi import stats
from mvpi.errors import InputError
from mvpi.risk import Risk

if TYPE_CHECKING:
    from mvpi.offline.learn import Iteration, Model

Array = npt.NDArray[np.float64]
Climb = Callable[[Risk], "Iteration"]
"""From the uniform policy to one that is best by a risk measure."""

_CENTRES = 17
"""How many `y` are tried."""
_REFINEMENTS = 5
"""How often `y` then is the mean of the least varied policy."""
_CHORDS = 30
_HALVINGS = 40
_ROUNDING = 1e-12
"""Above the limit by less than this share of the largest variance is within it."""
_LEAST_GAIN = 1e-9
"""Below the chord by less than this share of the variance is on it."""
_CERTAIN = 0.99
"""What a policy does with this probability is all it does at the corner."""


def within_budget(model: Model, limit: float, climb: Climb) -> Array:
    """The policy with the largest mean that was found, of those with a variance up to `limit`."""
    over = _corner(model, _Direction(mean=1.0), climb)
    limit += _ROUNDING * over.variance
    if over.variance <= limit:
        return over.policy
    within, over = _at_the_limit(model, over, limit, climb)
    for _ in range(_CHORDS):
        if within.mean >= over.mean:
            return within.policy
        chord = _chord(within, over)
        below = _corner(model, chord, climb)
        if chord.of(below) - chord.of(within) <= _LEAST_GAIN * over.variance:
            break
        within, over = (below, over) if below.variance <= limit else (within, below)
    return _mixed(model, within, over, limit)


class _Candidate(NamedTuple):
    """A policy, its steps in every pair, and its rewards."""

    policy: Array
    shares: Array
    mean: float
    variance: float


@dataclass(frozen=True)
class _Direction(Risk):
    """`y + E[mean (R - y) - square (R - y)^2]` with a fixed `y`: risk-neutral."""

    mean: float = 0.0
    square: float = 0.0
    y: float = 0.0

    def utility(self, t: npt.ArrayLike) -> Array:
        t = np.asarray(t, dtype=np.float64)
        return np.asarray(self.mean * t - self.square * t**2)

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        return self.y

    def of(self, point: _Candidate) -> float:
        """The value of a policy."""
        off = point.mean - self.y
        return self.y + self.mean * off - self.square * (point.variance + off**2)


def _chord(one: _Candidate, other: _Candidate) -> _Direction:
    """The direction in which two policies are equally good."""
    rise = other.mean - one.mean
    return _Direction((other.variance + rise**2 - one.variance) / rise, 1.0, one.mean)


def _corner(model: Model, direction: _Direction, climb: Climb) -> _Candidate:
    policy = climb(direction).policy
    certain = policy.max(axis=1, keepdims=True) > _CERTAIN
    return _candidate(model, np.where(certain, np.round(policy), policy))


def _candidate(model: Model, policy: Array) -> _Candidate:
    visits = model.visits(policy)
    mean, variance = (f(model.rewards, visits.weights) for f in (stats.mean, stats.variance))
    return _Candidate(policy, visits.shares, mean, variance)


def _at_the_limit(
    model: Model, most: _Candidate, limit: float, climb: Climb
) -> tuple[_Candidate, _Candidate]:
    """A corner that keeps to the limit, and one of a larger mean that does not."""
    over = steadiest = most
    least = _corner(model, _Direction(mean=-1.0), climb).mean
    centres = np.linspace(most.mean, least, _CENTRES)
    for attempt in range(_CENTRES + _REFINEMENTS):
        y = float(centres[attempt]) if attempt < _CENTRES else steadiest.mean
        found = _corner(model, _Direction(square=1.0, y=y), climb)
        if found.variance <= limit:
            return found, over
        over = found if attempt < _CENTRES else most
        steadiest = min(steadiest, found, key=lambda point: point.variance)
    raise InputError(
        f"the search found no policy with a variance of at most {limit:g}; the smallest it came to "
        f"is {steadiest.variance:.4g}. It is a local search, there may be others; raise the limit"
    )


def _mixed(model: Model, within: _Candidate, over: _Candidate, limit: float) -> Array:
    """As much of the second as keeps to the limit: along the way the variance is concave."""
    best, low, high = within, 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        shares = (1.0 - middle) * within.shares + middle * over.shares
        visited = shares.sum(axis=1, keepdims=True)
        policy = np.divide(shares, visited, out=within.policy.copy(), where=visited > 0)
        mixed = _candidate(model, policy)
        kept = mixed.variance <= limit
        low, high = (middle, high) if kept else (low, middle)
        best = mixed if kept else best
    return best.policy
