"""Mean-variance policy iteration (Algorithm 1), exact, and as a framework for anything else.

    repeat   y  <- the best y of the policy            evaluation, one number
             pi <- argmax over pi of E[u(R - y)]       improvement, any risk-neutral method

Each round can only increase `value(pi) = max over y of E[y + u(R - y)]`: the new policy is at
least as good at the old `y`, and its own best `y` is at least as good as the old one. The loop
stops when the value no longer grows. That is a local optimum; `mvpi.optimize` finds the global
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_count, check_function, check_number
from mvpi.errors import InputError
from mvpi.risk import Risk, as_risk
from mvpi.tabular._reachable import reachable_core
from mvpi.tabular._step_problem import StepProblem
from mvpi.tabular._stored_mdp import Policy
from mvpi.tabular.mdp import MDP
from mvpi.tabular.solution import Certificate, Solution, describe

P = TypeVar("P")
Sample = npt.ArrayLike | tuple[npt.ArrayLike, npt.ArrayLike]

_RELATIVE_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Iteration(Generic[P]):
    """How an alternation ended: the best policy, its value and its `y`."""

    policy: P
    value: float
    dual: float
    trace: tuple[float, ...]
    """The value of each policy that was accepted, the start policy first."""
    converged: bool
    """Whether the value stopped growing within the allowed iterations."""


def iterate(
    evaluate: Callable[[P], Sample],
    improve: Callable[[P, float], P],
    policy: P,
    risk: Risk | float,
    *,
    iterations: int = 1000,
    tolerance: float = 0.0,
) -> Iteration[P]:
    """Mean-variance policy iteration around any evaluation and any improvement.

    Args:
        evaluate: takes a policy, returns the rewards of its steps: a sample (no tuple), or the
            tuple `(rewards, weights)`, such as all possible rewards and their probabilities.
        improve: takes a policy and `y`, returns a policy that is better (or best) for the
            reward `risk.augment(r, y)`. Any risk-neutral method will do.
        policy: where to start; any object.
        risk: a risk measure, or a number for `MeanVariance`.
        iterations: improvements at the most.
        tolerance: stop when an improvement adds no more than this to the value. With a noisy
            `evaluate`, `-inf` goes on to the last iteration; the best policy seen is returned.

    Example, improvement by linear programming or value iteration of your own:

        best = mvpi.iterate(
            evaluate=lambda pi: mdp.reward_distribution(mdp.occupancy(pi)),
            improve=lambda pi, y: my_solver(mdp, mdp.expected(lambda r: risk.augment(r, y))),
            policy=np.zeros(mdp.n_states, dtype=int),
            risk=risk,
        )

    Example, evaluation by simulation and improvement by a learner:

        best = mvpi.iterate(
            evaluate=lambda model: rewards_of_some_episodes(model),
            improve=lambda model, y: train(model, reward=lambda r: risk.augment(r, y)),
            policy=model, risk=1.0, iterations=20, tolerance=-math.inf,
        )
    """
    risk = as_risk(risk)
    check_function(evaluate, "evaluate")
    check_function(improve, "improve")
    iterations = check_count(iterations, "iterations", at_least=0)
    if type(tolerance) is not float or tolerance != -math.inf:
        tolerance = check_number(tolerance, "tolerance")
    if risk.needs_price:
        raise InputError(
            f"policy iteration works at a fixed risk aversion, which {risk} leaves open: "
            "use optimize(mdp, risk), or a MeanVariance"
        )

    def measured(candidate: P) -> tuple[float, float]:
        rewards, weights = _sample(evaluate(candidate))
        return risk.value(rewards, weights), risk.dual(rewards, weights)

    value, y = measured(policy)
    best = (policy, value, y)
    trace = [value]
    converged = False
    for _ in range(iterations):
        policy = improve(policy, y)
        new_value, y = measured(policy)
        if not new_value > value + tolerance:
            converged = True
            break
        value = new_value
        trace.append(value)
        if value > best[1]:
            best = (policy, value, y)
    return Iteration(best[0], best[1], best[2], tuple(trace), converged)


def _sample(evaluated: Sample) -> tuple[npt.ArrayLike, npt.ArrayLike | None]:
    """Rewards and their weights, as `evaluate` has returned them."""
    if not isinstance(evaluated, tuple):
        return evaluated, None
    if len(evaluated) != 2 or np.ndim(evaluated[0]) == 0:
        raise InputError(
            "evaluate must return rewards, or a tuple of two arrays (rewards, weights), got a "
            f"tuple of {len(evaluated)}: return a sample of rewards as a list or an array"
        )
    return evaluated


def policy_iteration(mdp: MDP, risk: Risk | float, policy: npt.ArrayLike | None = None) -> Solution:
    """Algorithm 1 on a finite MDP: exact evaluation, exact improvement, a local optimum.

    Args:
        mdp: the problem.
        risk: a risk measure, or a number for `MeanVariance`.
        policy: where to start, `(S,)` actions or `(S, A)` probabilities; uniformly random when
            left out. The start decides which local optimum is reached.

    The trace of the solution never decreases; its `upper_bound` is infinite.
    """
    risk = as_risk(risk)
    if risk.of_return:
        raise InputError(
            f"policy_iteration is for the reward of a step; for {risk} use "
            "mvpi.optimize(mdp, risk, horizon=T)"
        )
    core = reachable_core(mdp)
    if policy is None:
        start: Policy = mdp.allowed / mdp.allowed.sum(axis=1, keepdims=True)
    else:
        start = mdp.checked_policy(policy)
    problem, solves, paid = StepProblem(core.mdp), 0, 0.0

    def evaluate(candidate: Policy) -> Sample:
        nonlocal paid
        rewards, shares = problem.distribution(candidate)
        paid = float(np.abs(rewards) @ shares)
        return rewards, shares

    def improve(candidate: Policy, y: float) -> Policy:
        nonlocal solves
        solves += 1
        return problem.solve(
            problem.expected_utility(risk, y),
            policy=candidate if candidate.ndim == 1 else None,
            # In units of what is paid: near y the utility has slope 1, and a huge cost elsewhere,
            # such as that of an action that is not allowed, says nothing.
            tolerance=_RELATIVE_TOLERANCE * paid,
        ).policy

    found = iterate(evaluate, improve, core.restricted(start), risk)
    certificate = Certificate(math.inf, math.inf, solves, found.trace)
    solution = describe(found.policy, problem.distribution(found.policy), risk, certificate)
    return core.answer(replace(solution, converged=found.converged))
