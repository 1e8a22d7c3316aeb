"""Compiled loops of ordered sweeps: breadth-first orders, and the passes over them."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from mvpi.tabular._engines.kernels import OPTIONS, Compiled


def _arrange(
    blocks,
    indptr,
    indices,
    weights,
    factor,
    order,
    position,
    row_starts,
    columns,
    entries,
    scale,
):
    """`factor B` with its states in `order`, state `s` at `position[s]`.

    Self-transitions are eliminated: row and reward are divided by `1 - factor B(s, s)`, and `scale`
    is one over that.
    """
    actions = scale.shape[1]
    for block in prange(len(blocks) - 1):
        for i in range(blocks[block], blocks[block + 1]):
            s = order[i]
            for a in range(actions):
                row = s * actions + a
                leaving = 1.0
                for k in range(indptr[row], indptr[row + 1]):
                    if indices[k] == s:
                        leaving -= factor * weights[k]
                scale[i, a] = 1.0 / leaving
                to = row_starts[i * actions + a]
                for k in range(indptr[row], indptr[row + 1]):
                    columns[to] = position[indices[k]]
                    entries[to] = 0.0 if indices[k] == s else factor * weights[k] / leaving
                    to += 1


@njit(cache=True, **OPTIONS)
def sweep(bounds, window, indptr, indices, weights, rewards, values):
    """`v(s) = max over a of r(s, a) + sum_j w(s, a, j) v(j)`, level by level, in place.

    Level `l` holds the states from `bounds[l]` to `bounds[l + 1]`. Each level that is reached is
    updated along with the `window` levels before it.
    """
    levels = len(bounds) - 1
    actions = rewards.shape[1]
    for front in range(levels + window):
        for s in range(bounds[max(front - window, 0)], bounds[min(front + 1, levels)]):
            row = s * actions
            best = rewards[s, 0]
            for k in range(indptr[row], indptr[row + 1]):
                best += weights[k] * values[indices[k]]
            for a in range(1, actions):
                row = s * actions + a
                total = rewards[s, a]
                for k in range(indptr[row], indptr[row + 1]):
                    total += weights[k] * values[indices[k]]
                best = max(best, total)
            values[s] = best


@njit(cache=True, **OPTIONS)
def by_level(levels):
    """States by level: their order, the position of each in it, and where every level begins."""
    n = len(levels)
    count = levels.max() + 1
    bounds = np.zeros(count + 1, np.int64)
    for level in levels:
        bounds[level + 1] += 1
    for level in range(count):
        bounds[level + 1] += bounds[level]
    order, position = np.empty(n, np.int64), np.empty(n, np.int64)
    free = bounds.copy()
    for s in range(n):
        at = free[levels[s]]
        free[levels[s]] += 1
        order[at] = s
        position[s] = at
    return order, position, bounds


@njit(cache=True, **OPTIONS)
def distances(indptr, indices, actions, ends):
    """The smallest number of moves from each state to one of `ends`; one more than all others
    where none is reachable.
    """
    n = (len(indptr) - 1) // actions
    starts = np.zeros(n + 1, np.int64)
    for j in indices:
        starts[j + 1] += 1
    for j in range(n):
        starts[j + 1] += starts[j]
    before = np.empty(len(indices), indices.dtype)
    free = starts.copy()
    for s in range(n):
        for k in range(indptr[s * actions], indptr[(s + 1) * actions]):
            j = indices[k]
            before[free[j]] = s
            free[j] += 1
    found = np.full(n, -1, np.int64)
    queue = np.empty(n, np.int64)
    last = 0
    for s in ends:
        found[s] = 0
        queue[last] = s
        last += 1
    first = 0
    while first < last:
        j = queue[first]
        first += 1
        for k in range(starts[j], starts[j + 1]):
            s = before[k]
            if found[s] < 0:
                found[s] = found[j] + 1
                queue[last] = s
                last += 1
    beyond = found.max() + 1
    for s in range(n):
        if found[s] < 0:
            found[s] = beyond
    return found


@njit(cache=True, **OPTIONS)
def depths(indptr, indices, weights):
    """How many moves along the largest entry of each row, other than to itself, until they repeat.

    States on a cycle, and those that lead nowhere, have depth 0.
    """
    n = len(indptr) - 1
    unknown, on_path = -1, -2
    depth = np.full(n, unknown, np.int64)
    path = np.empty(n, np.int64)
    for start in range(n):
        length, s = 0, start
        while depth[s] == unknown:
            depth[s] = on_path
            path[length] = s
            length += 1
            largest = 0.0
            successor = s
            for k in range(indptr[s], indptr[s + 1]):
                if indices[k] != s and weights[k] > largest:
                    largest, successor = weights[k], np.int64(indices[k])
            s = successor
        if depth[s] == on_path:
            while depth[s] == on_path:
                length -= 1
                depth[path[length]] = 0
        reached = depth[s]
        while length > 0:
            length -= 1
            reached += 1
            depth[path[length]] = reached
    return depth


arrange = Compiled(_arrange)
