"""Risk-neutral solves: the policy with the largest reward per step, and a proof of how large.

    maximise   E[R] = sum_{s,a} d_pi(s, a) r(s, a)   over policies

For any function `v` of the states and residual `b = T v - v`, `T` the optimality operator,

    (1 - g) mu v + min b   <=   max over policies of E[R]   <=   (1 - g) mu v + max b

(`g` the discount, `mu` the start; at `g = 1` the first term is 0 and the bounds hold for the
average reward). The greedy policy reaches the left side. Policy iteration with approximate
evaluation, `mvpi.tabular.chain`, brings both sides together; where evaluation shows that the
chain mixes slowly, Gauss-Seidel sweeps in both directions carry news across the state space
first. Both bounds are part of the answer: `upper` is a certificate that needs no trust in how
`v` was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import breadth_first_order

from mvpi.errors import InputError
from mvpi.tabular.chain import DIRECT_UP_TO, NotUnichain, closed_classes
from mvpi.tabular.mdp import MDP

Array = npt.NDArray[np.float64]
Actions = npt.NDArray[np.int64]

_KRYLOV_PER_SWEEP = 10
"""A pair of sweeps costs about two Krylov iterations: spend a tenth of the evaluation on them."""

_EPS = float(np.finfo(np.float64).eps)
_ITERATIONS = 500
_MULTICHAIN_ITERATIONS = 5_000


@dataclass(frozen=True)
class Optimum:
    """The best policy for a linear reward.

    `lower` and `upper` bracket the largest `E[R]`, and the policy reaches at least `lower`.
    """

    policy: Actions
    values: Array
    lower: float
    upper: float


def solve(
    mdp: MDP,
    rewards: Array,
    *,
    policy: Actions | None = None,
    values: Array | None = None,
    tolerance: float = 1e-10,
) -> Optimum:
    """The best policy of `mdp` when pair `(s, a)` pays `rewards[s, a]`.

    Args:
        mdp: gives transitions, discount and start; its own rewards are not used.
        rewards: `(S, A)`.
        policy: a policy to start from; it is kept where nothing is better.
        values: state values to start from; those of `policy` when left out.
        tolerance: stop when `upper - lower` is at most this (or as small as rounding allows).
    """
    if mdp.discount == 1.0 and len(mdp.closed_classes) > 1:
        raise NotUnichain("the MDP", mdp.closed_classes)
    actions = np.zeros(mdp.n_states, np.int64) if policy is None else policy.copy()
    states = np.arange(mdp.n_states)
    if values is not None:
        v = values.copy()
    elif policy is not None:
        v = mdp.chain(actions).evaluate(rewards[states, actions], tolerance).values
    elif mdp.discount < 1.0 and mdp.n_states > DIRECT_UP_TO:
        v = _spread_news(mdp, rewards)
    else:
        v = np.zeros(mdp.n_states)
    residual = np.empty(mdp.n_states)
    sweeps = 0
    smallest, stalled, multichain = np.inf, 0, 0
    for _ in range(_ITERATIONS + _MULTICHAIN_ITERATIONS):
        _sweep_both_ways(mdp, rewards, v, sweeps)
        low, high = _backup(mdp, rewards, v, actions, residual)
        span = high - low
        paid = rewards[states, actions]
        floor = 8 * _EPS * max(float(np.abs(paid).max()), float(np.abs(v).max()))
        stalled = stalled + 1 if span > 0.5 * smallest else 0
        if span <= max(tolerance, floor) or (stalled > 3 and smallest <= 1e4 * floor):
            break
        smallest = min(smallest, span)
        try:
            chain = mdp.chain(actions)
        except NotUnichain:
            v += 0.5 * residual
            multichain += 1
        else:
            target = max(0.01 * span, 0.5 * tolerance)
            v += chain.value_correction(residual, target)
            if mdp.discount < 1.0:
                sweeps = -(-chain.slowness // _KRYLOV_PER_SWEEP)
        if mdp.discount == 1.0:
            v -= v[0]
        if multichain > _MULTICHAIN_ITERATIONS:
            raise InputError(
                "the largest average reward seems to depend on the start state (no common value "
                f"after {multichain} sweeps, still {span:.3g} apart); discount=1 needs an MDP in "
                "which it does not: use a discount below 1"
            )
    if mdp.discount == 1.0:
        actions = _joined(mdp, actions)
    base = (1.0 - mdp.discount) * float(mdp.start @ v)
    return Optimum(actions, v, base + low, base + high)


def _backup(
    mdp: MDP, rewards: Array, values: Array, policy: Actions, residual: Array
) -> tuple[float, float]:
    """`residual = T v - v`, greedy actions into `policy`; the residual's extremes."""
    table = mdp.transitions
    if mdp.n_states > DIRECT_UP_TO:
        from mvpi.tabular import kernels

        low, high = kernels.backup(
            *_compiled_table(mdp), rewards, values, mdp.discount, policy, residual
        )
        return float(low), float(high)
    q = rewards + mdp.discount * (table @ values).reshape(rewards.shape)
    states = np.arange(mdp.n_states)
    best = q.max(axis=1)
    better = best > q[states, policy]
    policy[better] = q[better].argmax(axis=1)
    residual[:] = best - values
    return float(residual.min()), float(residual.max())


def _spread_news(mdp: MDP, rewards: Array) -> Array:
    """Values to start from: the worst possible, swept until news of better has reached all states.

    Where the reward is far away, a policy that has not heard of it is not worth evaluating.
    """
    worst = float(rewards.min()) / (1.0 - mdp.discount)
    v = np.full(mdp.n_states, worst)
    unaware = mdp.n_states
    while True:
        _sweep_both_ways(mdp, rewards, v, 1)
        still_unaware = int(np.count_nonzero(v <= worst + 1e-9 * abs(worst)))
        if still_unaware == 0 or still_unaware == unaware:
            return v
        unaware = still_unaware


def _sweep_both_ways(mdp: MDP, rewards: Array, values: Array, times: int) -> None:
    if times == 0:
        return
    from mvpi.tabular import kernels

    table = _compiled_table(mdp)
    for downwards in (False, True) * times:
        kernels.sweep(*table, rewards, values.copy(), values, mdp.discount, downwards)


def _compiled_table(mdp: MDP) -> tuple[npt.NDArray[Any], ...]:
    """The blocks and the transition table as the kernels take them."""
    from mvpi.tabular import kernels

    table = mdp.transitions
    indptr, indices = kernels.unsigned(table.indptr), kernels.unsigned(table.indices)
    return kernels.partition(mdp.n_states), indptr, indices, table.data


def _joined(mdp: MDP, policy: Actions) -> Actions:
    """`policy`, changed outside one of its closed classes so that all states lead there.

    At the optimum all closed classes pay the same, so any one of them will do.
    """
    matrix = mdp.policy_matrix(policy)
    classes = closed_classes(matrix)
    if len(classes) == 1:
        return policy
    chosen = policy.copy()
    inside = np.zeros(mdp.n_states, dtype=bool)
    inside[breadth_first_order(matrix, classes[0], return_predecessors=False)] = True
    while not inside.all():
        hits = (mdp.transitions @ inside.astype(np.float64)).reshape(mdp.n_states, mdp.n_actions)
        found = ~inside & (hits.max(axis=1) > 0)
        if not found.any():
            raise NotUnichain("the optimal policy", classes)
        chosen[found] = hits[found].argmax(axis=1)
        inside |= found
    return chosen
