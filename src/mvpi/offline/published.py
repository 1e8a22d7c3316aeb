"""Algorithm 2 as it was published: sampled updates of tables, many runs side by side.

    repeat:
        ratio_steps of GradientDICE on batches                  ratio
        y = dual of the rewards weighted by the ratio           y
        r <- augment(r, y);  a' ~ pi(s')
        value_steps of TD(0) on batches                         q
        one step on the whole data                              theta

All steps are plain gradient steps of the same rate; tables keep their values between iterations.
Runs differ in data, risk and seed, and are compiled as one program: thirty take hardly longer than
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from mvpi._checks import check_count, check_number
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.offline import dice
from mvpi.offline._state_action_pairs import PairBatch
from mvpi.offline.dataset import Dataset
from mvpi.risk import Risk

RULES = dice.Rules("gradient-dice", "sgd")


@dataclass(frozen=True)
class PublishedSettings:
    """The paper's settings."""

    learning_rate: float = 0.01
    batch_size: int = 10
    ratio_steps: int = 100
    """Updates of the density ratio in an iteration."""
    value_steps: int = 100
    """Updates of the action values in an iteration."""

    def __post_init__(self) -> None:
        check_number(self.learning_rate, "learning_rate", above=0.0)
        for name in ("batch_size", "ratio_steps", "value_steps"):
            check_count(getattr(self, name), name)


class Runs:
    """Runs of Algorithm 2 on finite data sets of the same size, one risk each."""

    def __init__(
        self,
        data: Sequence[Dataset],
        risks: Sequence[Risk],
        discount: float,
        seed: int = 0,
        settings: PublishedSettings | None = None,
    ) -> None:
        self.settings = settings or PublishedSettings()
        self.discount = check_number(discount, "discount", at_least=0.0, at_most=1.0)
        self.risks = list(risks)
        if len(data) != len(self.risks):
            raise InputError(f"a risk per data set, please: {len(data)} and {len(self.risks)}")
        if any(d.n_states is None or d.n_actions is None for d in data):
            raise InputError("published runs need whole numbers for states and actions")
        if len({len(d) for d in data}) != 1:
            raise InputError("published runs need data sets of the same size")
        states = max(d.n_states or 0 for d in data)
        self._actions = max(d.n_actions or 0 for d in data)
        self.rng = np.random.default_rng(check_count(seed, "seed", at_least=0))
        self._s = np.stack([d.observations for d in data]).astype(np.int32)
        self._a = np.stack([d.actions for d in data]).astype(np.int32)
        self._r = np.stack([d.rewards for d in data]).astype(np.float64)
        self._next = np.stack([d.following(slice(None)) for d in data]).astype(np.int32)
        self._live = np.stack([~d.terminations for d in data])
        self._starts = [np.asarray(d.starts, np.int32) for d in data]
        runs, shape = np.arange(len(data)), (len(data), states, self._actions)
        seen = np.zeros(shape, bool)
        seen[runs[:, None], self._s, self._a] = True
        seen |= ~seen.any(axis=2, keepdims=True)
        self._logits = np.where(seen, 0.0, -np.inf)
        self._q = jnp.zeros((len(data), states * self._actions))
        table = dice.Table(jnp.ones(states * self._actions))
        zero = dice.Table(jnp.zeros(states * self._actions))
        state = dice.start(dice.Players(table, zero, jnp.zeros(())))
        self._ratio = jax.tree.map(lambda x: jnp.repeat(x[None], len(data), axis=0), state)

    @property
    def policies(self) -> Array:
        """`(runs, S, A)` probabilities."""
        return np.asarray(softmax(self._logits, axis=-1))

    def iterations(self, count: int) -> Iterator[Array]:
        """`count` iterations, with the policies after each."""
        for _ in range(count):
            self._iterate()
            yield self.policies

    def _iterate(self) -> None:
        policies, pair = self.policies, self._s * self._actions + self._a
        numbers = dice.Settings(self.discount, 1.0, jnp.ones(()))
        self._ratio = _ratio_steps(
            self._ratio, self._drawn(policies, pair), numbers, self.settings.learning_rate
        )
        ratio = np.take_along_axis(np.asarray(self._ratio.players.ratio.values), pair, axis=1)

        weights = np.maximum(ratio.astype(np.float64), 0.0)
        augmented = np.empty_like(self._r)
        for i, risk in enumerate(self.risks):
            y = risk.dual(self._r[i], weights[i])
            augmented[i] = risk.augment(self._r[i], y)

        rows = self._rows(self.settings.value_steps)
        transitions = (pair, augmented, self._following(policies), self._live)
        batches = (np.take_along_axis(x[:, None, :], rows, axis=2) for x in transitions)
        self._q = _value_steps(self._q, *batches, self.discount, self.settings.learning_rate)

        gain = ratio * np.take_along_axis(np.asarray(self._q), pair, axis=1) / pair.shape[1]
        per_pair = np.zeros_like(policies)
        np.add.at(per_pair, (np.arange(len(gain))[:, None], self._s, self._a), gain)
        slope = per_pair - policies * per_pair.sum(axis=2, keepdims=True)
        self._logits = self._logits + self.settings.learning_rate * slope

    def _rows(self, steps: int) -> npt.NDArray[np.int64]:
        """Rows of the data for every run and update."""
        shape = (len(self.risks), steps, self.settings.batch_size)
        return self.rng.integers(self._r.shape[1], size=shape)

    def _following(self, policies: Array) -> npt.NDArray[np.int64]:
        """The pair of the next state and an action the policy draws there, for every row."""
        runs = np.arange(len(policies))[:, None]
        upto = np.cumsum(policies[runs, self._next], axis=2)
        action = (self.rng.random((*self._next.shape, 1)) * upto[..., -1:] >= upto).sum(axis=2)
        following: npt.NDArray[np.int64] = self._next.astype(np.int64) * self._actions + action
        return following

    def _drawn(self, policies: Array, pair: npt.NDArray[np.int32]) -> PairBatch:
        """Batches for the ratio: transitions and starts, with all that the policy may do there."""
        rows = self._rows(self.settings.ratio_steps)
        runs = np.arange(len(policies))[:, None, None]
        following, live = self._next[runs, rows], self._live[runs, rows]
        starts = np.stack([s[self.rng.integers(s.size, size=rows.shape[1:])] for s in self._starts])
        every = np.arange(self._actions)
        share = 1.0 / rows.shape[2]
        return PairBatch(
            pair[runs, rows],
            np.full(rows.shape, share, np.float32),
            following[..., None] * self._actions + every,
            (policies[runs, following] * live[..., None]).astype(np.float32),
            starts[..., None] * self._actions + every,
            (share * policies[runs, starts]).astype(np.float32),
        )


@partial(jax.jit, donate_argnums=0)
@partial(jax.vmap, in_axes=(0, 0, None, None))
def _ratio_steps(
    state: dice.State, batches: PairBatch, settings: dice.Settings, rate: float
) -> dice.State:
    def one(state: dice.State, batch: PairBatch) -> tuple[dice.State, None]:
        return dice.step(state, batch, jnp.asarray(rate), settings, RULES), None

    return jax.lax.scan(one, state, batches)[0]


@partial(jax.jit, donate_argnums=0)
@partial(jax.vmap, in_axes=(0, 0, 0, 0, 0, None, None))
def _value_steps(
    q: jax.Array,
    pair: jax.Array,
    reward: jax.Array,
    following: jax.Array,
    live: jax.Array,
    discount: float,
    rate: float,
) -> jax.Array:
    """TD(0): a step per batch along the mean error of its transitions."""

    def one(q: jax.Array, batch: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        pair, reward, following, live = batch
        error = reward + discount * live * q[following] - q[pair]
        return q.at[pair].add(rate * error / pair.size), None

    return jax.lax.scan(one, q, (pair, reward.astype(jnp.float32), following, live))[0]
