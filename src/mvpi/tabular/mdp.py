"""A finite Markov decision process: the forms it is given in, checked on the way in.

    MDP(transitions, rewards, discount, start)

`S` states, `A` actions, `p(s' | s, a)`, reward `r(s, a)` or `r(s, a, s')`, a discount in (0, 1]
and a start distribution. Discount 1 is the average-reward setting. All inputs, arrays
(`mvpi.tabular.tables`) or outcomes (`mvpi.tabular.outcomes`), become the one stored form of
`mvpi.tabular._stored_mdp`, so that every algorithm is written once and its cost is the number of
possible transitions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from mvpi._checks import real_array
from mvpi.errors import InputError
from mvpi.tabular._stored_mdp import StoredMDP
from mvpi.tabular.labels import Labels
from mvpi.tabular.masks import checked_mask
from mvpi.tabular.sparse import checked_csr
from mvpi.tabular.tables import rows_of_arrays, rows_of_table, transition_rows

if TYPE_CHECKING:
    import gymnasium

    from mvpi.tabular.from_function import Outcome
    from mvpi.tabular.outcomes import Model


class MDP(StoredMDP):
    """A finite MDP.

    Rewards must be those that are paid. A mean over outcomes, `r(s, a) = E[r | s, a]`, has the
    right mean and too little variance: give rewards that depend on the next state as `(S, A, S)`,
    and others that are random as outcomes (`from_outcomes`, `from_function`).

    Args:
        transitions: array `(S, A, S)` of probabilities `p[s, a, next]`, or a sequence of `A`
            scipy sparse matrices `(S, S)`, one per action.
        rewards: array `(S, A)`, or `(S, A, S)` for rewards that depend on the next state. With
            sparse transitions a sequence of `A` sparse `(S, S)` matrices is taken too; repeated
            entries are refused, because rewards of outcomes do not add up (see `from_rows`).
            A reward of `-inf`, for all next states, is that of an action that the state does not
            have.
        discount: in (0, 1]; 1 is the average-reward setting.
        start: distribution of the first state, `(S,)`, or the number of the one start state;
            uniform when left out.
        allowed: booleans `(S, A)`, False for actions that a state does not have; their transitions
            and rewards do not matter.
        state_labels: names of the states, any hashable objects; numbers from 0 when left out.
        action_labels: names of the actions.

    >>> import numpy as np
    >>> stay_or_swap = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    >>> mdp = MDP(stay_or_swap, rewards=[[0, 0], [1, 1]], discount=0.9, start=0)
    >>> mdp.occupancy(np.array([1, 0])).round(3)
    array([[0. , 0.1],
           [0.9, 0. ]])
    """

    def __init__(
        self,
        transitions: npt.ArrayLike | Sequence[Any],
        rewards: npt.ArrayLike | Sequence[Any],
        discount: float = 0.99,
        start: npt.ArrayLike | int | None = None,
        *,
        allowed: npt.ArrayLike | None = None,
        state_labels: Iterable[Hashable] | None = None,
        action_labels: Iterable[Hashable] | None = None,
    ):
        matrix, n_actions = transition_rows(transitions)
        shape = (matrix.shape[1], n_actions)
        labels = Labels.checked(state_labels, action_labels, shape)
        rows = rows_of_arrays(matrix, rewards, checked_mask(allowed, shape), labels)
        self._set(*rows, labels, discount, start)

    @classmethod
    def from_rows(
        cls,
        transitions: csr_array,
        rewards: npt.ArrayLike,
        discount: float = 0.99,
        start: npt.ArrayLike | int | None = None,
        *,
        allowed: npt.ArrayLike | None = None,
        state_labels: Iterable[Hashable] | None = None,
        action_labels: Iterable[Hashable] | None = None,
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
        shape = (matrix.shape[1], matrix.shape[0] // matrix.shape[1])
        labels = Labels.checked(state_labels, action_labels, shape)
        rows = rows_of_table(matrix, rewards, checked_mask(allowed, shape), labels)
        return cls._made(*rows, labels, discount, start)

    @classmethod
    def from_outcomes(
        cls,
        state: Any,
        action: Any = None,
        probability: Any = None,
        reward: Any = None,
        next_state: Any = None,
        *,
        discount: float = 0.99,
        start: Any = None,
        normalise: bool = False,
        absorbing: bool = False,
    ) -> MDP:
        """An MDP from a list of outcomes, one a row.

        All outcomes of a state and an action are the joint distribution of the reward and the next
        state. Rewards must be those that are paid, not their means: where demand decides between a
        profit of 10 and a loss of 2, write two outcomes, even if they lead to the same next state.
        A pair of state and action without outcomes is an action that the state does not have.

        Args:
            state: a column of states; all columns have the same length. Alone, a table with columns
                of these names (a DataFrame, a dict), an iterable of rows `(state, action,
                probability, reward, next_state)`, or the path of a CSV file whose first line has
                these names. States and actions may be anything hashable: numbers, texts (all of
                them are in a CSV file), tuples. They are numbered in sorted order, or, if they
                cannot be compared, in the order of appearance.
            action: the column of actions.
            probability: that of the outcome, given state and action.
            reward: what it pays.
            next_state: where it leads.
            discount: in (0, 1]; 1 is the average-reward setting.
            start: a state, a list of equally likely states, or a dict of states and their
                probabilities; all states, equally likely, when left out.
            normalise: divide the probabilities of every pair by their sum, such as counts.
            absorbing: whether a next state without outcomes of its own is one to stay in for ever,
                with reward 0. Otherwise it is an error.

        >>> mdp = MDP.from_outcomes(
        ...     [
        ...         ("shop", "order", 0.5, 10.0, "shop"),
        ...         ("shop", "order", 0.5, -2.0, "shop"),
        ...         ("shop", "close", 1.0, 0.0, "closed"),
        ...     ],
        ...     start="shop",
        ...     absorbing=True,
        ... )
        >>> mdp.expected(lambda r: r)[mdp.state_labels.index("shop")]
        array([0., 4.])
        """
        from mvpi.tabular.outcomes import read_outcomes

        columns = (state, action, probability, reward, next_state)
        model = read_outcomes(columns, start, normalise=normalise, absorbing=absorbing)
        return cls._of_model(model, discount)

    @classmethod
    def from_function(
        cls,
        outcomes: Callable[[Any, Any], Iterable[Outcome]],
        actions: Callable[[Any], Iterable[Any]] | Iterable[Any],
        start: Any,
        *,
        discount: float = 0.99,
        absorbing: bool = False,
        max_states: int = 1_000_000,
    ) -> MDP:
        """An MDP from a function that lists outcomes, explored from the start states.

        Args:
            outcomes: `outcomes(state, action)` returns, or yields, `(probability, reward, next
                state)`; see `from_outcomes`. States may be anything hashable.
            actions: a list of all actions, or a function `actions(state)` that returns those of a
                state.
            start: a state, a list of equally likely states, or a dict of states and their
                probabilities. States are numbered in the order in which they are found from here,
                breadth first.
            discount: in (0, 1]; 1 is the average-reward setting.
            absorbing: whether a state without actions is one to stay in for ever, with reward 0.
                Otherwise it is an error.
            max_states: more states than that are an error.

        >>> def toss(coins, stake):
        ...     return [(0.6, stake, coins + stake), (0.4, -stake, coins - stake)]
        >>> mdp = MDP.from_function(
        ...     toss,
        ...     actions=lambda coins: range(1, coins + 1) if 0 < coins < 4 else [],
        ...     start=2,
        ...     absorbing=True,
        ... )
        >>> mdp.state_labels
        (2, 3, 1, 4, 0, 5, 6)
        """
        from mvpi.tabular.from_function import explore_outcomes

        model = explore_outcomes(
            outcomes, actions, start, absorbing=absorbing, max_states=max_states
        )
        return cls._of_model(model, discount)

    @classmethod
    def _of_model(cls, model: Model, discount: float) -> MDP:
        rows = rows_of_table(model.transitions, model.rewards, model.allowed, model.labels)
        return cls._made(*rows, model.labels, discount, model.start)

    @classmethod
    def _made(cls, *stored: Any) -> MDP:
        """An MDP from the arguments of `_set`."""
        self = cls.__new__(cls)
        self._set(*stored)
        return self

    @classmethod
    def from_gymnasium(cls, env: str | gymnasium.Env[Any, Any], discount: float = 0.99) -> MDP:
        """The MDP of an environment that exposes its transition table `P` (the toy-text family).

        Terminal states become absorbing with reward 0, the start distribution is the
        environment's own, and step limits of wrappers are left out. States may have fewer actions
        than others.

        >>> MDP.from_gymnasium("FrozenLake-v1", discount=0.9)
        MDP(16 states, 4 actions, 148 transitions, discount=0.9)
        """
        from mvpi.tabular.toy_text import read_table

        transitions, rewards, start, allowed = read_table(env)
        return cls.from_rows(transitions, rewards, discount, start, allowed=allowed)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the MDP to an `.npz` file of plain arrays (no pickle)."""
        from mvpi.tabular.files import save

        save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> MDP:
        """Read an MDP from an `.npz` file; one that `save` wrote."""
        from mvpi.tabular.files import load

        return load(path, cls, cls.from_rows)

    def with_discount(self, discount: float) -> MDP:
        """The same MDP with another discount."""
        mask = self.allowed if self.masked else None
        table = self.transitions, self.rewards, mask
        return self._made(*table, self.labels, discount, self.start)
