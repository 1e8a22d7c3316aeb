"""Risk-neutral solves: the policy with the largest reward per step, and a proof of how large.

    maximise   E[R] = sum_{s,a} d_pi(s, a) r(s, a)   over policies

For any function `v` of the states and residual `b = T v - v`, `T` the optimality operator,

    (1 - g) mu v + min b   <=   max over policies of E[R]   <=   (1 - g) mu v + max b

(`g` the discount, `mu` the start; at `g = 1` the first term is 0 and the bounds hold for the
average reward). The greedy policy reaches the left side. Policy iteration with approximate
evaluation, `mvpi.tabular.chain`, brings both sides together; where chains mix slowly, values spread
in waves, `mvpi.tabular.waves`, and where only a few neighbouring states can improve, that happens
locally first (`mvpi.tabular.bellman`). Both bounds are part of the answer: `upper` is a certificate
that needs no trust in how `v` was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from mvpi.errors import InputError, NoConvergence
from mvpi.risk import Entropic, Risk
from mvpi.tabular.bellman import (
    Actions,
    Array,
    backup,
    evaluation_steps,
    improve_locally,
    is_local,
    pessimistic_values,
    rounding,
    spread_along,
    spread_from_best,
    upper_residual,
)
from mvpi.tabular.chain import (
    DIRECT_UP_TO,
    Chain,
    NotUnichain,
    Values,
    closed_classes,
    mean_over,
    with_sorted_indices,
)
from mvpi.tabular.mdp import MDP

_ALL = slice(None)
_SMALL_STEPS = 100
_STEPS = 20
"""Evaluation steps per improvement in modified policy iteration."""
_TRIAL = 6
"""It goes on while the residual spans at most half of what it did so many improvements ago, or
since."""
_PAYS = 0.1
"""A means that leaves at most this share of the residual is worth repeating."""
_FIRST_LIMIT = 25
"""Passes in waves for one evaluation; doubled each time that they do not suffice."""
_EPS = float(np.finfo(np.float64).eps)
WORST_UTILITY = -1e13
"""Utilities are not told apart below this: nothing that bad has a share that could be computed."""
_ITERATIONS = 500
_PATIENCE = 25
"""Improvements without progress after which stronger means are used."""


@dataclass(frozen=True)
class Optimum:
    """The best policy for a linear reward.

    `lower` and `upper` bracket the largest `E[R]`, and the policy reaches at least `lower`.
    """

    policy: Actions
    values: Array
    """State values, but for a constant."""
    lower: float
    upper: float
    chain: Chain | None = None
    """The chain of the policy, if it was needed last."""


def solve(
    mdp: MDP,
    rewards: Array,
    *,
    policy: Actions | None = None,
    values: Values | None = None,
    tolerance: float = 1e-10,
) -> Optimum:
    """The best policy of `mdp` when pair `(s, a)` pays `rewards[s, a]`.

    Args:
        mdp: gives transitions, discount and start; its own rewards are not used.
        rewards: `(S, A)`.
        policy: a policy to start from; it is kept where nothing is better.
        values: relative values to start from; those of `policy` when left out.
        tolerance: stop when `upper - lower` is at most this (or as small as rounding allows).
    """
    if mdp.discount == 1.0 and len(mdp.closed_classes) > 1:
        raise NotUnichain("the MDP", mdp.closed_classes)
    actions = np.zeros(mdp.n_states, np.int64) if policy is None else policy.copy()
    states, most = np.arange(mdp.n_states), float(rewards.max())
    local = is_local(mdp)
    spreads = mdp.discount < 1.0 and mdp.n_states > DIRECT_UP_TO and not local
    slow = not spreads
    if policy is not None and values is None:
        values = mdp.chain(actions).evaluate_relative(rewards[states, actions], tolerance)
    means = _Means(cold=values is None)
    given, evaluated, offset = rewards, values is not None, 0.0
    if values is not None:
        v, offset = values.values.copy(), values.gain
        rewards = rewards - offset
    elif spreads:
        v, slow = pessimistic_values(mdp, rewards)
        if slow:
            v = spread_from_best(mdp, rewards, v)
            means.waves_first()
    else:
        v = np.zeros(mdp.n_states)
    residual = np.empty(mdp.n_states)
    smallest, stalled, joins = np.inf, 0, 0
    limit, gain = _FIRST_LIMIT, -np.inf
    chain: Chain | None = None
    for _ in range(_ITERATIONS):
        changed = backup(mdp, rewards, v, actions, residual)
        chain = None if changed else chain
        noise = rounding(mdp, rewards, v, actions)
        counted = _counted(mdp, noise, tolerance)
        low, high = float(residual[counted].min()), float(residual[counted].max())
        span, floor = high - low, float(noise[counted].max())
        stalled = stalled + 1 if span > 0.5 * smallest else 0
        settled = not changed or counted is _ALL
        if (span <= tolerance and settled) or (span <= floor and not changed):
            break
        # Rounding is all that is left; unless values went astray, which makes it large, too.
        if stalled > 3 and max(smallest, 1e-3 * span) <= 1e4 * floor:
            break
        smallest = min(smallest, span)
        if local and evaluated and stalled <= _PATIENCE:
            improve_locally(mdp, rewards, v, actions, residual)
        target = max(0.01 * span if changed else 0.0, 0.5 * tolerance)
        next_means = means.choose(span) if slow and spreads else "evaluation"
        if next_means in ("wave", "wave from the best"):
            along = next_means == "wave"
            v = (
                spread_along(mdp, rewards, v, actions)
                if along
                else spread_from_best(mdp, rewards, v)
            )
            smallest, stalled = np.inf, 0  # these judge evaluations
            continue
        if next_means == "steps":
            v += evaluation_steps(mdp, actions, residual, _STEPS)
            smallest, stalled = np.inf, 0  # these judge evaluations
            continue
        try:
            chain = mdp.chain(actions)
        except NotUnichain:
            joins += 1
            joined = _joined(mdp, actions, rewards, insist=joins > _PATIENCE)
            found = mdp.chain(joined).evaluate(rewards[states, joined], target, v)
            if found.gain > gain + _EPS * abs(found.gain):
                actions, v, gain = joined, found.values, found.gain
            else:
                # Places to stay that pay the same: small steps find what lies between them.
                for _ in range(_SMALL_STEPS):
                    v += 0.5 * residual
                    backup(mdp, rewards, v, actions, residual)
        else:
            evaluated = True
            if local:
                chain.factorise()
            worth = limit if slow else 0
            v += chain.value_correction(residual, target, stalled > _PATIENCE, worth)
            slow = slow or chain.mixes_slowly
            if chain.slowness >= limit:
                limit *= 2
            if next_means == "evaluation and wave":
                v = spread_along(mdp, rewards, v, actions)
        # What all values share moves to the rewards: digits are kept for how values differ.
        common = mean_over(mdp.start, v)
        if abs(common) > float(np.ptp(v)):
            v -= common
            offset += (1.0 - mdp.discount) * common
            rewards = rewards - (1.0 - mdp.discount) * common
    else:
        raise NoConvergence(f"no convergence after {_ITERATIONS} policy improvements")
    if mdp.discount == 1.0:
        actions, chain = _joined(mdp, actions, rewards, insist=True), None
    upper = high + floor
    if counted is not _ALL or mdp.n_states <= DIRECT_UP_TO:
        upper = _upper_bound(mdp, given - offset, v, actions, noise, counted)
    base = offset + (1.0 - mdp.discount) * mean_over(mdp.start, v)
    size = abs(offset) + (1.0 - mdp.discount) * mean_over(mdp.start, np.abs(v)) + abs(upper)
    return Optimum(actions, v, base + low, min(base + upper + 8 * _EPS * size, most), chain)


Means = Literal["wave from the best", "wave", "steps", "evaluation", "evaluation and wave"]


class _Means:
    """What to do next where chains mix slowly: the cheapest of what pays.

    First come improvements with a few evaluation steps each: modified policy iteration. Where
    that goes slowly, most states may be far from where rewards are good: from a `cold` start waves
    follow, from the best states on, as long as they pay. Where that was seen at once, and the first
    wave has been, waves come first. What is left are evaluations, helped by waves when they do not
    pay by themselves.
    """

    def __init__(self, cold: bool):
        self._steps, self._waves, self._from_best = True, cold, cold
        self._span = np.inf
        self._spans: list[float] = []

    def waves_first(self) -> None:
        """A wave from the best states has been made already."""
        self._from_best = False

    def choose(self, span: float) -> Means:
        """What to do about a residual with this span."""
        paid, self._span = span <= _PAYS * self._span, span
        if self._waves and not self._from_best:
            self._waves = paid
            if paid:
                return "wave"
        if self._steps:
            self._spans.append(span)
            recent = self._spans[-_TRIAL - 1 :]
            self._steps = len(recent) <= _TRIAL or span <= 0.5 * max(recent)
            if self._steps:
                return "steps"
        if self._waves:
            self._from_best, self._span = False, np.inf
            return "wave from the best"
        return "evaluation" if paid else "evaluation and wave"


def expected_utility(mdp: MDP, risk: Risk, y: float) -> Array:
    """`E[u(R - y) | s, a]`, hopeless exponentials raised to what arithmetic can carry.

    Raising a reward keeps upper bounds valid. Occupancies sum to one, so the best policy is that
    for `augment`, which differs from this by a constant.
    """
    if not isinstance(risk, Entropic) or risk.risk_aversion == 0.0:
        return mdp.expected(lambda r: risk.utility(r - y))
    worst = WORST_UTILITY / risk.risk_aversion
    return mdp.expected(lambda r: np.maximum(risk.utility(r - y), worst))


def _counted(mdp: MDP, noise: Array, tolerance: float) -> slice | npt.NDArray[np.bool_]:
    """The states whose residuals tell how far the values are off.

    Left out are states so much worse than the start that the rounding of their values alone
    would hide everything else.
    """
    if mdp.discount == 1.0 or float(noise.max()) <= tolerance:
        return _ALL
    ordinary = noise <= max(tolerance, 1e3 * float(noise[mdp.start > 0].max()))
    return _ALL if ordinary.all() else ordinary


def _upper_bound(
    mdp: MDP,
    rewards: Array,
    values: Array,
    policy: Actions,
    noise: Array,
    counted: slice | npt.NDArray[np.bool_],
) -> float:
    """The largest residual, once the states left out are given the benefit of their doubt.

    The bound holds for any `v`. Raising `v` where rounding is large makes residuals negative
    there, and changes the others only through actions that nobody would take.
    """
    left_out = np.ones(mdp.n_states, dtype=bool)
    left_out[counted] = False
    doubt = 4.0 * float(noise.max(where=left_out, initial=0.0)) / (1.0 - mdp.discount or 1.0)
    raised = values + np.where(left_out, doubt, 0.0)
    return float(upper_residual(mdp, rewards, raised, policy).max())


def _joined(mdp: MDP, policy: Actions, rewards: Array, insist: bool = False) -> Actions:
    """`policy`, changed where it does not lead to its best closed class, so that it does.

    States one can leave but not return to may have closed classes of their own. They are passed
    over; to `insist` is to raise if one of them pays more.
    """
    matrix = mdp.policy_matrix(policy)
    classes = closed_classes(matrix)
    if len(classes) == 1:
        return policy
    paid = rewards[np.arange(mdp.n_states), policy]
    pay = {s: _average(matrix, s, paid) for s in classes}
    best = max((s for s in classes if mdp.lasting[s]), key=pay.__getitem__)
    richest = max(classes, key=pay.__getitem__)
    if insist and pay[richest] > pay[best] + 1e-9 * max(1.0, abs(pay[best])):
        raise InputError(
            "the best average reward, or a risk-averse one, seems to depend on the start state: "
            f"state {richest}, to which there is no way back, pays more than all others; "
            "discount=1 needs an MDP in which it does not: use a discount below 1"
        )
    chosen = policy.copy()
    inside = np.zeros(mdp.n_states, dtype=bool)
    inside[breadth_first_order(csr_array(matrix.T), best, return_predecessors=False)] = True
    while not inside.all():
        hits = (mdp.transitions @ inside.astype(np.float64)).reshape(mdp.n_states, mdp.n_actions)
        found = ~inside & (hits.max(axis=1) > 0)
        chosen[found] = hits[found].argmax(axis=1)
        inside |= found
    return chosen


def _average(matrix: csr_array, state: int, paid: Array) -> float:
    """The average reward in the closed class of a chain that holds `state`."""
    states = breadth_first_order(matrix, state, return_predecessors=False)
    if len(states) == 1:
        return float(paid[state])
    inner = with_sorted_indices(matrix[states][:, states], like=matrix)
    start = np.full(len(states), 1.0 / len(states))
    return Chain(inner, 1.0, start).evaluate(paid[states], 1e-12).gain
