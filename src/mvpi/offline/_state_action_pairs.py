"""A data set and a policy as weighted state-action pairs: what the ratio methods work on.

    FinitePairs   pairs are numbered; equal transitions are counted once, with their frequency
    VectorPairs   pairs are vectors: a user's features, or observations and actions, scaled

Both make batches: pairs of the data, the pairs a policy goes on with, and those it starts with.
Where weight is missing after a transition (its episode was over, or the data lack what the policy
does there) the next pair is at a start. That makes the ratio one of steps before the end of
episodes, and its mean over the data 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_function, plain_array, real_array
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.offline.dataset import Dataset

Anything = npt.NDArray[Any]
Acting = Any
"""A checked policy: a table of probabilities, or a function."""
Features = Callable[[Anything, Anything], npt.ArrayLike]
"""`features(observations, actions)`: a row of numbers per pair."""

_FARTHEST = 10.0
"""Where scaled observations are cut off."""
_REDUNDANT = 1e-10
"""Below this share of the largest moment, a feature is a combination of the others."""
_SUM_TOLERANCE = 1e-6


class PairBatch(NamedTuple):
    """Weighted pairs: of the data, what a policy does next (some choices each), and at starts."""

    x: Any
    weight: Any
    following: Any
    following_weight: Any
    starts: Any
    start_weight: Any


class Pairs(ABC):
    """The state-action pairs of a data set."""

    ones: Array
    """Parameters of the function that is 1, or next to it, for tables and features."""
    metric: Array
    """One over the second moment of every parameter's feature: the natural size of its steps."""

    def __init__(self, data: Dataset) -> None:
        self.data = data

    @abstractmethod
    def checked(self, policy: Any) -> Acting:
        """The policy in the form the other methods want, or an `InputError`."""

    @abstractmethod
    def whole(self, acting: Acting) -> PairBatch:
        """The whole data set."""

    @abstractmethod
    def drawn(
        self, rng: np.random.Generator, acting: Acting, updates: int, batch_size: int
    ) -> PairBatch:
        """Transitions and starts drawn independently, `(updates, batch_size)` of each."""

    @abstractmethod
    def rows(self) -> Iterator[Anything]:
        """The pair of every row of the data, piece by piece."""


class FinitePairs(Pairs):
    """Numbered pairs. A table has an entry per pair in the data; features are known for all."""

    known: npt.NDArray[np.bool_]
    """Which actions the data have in every state, `(S, A)`; a table is in this order."""

    def __init__(self, data: Dataset, features: Features | None = None, whiten: bool = True):
        super().__init__(data)
        assert data.n_states is not None
        assert data.n_actions is not None
        self._n_states, self._n_actions = data.n_states, data.n_actions
        pairs = data.n_states * data.n_actions
        counts = np.zeros(pairs, np.int64)
        for piece in data.pieces():
            counts += np.bincount(self._pair(piece), minlength=pairs)
        share = counts / len(data)
        self.known = (counts > 0).reshape(data.n_states, data.n_actions)
        starts, frequency = np.unique(data.starts, return_counts=True)
        self._starts, self._start_share = starts, frequency / len(data.starts)
        self._features: Array | None = None
        if features is None:
            self._place = np.full(pairs, -1)
            self._place[counts > 0] = np.arange(np.count_nonzero(counts))
            self.ones, self.metric = np.ones(np.count_nonzero(counts)), 1.0 / share[counts > 0]
        else:
            states, actions = np.divmod(np.arange(pairs), data.n_actions)
            table = _checked_features(features, states, actions)
            basis = _Basis((table * share[:, None]).T @ table, share @ table, whiten)
            self._place = np.arange(pairs)
            self._features = table @ basis.matrix
            self.ones, self.metric = basis.ones, np.ones(1)
        self._keys, self._counts = self._counted()

    def checked(self, policy: Any) -> Array:
        first_action = 0
        if hasattr(policy, "predict") or callable(policy):
            policy = _acting(policy)(self.data.first_state + np.arange(self._n_states))
            first_action = self.data.first_action
        table = plain_array(policy, "policy")
        n = self._n_states
        if table.ndim not in (1, 2) or len(table) < n or table.dtype.kind not in "iuf":
            raise InputError(
                f"policy must be whole numbers of shape ({n},), an action per state, or "
                f"probabilities of shape ({n}, {self._n_actions}), got {table.dtype} of shape "
                f"{table.shape}"
            )
        if table.ndim == 1:
            return self._one_hot(table[:n], first_action)
        table = table[:n].astype(np.float64)
        good = (table >= 0).all(axis=1) & (np.abs(table.sum(axis=1) - 1) <= _SUM_TOLERANCE)
        if not good.all():
            s = int(np.argmin(good))
            raise InputError(
                f"policy[{s}] must be probabilities that sum to 1, got {table[s].tolist()}"
            )
        known = np.zeros((n, self._n_actions))
        width = min(table.shape[1], self._n_actions)
        known[:, :width] = table[:, :width]
        return known

    def whole(self, acting: Array) -> PairBatch:
        pair, following = np.divmod(self._keys, self._n_states + 1)
        places, weights = self._choices(acting, following)
        start_places, start_weights = self._choices(acting, self._starts)
        start_weights *= self._start_share[:, None] / self._covered(acting)
        return PairBatch(
            self._seen_as(self._place[pair]),
            self._counts / len(self.data),
            self._seen_as(places),
            weights,
            self._seen_as(start_places),
            start_weights,
        )

    def drawn(
        self, rng: np.random.Generator, acting: Array, updates: int, batch_size: int
    ) -> PairBatch:
        shape = (updates, batch_size)
        rows = self.data.batch(rng.integers(len(self.data), size=shape))
        states = np.where(rows.terminations, self._n_states, rows.next_observations)
        places, weights = self._choices(acting, states)
        starts = self.data.starts[rng.integers(len(self.data.starts), size=shape)]
        start_places, start_weights = self._choices(acting, starts)
        pair = self._numbered(rows.observations, rows.actions)
        return PairBatch(
            self._seen_as(self._place[pair]),
            np.full(shape, 1.0 / batch_size),
            self._seen_as(places),
            weights,
            self._seen_as(start_places),
            start_weights / (batch_size * self._covered(acting)),
        )

    def rows(self) -> Iterator[Anything]:
        return (self._seen_as(self._place[self._pair(piece)]) for piece in self.data.pieces())

    def transitions(self) -> npt.NDArray[np.int64]:
        """The number of every row's transition among those that `whole` counts."""
        pieces = self.data.pieces()
        return np.concatenate([np.searchsorted(self._keys, self._key(p)) for p in pieces])

    def lacking(self, acting: Array) -> Array:
        """The probability that the policy does what the data lack, for every state."""
        return np.asarray(1.0 - (acting * self.known).sum(axis=1))

    def _choices(self, acting: Array, states: Anything) -> tuple[Anything, Array]:
        """The places of what the policy may do in each state, and how likely it is.

        The state after the last, in which episodes are over, has no choices: its weights are 0.
        """
        over = states >= self._n_states
        states = np.where(over, 0, states).astype(np.int64)
        places = self._place.reshape(acting.shape)[states]
        weights = acting[states] * (places >= 0) * ~over[..., None]
        return np.maximum(places, 0), weights

    def _covered(self, acting: Array) -> float:
        """How likely the policy starts with something that is in the data."""
        weights = self._choices(acting, self._starts)[1].sum(axis=1)
        covered = float(self._start_share @ weights)
        if covered <= 0:
            raise InputError(
                f"the data lack every action that the policy takes at the starts, such as state "
                f"{self._starts[0]}: nothing can be said of this policy"
            )
        return covered

    def _seen_as(self, places: Anything) -> Anything:
        if self._features is None:
            return places.astype(np.int32)
        return self._features[places].astype(np.float32)

    def _pair(self, piece: slice) -> npt.NDArray[np.int64]:
        return self._numbered(self.data.observations[piece], self.data.actions[piece])

    def _numbered(self, states: Anything, actions: Anything) -> npt.NDArray[np.int64]:
        return np.asarray(states.astype(np.int64) * self._n_actions + actions.astype(np.int64))

    def _key(self, piece: slice) -> npt.NDArray[np.int64]:
        """Pair and next state of every row as one number; the end is the state after the last."""
        states = self.data.next_observations[piece].astype(np.int64)
        states[self.data.terminations[piece]] = self._n_states
        return self._pair(piece) * (self._n_states + 1) + states

    def _counted(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The keys of the transitions that occur, in order, and how often each does."""
        keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
        for piece in self.data.pieces():
            new, how_often = np.unique(self._key(piece), return_counts=True)
            keys, place = np.unique(np.concatenate([keys, new]), return_inverse=True)
            counts = np.bincount(place, np.concatenate([counts, how_often])).astype(np.int64)
        return keys, counts

    def _one_hot(self, actions: Anything, first: int) -> Array:
        if actions.dtype.kind == "f":
            raise InputError("policy must be whole numbers, an action per state, got floats")
        if actions.min() < first:
            s = int(np.argmin(actions))
            raise InputError(f"policy[{s}] must be an action from {first} on, got {actions[s]}")
        actions = actions.astype(np.int64) - first
        known = np.zeros((self._n_states, self._n_actions))
        there = np.flatnonzero(actions < self._n_actions)
        known[there, actions[there]] = 1.0
        return known


class VectorPairs(Pairs):
    """Pairs as vectors of float32."""

    def __init__(self, data: Dataset, features: Features | None = None, whiten: bool = True):
        super().__init__(data)
        self._features = features
        self.metric = np.ones(1)
        if features is None:
            self._mean, self._scale = moments(data)
            self.size = len(self._mean) + (data.n_actions or 0)
            self.ones = np.empty(0)
            return
        width = _checked_features(features, data.observations[:1], data.actions[:1]).shape[1]
        moment, mean = np.zeros((width, width)), np.zeros(width)
        for piece in data.pieces():
            rows = _checked_features(features, data.observations[piece], data.actions[piece])
            moment, mean = moment + rows.T @ rows, mean + rows.sum(axis=0)
        basis = _Basis(moment / len(data), mean / len(data), whiten)
        self._matrix, self.ones = basis.matrix, basis.ones

    def checked(self, policy: Any) -> Callable[[Anything], Anything]:
        act = _acting(policy)
        shape = self.data.actions.shape[1:]

        def actions(observations: Anything) -> Anything:
            chosen = act(observations)
            if isinstance(chosen, tuple):
                raise InputError(
                    "policy must return actions, got a tuple; for a model of Stable-Baselines3 "
                    "pass lambda s: model.predict(s)[0]"
                )
            array = plain_array(chosen, "the actions of policy")
            if array.shape != (len(observations), *shape):
                raise InputError(
                    f"policy must return actions of shape {(len(observations), *shape)} for as "
                    f"many observations, got {array.shape}"
                )
            if shape:
                array = real_array(array, "the actions of policy")
            if shape and not np.isfinite(array).all():
                raise InputError("policy must return finite actions, some are not")
            if shape:
                return array
            first = self.data.first_action
            last = first + (self.data.n_actions or 1) - 1
            if array.dtype.kind not in "iu" or not _within(array, first, last):
                raise InputError(
                    f"policy must return actions of the data, from {first} to {last}, got "
                    f"{array[:5]}"
                )
            return array.astype(np.int64) - first

        return actions

    def whole(self, acting: Acting) -> PairBatch:
        data = self.data
        following = [self.inputs(s := data.following(piece), acting(s)) for piece in data.pieces()]
        starts = np.asarray(data.starts)
        return PairBatch(
            np.concatenate(list(self.rows())),
            np.full(len(data), 1.0 / len(data)),
            np.concatenate(following)[:, None],
            1.0 - data.terminations[:, None],
            self.inputs(starts, acting(starts))[:, None],
            np.full((len(starts), 1), 1.0 / len(starts)),
        )

    def drawn(
        self, rng: np.random.Generator, acting: Acting, updates: int, batch_size: int
    ) -> PairBatch:
        count, shape = updates * batch_size, (updates, batch_size)
        rows = self.data.batch(rng.integers(len(self.data), size=count))
        starts = np.asarray(self.data.starts[rng.integers(len(self.data.starts), size=count)])
        x = self.inputs(rows.observations, rows.actions)
        following = self.inputs(rows.next_observations, acting(rows.next_observations))
        at_starts = self.inputs(starts, acting(starts))
        return PairBatch(
            x.reshape(*shape, -1),
            np.full(shape, 1.0 / batch_size),
            following.reshape(*shape, 1, -1),
            1.0 - rows.terminations.reshape(*shape, 1),
            at_starts.reshape(*shape, 1, -1),
            np.full((*shape, 1), 1.0 / batch_size),
        )

    def rows(self) -> Iterator[Anything]:
        data = self.data
        return (self.inputs(data.observations[p], data.actions[p]) for p in data.pieces())

    def inputs(self, observations: Anything, actions: Anything) -> Anything:
        """Pairs as the functions see them: features, or scaled vectors."""
        if self._features is not None:
            rows = _checked_features(self._features, observations, actions)
            return np.asarray((rows @ self._matrix).astype(np.float32))
        vectors = observations
        if self.data.n_actions is None:
            vectors = np.concatenate([observations, actions], axis=1)
        scaled = np.clip((vectors - self._mean) / self._scale, -_FARTHEST, _FARTHEST)
        if self.data.n_actions is not None:
            scaled = np.concatenate([scaled, np.eye(self.data.n_actions)[actions]], axis=1)
        return scaled.astype(np.float32)


class _Basis:
    """Features as they are, or combined so that over the data they are uncorrelated, of size 1."""

    def __init__(self, moment: Array, mean: Array, whiten: bool) -> None:
        sizes, directions = np.linalg.eigh(moment)
        kept = sizes > _REDUNDANT * sizes[-1]
        if not kept.any():
            raise InputError("features must not be 0 at all pairs of the data")
        roots = directions[:, kept] / np.sqrt(sizes[kept])
        self.matrix: Array = roots if whiten else np.eye(len(mean))
        self.ones: Array = roots.T @ mean if whiten else roots @ (roots.T @ mean)


def distinct(*columns: Anything) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """One of each set of equal rows, in the order of the columns, and how many rows equal it."""
    order = np.lexsort(columns[::-1])
    new = np.ones(len(order), np.bool_)
    ordered = (np.asarray(column)[order] for column in columns)
    new[1:] = np.any([x[1:] != x[:-1] for x in ordered], axis=0)
    return order[new], np.diff(np.append(np.flatnonzero(new), len(order)))


def _checked_features(features: Features, observations: Anything, actions: Anything) -> Array:
    check_function(features, "features")
    try:
        rows = real_array(features(np.asarray(observations), np.asarray(actions)), "features")
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"features must return numbers, a row per pair: {error}") from error
    if rows.ndim != 2 or len(rows) != len(observations) or rows.shape[1] == 0:
        raise InputError(
            f"features must return a row per pair, ({len(observations)}, k) with k >= 1, got "
            f"{rows.shape}"
        )
    if not np.isfinite(rows).all():
        raise InputError("features must return finite numbers, some are not")
    return rows


def _acting(policy: Any) -> Callable[[Anything], Any]:
    act: Any = getattr(policy, "predict", policy)
    if not callable(act) or isinstance(policy, type):
        raise InputError(
            "policy must have a method predict(observations), or be a function of observations, "
            f"got {type(policy).__name__}"
        )
    chosen: Callable[[Anything], Any] = act
    return chosen


def _within(actions: Anything, first: int, last: int) -> bool:
    return bool(actions.size == 0 or (actions.min() >= first and actions.max() <= last))


def moments(data: Dataset) -> tuple[Array, Array]:
    """Mean and standard deviation of every column of observations and actions; 1 for constants."""

    def columns(piece: slice) -> Array:
        vectors = [data.observations[piece]]
        vectors += [data.actions[piece]] if data.n_actions is None else []
        return np.concatenate(vectors, axis=1).astype(np.float64)

    first = columns(slice(0, 1))[0]  # subtracted, so that squares do not cancel
    total, squares = np.zeros_like(first), np.zeros_like(first)
    for piece in data.pieces():
        rows = columns(piece) - first
        total, squares = total + rows.sum(axis=0), squares + (rows**2).sum(axis=0)
    mean = total / len(data)
    deviation = np.sqrt(np.maximum(squares / len(data) - mean**2, 0.0))
    deviation[deviation <= 1e-8 * (1.0 + np.abs(first + mean))] = 1.0
    return first + mean, deviation
