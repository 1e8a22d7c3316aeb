"""Actions that a state does not have.

A pair that is not allowed is given the transitions and rewards of an allowed action of the same
state, the one with the fewest next states. So every row is a distribution and no algorithm
depends on the mask: only policies are translated (`mvpi.tabular._reachable`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._checks import plain_array
from mvpi._types import Array
from mvpi.errors import InputError

Mask = npt.NDArray[np.bool_]
"""`(S, A)`"""
Places = npt.NDArray[np.int64]


def checked_mask(allowed: Any, shape: tuple[int, int]) -> Mask | None:
    """The mask of a user; None when every state has every action."""
    if allowed is None:
        return None
    mask = plain_array(allowed, "allowed")
    if mask.dtype.kind != "b" or mask.shape != shape:
        hint = "; use allowed.T" if mask.shape == shape[::-1] and mask.dtype.kind == "b" else ""
        raise InputError(
            f"allowed must be True or False for each of {shape[0]} states and {shape[1]} actions, "
            f"an array of shape {shape}, got {mask.dtype} of shape {mask.shape}{hint}"
        )
    return np.array(mask)


def stand_ins(allowed: Mask, lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """By pair, `(S, A)`: the action whose row it holds, its own where it is allowed.

    `lengths` are the numbers of stored transitions by pair.
    """
    costs = np.where(allowed, lengths.reshape(allowed.shape).astype(np.float64), np.inf)
    shortest = np.argmin(costs, axis=1)
    return np.where(allowed, np.arange(allowed.shape[1]), shortest[:, None])


def with_repeats(transitions: csr_array, rewards: Array, allowed: Mask) -> tuple[csr_array, Array]:
    """Rows and rewards in which the pairs that are not allowed repeat others."""
    actions = stand_ins(allowed, np.diff(transitions.indptr))
    if rewards.ndim == 2:
        rewards = np.take_along_axis(rewards, actions, axis=1)
    pairs = (np.arange(len(actions))[:, None] * allowed.shape[1] + actions).ravel()
    return some_rows(transitions, rewards, pairs)


def without_repeats(
    transitions: csr_array, rewards: Array, allowed: Mask
) -> tuple[csr_array, Array]:
    """Rows and rewards in which the rows of pairs that are not allowed are empty."""
    lengths = np.diff(transitions.indptr)
    kept = np.repeat(allowed.ravel(), lengths)
    indptr = np.concatenate([[0], np.cumsum(np.where(allowed.ravel(), lengths, 0))])
    entries = (transitions.data[kept], transitions.indices[kept], indptr)
    matrix = csr_array(entries, shape=transitions.shape)
    return matrix, rewards[kept] if rewards.ndim == 1 else rewards


def some_rows(table: csr_array, rewards: Array, rows: npt.NDArray[Any]) -> tuple[csr_array, Array]:
    """Some rows of a table, in any order and as often as asked for, and the rewards in them.

    Rewards by pair, `(S, A)`, stay as they are.
    """
    entries, indptr = entries_of(table.indptr, rows)
    matrix = csr_array(
        (table.data[entries], table.indices[entries], indptr), shape=(len(rows), table.shape[1])
    )
    return matrix, rewards[entries] if rewards.ndim == 1 else rewards


def entries_of(indptr: npt.NDArray[Any], rows: npt.NDArray[Any]) -> tuple[Places, Places]:
    """Where the entries of some rows are in the arrays of a table, and their own `indptr`."""
    lengths = np.diff(indptr)[rows]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return np.arange(starts[-1]) + np.repeat(indptr[rows] - starts[:-1], lengths), starts
