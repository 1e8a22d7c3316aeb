"""Arrays of a user as the stored form of an MDP, checked on the way in.

Dense arrays `(S, A, S)` and sequences of sparse matrices become one CSR matrix with a row per pair,
row `s * A + a`; rewards become `(S, A)`, or one per stored transition.

A pair whose rewards are minus infinity, or that a mask leaves out, is an action that its state does
not have (`mvpi.tabular.masks`); its transitions are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse, vstack

from mvpi._checks import check_number, plain_array, real_array, shown
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.tabular.labels import Labels
from mvpi.tabular.masks import Mask, with_repeats, without_repeats
from mvpi.tabular.sparse import checked_csr

SUM_TOLERANCE = 1e-6
"""How far from 1 probabilities may sum."""
LARGEST_REWARD = 1e150
"""The square of a larger one overflows."""


class Rows(NamedTuple):
    """The stored form of an MDP."""

    transitions: csr_array
    """`(S * A, S)`, row `s * A + a`."""
    rewards: Array
    """`(S, A)`, or one per stored transition."""
    allowed: Mask | None
    """`(S, A)`; None when every state has every action."""


def rows_of_arrays(
    transitions: csr_array, rewards: Any, allowed: Mask | None, labels: Labels
) -> Rows:
    """Transitions as `transition_rows` returns them with the rewards of a user."""
    transitions.sum_duplicates()
    transitions.eliminate_zeros()
    table = _reward_table(rewards, transitions, labels.shape)
    if not issparse(table) and table.ndim == 2:
        return _stored(transitions, table, allowed, labels)
    flat = table if issparse(table) else table.reshape(transitions.shape)
    paid = flat[_row_numbers(transitions), transitions.indices]
    values = np.ascontiguousarray(paid, dtype=np.float64)
    if issparse(table):
        return _stored(transitions, values, allowed, labels, (table.data, _row_numbers(table)))
    pairs = np.arange(len(flat)).reshape(*labels.shape, 1)
    return _stored(transitions, values, allowed, labels, (table, pairs))


def rows_of_table(
    transitions: csr_array, rewards: npt.ArrayLike, allowed: Mask | None, labels: Labels
) -> Rows:
    """The stored form itself, of a user or of a file."""
    values = np.array(real_array(rewards, "rewards"))
    if values.shape not in (labels.shape, (transitions.nnz,)):
        raise InputError(
            f"rewards must have shape {labels.shape}, or one value per stored transition, "
            f"({transitions.nnz},), got {values.shape}"
        )
    return _stored(transitions, values, allowed, labels)


def _row_numbers(table: csr_array) -> npt.NDArray[np.int64]:
    """The row of every stored entry."""
    return np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))


def _stored(
    transitions: csr_array,
    rewards: Array,
    allowed: Mask | None,
    labels: Labels,
    given: tuple[Array, npt.NDArray[Any]] | None = None,
) -> Rows:
    """Checked rows, with those of pairs that are not allowed replaced.

    `given` are all rewards of the user, also those of impossible transitions, and the pair of each.
    A pair is not allowed if one of them is minus infinity and it pays no other reward.
    """
    forbidden = np.zeros(transitions.shape[0], bool) if allowed is None else ~allowed.ravel()
    every = rewards if given is None else given[0]
    infinite = np.isneginf(every)
    if allowed is not None or infinite.any():
        rows, pays = np.arange(len(forbidden)), ~np.isneginf(rewards).ravel()
        if rewards.ndim == 1:
            rows, pays = _row_numbers(transitions), pays & (transitions.data != 0)
        pairs = given[1] if given is not None else rows.reshape(rewards.shape)
        marked = np.zeros_like(forbidden)
        marked[np.broadcast_to(pairs, every.shape)[infinite]] = True
        marked[rows[pays]] = False
        forbidden |= marked
        every = np.where(forbidden[pairs], 0.0, every)
    _check_rewards(every)
    mask = ~forbidden.reshape(labels.shape)
    without = np.flatnonzero(~mask.any(axis=1))
    if len(without):
        raise InputError(
            f"every state must have an action, state {labels.state(without[0])} has none that is "
            "allowed: a state to stay in for ever has an action that leads to itself with reward 0"
        )
    if forbidden.any():
        transitions, rewards = without_repeats(transitions, rewards, mask)
    _check_probabilities(transitions, forbidden, labels)
    if rewards.ndim == 1:
        rewards = rewards[transitions.data > 0]
    transitions.eliminate_zeros()
    if not forbidden.any():
        return Rows(transitions, rewards, None)
    return Rows(*with_repeats(transitions, rewards, mask), mask)


def transition_rows(transitions: npt.ArrayLike | Sequence[Any]) -> tuple[csr_array, int]:
    """The `(S * A, S)` matrix of a dense array or of one sparse matrix per action; and `A`."""
    if issparse(transitions):
        raise InputError(
            "transitions must be a sequence of sparse matrices, one per action, got a single "
            "sparse matrix: wrap it in a list, or see MDP.from_rows"
        )
    if isinstance(transitions, Sequence) and any(issparse(m) for m in transitions):
        return _interleaved(transitions, "transitions"), len(transitions)
    dense = real_array(transitions, "transitions")
    if dense.ndim != 3 or dense.shape[0] != dense.shape[2]:
        hint = ""
        if dense.ndim == 3 and dense.shape[1] == dense.shape[2]:
            hint = "; it looks like (A, S, S): use transitions.swapaxes(0, 1)"
        elif dense.ndim == 3 and dense.shape[0] == dense.shape[1]:
            hint = "; it looks like (S, S, A): use transitions.swapaxes(1, 2)"
        raise InputError(f"transitions must have shape (S, A, S), got {dense.shape}{hint}")
    if 0 in dense.shape:
        raise InputError(f"transitions must have a state and an action, got shape {dense.shape}")
    n, a, _ = dense.shape
    return csr_array(dense.reshape(n * a, n)), a


def _interleaved(matrices: Sequence[Any], name: str) -> csr_array:
    """Stack one `(S, S)` matrix per action so that row `s * A + a` is row `s` of matrix `a`."""
    for a, matrix in enumerate(matrices):
        if not issparse(matrix) or matrix.ndim != 2:
            raise InputError(
                f"{name}[{a}] must be a scipy sparse matrix like the others, got "
                f"{type(matrix).__name__}"
            )
    n = matrices[0].shape[0]
    for a, matrix in enumerate(matrices):
        if matrix.shape != (n, n) or n == 0:
            raise InputError(f"{name}[{a}] must have shape ({n}, {n}), got {matrix.shape}")
    rows = [checked_csr(m, f"{name}[{a}]") for a, m in enumerate(matrices)]
    stacked = vstack(rows, format="csr")
    order = np.arange(n * len(matrices)).reshape(len(matrices), n).T.ravel()
    return csr_array(stacked[order])


def _check_probabilities(matrix: csr_array, forbidden: Mask, labels: Labels) -> None:
    """Check that rows are distributions, then make them sum to one exactly."""
    bad = np.flatnonzero(~np.isfinite(matrix.data) | (matrix.data < 0))
    if len(bad):
        row = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        raise InputError(
            f"transitions must be probabilities >= 0: {labels.pair(row)}, next state "
            f"{labels.state(matrix.indices[bad[0]])} has {matrix.data[bad[0]]}"
        )
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    sums[forbidden] = 1.0
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > SUM_TOLERANCE:
        hint = "; an action that a state does not have is left out with allowed="
        raise InputError(
            f"transitions must sum to 1 over next states: {labels.pair(worst)} sums to "
            f"{sums[worst]:.10g}{hint if sums[worst] == 0.0 else _other_axis(matrix, labels)}"
        )
    matrix.data /= np.repeat(sums, np.diff(matrix.indptr))


def _other_axis(matrix: csr_array, labels: Labels) -> str:
    """A hint for as many actions as states, where shapes do not tell (S, A, S) from (S, S, A)."""
    n, a = labels.shape
    if n != a:
        return ""
    sums = np.bincount(
        _row_numbers(matrix) // a * n + matrix.indices, weights=matrix.data, minlength=n * n
    )
    if np.abs(sums - 1.0).max() > SUM_TOLERANCE:
        return ""
    return "; it looks like (S, S, A): use transitions.swapaxes(1, 2)"


def _reward_table(rewards: Any, matrix: csr_array, shape: tuple[int, int]) -> Any:
    """Rewards as `(S, A)`, `(S, A, S)` or a sparse `(S * A, S)`."""
    n, a = shape
    if isinstance(rewards, Sequence) and any(issparse(m) for m in rewards):
        if len(rewards) != a:
            raise InputError(f"rewards must hold {a} matrices, one per action, got {len(rewards)}")
        table = _interleaved(rewards, "rewards")
        if table.shape != matrix.shape:
            raise InputError(f"rewards[0] must have shape ({n}, {n}), got {rewards[0].shape}")
        _check_unrepeated(rewards)
        return table
    dense = np.array(real_array(rewards, "rewards"))
    if dense.shape not in ((n, a), (n, a, n)):
        raise InputError(
            f"rewards must have shape ({n}, {a}) or ({n}, {a}, {n}), got "
            f"{dense.shape}{_transposed(dense.shape, n, a)}"
        )
    return dense


def _transposed(shape: tuple[int, ...], n: int, a: int) -> str:
    """How rewards of a shape that other libraries use can be turned into ours."""
    hints = {
        (a, n): "they look like (A, S): use rewards.T",
        (a, n, n): "they look like (A, S, S): use rewards.swapaxes(0, 1)",
        (n, n, a): "they look like (S, S, A): use rewards.swapaxes(1, 2)",
        (n,): f"of states only: use numpy.repeat(rewards[:, None], {a}, axis=1)",
    }
    return f"; {hints[shape]}" if shape in hints else ""


def _check_unrepeated(rewards: Sequence[Any]) -> None:
    """Probabilities of outcomes with one next state add up; their rewards do not."""
    for a, matrix in enumerate(rewards):
        entries = np.stack(matrix.tocoo().coords)
        places, counts = np.unique(entries, axis=1, return_counts=True)
        if places.shape[1] < entries.shape[1]:
            at = int(np.argmax(counts > 1))
            raise InputError(
                f"rewards[{a}] must have one entry per next state, got {counts[at]} for state "
                f"{places[0, at]}, next state {places[1, at]}: MDP.from_outcomes and "
                "MDP.from_rows keep each outcome with its own reward"
            )


def _check_rewards(rewards: Array) -> None:
    bad = np.argwhere(~(np.abs(rewards) <= LARGEST_REWARD))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        hint = ""
        if rewards[where] == -np.inf:
            hint = "; an action that a state does not have is -inf for all next states"
        elif rewards[where] < 0:
            hint = "; an action that a state does not have is left out with allowed="
        raise InputError(
            f"rewards must be finite and at most {LARGEST_REWARD:g} in size: "
            f"rewards{list(where)} is {rewards[where]}{hint}"
        )


def checked_discount(discount: float) -> float:
    try:
        return check_number(discount, "discount", above=0.0, at_most=1.0)
    except InputError:
        raise InputError(
            f"discount must be a number in (0, 1], got {shown(discount)}; 1 is the "
            "average-reward setting"
        ) from None


def checked_start(start: npt.ArrayLike | int | None, n: int) -> Array:
    if start is None:
        return np.full(n, 1.0 / n)
    given = plain_array(start, "start")
    if given.ndim == 0 and given.dtype.kind in "iu":
        if not 0 <= given < n:
            raise InputError(f"start must be a state from 0 to {n - 1}, got {given}")
        point = np.zeros(n)
        point[given] = 1.0
        return point
    array = real_array(given, "start")
    if array.shape != (n,):
        raise InputError(
            f"start must have shape ({n},), a probability per state, got {array.shape}"
        )
    if not np.isfinite(array).all() or (array < 0).any():
        s = int(np.argmax(~np.isfinite(array) | (array < 0)))
        raise InputError(f"start must be probabilities >= 0, start[{s}] is {array[s]}")
    with np.errstate(over="ignore"):
        total = float(array.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        raise InputError(f"start must sum to 1, got a sum of {total:.10g}")
    return array / total
