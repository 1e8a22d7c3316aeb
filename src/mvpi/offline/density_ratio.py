"""Density ratios: how often a policy visits the pairs of a data set, relative to the data.

    ratio(s, a) = d_policy(s, a) / d_data(s, a)

`d_policy` is the policy's normalised discounted occupancy over the steps of its episodes, at
discount 1 its stationary distribution with a start after the end of an episode. Weighted by the
ratio, the rewards of the data are distributed as those of the policy; `y` of Algorithm 2 is their
dual.

    density_ratio(data, policy, discount)     a ratio per row, with mean 1
    DensityRatio(data, discount)              the same step by step, for policies that change
    weighted_dual(data, ratio, risk)          `y`, and its effective sample size

The methods are those of `mvpi.offline.dice`, and "exact": the closed form for the transitions
counted in finite data. Functions are tables for finite data, linear where `features` are given, and
networks otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_choice, check_count, check_number, real_array
from mvpi._settings import layer_sizes
from mvpi._types import Array
from mvpi.errors import Divergence, InputError, warn
from mvpi.offline._state_action_pairs import Features, FinitePairs, PairBatch, Pairs, VectorPairs
from mvpi.offline.dataset import Dataset, check_data
from mvpi.risk import Risk, as_risk
from mvpi.stats import distribution

Method = Literal["gradient-dice", "dual-dice", "gen-dice", "exact"]
Optimizer = Literal["extragradient", "sgd", "adam"]

_RATES = {"extragradient": 0.7, "sgd": 0.01, "adam": 1e-3}
_ROWS_TOGETHER = 1 << 15
"""Rows drawn for the updates of one compiled call."""
_FEWEST_ROWS, SMALLEST_SHARE = 10.0, 0.01
"""An effective size below these is worth a warning."""
_LARGEST_LACK = 0.001
"""Share of a policy's steps for which the data have no transitions, before it is worth one."""
_LARGEST_ERROR = 0.05
"""Mean error of ratios, whose mean is 1, before it is worth a warning."""


class CoverageWarning(UserWarning):
    """The data hardly cover what a policy does: what is estimated from them may be far off."""


class ConvergenceWarning(UserWarning):
    """A density ratio of finite data is still far from its closed form after all updates."""


@dataclass(frozen=True)
class WeightedDual:
    """`y` of a policy, estimated on weighted rewards."""

    y: float
    """The best `y` of the weighted rewards, their mean for mean-variance."""
    effective_size: float
    """Effective sample size: as many rewards of the policy itself would be as informative."""


def density_ratio(
    data: Dataset,
    policy: Any,
    discount: float,
    method: Method = "gradient-dice",
    *,
    steps: int | None = None,
    **options: Any,
) -> Array:
    """The ratio of the policy's occupancy to the data, `(N,)`: not negative, with mean 1.

    `policy` is an action per state or `(S, A)` probabilities when the data are finite, otherwise
    anything with a batched `predict(observations)`, or a function of observations. `steps` is the
    number of updates (2,000; 10,000 for networks), with rates that fall to 0; `options` are those
    of `DensityRatio`. Warns with `CoverageWarning` when the data hardly cover the policy, and with
    `ConvergenceWarning` when the ratio of finite data is far from its closed form, as where states
    are many steps apart.

    >>> data = Dataset([0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 0], [False] * 3, starts=[0])
    >>> density_ratio(data, policy=[1, 0], discount=0.5, method="exact")
    array([0., 2., 1.])
    """
    estimator = DensityRatio(data, discount, method, **options)
    if steps is None:
        steps = 10_000 if estimator.optimizer == "adam" else 2_000
    ratio = estimator.update(policy, steps, anneal=True).ratio()
    if estimator.tabular and method != "exact":
        exact = DensityRatio(data, discount, "exact").update(policy, 0).ratio()
        _warn_if_far(float(np.abs(ratio - exact).mean()), method, steps)
    warn_if_hardly_covered(estimator, policy)
    return ratio


class DensityRatio:
    """An estimate that is improved by `update`, with the same policy or another.

    Args:
        data: the transitions.
        discount: in [0, 1]; 1 needs a method that normalises, all but "dual-dice".
        method: "gradient-dice", "dual-dice", "gen-dice", or "exact" for finite data.
        features: `features(observations, actions)` gives a row of numbers per pair; the ratio is
            then linear in them ("gen-dice": the square of a linear function).
        optimizer: "extragradient" for tables and features: two gradients a step, in coordinates in
            which features are uncorrelated over the data. "sgd": plain gradient steps, as
            published. "adam" for networks.
        learning_rate: for "extragradient" in units of the largest step that is safe, and so at most
            1 (0.7); for "sgd" (0.01) and "adam" (0.001) as usual.
        batch_size: transitions in an update; left out, all of them, for networks 256.
        hidden: layers of the networks.
        penalty: weight of the condition that the mean ratio is 1.
        seed: of initial networks and of batches.
    """

    def __init__(
        self,
        data: Dataset,
        discount: float,
        method: Method = "gradient-dice",
        *,
        features: Features | None = None,
        optimizer: Optimizer | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        hidden: tuple[int, ...] = (64, 64),
        penalty: float = 1.0,
        seed: int = 0,
    ) -> None:
        check_data(data)
        check_choice(method, "method", get_args(Method))
        self.discount = check_number(discount, "discount", at_least=0.0, at_most=1.0)
        if method == "dual-dice" and self.discount == 1.0:
            raise InputError(
                "dual-dice needs a discount below 1, got 1; gradient-dice and gen-dice can do 1"
            )
        finite = data.n_states is not None
        if method == "exact" and (not finite or features is not None):
            raise InputError(
                "the exact ratio needs finite data and no features: whole numbers for states and "
                "actions; use gradient-dice instead"
            )
        self.method = method
        self.data = data
        self.tabular = finite and features is None
        self.optimizer = _chosen_optimizer(optimizer, not finite and features is None)
        rate = _RATES[self.optimizer] if learning_rate is None else learning_rate
        most = 1.0 if self.optimizer == "extragradient" else np.inf
        self.learning_rate = check_number(rate, "learning_rate", above=0.0, at_most=most)
        if batch_size is None and self.optimizer == "adam":
            batch_size = 256
        self.batch_size = None if batch_size is None else check_count(batch_size, "batch_size")
        self.penalty = check_number(penalty, "penalty", above=0.0)
        sizes = layer_sizes(hidden)
        self.rng = np.random.default_rng(check_count(seed, "seed", at_least=0))
        whiten = self.optimizer == "extragradient"
        kind = FinitePairs if finite else VectorPairs
        self._pairs: Pairs = kind(data, features, whiten)
        self._exact: Array | None = None
        if method != "exact":
            self.state = self._initial_state(features is not None, sizes)

    def update(self, policy: Any, steps: int, *, anneal: bool = False) -> Self:
        """`steps` more updates towards the ratio of `policy`; "exact" needs none and solves.

        `anneal` lets the learning rate fall to 0 over these steps.
        """
        check_count(steps, "steps", at_least=0)
        acting = self._pairs.checked(policy)
        if self.method == "exact":
            self._exact = exact_ratio(self._pairs.whole(acting), self.discount)
            return self
        from mvpi.offline import dice

        rules = dice.Rules(self.method, self.optimizer)
        fall = 1.0 / steps if anneal and steps else 0.0
        if self.batch_size is None:
            batch = self._pairs.whole(acting)
            pace = dice.Pace(self._rate(batch), fall)
            self.state = dice.update_on(self.state, batch, steps, pace, self._settings, rules)
            return self
        together = max(1, _ROWS_TOGETHER // self.batch_size)
        for done in range(0, steps, together):
            count = min(together, steps - done)
            batches = self._pairs.drawn(self.rng, acting, count, self.batch_size)
            rate = self._rate(PairBatch(*(x[0] for x in batches))) * (1.0 - fall * done)
            pace = dice.Pace(rate, fall / (1.0 - fall * done))
            self.state = dice.update_through(self.state, batches, pace, self._settings, rules)
        return self

    def ratio(self) -> Array:
        """The current estimate for every row of the data: not negative, with mean 1."""
        if self.method == "exact":
            if self._exact is None:
                raise InputError("the exact ratio is of a policy: call update(policy, 0) first")
            table = self._exact
            tau = np.concatenate([table[x] for x in self._pairs.rows()])
        else:
            from mvpi.offline import dice

            function = self.state.players.ratio
            pieces = (dice.ratios(function, x, self.method) for x in self._pairs.rows())
            tau = np.concatenate([np.asarray(piece, np.float64) for piece in pieces])
        if not np.isfinite(tau).all():
            raise Divergence("the density ratio is not finite any more; lower the learning_rate")
        np.maximum(tau, 0.0, out=tau)
        mean = float(tau.mean())
        if mean <= 0:
            raise Divergence("the density ratio is nowhere positive; lower the learning_rate")
        tau /= mean
        return tau

    def lack(self, policy: Any) -> float:
        """The share of the policy's steps that the data, if finite, have no transitions for.

        After these, and after the end of episodes, the next step is at a start.
        """
        if not isinstance(self._pairs, FinitePairs):
            return 0.0
        lacking = self._pairs.lacking(self._pairs.checked(policy))
        data, tau, gamma = self.data, self.ratio() / len(self.data), self.discount
        onward = over = 0.0
        for piece in data.pieces():
            ends = data.terminations[piece]
            over += float(tau[piece][ends].sum())
            onward += float(tau[piece][~ends] @ lacking[data.next_observations[piece][~ends]])
        at_start = float(lacking[data.starts].mean())
        # To every step that the data have there are u that they lack. Starts are a share of
        # 1 - gamma of all 1 + u, and follow the end of episodes and what is lacking:
        #     u = gamma onward + at_start ((1 - gamma) (1 + u) + gamma (over + u))
        lost = gamma * onward + at_start * (1.0 - gamma + gamma * over)
        return lost / (1.0 - at_start + lost)

    def _initial_state(self, linear: bool, hidden: tuple[int, ...]) -> Any:
        import jax.numpy as jnp

        from mvpi.offline import dice

        metric = jnp.asarray(self._pairs.metric, jnp.float32)
        self._settings = dice.Settings(self.discount, self.penalty, metric)
        if isinstance(self._pairs, VectorPairs) and not linear:
            return dice.start(dice.networks(self.rng, self._pairs.size, hidden))
        kind = dice.Linear if linear else dice.Table
        ones = jnp.asarray(self._pairs.ones, jnp.float32)
        return dice.start(dice.Players(kind(ones), kind(jnp.zeros_like(ones)), jnp.zeros(())))

    def _rate(self, batch: PairBatch) -> float:
        if self.optimizer != "extragradient":
            return self.learning_rate
        from mvpi.offline import dice

        return self.learning_rate / float(
            dice.coupling_norm(self.state.players, batch, self._settings)
        )


def weighted_dual(data: Dataset, ratio: npt.ArrayLike, risk: Risk | float) -> WeightedDual:
    """`risk.dual(rewards, weights=ratio)`: for mean-variance the weighted mean reward.

    Warns with `CoverageWarning` when it rests on few rows.

    >>> data = Dataset([0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 0], [False] * 3, starts=[0])
    >>> weighted_dual(data, [0, 2, 1], risk=1.0)
    WeightedDual(y=0.3333333333333333, effective_size=1.8)
    """
    check_data(data)
    y = as_risk(risk).dual(data.rewards, weights=ratio)
    effective = effective_size(real_array(ratio, "ratio"))
    warn_if_few(effective, len(data))
    return WeightedDual(y, effective)


def effective_size(ratio: npt.ArrayLike) -> float:
    """`(sum w)^2 / sum w^2`: `N` when all weights are equal, 1 when a single one is not 0.

    >>> effective_size([1.0, 1.0, 0.0])
    2.0
    """
    w, _ = distribution(ratio, weights=ratio)
    w = w / w.max()  # squares neither overflow nor vanish
    return float(w.sum() ** 2 / (w @ w))


def exact_ratio(batch: PairBatch, discount: float) -> Array:
    """The ratio for every numbered pair, when transitions are as frequent as in the data."""
    from mvpi.offline._state_action_chain import PairChain

    chain = PairChain(batch, discount)
    ratio: Array = chain.occupancy() / chain.share
    return ratio


def warn_if_hardly_covered(estimator: DensityRatio, policy: Any) -> None:
    """A `CoverageWarning` if the data lack much of the policy."""
    lack = estimator.lack(policy)
    if lack > _LARGEST_LACK:
        _warn(f"the data have no transitions for {lack:.1%} of what the policy does")
    warn_if_few(effective_size(estimator.ratio()), len(estimator.data))


def _chosen_optimizer(optimizer: Optimizer | None, network: bool) -> Optimizer:
    if optimizer is None:
        return "adam" if network else "extragradient"
    check_choice(optimizer, "optimizer", get_args(Optimizer))
    if network and optimizer == "extragradient":
        raise InputError("extragradient steps are for tables and features; networks take adam")
    return optimizer


def warn_if_few(effective: float, rows: int) -> None:
    """A `CoverageWarning` if so many rows of the data are worth few of the policy's own."""
    needed = max(SMALLEST_SHARE * rows, min(_FEWEST_ROWS, 0.5 * rows))
    if effective < needed:
        _warn(f"{rows} transitions are worth {effective:.1f} of the policy's own")


def _warn_if_far(error: float, method: Method, steps: int) -> None:
    """A `ConvergenceWarning` if ratios are so far from the closed form, on average."""
    if error > _LARGEST_ERROR:
        warn(
            f"{method} has not converged after {steps} updates: its ratios, whose mean is 1, are "
            f'off by {error:.2g} on average; use method="exact", or more steps',
            ConvergenceWarning,
        )


def _warn(what: str) -> None:
    warn(f"{what}: the data hardly cover it, and estimates may be far off", CoverageWarning)
