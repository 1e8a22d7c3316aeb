"""The stored form of a finite MDP, and what algorithms ask of it.

Transitions are one CSR matrix with a row per pair of state and action, row `s * A + a`. A policy is
checked once, by `checked_policy`; the other methods take a checked one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from mvpi._checks import plain_array, real_array
from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.tabular._matrices import closed_classes, with_sorted_indices
from mvpi.tabular.chain import DIRECT_UP_TO, Chain
from mvpi.tabular.labels import Labels, PolicyByLabel
from mvpi.tabular.masks import Mask
from mvpi.tabular.tables import SUM_TOLERANCE, checked_discount, checked_start

Policy = npt.NDArray[Any]
"""`(S,)` whole numbers, an action per state, or `(S, A)` probabilities."""


class StoredMDP:
    """States, actions, transitions and rewards of a finite MDP."""

    n_states: int
    """Number of states, `S`."""
    n_actions: int
    """Number of actions, `A`."""
    discount: float
    """In (0, 1]; 1 is the average-reward setting."""
    start: Array
    """Distribution of the first state, `(S,)`."""
    transitions: csr_array
    """Probabilities, `(S * A, S)`, row `s * A + a`; that of an action which the state does not have
    repeats another row of the state."""
    rewards: Array
    """`(S, A)`; or, when they are random, one per stored entry of `transitions`."""
    allowed: Mask
    """Which actions a state has, `(S, A)`."""
    masked: bool
    """Whether some state does not have all actions."""
    labels: Labels
    """The names of states and actions."""

    def _set(
        self,
        matrix: csr_array,
        rewards: Array,
        allowed: Mask | None,
        labels: Labels,
        discount: float,
        start: npt.ArrayLike | int | None,
    ) -> None:
        self.labels = labels
        self.n_states, self.n_actions = labels.shape
        self.discount = checked_discount(discount)
        self.start = checked_start(start, self.n_states)
        index = np.int32 if max(matrix.shape[0], matrix.nnz) < 2**31 else np.int64
        indices, indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
        matrix = csr_array((matrix.data, indices, indptr), matrix.shape)
        self.transitions, self.rewards = matrix, rewards
        for array in (matrix.data, matrix.indices, matrix.indptr, self.rewards, self.start):
            array.flags.writeable = False
        self.masked = allowed is not None
        self.allowed = np.broadcast_to(True if allowed is None else allowed, self.shape)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of states and actions, `(S, A)`."""
        return self.labels.shape

    @property
    def state_labels(self) -> Sequence[Hashable]:
        """The labels of the states, in the order of their numbers; the numbers without labels."""
        return self.labels.states

    @property
    def action_labels(self) -> Sequence[Hashable]:
        """The labels of the actions, in the order of their numbers; the numbers without labels."""
        return self.labels.actions

    def policy_by_label(self, policy: npt.ArrayLike) -> PolicyByLabel:
        """A policy as a dict: state label to action label.

        Of a policy of probabilities, state label to a dict of action labels and probabilities.
        Wherever a policy is expected, such a dict will do.
        """
        return self.labels.by_label(self.checked_policy(policy))

    def occupancy(self, policy: npt.ArrayLike | Mapping[Any, Any]) -> Array:
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
        pairs = np.zeros(self.shape)
        pairs[np.arange(self.n_states), policy] = 1.0
        return pairs

    def reward_distribution(self, occupancy: Array) -> tuple[Array, Array]:
        """The per-step reward under an occupancy: its values, and the probability of each.

        Values may repeat; pass both to `risk.value` or to the functions of `mvpi.stats`.
        """
        occupancy = real_array(occupancy, "occupancy")
        if occupancy.shape != self.shape:
            raise InputError(f"occupancy must have shape {self.shape}, got {occupancy.shape}")
        if self.rewards.ndim == 2:
            return self.rewards.ravel(), occupancy.ravel()
        per_row = np.repeat(occupancy.ravel(), np.diff(self.transitions.indptr))
        return self.rewards, per_row * self.transitions.data

    def rewards_paid_by(self, policy: Policy) -> Array:
        """All rewards of positive probability under a checked policy."""
        reached = self.chain(policy).support
        values, shares = self.reward_distribution(reached[:, None] * self.pairs_of(policy))
        return values[shares > 0]

    def expected(self, function: Callable[[Array], Array]) -> Array:
        """`E[function(r) | s, a]`, `(S, A)`: never a function of the mean reward."""
        values = np.asarray(function(self.rewards), dtype=np.float64)
        if self.rewards.ndim == 2:
            return values
        if self.n_states <= DIRECT_UP_TO:
            weighted = self.transitions.data * values
            means: Array = np.add.reduceat(weighted, self.transitions.indptr[:-1])
        else:
            from mvpi.tabular._engines.linear_systems import row_means

            means = row_means(self.transitions, values)
        return means.reshape(self.shape)

    @cached_property
    def closed_classes(self) -> list[int]:
        """One state of each set of states that no sequence of actions can leave."""
        return closed_classes(self.any_action)

    @cached_property
    def any_action(self) -> csr_array:
        """Transition probabilities between states, `(S, S)`, when all actions are as likely."""
        return self.policy_matrix(np.full(self.shape, 1.0 / self.n_actions))

    @cached_property
    def bandwidths(self) -> tuple[int, int]:
        """Largest decrease and increase of the state number in a transition."""
        from mvpi.tabular._engines.linear_systems import bandwidths

        return bandwidths(self.transitions)

    def policy_matrix(self, policy: Policy) -> csr_array:
        """Transition probabilities between states, `(S, S)`, under a checked policy.

        Actions are checked again, because compiled code indexes with them.
        """
        n, a = self.n_states, self.n_actions
        if getattr(policy, "shape", None) != (n, a):
            policy = self.checked_policy(policy)
        if policy.ndim == 1:
            rows = np.arange(n) * a + policy
            if n <= DIRECT_UP_TO:
                return self.transitions[rows]
            from mvpi.tabular._engines.linear_systems import rows_of

            return rows_of(self.transitions, rows)
        index = self.transitions.indices.dtype
        columns, starts = np.arange(n * a, dtype=index), np.arange(0, n * a + 1, a, dtype=index)
        pairs = csr_array((policy.ravel(), columns, starts), shape=(n, n * a))
        return with_sorted_indices(pairs @ self.transitions, like=self.transitions)

    def chain(self, policy: Policy) -> Chain:
        """The Markov chain of a checked policy."""
        return Chain(self.policy_matrix(policy), self.discount, self.start, name=self.labels.state)

    def checked_policy(self, policy: npt.ArrayLike | Mapping[Any, Any]) -> Policy:
        """`policy` as an `(S,)` array of actions or an `(S, A)` array of probabilities.

        A dict by label is taken too; see `policy_by_label`.
        """
        if isinstance(policy, Mapping):
            policy = self.labels.to_numbers(policy)
        array = plain_array(policy, "policy")
        if array.shape == (self.n_states,) and array.dtype.kind in "iu":
            wrong = np.flatnonzero((array < 0) | (array >= self.n_actions))
            if len(wrong):
                raise InputError(
                    f"policy[{wrong[0]}] must be an action from 0 to {self.n_actions - 1}, "
                    f"got {array[wrong[0]]}"
                )
            actions = array.astype(np.int64)
            self._check_allowed(actions)
            return actions
        if array.shape == self.shape and array.dtype.kind in "iuf":
            probabilities = array.astype(np.float64)
            with np.errstate(over="ignore"):
                sums = probabilities.sum(axis=1)
            good = (probabilities >= 0).all(axis=1) & (np.abs(sums - 1) <= SUM_TOLERANCE)
            if not good.all():
                s = int(np.argmin(good))
                raise InputError(
                    f"policy[{s}] must be probabilities that sum to 1, got "
                    f"{probabilities[s].tolist()}"
                )
            self._check_allowed(probabilities)
            probabilities /= sums[:, None]
            return probabilities
        raise InputError(
            f"policy must be whole numbers of shape ({self.n_states},), an action per state, or "
            f"probabilities of shape {self.shape}, got {array.dtype} of shape {array.shape}"
        )

    def _check_allowed(self, policy: Policy) -> None:
        """No state may use an action that it does not have."""
        if not self.masked:
            return
        wrong = np.argwhere((self.pairs_of(policy) > 0) & ~self.allowed)
        if len(wrong):
            s, a = wrong[0].tolist()
            raise InputError(
                f"policy must use the actions that states have: state {self.labels.state(s)} does "
                f"not have {self.labels.action(a)}, it has "
                f"{self.labels.some_actions(np.flatnonzero(self.allowed[s]))}"
            )

    def __repr__(self) -> str:
        stored = np.diff(self.transitions.indptr).sum(where=self.allowed.ravel())
        return (
            f"MDP({self.n_states} states, {self.n_actions} actions, "
            f"{stored} transitions, discount={self.discount:g})"
        )


class PolicyRewards:
    """What an MDP pays for the actions of a deterministic policy, read without other rewards."""

    def __init__(self, mdp: StoredMDP, policy: npt.NDArray[np.int64], matrix: csr_array):
        """`matrix` is `mdp.policy_matrix(policy)`."""
        self._lengths: npt.NDArray[np.int64] | None = None
        rows = np.arange(mdp.n_states) * mdp.n_actions + policy
        if mdp.rewards.ndim == 2:
            self._paid: Array = mdp.rewards.ravel()[rows]
            return
        self._lengths, self._starts = np.diff(matrix.indptr), matrix.indptr[:-1]
        table = mdp.transitions
        rewards = csr_array((mdp.rewards, table.indices, table.indptr), table.shape)
        self._paid, self._chances = rewards[rows].data, matrix.data

    def expected(self, function: Callable[[Array], Array]) -> Array:
        """`E[function(r) | s]`, `(S,)`."""
        values = function(self._paid)
        if self._lengths is None:
            return values
        means: Array = np.add.reduceat(self._chances * values, self._starts)
        return means

    def paid_in(self, states: npt.NDArray[np.bool_]) -> Array:
        """All rewards that can be paid in some states, given as a mask."""
        if states.all():
            return self._paid
        mask = states if self._lengths is None else np.repeat(states, self._lengths)
        return self._paid[mask]
