"""`y` of a policy from data by several estimators, and how far they can be trusted.

    policy_dual(data, policy, discount, risk)     `y`, an interval, and what it rests on
    PolicyDuals(data, discount)                   the same step by step, for policies that change

Every estimator is least-squares temporal differences (LSTD-Q, Lagoudakis and Parr 2003) on features
`phi` of an observation and an action, with `phi'` those of what the policy does next (0 after the
end of an episode) and `phi_0` those at starts:

    A     = E[phi (phi - gamma phi')^T]
    mean  = E[phi_0]^T A^-1 E[phi r]  =  E[tau r],     tau = phi^T A^-T E[phi_0]

`tau` is a density ratio (the one of GradientDICE in closed form for functions linear in `phi`;
Uehara 2020), so that the dual of the rewards weighted by it is `y` for any risk measure. It may be
negative in places; the distribution function of the rewards that follows from it is made monotone
(Chernozhukov 2010), and shifted to the mean that `tau` gives. The features are

    network      the last hidden layer of a network trained by fitted-Q evaluation
    relu         random ReLU units, which no training can lead astray
    quadratic    squares of random directions, and the inputs: few data determine it well

`y` is the median of the three. Each has an interval by the Bayesian bootstrap: episodes and starts
get random weights and `tau` is solved for anew. The interval that is reported spans all three, and
what the network says itself, so that it covers sampling error and the disagreement of the
estimators. An error that all of them share, such as actions which the data never show, it does not
cover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from mvpi.agents.settings import layer_sizes
from mvpi.errors import Divergence, InputError, warn
from mvpi.offline.blocks import episode_blocks
from mvpi.offline.dataset import Dataset
from mvpi.offline.density_ratio import (
    SMALLEST_SHARE,
    CoverageWarning,
    effective_size,
    warn_if_few,
)
from mvpi.offline.fitted_q import (
    BATCH,
    RATE,
    ROWS_TOGETHER,
    Batches,
    Task,
    compiled_updates,
    initial_state,
)
from mvpi.offline.pairs import VectorPairs
from mvpi.risk import Risk, as_risk
from mvpi.stats import check_count, check_number, mean, variance

Array = npt.NDArray[np.float64]
Anything = npt.NDArray[Any]
Interval = tuple[float, float]

_RANDOM_UNITS = 128
_MOST_ROWS = 1 << 16
"""Of more rows than that, so many are drawn for an estimate, in stretches."""
_GROUPS = 128
"""Blocks of rows that are resampled, at most."""
_RESAMPLES = 100
_CONFIDENCE = 0.95
_FOLLOW = 0.05
"""How far target networks follow at each update."""
_NEGLIGIBLE = 0.05
"""Share of the standard deviation of the rewards by which estimates may differ without a word."""
_RIDGE = 1e-3
"""Added to the diagonal of `A`, as a share of the mean square of a feature."""


@dataclass(frozen=True)
class PolicyDual:
    """`y` of a policy as far as data tell, for steps before the end of an episode."""

    y: float
    """The median of `estimates`, within what the data can support."""
    interval: Interval
    """From the lowest to the highest of the 95% intervals of all estimates."""
    estimates: tuple[float, ...]
    intervals: tuple[Interval, ...]
    """One for each of the estimates: the luck of the data."""
    fitted_q_mean: float
    """The mean reward as the network of fitted-Q evaluation says, without the closed form."""
    reward_mean: float
    """Mean and variance by the ratio that `y` is of."""
    reward_variance: float
    effective_size: float
    """As many rewards of the policy itself would be as informative."""
    rows: int
    """Of the data."""
    supported: bool
    """Whether no estimate had to be moved to within what the data can support."""
    data_deviation: float = 0.0
    """Standard deviation of the rewards in the data."""

    @property
    def disagree(self) -> bool:
        """Whether no number lies in all the intervals of the estimates, nor nearly so."""
        lows, highs = zip(*self.intervals, strict=True)
        return bool(max(lows) > min(highs) + _NEGLIGIBLE * self.data_deviation)

    def warn(self) -> None:
        """A `CoverageWarning` if `y` rests on few rows or goes beyond them, or estimates differ."""
        warn_if_few(self.effective_size, self.rows)
        shown, (low, high) = ", ".join(f"{y:.4g}" for y in self.estimates), self.interval
        remedy = "give y, or data closer to the policy"
        if not self.supported:
            what = f"estimates of y are beyond the best or worst {SMALLEST_SHARE:.0%} of the data"
            warn(f"{what}, and were moved there, {shown}; {remedy}", CoverageWarning)
        elif self.disagree:
            what = f"estimates of y disagree beyond their intervals, {shown}"
            where = f"y = {self.y:.4g} may be anything from {low:.4g} to {high:.4g}"
            warn(f"{what}: {where}; {remedy}", CoverageWarning)


def policy_dual(
    data: Dataset,
    policy: Any,
    discount: float,
    risk: Risk | float,
    *,
    steps: int = 5_000,
    seed: int = 0,
) -> PolicyDual:
    """Estimate `y` of `policy` by three estimators, with an interval.

    `policy` and `discount` are as in `density_ratio`, the discount below 1; observations must be
    vectors (for finite data the ratio is known: `density_ratio(..., method="exact")`). `steps` are
    updates of the network. Warns with `CoverageWarning` when the estimators disagree, or when
    `y` rests on few rows.

    >>> rng = np.random.default_rng(0)
    >>> s, a = rng.normal(size=(500, 1)), rng.uniform(-1, 1, (500, 1))
    >>> data = Dataset(s, a, a[:, 0], s, terminations=np.ones(500, bool), starts=s)
    >>> found = policy_dual(data, lambda s: np.full((len(s), 1), 0.5), 0.9, risk=1.0)
    >>> found.interval[0] <= 0.5 <= found.interval[1]
    True
    """
    found = PolicyDuals(data, discount, seed=seed).update(policy, steps).estimate(risk)
    found.warn()
    return found


class PolicyDuals:
    """Estimates that are improved by `update`, with the same policy or another.

    Args:
        data: the transitions; observations are vectors.
        discount: in [0, 1).
        learning_rate: step size of Adam, for the network.
        batch_size: transitions in an update of it.
        hidden: its layers.
        seed: of the network, random features, batches and resamples.
    """

    def __init__(
        self,
        data: Dataset,
        discount: float,
        *,
        learning_rate: float = RATE,
        batch_size: int = BATCH,
        hidden: tuple[int, ...] = (64, 64),
        seed: int = 0,
    ) -> None:
        if data.n_states is not None:
            raise InputError(
                f"observations must be vectors of floats, got {data}; for finite data use "
                "density_ratio(..., method='exact')"
            )
        self.discount = check_number(discount, "discount", at_least=0.0, at_most=1.0)
        if self.discount == 1.0:
            raise InputError("discount must be < 1, got 1; use one close to it, such as 0.999")
        self.data = data
        self.learning_rate = check_number(learning_rate, "learning_rate", above=0.0)
        self.batch_size = check_count(batch_size, "batch_size")
        self._seed = check_count(seed, "seed", at_least=0)
        self.rng = np.random.default_rng([self._seed, 1])
        self._pairs = VectorPairs(data)
        self._task = Task.of(data, self.discount)
        self._groups = _groups(data) if len(data) <= _MOST_ROWS else None
        size, sizes = self._pairs.size, layer_sizes(hidden)
        directions = self.rng.standard_normal((2, size, _RANDOM_UNITS))
        self._directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        self._offsets = self.rng.uniform(-2.0, 2.0, _RANDOM_UNITS)
        self.state = initial_state(self.rng, size, sizes)
        self._sample: _Sample | None = None

    def update(self, policy: Any, steps: int) -> Self:
        """`steps` more updates of the network towards the action values of `policy`."""
        check_count(steps, "steps", at_least=0)
        self._sample = sample = self._drawn(policy)
        z = self._task.scaled(sample.rewards)
        rewards = np.stack([z, np.ones_like(z)], axis=1, dtype=np.float32)
        goes_on = sample.goes_on.astype(np.float32)[:, None]
        together = max(1, ROWS_TOGETHER // self.batch_size)
        for done in range(0, steps, together):
            count = min(together, steps - done)
            rates = np.full(count, self.learning_rate)
            rows = self.rng.integers(len(z), size=(count, self.batch_size))
            columns = (sample.x, rewards, sample.following, goes_on)
            batches = Batches(*(column[rows] for column in columns))
            self.state = compiled_updates()(self.state, batches, rates, self.discount, _FOLLOW)
        return self

    def estimate(self, risk: Risk | float) -> PolicyDual:
        """`y` of the policy of the last update."""
        if self._sample is None:
            raise InputError("the estimate is of a policy: call update(policy, steps) first")
        with threadpool_limits(1):  # the systems are small
            return self._estimated(as_risk(risk), self._sample)

    def _estimated(self, measure: Risk, sample: _Sample) -> PolicyDual:
        order = np.argsort(sample.rewards, kind="stable")
        rewards = sample.rewards[order]
        low, high = _supported(measure, rewards)
        tail = 0.5 * (1.0 - _CONFIDENCE)
        ratios, estimates, intervals, supported = [], [], [], True
        for system in self._systems(sample):
            rng = np.random.default_rng([self._seed, 2])  # the same resamples for all
            ratios.append(system.ratio())
            weighed = [ratios[-1], *system.resampled(rng, _RESAMPLES)]
            values = [_dual(measure, rewards, weights[order]) for weights in weighed]
            bounds = np.quantile(values, [tail, 1.0 - tail])
            supported = supported and low <= values[0] <= high
            estimates.append(float(np.clip(values[0], low, high)))
            intervals.append(tuple(np.clip(bounds, low, high).tolist()))
        median = int(np.argsort(estimates)[len(estimates) // 2])
        y, ratio, fitted_q = estimates[median], ratios[median], self._fitted_q_mean(sample)
        reward_mean = float(np.clip(ratio @ sample.rewards / len(ratio), rewards[0], rewards[-1]))
        shifted = float(np.clip(y + fitted_q - reward_mean, low, high))
        ends = [*intervals, (shifted, shifted)]
        return PolicyDual(
            y=y,
            interval=(min(end[0] for end in ends), max(end[1] for end in ends)),
            estimates=tuple(estimates),
            intervals=tuple(intervals),
            fitted_q_mean=fitted_q,
            reward_mean=reward_mean,
            reward_variance=variance(rewards, _monotone(ratio[order])),
            effective_size=effective_size(np.maximum(ratio, 0.0)) * len(self.data) / len(ratio),
            rows=len(self.data),
            supported=supported,
            data_deviation=float(np.std(rewards)),
        )

    def _drawn(self, policy: Any) -> _Sample:
        """All rows, or of many some stretches of equal length, and what the policy does there."""
        data, pairs = self.data, self._pairs
        if self._groups is not None:
            rows, group = np.arange(len(data)), self._groups
        else:
            length = _MOST_ROWS // _GROUPS
            first = self.rng.integers(len(data) - length + 1, size=_GROUPS)
            rows = (np.sort(first)[:, None] + np.arange(length)).reshape(-1)
            group = np.repeat(np.arange(_GROUPS), length)
        acting = pairs.checked(policy)
        batch, following, starts = data.batch(rows), data.following(rows), np.asarray(data.starts)
        return _Sample(
            pairs.inputs(batch.observations, batch.actions),
            pairs.inputs(following, acting(following)),
            pairs.inputs(starts, acting(starts)),
            ~batch.terminations,
            batch.rewards.astype(np.float64),
            group,
        )

    def _systems(self, sample: _Sample) -> list[_System]:
        _, target, _ = self.state
        layers = [tuple(map(np.asarray, x)) for x in (target.weights, target.biases)]
        relu, quadratic = self._directions

        def last_layer(x: Anything) -> Anything:
            for weight, bias in zip(*(layer[:-1] for layer in layers), strict=True):
                x = np.maximum(x @ weight + bias, 0.0)
            return x

        functions = (
            last_layer,
            lambda x: np.maximum(x @ relu + self._offsets, 0.0),
            lambda x: np.column_stack([x, (x @ quadratic) ** 2]),
        )
        return [_System(function, sample, self.discount) for function in functions]

    def _fitted_q_mean(self, sample: _Sample) -> float:
        """As the network says; where it gives steps no value, that of the data."""
        _, target, _ = self.state
        reward, one = np.asarray(target(sample.starts), np.float64).mean(axis=0)
        return self._task.raw(float(reward / one)) if one > 0.0 else self._task.centre


class _Sample(NamedTuple):
    """Rows of the data as the functions see them, in groups that are resampled as a whole."""

    x: Anything
    following: Anything
    starts: Anything
    goes_on: npt.NDArray[np.bool_]
    rewards: Array
    group: npt.NDArray[np.int64]
    """In ascending order, from 0."""


class _System:
    """`A` of the module's text, kept by groups of rows."""

    def __init__(
        self, function: Callable[[Anything], Anything], sample: _Sample, discount: float
    ) -> None:
        phi, following, self._starts = (
            np.column_stack([function(x), np.ones(len(x))]).astype(np.float64)
            for x in (sample.x, sample.following, sample.starts)
        )
        if not (np.isfinite(phi).all() and np.isfinite(following).all()):
            raise Divergence(
                "fitted-Q evaluation diverged: a unit is not finite any more; lower the "
                "ratio_learning_rate"
            )
        onward = phi - discount * sample.goes_on[:, None] * following
        edges = np.flatnonzero(np.diff(sample.group, prepend=-1))
        parts = [slice(*ends) for ends in zip(edges, [*edges[1:], len(phi)], strict=True)]
        self._phi, self._group = phi, sample.group
        self._blocks = np.stack([phi[part].T @ onward[part] for part in parts]) / len(phi)
        size = float((phi**2).mean())
        self._ridge = _RIDGE * size * np.eye(phi.shape[1])

    def ratio(self) -> Array:
        """For every row, with mean 1; it may be negative."""
        times = np.ones((1, len(self._blocks)))
        tau = next(self._solved(times, self._starts.mean(axis=0)[None]))
        ratio: Array = tau / tau.mean()
        return ratio

    def resampled(self, rng: np.random.Generator, count: int) -> Iterator[Array]:
        """How much every row counts when groups and starts have random weights."""
        sizes = (len(self._blocks), len(self._starts))
        drawn = [[rng.standard_exponential(size) for size in sizes] for _ in range(count)]
        times, shares = (np.stack(weights) for weights in zip(*drawn, strict=True))
        times /= times.mean(axis=1, keepdims=True)
        starts = shares @ self._starts / shares.sum(axis=1, keepdims=True)
        return self._solved(times, starts)

    def _solved(self, times: Array, starts: Array) -> Iterator[Array]:
        """What rows count for the weights of groups, and the mean features at starts."""
        systems = np.tensordot(times, self._blocks, 1) + self._ridge
        solutions = np.linalg.solve(systems.transpose(0, 2, 1), starts[..., None])[..., 0]
        for often, solution in zip(times, solutions, strict=True):
            weights = often[self._group] * (self._phi @ solution)
            total = float(weights.sum())
            sound = np.isfinite(total) and total > 0.0
            yield weights if sound else np.ones(len(weights))  # it says nothing: as the data are


def _dual(risk: Risk, rewards: Array, weights: Array) -> float:
    """`y` of rewards in ascending order, for weights that may be negative."""
    distribution = _monotone(weights)
    shift = float(weights @ rewards / weights.sum()) - mean(rewards, distribution)
    return risk.dual(rewards, distribution) + shift


def _monotone(weights: Array) -> Array:
    """Weights of rewards in ascending order, not negative, for some that may be.

    The distribution function is the middle of the largest monotone one below and the smallest
    above.
    """
    cdf = np.cumsum(weights) / weights.sum()
    above, below = np.maximum.accumulate(cdf), np.minimum.accumulate(cdf[::-1])[::-1]
    return np.diff(np.clip(0.5 * (above + below), 0.0, 1.0), prepend=0.0)


def _groups(data: Dataset) -> npt.NDArray[np.int64]:
    """Blocks of rows, some together where there are many."""
    block = episode_blocks(data)
    together = -(-(1 + int(block[-1])) // _GROUPS)
    return np.asarray(block // together)


def _supported(risk: Risk, rewards: Array) -> Interval:
    """Of rewards in ascending order: `y` of the lowest and of the highest ones, as many as the
    smallest share of the data that counts as covered."""
    count = max(1, round(SMALLEST_SHARE * len(rewards)))
    return risk.dual(rewards[:count]), risk.dual(rewards[-count:])
