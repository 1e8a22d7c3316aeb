"""Fitted-Q evaluation: the mean reward of a policy from its action values.

    Q(s, a) = E[r + gamma Q(s', a')],    a' as the policy acts at s', and 0 once an episode is over
    mean    = E_start[Q of the reward] / E_start[Q of the constant reward 1]

Where episodes never end the divisor is `1 / (1 - gamma)`, and the mean `(1 - gamma) E_start[Q]`.
Where they do, it is the number of discounted steps before the end, so that the mean is one of these
steps, as with `mvpi.offline.density_ratio`. Dividing also makes the mean of `r + c` that of `r`
plus `c` however well `Q` is known; rewards are centred and scaled first.

Values are a table for finite data and linear where `features` are given, both in closed form, and
otherwise a network that descends on `(Q(s, a) - (r + gamma Q'(s', a')))^2`, `Q'` its target.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count, check_number
from mvpi._settings import layer_sizes
from mvpi._types import Array
from mvpi.errors import Divergence, InputError
from mvpi.offline._state_action_pairs import Acting, Features, FinitePairs, Pairs, VectorPairs
from mvpi.offline.dataset import Dataset, check_data
from mvpi.stats import mean, variance

Anything = npt.NDArray[Any]

_STEPS = 10_000
BATCH = 256
RATE = 1e-3
ROWS_TOGETHER = 1 << 15
"""Rows drawn for the updates of one compiled call."""
_STARTS = 1 << 12
"""Starts are repeated to be that many at least: a policy may draw its actions."""
_HORIZONS = 5.0
"""How many times `1 / (1 - gamma)` target networks look ahead in the course of the updates."""


def fitted_q_mean(
    data: Dataset,
    policy: Any,
    discount: float,
    *,
    features: Features | None = None,
    hidden: tuple[int, ...] = (64, 64),
    steps: int | None = None,
    seed: int = 0,
) -> float:
    """The mean per-step reward of `policy`, as its action values say.

    `policy`, `discount` and `features` are as in `density_ratio`; the discount must be below 1.
    `steps` (10,000), `hidden` and `seed` are of the network, if there is one.

    >>> data = Dataset([0, 0, 1], [0, 1, 0], [0, 0, 1], [0, 1, 0], [False] * 3, starts=[0])
    >>> round(fitted_q_mean(data, policy=[1, 0], discount=0.5), 9)
    0.333333333
    """
    check_data(data)
    discount = check_number(discount, "discount", at_least=0.0, at_most=1.0)
    sizes = layer_sizes(hidden)
    count = check_count(_STEPS if steps is None else steps, "steps")
    seed = check_count(seed, "seed", at_least=0)
    if discount == 1.0:
        raise InputError("fitted-Q evaluation needs a discount below 1, got 1: values are sums")
    task = Task.of(data, discount)
    if data.n_states is None and features is None:
        rng = np.random.default_rng(seed)
        excess = _of_network(task, policy, sizes, count, rng)
    elif features is None:
        excess = _of_table(task, FinitePairs(data), policy)
    else:
        kind = FinitePairs if data.n_states is not None else VectorPairs
        excess = _of_features(task, kind(data, features), policy)
    return task.raw(excess)


class Task(NamedTuple):
    """Rewards count as `(r - centre) / scale`."""

    data: Dataset
    discount: float
    centre: float
    scale: float

    @classmethod
    def of(cls, data: Dataset, discount: float) -> Task:
        centre = mean(data.rewards)
        scale = max(variance(data.rewards) ** 0.5, 1e-12 * abs(centre)) or 1.0
        return cls(data, discount, centre, scale)

    def scaled(self, rewards: Anything) -> Array:
        return np.asarray((rewards.astype(np.float64) - self.centre) / self.scale)

    def raw(self, mean: float) -> float:
        """The mean reward that a mean of scaled ones stands for."""
        return self.centre + self.scale * mean


def _of_table(task: Task, pairs: FinitePairs, policy: Any) -> float:
    """In closed form, with a start after the end of every episode.

    That makes the divisor `1 / (1 - gamma)`, and leaves the quotient as it is.
    """
    from mvpi.offline._state_action_chain import PairChain

    place = np.concatenate(list(pairs.rows()))
    rewards = np.bincount(place, task.scaled(task.data.rewards)) / np.bincount(place)
    return PairChain(pairs.whole(pairs.checked(policy)), task.discount).mean(rewards)


def _of_features(task: Task, pairs: Pairs, policy: Any) -> float:
    """`Q = features . w` with `E[features (Q - r - gamma Q')] = 0`: least squares (LSTD)."""
    batch, data = pairs.whole(pairs.checked(policy)), task.data
    x, following = (np.asarray(x, np.float64) for x in (batch.x, batch.following))
    onward = np.einsum("nc,nck->nk", batch.following_weight, following)
    system = (batch.weight[:, None] * x).T @ (x - task.discount * onward)
    right = np.zeros((x.shape[1], 2))
    for piece, rows in zip(data.pieces(), pairs.rows(), strict=True):
        z = task.scaled(data.rewards[piece])
        right += rows.astype(np.float64).T @ np.stack([z, np.ones_like(z)], axis=1) / len(data)
    weights = np.linalg.lstsq(system, right, rcond=1e-10)[0]
    starts = np.asarray(batch.starts, np.float64)
    return _quotient(np.einsum("mc,mck->k", batch.start_weight, starts) @ weights)


def _of_network(
    task: Task, policy: Any, hidden: tuple[int, ...], steps: int, rng: np.random.Generator
) -> float:
    """`(1 - gamma) Q` of both rewards is what the two outputs of a network are."""
    data, discount = task.data, task.discount
    pairs = VectorPairs(data)
    acting = pairs.checked(policy)
    state = initial_state(rng, pairs.size, hidden)
    follow = min(1.0, max(0.005, _HORIZONS / ((1.0 - discount) * steps)))
    together = max(1, ROWS_TOGETHER // BATCH)
    for done in range(0, steps, together):
        count = min(together, steps - done)
        batches = _drawn(task, pairs, acting, rng, count)
        rates = RATE * (1.0 - (done + np.arange(count)) / steps)
        state = compiled_updates()(state, batches, rates, discount, follow)
    total, often = np.zeros(2), -(-_STARTS // len(data.starts))
    for i in range(0, len(data.starts), ROWS_TOGETHER):
        s = np.repeat(data.starts[i : i + ROWS_TOGETHER], often, axis=0)
        total += np.asarray(state[1](pairs.inputs(s, acting(s))), np.float64).sum(axis=0)
    return _quotient(total / (often * len(data.starts)))


def initial_state(rng: np.random.Generator, size: int, hidden: tuple[int, ...]) -> Any:
    """A random network, its target, and the moments of Adam."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    from mvpi.agents.networks import MLP

    net = MLP.random(rng, size, *hidden, 2)
    net = eqx.tree_at(lambda n: n.biases[-1], net, jnp.array([0.0, 1.0]))
    return net, jax.tree.map(jnp.copy, net), optax.scale_by_adam().init(net)


class Batches(NamedTuple):
    """Pairs, what is received there, and the pairs that follow where the episode goes on."""

    x: Anything
    rewards: Anything
    following: Anything
    goes_on: Anything


def _drawn(
    task: Task, pairs: VectorPairs, acting: Acting, rng: np.random.Generator, count: int
) -> Batches:
    rows = task.data.sample(rng, count * BATCH)
    z, s = task.scaled(rows.rewards), rows.next_observations
    shape = (count, BATCH, -1)
    return Batches(
        pairs.inputs(rows.observations, rows.actions).reshape(shape),
        np.stack([z, np.ones_like(z)], axis=1, dtype=np.float32).reshape(shape),
        pairs.inputs(s, acting(s)).reshape(shape),
        (~rows.terminations).astype(np.float32).reshape(shape),
    )


@cache
def compiled_updates() -> Callable[..., Any]:
    """Made on first use: importing this module must not import JAX."""
    import jax
    import jax.numpy as jnp
    import optax

    @jax.jit
    def updates(state: Any, batches: Batches, rates: Any, discount: float, follow: float) -> Any:
        def one(state: Any, drawn: tuple[Batches, Any]) -> Any:
            (net, target_net, optimizer), (batch, rate) = state, drawn
            onward = batch.goes_on * target_net(batch.following)
            target = (1.0 - discount) * batch.rewards + discount * onward

            def loss(net: Any) -> jax.Array:
                return jnp.mean(jnp.square(net(batch.x) - target))

            slope = jax.grad(loss)(net)
            move, optimizer = optax.scale_by_adam().update(slope, optimizer)
            net = jax.tree.map(lambda p, m: p - rate * m, net, move)
            return (net, optax.incremental_update(net, target_net, follow), optimizer), None

        return jax.lax.scan(one, state, (batches, rates))[0]

    return updates


def _quotient(values: Array) -> float:
    """The value of the reward over that of the constant 1, both at the starts."""
    reward, one = (float(v) for v in values)
    if not (np.isfinite(values).all() and one > 0.0):
        raise Divergence(
            f"fitted-Q evaluation gives the constant reward 1 the value {one:.3g}, which must be "
            "positive; use other features, more steps or a lower discount"
        )
    return reward / one
