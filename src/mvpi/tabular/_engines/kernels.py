"""Compiled loops of the exact solver: backups, steps and a Krylov method.

Everything here is a plain function of arrays. A transition table is three CSR arrays
`(indptr, indices, probabilities)` whose row `s * A + a` holds the successors of state `s`
under action `a`.

States are cut into a fixed number of contiguous blocks. Loops run over blocks in parallel and
every sum is formed block by block in a fixed order, so a result does not depend on the number
of threads.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np
from numba import njit, prange

from mvpi._compiled import start_threads, without_and_with_threads

_PARALLEL_FROM = 20_000
_BLOCKS = 4
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}
_LONG = 64
"""Entries per row, on average, from which sums over a row use vector units."""


def unsigned(indices: np.ndarray) -> np.ndarray:
    """The same whole numbers >= 0, typed so that indexing with them needs no sign check.

    64-bit ones, of tables with over 2^31 entries, stay as they are: mixed with signed numbers
    their unsigned form would turn into floats.
    """
    return indices.view(np.uint32) if indices.itemsize == 4 else indices


def partition(n: int) -> np.ndarray:
    """Block boundaries `0 = b[0] < ... < b[-1] = n`; one block when `n` is small."""
    return np.linspace(0, n, (_BLOCKS if n >= _PARALLEL_FROM else 1) + 1).astype(np.int64)


class Compiled:
    """One kernel, compiled without threads for small problems and with threads for large ones."""

    def __init__(self, function, **options):
        options = OPTIONS | options
        self._serial, self._parallel = without_and_with_threads(function, **options)

    def __call__(self, blocks, *arguments):
        if len(blocks) <= 2:
            return self._serial(blocks, *arguments)
        start_threads()
        return self._parallel(blocks, *arguments)


class CompiledRows:
    """A kernel over the rows of a table, whose long rows are summed in the order that is fastest.

    Short rows are summed from left to right: vector units would only cost time.
    """

    def __init__(self, function):
        named = FunctionType(function.__code__, function.__globals__)
        named.__qualname__ = f"{function.__qualname__}_of_long_rows"
        self._short = Compiled(function)
        self._long = Compiled(named, fastmath={"contract", "reassoc", "nsz"})

    def __call__(self, blocks, indptr, indices, *arguments):
        is_long = len(indices) > _LONG * len(indptr)
        return (self._long if is_long else self._short)(blocks, indptr, indices, *arguments)


def _backup(blocks, indptr, indices, probabilities, rewards, values, discount, policy, residual):
    """`residual = T v - v`, with the greedy action in `policy` (kept where nothing is better).

    Returns the number of actions that changed.
    """
    actions = rewards.shape[1]
    changes = np.zeros(len(blocks) - 1, np.int64)
    for block in prange(len(blocks) - 1):
        for s in range(blocks[block], blocks[block + 1]):
            kept = policy[s]
            best, chosen = -np.inf, kept
            for shift in range(actions):
                a = kept + shift
                if a >= actions:
                    a -= actions
                row = s * actions + a
                # Rows sum to one: differences to v(s) avoid cancellation where a chain rarely
                # moves. Two sums: an addition waits for the one before it.
                even, odd = 0.0, 0.0
                k, end = np.int64(indptr[row]), np.int64(indptr[row + 1])
                while k < end - 1:
                    even += probabilities[k] * (values[indices[k]] - values[s])
                    odd += probabilities[k + 1] * (values[indices[k + 1]] - values[s])
                    k += 2
                if k < end:
                    even += probabilities[k] * (values[indices[k]] - values[s])
                total = rewards[s, a] + (discount * (even + odd) - (1.0 - discount) * values[s])
                if total > best:
                    best, chosen = total, a
            if chosen != kept:
                policy[s] = chosen
                changes[block] += 1
            residual[s] = best
    return changes.sum()


def _gather(blocks, indptr, indices, weights, rows, row_starts, columns, entries):
    """Some rows of a table as a table: `columns` and `entries`, from `row_starts` on."""
    for block in prange(len(blocks) - 1):
        for i in range(blocks[block], blocks[block + 1]):
            to = row_starts[i]
            for k in range(indptr[rows[i]], indptr[rows[i] + 1]):
                columns[to] = indices[k]
                entries[to] = weights[k]
                to += 1


def _propagate(blocks, indptr, indices, weights, factor, error, moved, total):
    """`total += error`, `moved = factor B error`. Returns the smallest and largest of `moved`."""
    low = np.empty(len(blocks) - 1)
    high = np.empty(len(blocks) - 1)
    for block in prange(len(blocks) - 1):
        least, most = np.inf, -np.inf
        for s in range(blocks[block], blocks[block + 1]):
            even = odd = factor - factor  # zero, as precise as the rest
            k, end = np.int64(indptr[s]), np.int64(indptr[s + 1])
            while k < end - 1:
                even += weights[k] * error[indices[k]]
                odd += weights[k + 1] * error[indices[k + 1]]
                k += 2
            if k < end:
                even += weights[k] * error[indices[k]]
            x = factor * (even + odd)
            moved[s] = x
            total[s] += error[s]
            least = min(least, x)
            most = max(most, x)
        low[block] = least
        high[block] = most
    return low.min(), high.max()


def _weigh(blocks, indptr, weights, values, centre, means):
    """`means`: the weighted sum of `values - centre` of each row.

    Four sums, whose rounding errors are smaller than those of one.
    """
    for block in prange(len(blocks) - 1):
        for row in range(blocks[block], blocks[block + 1]):
            a, b, c, d = 0.0, 0.0, 0.0, 0.0
            k, end = np.int64(indptr[row]), np.int64(indptr[row + 1])
            while k < end - 3:
                a += weights[k] * (values[k] - centre)
                b += weights[k + 1] * (values[k + 1] - centre)
                c += weights[k + 2] * (values[k + 2] - centre)
                d += weights[k + 3] * (values[k + 3] - centre)
                k += 4
            while k < end:
                a += weights[k] * (values[k] - centre)
                k += 1
            means[row] = (a + b) + (c + d)


def _split(blocks, indptr, indices, weights, bounds, columns, entries, scale):
    """Write `I - B`, rows divided by their diagonal, as lower + identity + upper + across.

    Row `s` has its entries below the diagonal and inside the block in
    `bounds[s, 0]:bounds[s, 1]`, those above it, last column first, up to `bounds[s, 2]`, and
    those outside the block up to `bounds[s, 3]`. `scale[s]` is one over the diagonal.
    """
    for block in prange(len(blocks) - 1):
        first, last = blocks[block], blocks[block + 1]
        for s in range(first, last):
            diagonal = 1.0
            for k in range(indptr[s], indptr[s + 1]):
                if indices[k] == s:
                    diagonal -= weights[k]
            scale[s] = 1.0 / diagonal
            at = indptr[s]
            bounds[s, 0] = at
            for k in range(indptr[s], indptr[s + 1]):
                if first <= indices[k] < s:
                    columns[at], entries[at] = indices[k], -weights[k] * scale[s]
                    at += 1
            bounds[s, 1] = at
            for k in range(indptr[s + 1] - 1, indptr[s] - 1, -1):
                if s < indices[k] < last:
                    columns[at], entries[at] = indices[k], -weights[k] * scale[s]
                    at += 1
            bounds[s, 2] = at
            for k in range(indptr[s], indptr[s + 1]):
                if indices[k] < first or indices[k] >= last:
                    columns[at], entries[at] = indices[k], -weights[k] * scale[s]
                    at += 1
            bounds[s, 3] = at


@njit(inline="always")
def _precondition(first, last, bounds, columns, entries, x, w, y):
    """`w = (I + L)^-1 x` and `y = (I + U)^-1 w` in one block; see `_bicgstab`."""
    for s in range(first, last):
        total = x[s]
        for k in range(bounds[s, 0], bounds[s, 1]):
            total -= entries[k] * w[columns[k]]
        w[s] = total
    for s in range(last - 1, first - 1, -1):
        total = w[s]
        for k in range(bounds[s, 1], bounds[s, 2]):
            total -= entries[k] * y[columns[k]]
        y[s] = total


@njit(inline="always")
def _row_product(s, bounds, columns, entries, w, y):
    """Entry `s` of `A y = w + L y + C y`, for `y = (I + U)^-1 w`; see `_bicgstab`."""
    x = w[s]
    for k in range(bounds[s, 0], bounds[s, 1]):
        x += entries[k] * y[columns[k]]
    for k in range(bounds[s, 2], bounds[s, 3]):
        x += entries[k] * y[columns[k]]
    return x


def _bicgstab(blocks, bounds, columns, entries, scale, right, shade, target, limit, solution):
    """Solve `(I - B) x = right` roughly: BiCGSTAB, block symmetric Gauss-Seidel preconditioning.

    With rows divided by their diagonal, `A = L + I + U + C` (see `_split`), and the
    preconditioner is `M = (I + L)(I + U)`. For `w = (I + L)^-1 x` and `y = (I + U)^-1 w` the
    product `A M^-1 x = A y` is `w + L y + C y`: half a product with `A`. Stops when no entry of
    the residual exceeds `target`, or when it diverges. `shade` is the shadow residual, any
    vector not orthogonal to `right`. Returns the number of iterations.

    Memory traffic is the cost, so all is held in single precision; the caller repeats the solve
    on the residual, computed in double precision, until that is small enough.
    """
    n = len(right)
    count = len(blocks) - 1
    residual, shadow = np.empty(n, np.float32), np.empty(n, np.float32)
    direction, image = np.zeros(n, np.float32), np.zeros(n, np.float32)
    w, y, image2 = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    z = np.zeros(n, np.float32)
    part = np.zeros((count, 2))

    for block in prange(count):
        norm = np.float32(0.0)
        for s in range(blocks[block], blocks[block + 1]):
            x = np.float32(right[s]) * scale[s]
            residual[s] = x
            shadow[s] = np.float32(shade[s]) * scale[s]
            norm = max(norm, abs(x))
        part[block, 0] = norm
    largest = part[:, 0].max()
    divergent = 1e4 * largest

    rho, alpha, omega = 1.0, 1.0, 1.0
    used = 0
    while used < limit and target < largest < divergent:
        used += 1
        for block in prange(count):
            total = 0.0
            for s in range(blocks[block], blocks[block + 1]):
                total += shadow[s] * residual[s]
            part[block, 0] = total
        rho_new = part[:, 0].sum()
        if rho_new == 0.0:
            break
        beta = np.float32(0.0 if used == 1 else rho_new / rho * (alpha / omega))
        old_omega = np.float32(omega)
        rho = rho_new

        for block in prange(count):
            first, last = blocks[block], blocks[block + 1]
            for s in range(first, last):
                direction[s] = residual[s] + beta * (direction[s] - old_omega * image[s])
            _precondition(first, last, bounds, columns, entries, direction, w, y)
        for block in prange(count):
            total = 0.0
            for s in range(blocks[block], blocks[block + 1]):
                x = _row_product(s, bounds, columns, entries, w, y)
                image[s] = x
                total += shadow[s] * x
            part[block, 0] = total
        slope = part[:, 0].sum()
        if slope == 0.0:
            break
        alpha = rho / slope
        step = np.float32(alpha)

        for block in prange(count):
            first, last = blocks[block], blocks[block + 1]
            for s in range(first, last):
                residual[s] -= step * image[s]
                z[s] += step * y[s]
            _precondition(first, last, bounds, columns, entries, residual, w, y)
        for block in prange(count):
            total, norm = 0.0, 0.0
            for s in range(blocks[block], blocks[block + 1]):
                x = _row_product(s, bounds, columns, entries, w, y)
                image2[s] = x
                total += x * residual[s]
                norm += x * x
            part[block, 0], part[block, 1] = total, norm
        norm = part[:, 1].sum()
        omega = part[:, 0].sum() / norm if norm > 0.0 else 0.0
        step2 = np.float32(omega)

        for block in prange(count):
            size = np.float32(0.0)
            for s in range(blocks[block], blocks[block + 1]):
                z[s] += step2 * y[s]
                residual[s] -= step2 * image2[s]
                size = max(size, abs(residual[s]))
            part[block, 0] = size
        largest = part[:, 0].max()
        if omega == 0.0 or not np.isfinite(largest):
            break

    for block in prange(count):
        for s in range(blocks[block], blocks[block + 1]):
            solution[s] = z[s]
    return used


def _image(blocks, indptr, indices, weights, factor, x, image):
    """`image = (I - factor B) x`."""
    for block in prange(len(blocks) - 1):
        for s in range(blocks[block], blocks[block + 1]):
            y = factor - factor  # zero, as precise as the rest
            for k in range(indptr[s], indptr[s + 1]):
                y += weights[k] * x[indices[k]]
            image[s] = x[s] - factor * y


def _dot(blocks, x, y):
    """The inner product of `x` and `y`, summed in double precision."""
    parts = np.empty(len(blocks) - 1)
    for block in prange(len(blocks) - 1):
        total = 0.0
        for s in range(blocks[block], blocks[block + 1]):
            total += np.float64(x[s]) * y[s]
        parts[block] = total
    whole = 0.0
    for part in parts:  # not `parts.sum()`, whose order would depend on the number of threads
        whole += part
    return whole


backup = CompiledRows(_backup)
gather = Compiled(_gather)
propagate = CompiledRows(_propagate)
weigh = Compiled(_weigh)
split = Compiled(_split)
bicgstab = CompiledRows(_bicgstab)
image = CompiledRows(_image)
dot = Compiled(_dot)
