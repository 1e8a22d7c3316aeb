"""A finite Markov decision process, checked on the way in.

    MDP(transitions, rewards, discount, start)

`S` states, `A` actions, `p(s' | s, a)`, reward `r(s, a)` or `r(s, a, s')`, a discount in (0, 1]
and a start distribution. At discount 1 the average-reward setting is meant. All dense and sparse
inputs become one CSR matrix with a row per pair, row `s * A + a`, so that every algorithm is
written once and its cost is the number of possible transitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse, vstack
from scipy.sparse.csgraph import breadth_first_order

from mvpi._checks import check_number, plain_array, real_array, shown
from mvpi.errors import InputError
from mvpi.tabular.chain import DIRECT_UP_TO, Chain, closed_classes, with_sorted_indices
from mvpi.tabular.sparse import checked_csr

if TYPE_CHECKING:
    import gymnasium

Array = npt.NDArray[np.float64]
Policy = npt.NDArray[Any]
"""`(S,)` whole numbers, an action per state, or `(S, A)` probabilities."""

_SUM_TOLERANCE = 1e-6
_LARGEST_REWARD = 1e150
"""The square of a larger one overflows."""


class MDP:
    """A finite MDP.

    Args:
        transitions: array `(S, A, S)` of probabilities `p[s, a, next]`, or a sequence of `A`
            scipy sparse matrices `(S, S)`, one per action.
        rewards: array `(S, A)`, or `(S, A, S)` for rewards that depend on the next state. With
            sparse transitions a sequence of `A` sparse `(S, S)` matrices is taken too.
        discount: in (0, 1]; 1 is the average-reward setting.
        start: distribution of the first state, `(S,)`, or the number of the one start state;
            uniform when left out.

    >>> import numpy as np
    >>> stay_or_swap = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    >>> mdp = MDP(stay_or_swap, rewards=[[0, 0], [1, 1]], discount=0.9, start=0)
    >>> mdp.occupancy(np.array([1, 0])).round(3)
    array([[0. , 0.1],
           [0.9, 0. ]])
    """

    n_states: int
    """Number of states, `S`."""
    n_actions: int
    """Number of actions, `A`."""
    discount: float
    start: Array
    """Distribution of the first state, `(S,)`."""
    transitions: csr_array
    """Probabilities, `(S * A, S)`, row `s * A + a`."""
    rewards: Array
    """`(S, A)`; or, when they depend on the next state, one per stored entry of `transitions`."""

    def __init__(
        self,
        transitions: npt.ArrayLike | Sequence[Any],
        rewards: npt.ArrayLike | Sequence[Any],
        discount: float = 0.99,
        start: npt.ArrayLike | int | None = None,
    ):
        matrix, n_actions = _transition_rows(transitions)
        shape = (matrix.shape[1], n_actions)
        _check_probabilities(matrix, n_actions)
        values = _reward_values(rewards, matrix, shape)
        self._set(matrix, values, n_actions, discount, start)

    @classmethod
    def from_rows(
        cls,
        transitions: csr_array,
        rewards: npt.ArrayLike,
        discount: float = 0.99,
        start: npt.ArrayLike | int | None = None,
    ) -> MDP:
        """An MDP from its stored form: see the attributes `transitions` and `rewards`.

        The fastest way in for large models: nothing is rearranged. A next state may be stored
        more than once, with a reward of its own each; stored probabilities of 0 are left out.
        """
        if issparse(transitions):
            matrix = checked_csr(transitions, "transitions")
        else:
            matrix = real_array(transitions, "transitions")
        if matrix.ndim != 2 or 0 in matrix.shape or matrix.shape[0] % matrix.shape[1]:
            raise InputError(
                f"transitions must have shape (S * A, S) with row s * A + a, got {matrix.shape}"
            )
        matrix = csr_array(matrix)
        pairs, n_states = matrix.shape
        n_actions = pairs // n_states
        _check_probabilities(matrix, n_actions, canonical=False)
        values = np.array(real_array(rewards, "rewards"))
        if values.shape not in ((n_states, n_actions), (matrix.nnz,)):
            raise InputError(
                f"rewards must have shape {(n_states, n_actions)}, or one value per stored "
                f"transition, ({matrix.nnz},), got {values.shape}"
            )
        _check_rewards(values)
        if values.ndim == 1:
            values = values[matrix.data > 0]
        matrix.eliminate_zeros()
        self = cls.__new__(cls)
        self._set(matrix, values, n_actions, discount, start)
        return self

    def _set(
        self,
        matrix: csr_array,
        rewards: Array,
        n_actions: int,
        discount: float,
        start: npt.ArrayLike | int | None,
    ) -> None:
        self.n_states, self.n_actions = matrix.shape[1], n_actions
        self.discount = _checked_discount(discount)
        self.start = _checked_start(start, self.n_states)
        index = np.int32 if max(matrix.shape[0], matrix.nnz) < 2**31 else np.int64
        indices, indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
        matrix = csr_array((matrix.data, indices, indptr), matrix.shape)
        self.transitions, self.rewards = matrix, rewards
        for array in (matrix.data, matrix.indices, matrix.indptr, self.rewards, self.start):
            array.flags.writeable = False

    @classmethod
    def from_gymnasium(cls, env: str | gymnasium.Env[Any, Any], discount: float = 0.99) -> MDP:
        """The MDP of an environment that exposes its transition table `P` (the toy-text family).

        Terminal states become absorbing with reward 0, the start distribution is the
        environment's own, and step limits of wrappers are left out.

        >>> MDP.from_gymnasium("FrozenLake-v1", discount=0.9)
        MDP(16 states, 4 actions, 148 transitions, discount=0.9)
        """
        from mvpi.tabular.toy_text import read_table

        transitions, rewards, start = read_table(env)
        return cls.from_rows(transitions, rewards, discount, start)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the MDP to an `.npz` file of plain arrays (no pickle)."""
        from mvpi.tabular.files import save

        save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> MDP:
        """Read an MDP from an `.npz` file; see `mvpi.tabular.files` for its arrays."""
        from mvpi.tabular.files import load

        return load(path)

    def occupancy(self, policy: npt.ArrayLike) -> Array:
        """`d(s, a)`: how often the policy is in state `s` and takes action `a`, `(S, A)`.

        `d(s, a) = (1 - discount) sum_t discount^t Pr(S_t = s, A_t = a)`; at discount 1 the
        stationary distribution.
        """
        checked = self.checked_policy(policy)
        return self.chain(checked).occupancy()[:, None] * self.pairs_of(checked)

    def pairs_of(self, policy: Policy) -> Array:
        """Probabilities `pi(a | s)`, `(S, A)`, of a checked policy of either form."""
        if policy.ndim == 2:
            return policy
        pairs = np.zeros((self.n_states, self.n_actions))
        pairs[np.arange(self.n_states), policy] = 1.0
        return pairs

    def reward_distribution(self, occupancy: Array) -> tuple[Array, Array]:
        """The per-step reward under an occupancy: its values, and the probability of each.

        Values may repeat; pass both to `risk.value` or to the functions of `mvpi.stats`.
        """
        occupancy = real_array(occupancy, "occupancy")
        if occupancy.shape != (self.n_states, self.n_actions):
            raise InputError(
                f"occupancy must have shape ({self.n_states}, {self.n_actions}), got "
                f"{occupancy.shape}"
            )
        if self.rewards.ndim == 2:
            return self.rewards.ravel(), occupancy.ravel()
        per_row = np.repeat(occupancy.ravel(), np.diff(self.transitions.indptr))
        return self.rewards, per_row * self.transitions.data

    def rewards_paid_by(self, policy: Policy) -> Array:
        """All rewards that a checked policy is ever paid, in the states that it gets to."""
        reached = self.chain(policy).lasting
        values, shares = self.reward_distribution(reached[:, None] * self.pairs_of(policy))
        return values[shares > 0]

    def expected(self, function: Callable[[Array], Array]) -> Array:
        """`E[function(r) | s, a]`, `(S, A)`: never a function of the mean reward."""
        values = np.asarray(function(self.rewards), dtype=np.float64)
        if self.rewards.ndim == 2:
            return values
        weighted = self.transitions.data * values
        sums = np.add.reduceat(weighted, self.transitions.indptr[:-1])
        return cast(Array, sums.reshape(self.n_states, self.n_actions))

    @cached_property
    def closed_classes(self) -> list[int]:
        """One state of each set of states that no sequence of actions can leave."""
        return closed_classes(self.any_action)

    @cached_property
    def lasting(self) -> npt.NDArray[np.bool_]:
        """The states of the first closed class: there is always a way back to them."""
        mask = np.zeros(self.n_states, dtype=bool)
        first = self.closed_classes[0]
        mask[breadth_first_order(self.any_action, first, return_predecessors=False)] = True
        return mask

    @cached_property
    def any_action(self) -> csr_array:
        """Transition probabilities between states, `(S, S)`, when all actions are as likely."""
        uniform = np.full((self.n_states, self.n_actions), 1.0 / self.n_actions)
        return self.policy_matrix(uniform)

    @cached_property
    def bandwidths(self) -> tuple[int, int]:
        """How far transitions lead down and up in the numbering of the states."""
        from mvpi.tabular.linear import bandwidths

        return bandwidths(self.transitions)

    def policy_matrix(self, policy: Policy) -> csr_array:
        """Transition probabilities between states, `(S, S)`, under a checked policy.

        Actions are looked at again: compiled code follows them, wherever they lead.
        """
        n, a = self.n_states, self.n_actions
        if getattr(policy, "shape", None) != (n, a):
            policy = self.checked_policy(policy)
        if policy.ndim == 1:
            rows = np.arange(n) * a + policy
            if n <= DIRECT_UP_TO:
                return self.transitions[rows]
            from mvpi.tabular.linear import rows_of

            return rows_of(self.transitions, rows)
        index = self.transitions.indices.dtype
        columns, starts = np.arange(n * a, dtype=index), np.arange(0, n * a + 1, a, dtype=index)
        pairs = csr_array((policy.ravel(), columns, starts), shape=(n, n * a))
        return with_sorted_indices(pairs @ self.transitions, like=self.transitions)

    def chain(self, policy: Policy) -> Chain:
        """The Markov chain of a checked policy."""
        return Chain(self.policy_matrix(policy), self.discount, self.start)

    def checked_policy(self, policy: npt.ArrayLike) -> Policy:
        """`policy` as an `(S,)` array of actions or an `(S, A)` array of probabilities."""
        array = plain_array(policy, "policy")
        if array.shape == (self.n_states,) and array.dtype.kind in "iu":
            wrong = np.flatnonzero((array < 0) | (array >= self.n_actions))
            if len(wrong):
                raise InputError(
                    f"policy[{wrong[0]}] must be an action from 0 to {self.n_actions - 1}, "
                    f"got {array[wrong[0]]}"
                )
            return array.astype(np.int64)
        if array.shape == (self.n_states, self.n_actions) and array.dtype.kind in "iuf":
            probabilities = array.astype(np.float64)
            with np.errstate(over="ignore"):
                sums = probabilities.sum(axis=1)
            good = (probabilities >= 0).all(axis=1) & (np.abs(sums - 1) <= _SUM_TOLERANCE)
            if not good.all():
                s = int(np.argmin(good))
                raise InputError(
                    f"policy[{s}] must be probabilities that sum to 1, got "
                    f"{probabilities[s].tolist()}"
                )
            probabilities /= sums[:, None]
            return probabilities
        raise InputError(
            f"policy must be whole numbers of shape ({self.n_states},), an action per state, or "
            f"probabilities of shape ({self.n_states}, {self.n_actions}), got {array.dtype} of "
            f"shape {array.shape}"
        )

    def __repr__(self) -> str:
        return (
            f"MDP({self.n_states} states, {self.n_actions} actions, "
            f"{self.transitions.nnz} transitions, discount={self.discount:g})"
        )


def _transition_rows(transitions: npt.ArrayLike | Sequence[Any]) -> tuple[csr_array, int]:
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


def _check_probabilities(matrix: csr_array, n_actions: int, canonical: bool = True) -> None:
    """Check that rows are distributions, then make them sum to one exactly."""
    if canonical:
        matrix.sum_duplicates()
    bad = np.flatnonzero(~np.isfinite(matrix.data) | (matrix.data < 0))
    if len(bad):
        row = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        s, a = divmod(row, n_actions)
        raise InputError(
            f"transitions must be probabilities >= 0: state {s}, action {a}, next state "
            f"{matrix.indices[bad[0]]} has {matrix.data[bad[0]]}"
        )
    if canonical:
        matrix.eliminate_zeros()
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > _SUM_TOLERANCE:
        s, a = divmod(worst, n_actions)
        raise InputError(
            f"transitions must sum to 1 over next states: state {s}, action {a} sums to "
            f"{sums[worst]:.10g}"
        )
    matrix.data /= np.repeat(sums, np.diff(matrix.indptr))


def _reward_values(rewards: Any, matrix: csr_array, shape: tuple[int, int]) -> Array:
    """Rewards per pair `(S, A)`, or per stored transition."""
    n, a = shape
    if isinstance(rewards, Sequence) and any(issparse(m) for m in rewards):
        if len(rewards) != a:
            raise InputError(f"rewards must hold {a} matrices, one per action, got {len(rewards)}")
        table: Any = _interleaved(rewards, "rewards")
        if table.shape != matrix.shape:
            raise InputError(f"rewards[0] must have shape ({n}, {n}), got {rewards[0].shape}")
        _check_rewards(table.data)
    else:
        table = np.array(real_array(rewards, "rewards"))
        if table.shape not in ((n, a), (n, a, n)):
            raise InputError(
                f"rewards must have shape ({n}, {a}) or ({n}, {a}, {n}), got {table.shape}"
            )
        _check_rewards(table)
        if table.ndim == 2:
            return cast(Array, table)
        table = table.reshape(n * a, n)
    rows = np.repeat(np.arange(n * a), np.diff(matrix.indptr))
    return np.ascontiguousarray(table[rows, matrix.indices], dtype=np.float64)


def _check_rewards(rewards: Array) -> None:
    bad = np.argwhere(~(np.abs(rewards) <= _LARGEST_REWARD))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise InputError(
            f"rewards must be finite and at most {_LARGEST_REWARD:g} in size: "
            f"rewards{list(where)} is {rewards[where]}; an action that is not allowed can be given "
            "a cost far above all others, such as 1e6"
        )


def _checked_discount(discount: float) -> float:
    try:
        return check_number(discount, "discount", above=0.0, at_most=1.0)
    except InputError:
        raise InputError(
            f"discount must be a number in (0, 1], got {shown(discount)}; 1 is the "
            "average-reward setting"
        ) from None


def _checked_start(start: npt.ArrayLike | int | None, n: int) -> Array:
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
    if abs(total - 1) > _SUM_TOLERANCE:
        raise InputError(f"start must sum to 1, got a sum of {total:.10g}")
    return array / total
