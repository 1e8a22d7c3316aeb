"""A data set of transitions whose behaviour policy is unknown, checked on the way in.

    Dataset(observations, actions, rewards, next_observations, terminations, starts)

Row `i` says: at `observations[i]` the action `actions[i]` was taken, `rewards[i]` received and
`next_observations[i]` seen; `terminations[i]` says whether the episode was over there (a time limit
is no termination, and may be given in `truncations`). Rows are in order if those of an episode
follow each other; only the risk of the return needs that (`mvpi.offline._episodes`). `starts` are
observations at which episodes start. In a finite problem states
and actions are whole numbers from 0 on; otherwise observations are vectors of floats, and actions
vectors of floats or whole numbers. What is known of the environment may be given as well: how many
states and actions it has, what it calls the first ones, and the bounds of its actions.

Arrays are checked piece by piece and kept as they are: what is mapped from a file stays there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count, check_kind, check_path, plain_array
from mvpi._storage.npz import read_npz, write_npz
from mvpi.errors import InputError
from mvpi.offline._column_checks import (
    Anything,
    as_column,
    bound,
    check_observations,
    form,
    is_numbers,
    is_vectors,
    vector_hint,
)

if TYPE_CHECKING:
    import minari

Booleans = npt.NDArray[np.bool_]

_PIECE = 1 << 20
"""Numbers looked at together."""
_MOST_PAIRS = 10**8
"""Pairs of a state and an action that a table may have."""
_LARGEST_REWARD = np.float64(1e150)
"""The sum of the squares of larger rewards overflows."""
_FARTHEST_FIRST = 10**12
"""How far below 0 the numbers of an environment may begin."""

_COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminations", "starts")
_FACTS = ("n_states", "n_actions", "first_state", "first_action", "low", "high", "truncations")
"""Optional arguments: facts of the environment, and time limits."""


def check_data(data: Any) -> Dataset:
    """A data set, or an `InputError`."""
    checked: Dataset = check_kind(data, Dataset, "data", "an mvpi.offline.Dataset")
    return checked


class Batch(NamedTuple):
    """Some transitions of a data set, in memory."""

    observations: Anything
    """What was seen."""
    actions: Anything
    """What was done."""
    rewards: Anything
    """What it earned, raw."""
    next_observations: Anything
    """What was seen next."""
    terminations: Booleans
    """Whether the episode was over then."""


class Dataset:
    """Transitions, and where episodes start.

    Args:
        observations: `(N,)` whole numbers, the states of a finite problem, or `(N, d)` floats.
        actions: `(N,)` whole numbers, or `(N, k)` floats.
        rewards: `(N,)` numbers, raw.
        next_observations: as `observations`; after a termination they are not used, and may be
            any numbers.
        terminations: `(N,)` booleans: the episode was over after this transition. False at a
            time limit.
        starts: `(M,)` or `(M, d)`, observations at which episodes start, each as likely.
        n_states: how many there are; left out, one more than the largest in the data.
        n_actions: the same of actions.
        first_state: what the environment calls state 0.
        first_action: what the environment calls action 0. A policy that is a table is numbered from
            0, as the data are; one with `predict`, or a function, takes and returns the numbers of
            the environment.
        low: the smallest actions in the environment, a number or one per dimension.
        high: the largest ones.
        truncations: `(N,)` booleans: the episode was cut after this transition, by a time limit.
            Left out, an episode is taken to be cut where the next row begins elsewhere.

    >>> data = Dataset(
    ...     observations=[0, 1, 0],
    ...     actions=[0, 0, 1],
    ...     rewards=[0.0, 1.0, 0.5],
    ...     next_observations=[1, 0, 0],
    ...     terminations=[False, False, True],
    ...     starts=[0],
    ... )
    >>> data
    Dataset(3 transitions, 2 states, 2 actions, 1 start)
    >>> data.batch([0, 2]).rewards
    array([0. , 0.5])
    """

    observations: Anything
    actions: Anything
    rewards: Anything
    next_observations: Anything
    terminations: Booleans
    starts: Anything
    n_states: int | None
    """How many states there are; None when observations are vectors."""
    n_actions: int | None
    """How many actions there are; None when actions are vectors."""
    first_state: int
    first_action: int
    low: Anything | None
    """The smallest action in every dimension; None if it is not known."""
    high: Anything | None
    """The largest; None if it is not known."""
    truncations: Booleans | None

    def __init__(
        self,
        observations: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        next_observations: npt.ArrayLike,
        terminations: npt.ArrayLike,
        starts: npt.ArrayLike,
        *,
        n_states: int | None = None,
        n_actions: int | None = None,
        first_state: int = 0,
        first_action: int = 0,
        low: npt.ArrayLike | None = None,
        high: npt.ArrayLike | None = None,
        truncations: npt.ArrayLike | None = None,
    ) -> None:
        self.observations = as_column(observations, "observations")
        self.actions = as_column(actions, "actions")
        self.rewards = as_column(rewards, "rewards")
        self.next_observations = as_column(next_observations, "next_observations")
        self.terminations = as_column(terminations, "terminations")
        self.starts = as_column(starts, "starts")
        self.truncations = None if truncations is None else as_column(truncations, "truncations")
        self._check_forms()
        self._check_values()
        self.n_states = _number(n_states, self._states_seen(), "n_states")
        self.n_actions = _number(n_actions, self._actions_seen(), "n_actions")
        self.first_state = check_count(first_state, "first_state", at_least=-_FARTHEST_FIRST)
        self.first_action = check_count(first_action, "first_action", at_least=-_FARTHEST_FIRST)
        self.low, self.high = self._bound(low, "low"), self._bound(high, "high")
        pairs = (self.n_states or 1) * (self.n_actions or 1)
        if pairs > _MOST_PAIRS:
            raise InputError(
                f"states times actions must be at most {_MOST_PAIRS:.0e}, got {pairs:.3e}; number "
                "them from 0 without gaps"
            )

    @classmethod
    def from_minari(cls, dataset: minari.MinariDataset | str) -> Dataset:
        """A Minari data set, or the id of one on this machine, read episode by episode.

        Its spaces must be a flat Box or Discrete. They say how many states and actions there are,
        what the first ones are called, and the bounds of actions if these are finite.
        """
        from mvpi.offline._sources import read_minari

        return cls(**read_minari(dataset))

    @classmethod
    def from_run(cls, directory: str | PathLike[str]) -> Dataset:
        """The replay in the directory of a TD3 run, as of its last checkpoint.

        Observations stay in the file, and nobody can train in the directory while they are in use.
        Where an observation is not the one that the transition before led to, an episode is taken
        to start.
        """
        from mvpi.offline._sources import read_run

        return cls(**read_run(check_path(directory, "directory")))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Dataset:
        """Read an `.npz` file that `save` or `numpy.savez` wrote, with an array per argument."""
        arrays: dict[str, Any] = read_npz(path, _COLUMNS + _FACTS, written_by="Dataset.save")
        try:
            missing = [name for name in _COLUMNS if name not in arrays]
            if missing:
                raise InputError(f"the array {missing[0]!r} is missing")
            return cls(**arrays)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to an `.npz` file: plain numbers, nothing that is ever executed."""
        there = {name: getattr(self, name) for name in _COLUMNS + _FACTS}
        write_npz(path, {name: value for name, value in there.items() if value is not None})

    def fingerprint(self) -> str:
        """A hash of the transitions and the starts."""
        digest = hashlib.sha256()
        for name in _COLUMNS:
            column = getattr(self, name)
            digest.update(f"{name} {column.dtype.str} {column.shape};".encode())
            for piece in _pieces(len(column), column[:1].size):
                digest.update(np.ascontiguousarray(column[piece]).tobytes())
        return digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.observations)

    def __repr__(self) -> str:
        if self.n_states is None:
            seen = f"observations of size {self.observations.shape[1]}"
        else:
            seen = f"{self.n_states} state{'s' * (self.n_states != 1)}"
        if self.n_actions is None:
            done = f"actions of size {self.actions.shape[1]}"
        else:
            done = f"{self.n_actions} action{'s' * (self.n_actions != 1)}"
        starts = f"{len(self.starts)} start{'s' * (len(self.starts) != 1)}"
        return f"Dataset({len(self)} transitions, {seen}, {done}, {starts})"

    def batch(self, indices: npt.ArrayLike) -> Batch:
        """The transitions at `indices`, an array of row numbers of any shape."""
        rows = plain_array(indices, "indices")
        if rows.dtype.kind not in "iu":
            raise InputError(f"indices must be whole numbers, got {rows.dtype}")
        if rows.size and not (rows.min() >= 0 and rows.max() < len(self)):
            raise InputError(
                f"indices must be from 0 to {len(self) - 1}, got {rows.min()} to {rows.max()}"
            )
        return Batch(
            np.asarray(self.observations[rows]),
            np.asarray(self.actions[rows]),
            np.asarray(self.rewards[rows]),
            self.following(rows),
            np.asarray(self.terminations[rows]),
        )

    def following(self, rows: slice | Anything) -> Anything:
        """What came after some rows; where the episode was over, their own observations."""
        over = self.terminations[rows]
        over = over[..., None] if self.n_states is None else over
        following = np.where(over, self.observations[rows], self.next_observations[rows])
        return following if self.n_states is None else following.astype(np.int64)

    def sample(self, rng: np.random.Generator, size: int) -> Batch:
        """`size` transitions drawn independently, each row as likely as any other."""
        check_kind(rng, np.random.Generator, "rng", "a numpy.random.Generator")
        return self.batch(rng.integers(len(self), size=check_count(size, "size")))

    def pieces(self) -> Iterator[slice]:
        """Consecutive slices of the rows, small enough to be held in memory several times."""
        return _pieces(len(self), self.observations[0].size)

    def _check_forms(self) -> None:
        """Types, dimensions and lengths."""
        s, a = self.observations, self.actions
        if len(s) == 0:
            raise InputError("observations must not be empty: a data set needs a transition")
        check_observations(s, "observations")
        if s.ndim == 1 and a.dtype.kind == "f":
            raise InputError(
                "actions must be whole numbers when observations are, got floats; for continuous "
                "actions give the states as one-hot vectors"
            )
        if not (is_numbers(a) or is_vectors(a)):
            raise InputError(
                "actions must be (N,) whole numbers or (N, k) floats with k >= 1, got "
                f"{form(a)}{vector_hint(a, 'actions')}"
            )
        if self.rewards.dtype.kind not in "iuf" or self.rewards.ndim != 1:
            raise InputError(f"rewards must be (N,) numbers, got {form(self.rewards)}")
        flags = ["terminations"] if self.truncations is None else ["terminations", "truncations"]
        for name in flags:
            over = getattr(self, name)
            if over.dtype != np.bool_ or over.ndim != 1:
                hint = f"; use {name}.astype(bool)" if over.ndim == 1 else ""
                raise InputError(f"{name} must be (N,) booleans, got {form(over)}{hint}")
        for name in ("actions", "rewards", "next_observations", *flags):
            there = len(getattr(self, name))
            if there != len(s):
                raise InputError(
                    f"{name} must have a row per observation: {len(s)} observations, {there} {name}"
                )
        if self.starts.size == 0:
            raise InputError(
                "starts must not be empty: give the observations at which episodes start"
            )
        for name in ("next_observations", "starts"):
            other = getattr(self, name)
            check_observations(other, name)
            if (other.dtype.kind == "f", other.shape[1:]) != (s.dtype.kind == "f", s.shape[1:]):
                raise InputError(f"{name} must be like observations: {form(s)} and {form(other)}")

    def _check_values(self) -> None:
        """Vectors and rewards; whole numbers are checked when they are counted."""
        if self.observations.ndim == 2:
            _check_finite(self.observations, "observations")
            _check_finite(self.next_observations, "next_observations", self.terminations)
            _check_finite(self.starts, "starts")
        if self.actions.ndim == 2:
            _check_finite(self.actions, "actions")
        _check_rewards(self.rewards)

    def _states_seen(self) -> int | None:
        if self.observations.ndim == 2:
            return None
        return 1 + max(
            _largest(self.observations, "observations", "state"),
            _largest(self.next_observations, "next_observations", "state", self.terminations),
            _largest(self.starts, "starts", "state"),
        )

    def _actions_seen(self) -> int | None:
        return None if self.actions.ndim == 2 else 1 + _largest(self.actions, "actions", "action")

    def _bound(self, given: npt.ArrayLike | None, name: str) -> Anything | None:
        if given is None:
            return None
        if self.n_actions is not None:
            raise InputError(f"{name} is for vectors, and must be left out for whole numbers")
        return bound(given, self.actions[0], name)


def _number(given: int | None, seen: int | None, name: str) -> int | None:
    """How many there are: as many as given, or as many as the data have; None for vectors."""
    if given is None:
        return seen
    if seen is None:
        raise InputError(f"{name} is for whole numbers, and must be left out for vectors")
    return check_count(given, name, at_least=seen)


def _pieces(rows: int, width: int) -> Iterator[slice]:
    step = max(1, _PIECE // max(1, width))
    return (slice(i, min(i + step, rows)) for i in range(0, rows, step))


def _check_finite(x: Anything, name: str, unused: Booleans | None = None) -> None:
    """Every number, but for those in `unused` rows."""
    _check_all(x, name, np.isfinite, "finite", "; leave such transitions out", unused)


def _check_rewards(x: Anything) -> None:
    """Numbers that can be squared."""
    _check_finite(x, "rewards")
    rule = f"from {-_LARGEST_REWARD:g} to {_LARGEST_REWARD:g}"
    _check_all(x, "rewards", lambda r: np.abs(r) <= _LARGEST_REWARD, rule, "; scale them down")


def _largest(x: Anything, name: str, what: str, unused: Booleans | None = None) -> int:
    """The largest of numbers that must not be negative, but for those in `unused` rows."""
    _check_all(x, name, lambda numbers: numbers >= 0, f"{what}s from 0 on", "", unused)
    found = 0
    for piece in _pieces(len(x), 1):
        used = x[piece] if unused is None else x[piece][~unused[piece]]
        found = max(found, int(used.max(initial=0)))
    return found


def _check_all(
    x: Anything,
    name: str,
    good: Callable[[Anything], Booleans],
    rule: str,
    remedy: str,
    unused: Booleans | None = None,
) -> None:
    for piece in _pieces(len(x), x[:1].size):
        bad = ~good(x[piece])
        if unused is not None:
            bad[unused[piece]] = False
        if bad.any():
            first, *rest = map(int, np.argwhere(bad)[0])
            at = (piece.start + first, *rest)
            place = ", ".join(map(str, at))
            raise InputError(f"{name} must be {rule}: {name}[{place}] is {x[at]}{remedy}")
