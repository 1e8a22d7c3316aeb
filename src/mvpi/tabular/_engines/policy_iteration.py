"""Policy iteration: greedy improvement, evaluation by a linear system (Puterman, section 6.4).

    v  <-  v + (I - g P_pi)^-1 (T v - v),      pi greedy for v

The system is solved by LU or, approximately, by a Krylov method: inexact policy iteration, whose
evaluations are accurate to a share of the residual (Puterman, section 6.5). It is the last in every
sequence of strategies, because it converges where the others are too slow.

At discount 1 the system is that of the gain and the relative values (Puterman, section 8.6), and
needs a chain with a single closed class. A greedy policy with several is changed, in the states
that do not reach the class with the largest gain, so that they do.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.tabular._engines.backups import Actions
from mvpi.tabular._engines.linear_systems import Evaluation
from mvpi.tabular._engines.ordered_sweeps import REDUCTION, sweep_along_policy
from mvpi.tabular._engines.strategy import Iterate
from mvpi.tabular._matrices import NotUnichain, closed_classes, reached_from, with_sorted_indices
from mvpi.tabular.chain import Chain
from mvpi.tabular.mdp import MDP

PATIENCE = 25
"""Improvements without progress after which an LU factorisation is used."""
_FIRST_LIMIT = 25
"""Preconditioner applications for one evaluation; doubled each time that they do not suffice."""
_VALUE_ITERATIONS = 100
_EPS = float(np.finfo(np.float64).eps)


class PolicyIteration:
    """For a discount below 1."""

    def __init__(self, evaluation: Evaluation = "auto", *, with_sweeps: bool = False) -> None:
        self._evaluation = evaluation
        self._with_sweeps = with_sweeps
        """Whether an ordered sweep follows an evaluation when the residual decreases slowly."""
        self._limit, self._span = _FIRST_LIMIT, 0.0

    def improve(self, iterate: Iterate) -> bool:
        reduced, self._span = iterate.span <= REDUCTION * self._span, iterate.span
        self.evaluate(iterate)
        if self._with_sweeps and not reduced and iterate.stalled <= PATIENCE:
            sweep_along_policy(iterate)
        return True

    def evaluate(self, iterate: Iterate) -> None:
        """Correct the values by those of the residual; raises `NotUnichain`."""
        chain = iterate.chain or chain_of(iterate.mdp, iterate.policy, self._evaluation)
        direct = self._evaluation == "direct" or iterate.stalled > PATIENCE
        iterate.values += chain.value_correction(
            iterate.residual, iterate.target, direct, self._limit
        )
        iterate.chain = chain
        if chain.effort >= self._limit:
            self._limit *= 2


class AveragePolicyIteration(PolicyIteration):
    """For discount 1, where policies may have several closed classes."""

    def __init__(self, evaluation: Evaluation = "auto") -> None:
        super().__init__(evaluation)
        self._gain, self._repairs = -np.inf, 0

    def improve(self, iterate: Iterate) -> bool:
        try:
            self.evaluate(iterate)
        except NotUnichain:
            self._repairs += 1
            self._evaluate_unichain(iterate)
        return True

    def _evaluate_unichain(self, iterate: Iterate) -> None:
        mdp, rewards = iterate.mdp, iterate.rewards
        policy = unichain_policy(mdp, iterate.policy, rewards, strict=self._repairs > PATIENCE)
        paid = rewards[np.arange(mdp.n_states), policy]
        found = mdp.chain(policy).evaluate(paid, iterate.target, iterate.values)
        if found.gain > self._gain + _EPS * abs(found.gain):
            iterate.policy, iterate.values, self._gain = policy, found.values, found.gain
            return
        # Closed classes of equal gain: damped value iteration finds the values between them.
        for _ in range(_VALUE_ITERATIONS):
            iterate.values += 0.5 * iterate.residual
            iterate.back_up()


def chain_of(mdp: MDP, policy: Actions, evaluation: Evaluation) -> Chain:
    """The chain of a policy, to be evaluated in a certain way."""
    return Chain(mdp.policy_matrix(policy), mdp.discount, mdp.start, evaluation)


def unichain_policy(mdp: MDP, policy: Actions, rewards: Array, strict: bool = False) -> Actions:
    """`policy`, changed where it does not reach its closed class of the largest gain.

    Closed classes among the transient states of the MDP are passed over; `strict` raises if one of
    them has a larger gain.
    """
    matrix = mdp.policy_matrix(policy)
    classes = closed_classes(matrix)
    if len(classes) == 1:
        return policy
    paid = rewards[np.arange(mdp.n_states), policy]
    gain = {s: _class_gain(matrix, s, paid) for s in classes}
    recurrent = reached_from(mdp.any_action, np.array(mdp.closed_classes[:1]))
    best = max(set(classes) & set(recurrent.tolist()), key=gain.__getitem__)
    richest = max(classes, key=gain.__getitem__)
    if strict and gain[richest] > gain[best] + 1e-9 * max(1.0, abs(gain[best])):
        raise InputError(
            "the best average reward, or a risk-averse one, seems to depend on the start state: "
            f"state {richest}, to which there is no way back, pays more than all others; "
            "discount=1 needs an MDP in which it does not: use a discount below 1"
        )
    chosen = policy.copy()
    reached = np.zeros(mdp.n_states, dtype=bool)
    reached[breadth_first_order(csr_array(matrix.T), best, return_predecessors=False)] = True
    while not reached.all():
        hits = mdp.transitions @ reached.astype(np.float64)
        hits = hits.reshape(mdp.n_states, mdp.n_actions)
        found = ~reached & (hits.max(axis=1) > 0)
        chosen[found] = hits[found].argmax(axis=1)
        reached |= found
    return chosen


def _class_gain(matrix: csr_array, state: int, paid: Array) -> float:
    """The average reward in the closed class of a chain that holds `state`."""
    states = breadth_first_order(matrix, state, return_predecessors=False)
    if len(states) == 1:
        return float(paid[state])
    inner = with_sorted_indices(matrix[states][:, states], like=matrix)
    start = np.full(len(states), 1.0 / len(states))
    return Chain(inner, 1.0, start).evaluate(paid[states], 1e-12).gain
