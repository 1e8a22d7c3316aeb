"""Transition matrices of Markov chains: closed classes, reachable states, products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from mvpi._types import Array
from mvpi.errors import InputError


def closed_classes(matrix: csr_array) -> list[int]:
    """One state of every closed communicating class of the graph of `matrix`, in order."""
    graph = with_sorted_indices(matrix, like=matrix)
    count, label = connected_components(graph, directed=True, connection="strong")
    source = np.repeat(label, np.diff(graph.indptr))
    closed = np.ones(count, dtype=bool)
    closed[source[source != label[graph.indices]]] = False
    _, first_state = np.unique(label, return_index=True)
    return sorted(int(s) for s in first_state[closed])


def reached_from(matrix: csr_array, starts: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The states that can be reached from `starts` along the entries of `matrix`, sorted."""
    n = matrix.shape[0]
    moves = matrix.tocoo()
    rows = np.concatenate([moves.coords[0], np.full(len(starts), n)])
    columns = np.concatenate([moves.coords[1], starts])
    graph = csr_array((np.ones(len(rows)), (rows, columns)), shape=(n + 1, n + 1))
    found = np.sort(breadth_first_order(graph, n, return_predecessors=False))[:-1]
    return found.astype(np.int64)


class NotUnichain(InputError):
    """The chain of a policy has several closed classes."""

    def __init__(self, subject: str, states: Sequence[object]):
        super().__init__(
            f"{subject} has {len(states)} closed classes (one holds state {states[0]}, another "
            f"state {states[1]}), so its average reward depends on the start; discount=1 needs a "
            "single closed class: use a discount below 1, or let finished episodes restart"
        )


def mean_over(distribution: Array, values: Array) -> float:
    """`distribution @ values`, summed by numpy itself.

    The threads of BLAS compete with those of the compiled loops, and its rounding depends on their
    number.
    """
    return float((distribution * values).sum())


def drifts(table: csr_array, x: Array) -> tuple[Array, Array]:
    """`P x - x`, row by row, and the sum of the absolute terms, for the rounding error.

    Computed as `sum_j p_j (x_j - x_i)`, because rows sum to one: for a chain that rarely moves the
    difference of `P x` and `x` would cancel.
    """
    lengths = np.diff(table.indptr)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    own = rows // (table.shape[0] // table.shape[1])
    there, here = x[table.indices], x[own]
    left = np.where(table.indices == own, 0.0, table.data)
    starts = table.indptr[:-1]
    drift: Array = np.add.reduceat(left * (there - here), starts)
    size: Array = np.add.reduceat(left * (np.abs(there) + np.abs(here)), starts)
    return drift, size


def scaled(matrix: csr_array, factor: float) -> csr_array:
    return csr_array((factor * matrix.data, matrix.indices, matrix.indptr), matrix.shape)


def with_sorted_indices(matrix: csr_array, like: csr_array) -> csr_array:
    """`matrix` as CSR without stored zeros or repeats, its indices typed as those of `like`."""
    matrix = csr_array(matrix, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    index = like.indices.dtype
    return csr_array(
        (matrix.data, matrix.indices.astype(index), matrix.indptr.astype(index)), matrix.shape
    )
