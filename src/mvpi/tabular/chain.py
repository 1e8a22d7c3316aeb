"""The Markov chain of one policy: its values and its occupancy.

For a policy with transition matrix `P` (S x S), rewards `r`, start `mu` and discount `g`:

    values        v = r + g P v                     (g < 1)
                  v = r - gain + P v                (g = 1, unichain; v up to a constant)
    occupancy     d = (1 - g) mu + g P' d           (g < 1)
                  d = P' d,  sum d = 1              (g = 1)

Both are solved by correcting an approximation until its residual is small: up to `DIRECT_UP_TO`
states by dense linear algebra, above by the iterative methods of `mvpi.tabular.linear`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from mvpi.errors import InputError, NoConvergence

if TYPE_CHECKING:
    from mvpi.tabular.linear import System

Array = npt.NDArray[np.float64]

DIRECT_UP_TO = 64
"""Number of states up to which dense linear algebra is used."""

_OCCUPANCY_ACCURACY = 1e-12
_STATIONARY_ACCURACY = 1e-9
"""A distribution that a step changes by more than this is not stationary."""
_REFERENCES = 5
"""How many states a stationary distribution is sought around."""
_NEAR_ONE = 1e-6
"""With `1 - discount` below this, single precision sees values only relative to one of them."""
PASSES = 125
"""Passes over all states that a solution is worth, if nothing else is said."""
_LONG_RUN = 1.0 - 1e-5
"""The discount of a distribution that is nearly the stationary one."""
_BLURRED = 100.0
"""Rounding so many times above the tolerance may come from states that do not count."""
_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


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
    """The states that a chain, or any policy, can be in after beginning in one of `starts`."""
    n = matrix.shape[0]
    moves = matrix.tocoo()
    rows = np.concatenate([moves.coords[0], np.full(len(starts), n)])
    columns = np.concatenate([moves.coords[1], starts])
    graph = csr_array((np.ones(len(rows)), (rows, columns)), shape=(n + 1, n + 1))
    found = np.sort(breadth_first_order(graph, n, return_predecessors=False))[:-1]
    return found.astype(np.int64)


class NotUnichain(InputError):
    """The long-run distribution of a policy depends on where it starts."""

    def __init__(self, subject: str, states: list[int]):
        super().__init__(
            f"{subject} has {len(states)} closed classes (one holds state {states[0]}, another "
            f"state {states[1]}), so its average reward depends on the start; discount=1 needs a "
            "single closed class: use a discount below 1, or let finished episodes restart"
        )


class Values(NamedTuple):
    """State values of a policy, and its gain: the reward per step from the start distribution.

    Relative values have a mean of 0 over the start: near discount 1 they keep the digits that
    the common part `gain / (1 - discount)` would take from them.
    """

    values: Array
    gain: float


def mean_over(distribution: Array, values: Array) -> float:
    """`distribution @ values`, summed by numpy itself.

    BLAS would leave threads spinning beside the compiled loops, and its rounding depends on how
    many there are.
    """
    return float((distribution * values).sum())


def moves(table: csr_array, x: Array) -> tuple[Array, Array]:
    """`P x - x`, row by row, and the size of what is added up, for the rounding of both.

    Rows sum to one, so what stays in its state adds nothing: where a chain hardly moves, `P x` and
    `x` would have most of their digits in common.
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


class Chain:
    """The Markov chain that a policy makes of an MDP.

    Raises `NotUnichain` at discount 1 when the chain has more than one closed class.
    """

    def __init__(self, matrix: csr_array, discount: float, start: Array):
        self.matrix, self.discount, self.start = matrix, discount, start
        self._value_system: System | None = None
        self._reference = int(np.argmax(start))
        """A state that matters: at discount 1 a recurrent one."""
        self.mixes_slowly = False
        """Whether fixed-point steps were not enough for the last value correction."""
        if discount == 1.0:
            classes = closed_classes(matrix)
            if len(classes) > 1:
                raise NotUnichain("the policy's chain", classes)
            self._reference = classes[0]

    @cached_property
    def lasting(self) -> npt.NDArray[np.bool_]:
        """The states that count: reached from the start, at discount 1 again and again."""
        starts = np.flatnonzero(self.start) if self.discount < 1.0 else np.array([self._reference])
        mask = np.zeros(len(self.start), dtype=bool)
        mask[reached_from(self.matrix, starts) if len(starts) < len(mask) else slice(None)] = True
        return mask

    @cached_property
    def _often_visited(self) -> int:
        """A state that is visited often in the long run."""
        d = np.where(self.lasting, self._nearly_stationary(), 0.0)
        return int(np.argmax(d))

    @property
    def _is_relative(self) -> bool:
        """Whether values are solved for relative to that of a state that is visited often."""
        near = 1.0 - self.discount < _NEAR_ONE
        return self.discount == 1.0 or (near and not self.is_narrow)

    @property
    def slowness(self) -> int:
        """Work spent on values beyond fixed-point steps, in passes over all states."""
        return 0 if self._value_system is None else self._value_system.effort

    def evaluate(self, rewards: Array, tolerance: float, guess: Array | None = None) -> Values:
        """Values and gain for per-state `rewards`; the gain is right to `tolerance`."""
        relative, gain = self.evaluate_relative(rewards, tolerance, guess)
        common = gain / (1.0 - self.discount) if self.discount < 1.0 else 0.0
        return Values(relative + common, gain)

    def evaluate_relative(
        self, rewards: Array, tolerance: float, guess: Array | None = None
    ) -> Values:
        """Relative values and gain for per-state `rewards`; the gain is right to `tolerance`."""
        v = np.zeros_like(rewards) if guess is None else guess.copy()
        gain, everywhere, where_it_counts = 0.0, _Progress(tolerance), _Progress(tolerance)
        for _ in range(50):
            common = mean_over(self.start, v)
            v -= common
            gain += (1.0 - self.discount) * common
            image, noise = self._image(v)
            residual = rewards - gain - image
            noise = 8 * _EPS * np.maximum(noise, np.abs(rewards))
            seen = [everywhere]
            middle, floor = everywhere.look(residual, noise)
            if floor > _BLURRED * tolerance:
                kept = self.lasting
                middle, _ = where_it_counts.look(residual[kept], noise[kept])
                seen.append(where_it_counts)
            gain += middle
            residual -= middle
            if all(progress.is_over for progress in seen):
                break
            stalled = any(progress.is_stalled and not progress.is_over for progress in seen)
            v += self.value_correction(residual, 0.5 * tolerance, stalled)
        return Values(v, gain)

    def _image(self, x: Array) -> tuple[Array, Array]:
        """`(I - discount P) x`, and the size of the terms in it."""
        if len(x) <= DIRECT_UP_TO:
            drift, size = moves(self.matrix, x)
            rest = 1.0 - self.discount
            return rest * x - self.discount * drift, rest * np.abs(x) + self.discount * size
        from mvpi.tabular.linear import image

        return image(self.matrix, self.discount, x), np.abs(x)

    def value_correction(
        self, residual: Array, target: float, stalled: bool = False, limit: int = PASSES
    ) -> Array:
        """`x` that brings the span of `residual + discount P x - x` towards `target`.

        `stalled` says that earlier corrections did not help: then a direct method is used.
        `limit` is how many passes in waves it is worth; with 0, only fixed-point steps are made.
        """
        if len(residual) <= DIRECT_UP_TO:
            return self._direct_values(residual)
        if self._value_system is not None and self._value_system.is_direct:
            return self._value_system.solve_directly(residual)
        from mvpi.tabular.linear import fixed_point_steps

        x, remaining = fixed_point_steps(
            self.matrix, self.discount, residual, target, relative=True
        )
        self.mixes_slowly = float(np.ptp(remaining)) > target
        shared = middle(remaining)
        if self.discount < 1.0:
            x += shared / (1.0 - self.discount)
        if self.mixes_slowly and limit > 0:
            remaining -= shared
            system = self.factorise() if self._value_system is None else self._value_system
            if stalled:
                y = system.solve_directly(remaining)
            else:
                y = system.solve(remaining, 0.5 * target, limit)
            if self._is_relative:
                common, y[self._often_visited] = float(y[self._often_visited]), 0.0
                x += common / (1.0 - self.discount) if self.discount < 1.0 else 0.0
            x += y
        return x

    def factorise(self) -> System:
        """Prepare for values that fixed-point steps would not find."""
        from mvpi.tabular.linear import make_system

        self._value_system = make_system(self._value_matrix(), bordered=self._is_relative)
        return self._value_system

    @property
    def is_narrow(self) -> bool:
        """Whether transitions lead to neighbouring states only, so that LU is cheap."""
        from mvpi.tabular.linear import bandwidths, is_narrow

        return is_narrow(bandwidths(self.matrix))

    def occupancy(self) -> Array:
        """The state distribution that the policy generates, summing to one."""
        if len(self.start) <= DIRECT_UP_TO:
            d = self._direct_occupancy()
        else:
            d = self._iterative_occupancy()
        d = np.maximum(d, 0.0)
        d /= d.sum()
        return d

    def _value_matrix(self) -> csr_array:
        """`B` with `x = b + B x` giving the values.

        Relative ones are differences to that of one state, in whose place stands what all have in
        common: `1 - discount` times its value, at discount 1 the gain.
        """
        if not self._is_relative:
            return _scaled(self.matrix, self.discount)
        n, k = self.matrix.shape[0], self._often_visited
        others = _scaled(self.matrix, self.discount)
        others.data[others.indices == k] = 0.0
        rows = np.delete(np.arange(n), k)
        gain_column = csr_array((np.ones(n - 1), (rows, np.full(n - 1, k))), shape=(n, n))
        return with_sorted_indices(others - gain_column, like=self.matrix)

    def _direct_values(self, residual: Array) -> Array:
        # The reference keeps its value: in its place stands what all residuals have in common.
        system = np.eye(len(residual)) - self.discount * self.matrix.toarray()
        system[:, self._reference] = 1.0
        # Rows are weighed so that no pivot comes from a state with a far larger residual, whose
        # rounding would spread to states that never go there.
        size = np.abs(residual)
        weights = 1.0 / np.maximum(size, 1e-6 * float(size.mean()) + _TINY)
        x: Array = np.linalg.solve(weights[:, None] * system, weights * residual)
        x[self._reference] = 0.0
        return x

    def _direct_occupancy(self) -> Array:
        """By the elimination of Grassmann, Taksar and Heyman (1985), which never subtracts.

        So every entry has nearly all its digits, however rarely its state is visited or left. The
        occupancy is the stationary distribution of the chain that starts anew with probability
        `1 - discount`. The reference, which every state leads to, is the last one left.
        """
        order = np.roll(np.arange(len(self.start)), -self._reference)
        rates = self.discount * self.matrix.toarray() + (1.0 - self.discount) * self.start
        rates = rates[np.ix_(order, order)]
        for k in range(len(order) - 1, 0, -1):
            rates[:k, k] /= rates[k, :k].sum()
            rates[:k, :k] += np.outer(rates[:k, k], rates[k, :k])
        d = np.zeros(len(order))
        d[order[0]] = 1.0
        for k in range(1, len(order)):
            d[order[k]] = d[order[:k]] @ rates[:k, k]
        return d

    def _iterative_occupancy(self) -> Array:
        from mvpi.tabular.linear import make_system

        backwards = _scaled(self._backwards, self.discount)
        restart = (1.0 - self.discount) * self.start
        d, residual = _steps_from(self.start, backwards, restart)
        if float(np.abs(residual).sum()) <= _OCCUPANCY_ACCURACY:
            return d
        if self.discount == 1.0:
            return self._stationary()
        return _refined(make_system(backwards), backwards, restart, d)

    def _stationary(self) -> Array:
        """Visits to each state between two visits to one that is visited often.

        Around a state that is hardly ever visited these numbers would be beyond arithmetic: then
        the state that seems to be visited most is tried.
        """
        from mvpi.tabular.linear import make_system

        reference = self._often_visited
        for _ in range(_REFERENCES):
            others = self._backwards.copy()
            others.data[others.indptr[reference] : others.indptr[reference + 1]] = 0.0
            once = np.zeros_like(self.start)
            once[reference] = 1.0
            with np.errstate(over="ignore", invalid="ignore"):
                d = _refined(make_system(others), others, once, np.zeros_like(once))
                d = np.where(np.isfinite(d), np.maximum(d, 0.0), 0.0)
                d /= d.sum()
                change = float(np.abs(self._backwards @ d - d).sum())
            if change <= _STATIONARY_ACCURACY:
                return d
            reference = int(np.argmax(np.where(self.lasting, d, 0.0)))
        raise NoConvergence(
            "the stationary distribution of a policy could not be computed: its chain hardly "
            "ever goes from some places to others; use a discount below 1"
        )

    def _nearly_stationary(self) -> Array:
        """The occupancy at a discount next to 1, roughly."""
        from mvpi.tabular.linear import make_system

        discount = min(self.discount, _LONG_RUN)
        backwards = _scaled(self._backwards, discount)
        d, residual = _steps_from(self.start, backwards, (1.0 - discount) * self.start)
        error = float(np.abs(residual).max())
        if error * len(d) <= 0.01:
            return d
        return d + make_system(backwards).solve(residual, 1e-3 * error)

    @cached_property
    def _backwards(self) -> csr_array:
        return with_sorted_indices(self.matrix.T, like=self.matrix)


def middle(values: Array) -> float:
    """Half-way between the smallest and the largest."""
    return 0.5 * float(values.max() + values.min())


def _scaled(matrix: csr_array, factor: float) -> csr_array:
    return csr_array((factor * matrix.data, matrix.indices, matrix.indptr), matrix.shape)


def _steps_from(start: Array, backwards: csr_array, restart: Array) -> tuple[Array, Array]:
    """`x = restart + backwards x` by fixed-point steps from `start`, and the residual left."""
    from mvpi.tabular.linear import fixed_point_steps

    right = restart - start + backwards @ start
    x, residual = fixed_point_steps(backwards, 1.0, right, target=0.0, relative=False)
    return x + start, residual


def _refined(system: System, backwards: csr_array, restart: Array, x: Array) -> Array:
    """`x = restart + backwards x`, from an approximation on, as exactly as it gets."""
    previous = np.inf
    for _ in range(20):
        residual = restart - x + backwards @ x
        error = float(np.abs(residual).sum())
        if error <= _OCCUPANCY_ACCURACY * max(1.0, float(x.sum())):
            break
        if error > 0.5 * previous:
            return x + system.solve_directly(residual)
        previous = error
        x = x + system.solve(residual, 1e-3 * float(np.abs(residual).max()))
    return x


class _Progress:
    """How residuals of some states shrink, until they are small or nothing but rounding."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._span = np.inf
        self.is_stalled = self.is_over = False

    def look(self, residual: Array, noise: Array) -> tuple[float, float]:
        """The middle of the residuals, and how far they may be off by rounding alone."""
        low, high, floor = float(residual.min()), float(residual.max()), float(noise.max())
        previous, self._span = self._span, high - low
        self.is_stalled = self._span > 0.5 * previous
        small = self._span <= max(self._tolerance, floor)
        self.is_over = small or (self.is_stalled and previous <= 1e3 * floor)
        return 0.5 * (low + high), floor


def with_sorted_indices(matrix: csr_array, like: csr_array) -> csr_array:
    """`matrix` as CSR without stored zeros or repeats, its indices typed as those of `like`."""
    matrix = csr_array(matrix, copy=True)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    index = like.indices.dtype
    return csr_array(
        (matrix.data, matrix.indices.astype(index), matrix.indptr.astype(index)), matrix.shape
    )
