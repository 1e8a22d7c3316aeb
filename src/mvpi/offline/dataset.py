"""A data set of transitions whose behaviour policy is unknown, checked on the way in.

    Dataset(observations, actions, rewards, next_observations, terminations, starts)

Row `i` says: at `observations[i]` the action `actions[i]` was taken, `rewards[i]` received and
`next_observations[i]` seen; `terminations[i]` says whether the episode was over there (a time limit
is no termination). `starts` are observations at which episodes start. In a finite problem states
and actions are whole numbers from 0 on; otherwise observations are vectors of floats, and actions
vectors of floats or whole numbers.

Arrays are checked piece by piece and kept as they are: what is mapped from a file stays there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvpi.errors import InputError
from mvpi.npz import read_npz, write_npz
from mvpi.stats import check_count

if TYPE_CHECKING:
    import minari

Anything = npt.NDArray[Any]

_PIECE = 1 << 20
"""Numbers looked at together."""
_MOST_PAIRS = 10**8
"""Pairs of a state and an action that a table may have."""


_COLUMNS = (
    "observations",
    "actions",
    "rewards",
    "next_observations",
    "terminations",
    "starts",
)


class Batch(NamedTuple):
    """Some transitions of a data set, in memory."""

    observations: Anything
    actions: Anything
    rewards: Anything
    next_observations: Anything
    terminations: npt.NDArray[np.bool_]


class Dataset:
    """Transitions, and where episodes start.

    Args:
        observations: `(N,)` whole numbers, the states of a finite problem, or `(N, d)` floats.
        actions: `(N,)` whole numbers, or `(N, k)` floats.
        rewards: `(N,)` numbers, raw.
        next_observations: as `observations`; after a termination they are not used.
        terminations: `(N,)` booleans: the episode was over after this transition. False at a
            time limit.
        starts: `(M,)` or `(M, d)`, observations at which episodes start, each as likely.

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
    terminations: npt.NDArray[np.bool_]
    starts: Anything
    n_states: int | None
    """One more than the largest state; None when observations are vectors."""
    n_actions: int | None
    """One more than the largest action; None when actions are vectors."""

    def __init__(
        self,
        observations: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        next_observations: npt.ArrayLike,
        terminations: npt.ArrayLike,
        starts: npt.ArrayLike,
    ) -> None:
        self.observations = _array(observations, "observations")
        self.actions = _array(actions, "actions")
        self.rewards = _array(rewards, "rewards")
        self.next_observations = _array(next_observations, "next_observations")
        self.terminations = _array(terminations, "terminations")
        self.starts = _array(starts, "starts")
        self._check_forms()
        self._check_values()

    @classmethod
    def from_minari(cls, dataset: minari.MinariDataset | str) -> Dataset:
        """A Minari data set, or the id of one on this machine, read episode by episode.

        Its spaces must be a flat Box or Discrete; a Discrete space is renumbered from 0.
        """
        from mvpi.offline.sources import read_minari

        return read_minari(dataset)

    @classmethod
    def from_run(cls, directory: str | PathLike[str]) -> Dataset:
        """The replay in the directory of a TD3 run, as of its last checkpoint.

        Observations stay in the file. Where an observation is not the one that the transition
        before led to, an episode is taken to start.
        """
        from mvpi.offline.sources import read_run

        return read_run(Path(directory))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Dataset:
        """Read an `.npz` file that `save` or `numpy.savez` wrote, with an array per argument."""
        arrays = read_npz(path, _COLUMNS, written_by="Dataset.save")
        try:
            missing = [name for name in _COLUMNS if name not in arrays]
            if missing:
                raise InputError(f"the array {missing[0]!r} is missing")
            return cls(**arrays)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def save(self, path: str | PathLike[str]) -> None:
        """Write all arrays to an `.npz` file: plain numbers, nothing that is ever executed."""
        write_npz(path, {name: getattr(self, name) for name in _COLUMNS})

    def fingerprint(self) -> str:
        """A short text that other data would not have."""
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
        rows = np.asarray(indices)
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
            np.asarray(self.next_observations[rows]),
            np.asarray(self.terminations[rows]),
        )

    def sample(self, rng: np.random.Generator, size: int) -> Batch:
        """`size` transitions drawn independently, each row as likely as any other."""
        return self.batch(rng.integers(len(self), size=check_count(size, "size")))

    def pieces(self) -> Iterator[slice]:
        """Consecutive slices of the rows, small enough to be held in memory several times."""
        return _pieces(len(self), self.observations[0].size)

    def _check_forms(self) -> None:
        """Types, dimensions and lengths."""
        s, a = self.observations, self.actions
        _check_observations(s, "observations")
        if len(s) == 0:
            raise InputError("observations must not be empty: a data set needs a transition")
        if s.ndim == 1 and a.dtype.kind == "f":
            raise InputError(
                "actions must be whole numbers when observations are, got floats; for continuous "
                "actions give the states as one-hot vectors"
            )
        if not (_is_numbers(a) or _is_vectors(a)):
            raise InputError(
                "actions must be (N,) whole numbers or (N, k) floats with k >= 1, got "
                f"{_form(a)}{_vector_hint(a, 'actions')}"
            )
        if self.rewards.dtype.kind not in "iuf" or self.rewards.ndim != 1:
            raise InputError(f"rewards must be (N,) numbers, got {_form(self.rewards)}")
        if self.terminations.dtype != np.bool_ or self.terminations.ndim != 1:
            hint = "; use terminations.astype(bool)" if self.terminations.ndim == 1 else ""
            raise InputError(
                f"terminations must be (N,) booleans, got {_form(self.terminations)}{hint}"
            )
        for name in ("actions", "rewards", "next_observations", "terminations"):
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
            _check_observations(other, name)
            if (other.dtype.kind == "f", other.shape[1:]) != (s.dtype.kind == "f", s.shape[1:]):
                raise InputError(f"{name} must be like observations: {_form(s)} and {_form(other)}")

    def _check_values(self) -> None:
        """Every number; also counts states and actions."""
        if self.observations.ndim == 1:
            names = ("observations", "next_observations", "starts")
            self.n_states = 1 + max(_largest(getattr(self, name), name, "state") for name in names)
        else:
            self.n_states = None
            for name in ("observations", "next_observations", "starts"):
                _check_finite(getattr(self, name), name)
        if self.actions.ndim == 1:
            self.n_actions = 1 + _largest(self.actions, "actions", "action")
        else:
            self.n_actions = None
            _check_finite(self.actions, "actions")
        _check_finite(self.rewards, "rewards")
        pairs = (self.n_states or 1) * (self.n_actions or 1)
        if pairs > _MOST_PAIRS:
            raise InputError(
                f"states times actions must be at most {_MOST_PAIRS:.0e}, got {pairs:.3e}; number "
                "them from 0 without gaps"
            )


def _array(values: npt.ArrayLike, name: str) -> Anything:
    """A view of an array that cannot be written to; anything else becomes an array first."""
    try:
        view = np.asanyarray(values)[...]
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array: {error}") from None
    if isinstance(view, np.ma.MaskedArray):
        raise InputError(f"{name} must not be masked: leave the rows out instead")
    if view.ndim == 0:
        raise InputError(f"{name} must be an array with a row per transition, got {values!r:.80}")
    view.flags.writeable = False
    return view


def _check_observations(x: Anything, name: str) -> None:
    if not (_is_numbers(x) or _is_vectors(x)):
        raise InputError(
            f"{name} must be (N,) whole numbers or (N, d) floats with d >= 1, got "
            f"{_form(x)}{_vector_hint(x, name)}"
        )


def _is_numbers(x: Anything) -> bool:
    return x.ndim == 1 and x.dtype.kind in "iu"


def _is_vectors(x: Anything) -> bool:
    return x.ndim == 2 and x.shape[1] > 0 and x.dtype.kind == "f"


def _vector_hint(x: Anything, name: str) -> str:
    if x.ndim == 1 and x.dtype.kind == "f":
        return f"; use {name}[:, None], or whole numbers for the states of a finite problem"
    if x.ndim == 2 and x.dtype.kind in "iu":
        return f"; use {name}.astype(float), or a single number per row"
    if x.ndim > 2 and x.dtype.kind == "f":
        return f"; use {name}.reshape(len({name}), -1)"
    return ""


def _form(x: Anything) -> str:
    return f"{x.dtype} of shape {x.shape}"


def _pieces(rows: int, width: int) -> Iterator[slice]:
    step = max(1, _PIECE // max(1, width))
    return (slice(i, min(i + step, rows)) for i in range(0, rows, step))


def _check_finite(x: Anything, name: str) -> None:
    for piece in _pieces(len(x), x[:1].size):
        good = np.isfinite(x[piece])
        if not good.all():
            where = np.argwhere(~good)[0]
            where[0] += piece.start
            at = tuple(int(i) for i in where)
            raise InputError(
                f"{name} must be finite: {name}[{', '.join(map(str, at))}] is {x[at]}; leave "
                "such transitions out"
            )


def _largest(x: Anything, name: str, what: str) -> int:
    """The largest of numbers that must not be negative."""
    largest = 0
    for piece in _pieces(len(x), 1):
        part = x[piece]
        if part.min() < 0:
            at = int(np.argmax(part < 0))
            raise InputError(
                f"{name} must be {what}s from 0 on: {name}[{piece.start + at}] is {part[at]}"
            )
        largest = max(largest, int(part.max()))
    return largest
