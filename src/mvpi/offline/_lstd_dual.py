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
    relu         random ReLU units, which need no training
    quadratic    squares of random directions, and the inputs: few data determine it well

`y` is the median of the three. A ratio is degenerate if its positive and negative parts cancel,
`sum(tau) <= 0.01 sum(|tau|)`: it is no distribution, and its estimate is left out. Of two estimates
`y` is the one with the larger effective size. Without any, nothing is known of the policy: `y` is
that of the data, the effective size 0, and the interval all that the data can support.

Each estimate has an interval by the Bayesian bootstrap: episodes and starts get random weights and
`tau` is solved for again. That is the error of sampling. The error of the features shows in the
Bellman residuals of the action values that go with `tau` (`mvpi.offline._residual_error`). The
interval that is reported is a mixture of the three estimates, and of what the network says itself,
with both errors: two standard deviations, and `y`, within what the data can support. It is narrow
where residuals are noise, and wide where they are not or where the estimates disagree. Residuals
that no row of the data shows, because all actions are far from the policy's, it does not cover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from mvpi._settings import layer_sizes
from mvpi._types import Array
from mvpi.errors import Divergence, InputError
from mvpi.offline._episodes import episode_blocks
from mvpi.offline._residual_error import (
    NORMAL_QUANTILE,
    Estimate,
    Indices,
    Interval,
    PolicyDual,
    closest_rows,
    ends_of,
    means_of_rows,
    mixture,
    root_mean_square,
)
from mvpi.offline._state_action_pairs import VectorPairs
from mvpi.offline.dataset import Dataset
from mvpi.offline.density_ratio import SMALLEST_SHARE, effective_size
from mvpi.offline.fitted_q import (
    BATCH,
    RATE,
    ROWS_TOGETHER,
    Batches,
    Task,
    compiled_updates,
    initial_state,
)
from mvpi.risk import Risk, as_risk
from mvpi.stats import check_count, check_number, mean, variance

Anything = npt.NDArray[Any]

_RANDOM_UNITS = 128
_MOST_ROWS = 1 << 16
"""Of more rows than that, so many are drawn for an estimate, in stretches."""
_GROUPS = 128
"""Blocks of rows that are resampled, at most."""
_RESAMPLES = 100
_FOLLOW = 0.05
"""Step size of the soft updates of target networks."""
_ROUNDING = 1e-9
"""Share of the rewards by which an estimate may be beyond them by rounding."""
_RIDGE = 1e-3
"""Added to the diagonal of `A`, as a share of the mean square of a feature."""


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
        self._outcomes, self._ratio_discount = len(data), self.discount

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

    def estimate(self, risk: Risk | float, *, variance_too: bool = False) -> PolicyDual:
        """`y` of the policy of the last update; the interval of the variance takes time."""
        if self._sample is None:
            raise InputError("the estimate is of a policy: call update(policy, steps) first")
        with threadpool_limits(1):  # the systems are small
            return self._estimated(as_risk(risk), self._sample, variance_too)

    def _estimated(self, measure: Risk, sample: _Sample, variance_too: bool) -> PolicyDual:
        order = np.argsort(sample.outcomes, kind="stable")
        rewards = sample.outcomes[order]
        spreads: list[Interval] | None = [] if variance_too else None
        low, high = _supported(measure, rewards)
        slack = _ROUNDING * max(abs(low), abs(high))
        found = [self._of_system(measure, sample, order, x, spreads) for x in self._systems(sample)]
        several = [estimate for estimate in found if estimate is not None]
        estimates = [float(np.clip(estimate.y, low, high)) for estimate in several]
        sizes = [effective_size(np.maximum(estimate.ratio, 0.0)) for estimate in several]
        fitted_q, residuals = self._fitted_q(sample)
        if several:
            chosen = _median(estimates, sizes)
            y, size = estimates[chosen], sizes[chosen]
            ratio, sensitivity = several[chosen].ratio, several[chosen].sensitivity
        else:
            y, ratio, size = measure.dual(rewards), np.ones(len(rewards)), 0.0
        reward_mean = float(np.clip(ratio @ sample.outcomes / len(ratio), rewards[0], rewards[-1]))
        ends = np.array([low, high])
        if several:
            parts = [(estimate.y, estimate.error) for estimate in several]
            if residuals is not None:
                sampling = max(estimate.sampling for estimate in several)
                bias = sensitivity * root_mean_square(residuals)
                parts.append((y + fitted_q - reward_mean, float(np.hypot(sampling, bias))))
            centre, deviation = mixture(*zip(*parts, strict=True))
            reach = NORMAL_QUANTILE * deviation
            ends = np.clip([min(centre - reach, y), max(centre + reach, y)], low, high)
        return PolicyDual(
            y=y,
            interval=(float(ends[0]), float(ends[1])),
            estimates=tuple(estimates),
            intervals=tuple(estimate.within(low, high) for estimate in several),
            fitted_q_mean=fitted_q,
            reward_mean=reward_mean,
            reward_variance=variance(rewards, _monotone(ratio[order])),
            effective_size=size * self._outcomes / len(ratio),
            rows=self._outcomes,
            supported=all(low - slack <= estimate.y <= high + slack for estimate in several),
            data_deviation=float(np.std(rewards)),
            variance_interval=_spanned(spreads or [(0.0, 0.25 * float(np.ptp(rewards)) ** 2)]),
        )

    def _of_system(
        self,
        measure: Risk,
        sample: _Sample,
        order: npt.NDArray[np.int64],
        system: _System,
        spreads: list[Interval] | None,
    ) -> Estimate | None:
        """None if the ratio is degenerate; the ends of the variance are added to `spreads`."""
        ratio = system.ratio()
        if ratio is None:
            return None
        rng = np.random.default_rng([self._seed, 2])  # the same resamples for all
        rewards, weighed = sample.outcomes[order], [ratio, *system.resampled(rng, _RESAMPLES)]
        values = [_dual(measure, rewards, weights[order]) for weights in weighed]
        means = [float(weights @ sample.outcomes / weights.sum()) for weights in weighed]
        if spreads is not None:
            spreads.append(ends_of([variance(rewards, _monotone(w[order])) for w in weighed]))
        bias = 0.0  # residuals are of the reward of a step
        if sample.last is None:
            bias = root_mean_square(system.residuals(sample, means[0]))
        return Estimate(values[0], ratio, ends_of(values), ends_of(means), bias)

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
        x = pairs.inputs(batch.observations, batch.actions)
        own = pairs.inputs(batch.observations, acting(batch.observations))
        return _Sample(
            x,
            pairs.inputs(following, acting(following)),
            pairs.inputs(starts, acting(starts)),
            ~batch.terminations,
            batch.rewards.astype(np.float64),
            group,
            closest_rows(np.linalg.norm(own - x, axis=1)),
            *self._returns(rows, batch.terminations),
        )

    def _returns(self, rows: Anything, over: Anything) -> tuple[Anything | None, Array | None]:
        """Of rows that are drawn, those whose returns `y` is of, and the returns."""
        del rows, over
        return None, None

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
        return [_System(function, sample, self._ratio_discount) for function in functions]

    def _fitted_q(self, sample: _Sample) -> tuple[float, Array | None]:
        """The mean as the network says, and its mean residuals per stretch.

        Where it gives steps no value the mean is that of the data, and residuals mean nothing.
        """
        _, target, _ = self.state
        value, one = np.asarray(target(sample.starts), np.float64).mean(axis=0)
        if not one > 0.0:
            return self._task.centre, None
        excess = value / one
        q, following = (  # of the reward minus that mean
            np.asarray(target(x), np.float64) @ [1.0, -excess] / (1.0 - self.discount)
            for x in (sample.x, sample.following)
        )
        onward = q - self.discount * sample.goes_on * following
        residuals = self._task.scaled(sample.rewards) - excess - onward
        means = means_of_rows(self._task.scale * residuals, sample.closest)
        return self._task.raw(float(excess)), means


class _Sample(NamedTuple):
    """Rows of the data as the functions see them, in groups that are resampled as a whole."""

    x: Anything
    following: Anything
    starts: Anything
    goes_on: npt.NDArray[np.bool_]
    rewards: Array
    group: npt.NDArray[np.int64]
    """In ascending order, from 0."""
    closest: tuple[Indices, ...] = ()
    """Rows with actions close to the policy's, in stretches of the data."""
    last: npt.NDArray[np.int64] | None = None
    """The rows whose returns `y` is of; None: it is of the reward of every row."""
    returns: Array | None = None
    """The returns of the episodes that end there."""

    @property
    def outcomes(self) -> Array:
        """What `y` is of."""
        return self.rewards if self.returns is None else self.returns


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
        counted = slice(None) if sample.last is None else sample.last
        self._phi, self._counted, self._group = phi, phi[counted], sample.group[counted]
        self._blocks = np.stack([phi[part].T @ onward[part] for part in parts]) / len(phi)
        self._onward = [onward[rows].mean(axis=0) for rows in sample.closest]
        size = float((phi**2).mean())
        self._ridge = _RIDGE * size * np.eye(phi.shape[1])

    def ratio(self) -> Array | None:
        """For every row, with mean 1; it may be negative in places. None if it is degenerate."""
        times = np.ones((1, len(self._blocks)))
        tau = next(self._solved(times, self._starts.mean(axis=0)[None]))
        return None if _degenerate(tau) else np.asarray(tau / tau.mean())

    def residuals(self, sample: _Sample, estimate: float) -> Array:
        """Mean Bellman residuals per stretch, of the action values that go with the estimate."""
        excess = sample.rewards - estimate
        system = self._blocks.sum(axis=0) + self._ridge
        weights = np.linalg.solve(system, self._phi.T @ excess / len(excess))
        onward: Array = np.stack(self._onward) @ weights
        return means_of_rows(excess, sample.closest) - onward

    def resampled(self, rng: np.random.Generator, count: int) -> Iterator[Array]:
        """How much every row counts when groups and starts have random weights."""
        sizes = (len(self._blocks), len(self._starts))
        drawn = [[rng.standard_exponential(size) for size in sizes] for _ in range(count)]
        times, shares = (np.stack(weights) for weights in zip(*drawn, strict=True))
        times /= times.mean(axis=1, keepdims=True)
        starts = shares @ self._starts / shares.sum(axis=1, keepdims=True)
        for weights in self._solved(times, starts):
            yield np.ones(len(weights)) if _degenerate(weights) else weights  # as the data are

    def _solved(self, times: Array, starts: Array) -> Iterator[Array]:
        """What rows count for the weights of groups, and the mean features at starts."""
        systems = np.tensordot(times, self._blocks, 1) + self._ridge
        solutions = np.linalg.solve(systems.transpose(0, 2, 1), starts[..., None])[..., 0]
        for often, solution in zip(times, solutions, strict=True):
            yield often[self._group] * (self._counted @ solution)


def _spanned(intervals: list[Interval]) -> Interval:
    """From the lowest to the highest end."""
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def _degenerate(weights: Array) -> bool:
    """Whether weights, some of which may be negative, cancel: they are then no distribution."""
    total, size = float(weights.sum()), float(np.abs(weights).sum())
    return not (np.isfinite(size) and total > SMALLEST_SHARE * size)


def _median(estimates: list[float], sizes: list[float]) -> int:
    """Which estimate is the median; of two, the one with the larger effective size."""
    if len(estimates) == 2:
        return int(np.argmax(sizes))
    return int(np.argsort(estimates)[len(estimates) // 2])


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
