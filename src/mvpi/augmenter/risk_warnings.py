"""Warnings of a risk aversion that will not do what its user expects, once each.

A risk aversion has a unit, one over reward, so its effect depends on the size of the rewards:

* **Too small**: augmented rewards differ from raw ones by less than 2% of the largest. With
  mean-variance they differ by `lam |r| |2 y - r|`, so that is `lam` times the largest reward, or
  `lam |y|`, below about 0.02: the agent is risk-neutral.
* **Too large**: `augment(r, y)` rises with `r` up to `y + 1 / (2 lam)` and falls beyond. Some
  rewards beyond are normal: with `lam` times the standard deviation at 1, a third of
  Gaussian rewards. It is too large where good rewards are punished on the whole, that is raw and
  augmented rewards are negatively correlated, or where `lam` times the standard deviation is
  beyond 20, so that their correlation is below 0.04 and the mean hardly counts any more.
* **Costs that turn into gains**: where all steps count alike, `augment(y, y)` is what a mean step
  counts and a finished episode counts 0. With a negative mean `y` and `lam |y| > 1` the step counts
  more than to have finished. See `mvpi.augmenter.occupancy`.
* **Beyond a Huber loss**: a critic with Huber's loss, as DQN has, learns means only of what is less
  than about 1 apart. Beyond, it learns values near medians, which leave out a rare loss. It is too
  far where augmented rewards have a standard deviation above 3.

CVaR depends on ranks and has no unit. The risk aversion of a variance budget is found in learning;
neither of the first two applies to them.
"""

from __future__ import annotations

import numpy as np

from mvpi import stats
from mvpi._types import Array
from mvpi.augmenter.occupancy import Occupancy
from mvpi.errors import RiskWarning, warn
from mvpi.risk import Risk

_FIRST, _EVERY = 1_000, 10_000
"""Rewards before the first check, and between later ones."""
_FEWEST = 100
"""Fewest rewards from which a unit can be judged."""
_NO_CHANGE = 0.02
_MOST_DEVIATIONS = 20.0
_INVERSE = -0.3
_LITTLE_OF_A_COST = 0.2
_BEYOND_HUBER = 3.0


class Advice:
    """Checks the rewards at intervals, and warns of each problem at most once."""

    huber_loss = False
    """Whether what learns from augmented rewards has Huber's loss."""

    due = _FIRST
    """Rewards after which a check is due."""

    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._told: set[str] = set()
        self.terminates = False
        """Whether an episode was seen to terminate."""

    def give(
        self, count: int, risk: Risk, y: float, values: Array, weights: Array | None = None
    ) -> None:
        """Warn, after `count` rewards, of what is wrong with the risk aversion for such ones."""
        self.due = count + _EVERY
        found = {
            "unit": unit_advice(risk, y, values, weights),
            "cost": cost_advice(risk, y) if self._counts_only_live_steps else None,
            "huber": huber_advice(risk, y, values, weights) if self.huber_loss else None,
        }
        for kind, message in found.items():
            if message is not None and kind not in self._told:
                self._told.add(kind)
                warn(message, RiskWarning)

    @property
    def _counts_only_live_steps(self) -> bool:
        return self.terminates and self._occupancy == "undiscounted"


def unit_advice(risk: Risk, y: float, values: Array, weights: Array | None = None) -> str | None:
    """What is wrong with the size of a risk aversion, or None.

    >>> from mvpi import MeanVariance
    >>> unit_advice(MeanVariance(1.0), 0.0, np.linspace(-1.0, 1.0, 100))
    >>> print(unit_advice(MeanVariance(1.0), 0.0, 1e-4 * np.linspace(-1.0, 1.0, 100)))
    risk aversion 1 does nothing to rewards up to 0.0001 ...; try 5e+03, ...
    """
    lam = risk.price if risk.has_unit else None
    if not lam or values.size < _FEWEST:
        return None
    largest = float(np.abs(values).max())
    augmented = risk.augment(values, y)
    changed = float(np.abs(augmented - values).max())
    deviation = float(np.sqrt(stats.variance(values, weights)))
    furthest = float(np.abs(values - y).max())
    remedy = f"try {0.5 / (furthest or largest or 1.0):.1g}, or rewards in another unit"
    if changed < _NO_CHANGE * largest:
        return (
            f"risk aversion {lam:g} does nothing to rewards up to {largest:.2g} (it changes them "
            f"by {changed / largest:.1g} of that at most); {remedy}"
        )
    if lam * deviation > _MOST_DEVIATIONS or _correlation(values, augmented, weights) < _INVERSE:
        return (
            f"risk aversion {lam:g} is large for rewards of mean {y:.2g} and standard deviation "
            f"{deviation:.2g}: good rewards are punished, or hardly count; {remedy}"
        )
    return None


def cost_advice(risk: Risk, y: float) -> str | None:
    """What is wrong with `y` of live steps where finishing counts 0, or None.

    >>> from mvpi import MeanVariance
    >>> cost_advice(MeanVariance(0.5), -1.0)
    >>> print(cost_advice(MeanVariance(2.0), -1.0))
    y = -1 is that of live steps, ...: such a step counts as 1 and a finished episode as 0, ...
    """
    counts = float(risk.augment(y, y))
    if y >= 0.0 or counts <= _LITTLE_OF_A_COST * y:
        return None
    lower = f", or a risk aversion below {0.5 / -y:.2g}" if risk.has_unit else ""
    return (
        f"y = {y:.3g} is that of live steps, in a task that terminates: such a step counts as "
        f"{counts:.2g} and a finished episode as 0, so the agent may avoid finishing; use "
        f'occupancy="discounted"{lower}'
    )


def huber_advice(risk: Risk, y: float, values: Array, weights: Array | None = None) -> str | None:
    """What is wrong with the size of augmented rewards for Huber's loss, or None.

    >>> from mvpi import MeanVariance
    >>> huber_advice(MeanVariance(0.1), 0.0, np.linspace(-1.0, 1.0, 100))
    >>> print(huber_advice(MeanVariance(0.01), 0.0, 10.0 * np.linspace(-1.0, 1.0, 100)))
    augmented rewards have a standard deviation of 5.8: Huber's loss, ...; divide rewards by 18 ...
    """
    if risk.is_neutral or values.size < _FEWEST:
        return None
    deviation = float(np.sqrt(stats.variance(risk.augment(values, y), weights)))
    if deviation <= _BEYOND_HUBER:
        return None
    unit = _BEYOND_HUBER * deviation
    remedy = f"divide rewards by {unit:.2g}"
    if risk.has_unit:
        remedy += f" and multiply the risk aversion by {unit:.2g}"
    elif risk.variance_limit is not None:
        remedy += f" and the variance limit by {unit**2:.2g}"
    return (
        f"augmented rewards have a standard deviation of {deviation:.2g}: Huber's loss, which is "
        "squared for errors below 1 alone, then learns values near medians, not means, and "
        f"overlooks rare losses; {remedy}"
    )


def _correlation(x: Array, z: Array, weights: Array | None) -> float:
    """Of raw and augmented rewards; 1 where one of them does not vary."""
    spread = stats.variance(x, weights) * stats.variance(z, weights)
    if not 0.0 < spread < np.inf:
        return 1.0
    middles = stats.mean(x, weights), stats.mean(z, weights)
    covariance = stats.mean((x - middles[0]) * (z - middles[1]), weights)
    return covariance / float(np.sqrt(spread))
