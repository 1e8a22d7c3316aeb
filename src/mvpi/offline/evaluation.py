"""Off-policy evaluation: what a policy would earn per step, estimated from data of another.

    evaluate(data, policy, discount) -> OfflineEvaluation

The rewards of the data, weighted by the density ratio of the policy, are distributed as the
policy's own; mean, variance, CVaR and the rest are statistics of that weighted sample. Beside them
stands `fitted_q_mean`, the same mean from action values: where the two differ by much, trust
neither.

Intervals are of the Bayesian bootstrap (Rubin 1981): what was drawn independently gets random
weights, and the statistic is computed again. Unlike draws with replacement these never lose the
only transition of a kind, without which a policy's occupancy would be unknown. What the weights
are given to depends on the data:

    finite          to single transitions and to starts, and the ratio is computed again in closed
                    form, whatever the method: the interval covers what data of this size leave
                    open, that of the ratio included. Transitions of one episode count as
                    independent, for given its state and action each of them is.
    vectors,        to whole episodes, and the ratio stays: the interval covers the sampling of
    or features     episodes, but not how far the estimated ratio is off. It is too narrow where
                    the ratio is poor; compare with `fitted_q_mean` and other methods or seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvpi import stats
from mvpi._checks import check_count, check_number
from mvpi._types import Array
from mvpi.offline._episodes import episode_blocks
from mvpi.offline._state_action_pairs import FinitePairs, distinct
from mvpi.offline.dataset import Dataset, check_data
from mvpi.offline.density_ratio import Method, density_ratio, effective_size, exact_ratio
from mvpi.offline.fitted_q import fitted_q_mean
from mvpi.risk import Risk, as_risk

Interval = tuple[float, float]
Statistic = Callable[[Array, Array], float]
"""Of rewards and their weights, like those in `mvpi.stats`."""


@dataclass(frozen=True, eq=False)
class OfflineEvaluation:
    """The per-step reward of a policy, as estimated from data.

    `rewards` are those of the data and `ratio` their weights. Every number has an interval beside
    it: `mean` and `mean_interval`, `cvar(0.1)` and `cvar_interval(0.1)`; `interval` makes one for
    any statistic of rewards and weights.
    """

    rewards: Array = field(repr=False)
    ratio: Array = field(repr=False)
    fitted_q_mean: float | None
    """The mean by fitted-Q evaluation; None at discount 1, where values are infinite sums."""
    confidence: float
    """How often intervals like these hold the true number."""
    _resamples: _RatioAnew | _RatioKept = field(repr=False)
    """The same every time they are gone through; rewards are in ascending order there, which makes
    quantiles fast."""

    def __repr__(self) -> str:
        mean, variance = (
            f"{x:.5g} ({low:.5g} to {high:.5g})"
            for x, (low, high) in (
                (self.mean, self.mean_interval),
                (self.variance, self.variance_interval),
            )
        )
        fitted = "" if self.fitted_q_mean is None else f", fitted_q_mean {self.fitted_q_mean:.5g}"
        shown = f"mean {mean}, variance {variance}{fitted}; {self.confidence:.0%} intervals"
        return f"OfflineEvaluation({shown})"

    @cached_property
    def mean(self) -> float:
        """Mean reward of a step."""
        return stats.mean(self.rewards, self.ratio)

    @cached_property
    def mean_interval(self) -> Interval:
        """The bootstrap interval of `mean`."""
        return self.interval(stats.mean)

    @cached_property
    def variance(self) -> float:
        """Variance of the reward of a step."""
        return stats.variance(self.rewards, self.ratio)

    @cached_property
    def variance_interval(self) -> Interval:
        """The bootstrap interval of `variance`."""
        return self.interval(stats.variance)

    @cached_property
    def sharpe(self) -> float:
        """Mean reward over its standard deviation."""
        return stats.sharpe(self.rewards, self.ratio)

    @cached_property
    def sharpe_interval(self) -> Interval:
        """The bootstrap interval of `sharpe`."""
        return self.interval(stats.sharpe)

    def cvar(self, level: float) -> float:
        """Mean of the worst `level` share of the rewards."""
        return stats.cvar(self.rewards, level, self.ratio)

    def cvar_interval(self, level: float) -> Interval:
        """The bootstrap interval of `cvar(level)`."""
        stats.check_level(level)  # before the resamples, which take time
        return self.interval(lambda r, w: stats.cvar(r, level, w))

    def value(self, risk: Risk | float) -> float:
        """`risk.value` of the rewards: `mean - risk * variance` for a number."""
        return as_risk(risk).value(self.rewards, self.ratio)

    def value_interval(self, risk: Risk | float) -> Interval:
        """The bootstrap interval of `value(risk)`."""
        return self.interval(as_risk(risk).value)

    @cached_property
    def effective_size(self) -> float:
        """Effective sample size: as many rewards of the policy itself would be as informative."""
        return effective_size(self.ratio)

    @cached_property
    def effective_size_interval(self) -> Interval:
        """The bootstrap interval of `effective_size`."""

        def size(sample: _Resample) -> float:
            share, ratio = sample.frequency / sample.frequency.sum(), sample.ratio
            return float(len(self.rewards) * (share @ ratio) ** 2 / (share @ ratio**2))

        return self._middle([size(sample) for sample in self._resamples])

    def interval(self, statistic: Statistic) -> Interval:
        """Where the statistic lies for the policy, with probability `confidence`."""
        rewards, drawn = self._resamples.rewards, self._resamples
        return self._middle([statistic(rewards, s.frequency * s.ratio) for s in drawn])

    def _middle(self, values: list[float]) -> Interval:
        tail = 0.5 * (1.0 - self.confidence)
        # Sharpe ratios may be infinite: do not interpolate.
        low = np.quantile(values, tail, method="lower")
        high = np.quantile(values, 1.0 - tail, method="higher")
        return float(low), float(high)


def evaluate(
    data: Dataset,
    policy: Any,
    discount: float,
    *,
    method: Method | None = None,
    confidence: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
    steps: int | None = None,
    **options: Any,
) -> OfflineEvaluation:
    """Estimate what `policy` earns per step, and how sure that is.

    Args:
        data: the transitions; who acted need not be known. Its starts count as a sample, like the
            transitions: with finite data the intervals hold what few of them leave open.
        policy: as in `density_ratio`.
        discount: in [0, 1]; that of the occupancy.
        method: of `density_ratio`; left out, "exact" for finite data, "gradient-dice" with
            features and "gen-dice" with networks.
        confidence: of the intervals.
        resamples: how many times a statistic is computed for an interval; with finite data the
            first interval also takes as many solves for the ratio.
        seed: of networks, of batches and of the resamples.
        steps: updates of the ratio, and of the value network.
        options: of `DensityRatio`; `features` and `hidden` are also for action values.

    >>> data = Dataset([0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 0], [False] * 3, starts=[0])
    >>> found = evaluate(data, policy=[1, 0], discount=0.5)
    >>> round(found.mean, 6), round(found.fitted_q_mean, 6), round(found.effective_size, 6)
    (0.333333, 0.333333, 1.8)
    """
    check_data(data)
    discount = check_number(discount, "discount", at_least=0.0, at_most=1.0)
    confidence = check_number(confidence, "confidence", above=0.0, at_most=1.0)
    resamples = check_count(resamples, "resamples")
    featured = options.get("features") is not None
    finite = data.n_states is not None and not featured
    if method is None:
        method = "exact" if finite else "gradient-dice" if featured else "gen-dice"
    ratio = density_ratio(data, policy, discount, method, steps=steps, seed=seed, **options)
    of_values = {name: options[name] for name in ("features", "hidden") if name in options}
    q_mean = None
    if discount < 1.0:
        q_mean = fitted_q_mean(data, policy, discount, steps=steps, seed=seed, **of_values)
    drawn: _RatioAnew | _RatioKept
    if finite:
        drawn = _RatioAnew(data, policy, discount, resamples, seed)
    else:
        drawn = _RatioKept(data, ratio, resamples, seed)
    rewards = np.asarray(data.rewards, np.float64)
    return OfflineEvaluation(rewards, ratio, q_mean, confidence, drawn)


class _Resample(NamedTuple):
    """How much every reward counts in a resample, and its ratio there."""

    frequency: Array
    ratio: Array


class _RatioAnew:
    """Transitions of finite data weighted at random, with the exact ratio of each resample."""

    def __init__(
        self, data: Dataset, policy: Any, discount: float, resamples: int, seed: int
    ) -> None:
        self._discount, self._count, self._seed = discount, resamples, seed
        pairs = FinitePairs(data)
        self._batch = pairs.whole(pairs.checked(policy))
        pair_of_row = np.concatenate(list(pairs.rows()))
        transition = pairs.transitions()
        first, self._counts = distinct(data.rewards, transition)
        self._kinds, self._pair = transition[first], pair_of_row[first]
        self.rewards = np.asarray(data.rewards, np.float64)[first]
        self._shape = _shape(np.bincount(pair_of_row))[self._pair]
        self._starts = np.unique(data.starts, return_counts=True)[1]

    def __iter__(self) -> Iterator[_Resample]:
        for frequency, ratio in zip(self._frequencies(), self._ratios, strict=True):
            yield _Resample(frequency, ratio[self._pair])

    def _frequencies(self) -> Iterator[Array]:
        """Equal rows together have the sum of their weights."""
        rng, shape = np.random.default_rng([self._seed, 0]), self._shape
        return (rng.standard_gamma(shape * self._counts) / shape for _ in range(self._count))

    @cached_property
    def _ratios(self) -> list[Array]:
        """For every resample, those of all pairs."""
        rng, batch, ratios = np.random.default_rng([self._seed, 1]), self._batch, []
        start_shape = self._starts * _shape(self._starts.sum())
        for frequency in self._frequencies():
            weight = np.bincount(self._kinds, frequency, minlength=len(batch.weight))
            times = rng.standard_gamma(start_shape) / self._starts
            start_weight = batch.start_weight * times[:, None]
            drawn = batch._replace(
                weight=weight / weight.sum(), start_weight=start_weight / start_weight.sum()
            )
            ratios.append(exact_ratio(drawn, self._discount))
        return ratios


class _RatioKept:
    """Episodes weighted at random; every row keeps its ratio."""

    def __init__(self, data: Dataset, ratio: Array, resamples: int, seed: int) -> None:
        rewards = np.asarray(data.rewards, np.float64)
        order = np.argsort(rewards, kind="stable")
        self._seed, self._count = seed, resamples
        self._block, self._ratio = episode_blocks(data)[order], ratio[order]
        self.rewards = rewards[order]

    def __iter__(self) -> Iterator[_Resample]:
        rng = np.random.default_rng([self._seed, 0])
        blocks = 1 + int(self._block.max())
        for _ in range(self._count):
            yield _Resample(rng.standard_exponential(blocks)[self._block], self._ratio)


def _shape(n: npt.ArrayLike) -> Array:
    """The shape of gamma weights with which a weighted mean of `n` values varies as it should.

    It varies by `s^2 / (n shape + 1)`, `s^2` being the mean square deviation of the values; the
    mean of `n` draws varies by `s^2 / (n - 1)`. Exponential weights have the shape 1.
    """
    count = np.asarray(n, np.float64)
    return np.asarray(np.maximum(count - 2.0, 1.0) / count)
