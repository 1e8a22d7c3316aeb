"""The largest value at risk: against enumeration, against linear programs, and at ties."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.examples import examples
from helpers.problems import Problem, problems, random_problem
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

import mvpi

levels = st.sampled_from([0.01, 0.1, 0.25, 1 / 3, 0.5, 0.9])


def enumerated(problem: Problem, level: float) -> float:
    """The largest reward that some deterministic policy reaches often enough."""
    values, weights = problem.laws
    found = [
        x
        for x in np.unique(problem.rewards)
        if ((values >= x) * weights).sum(axis=-1).max() >= 1 - level - 1e-12
    ]
    return max(found)


def by_linear_programs(problem: Problem, level: float) -> float:
    """The same over all occupancies, of randomised policies too."""
    n, a, _ = problem.p.shape
    flow = np.repeat(np.eye(n), a, axis=1) - problem.discount * problem.p.reshape(n * a, n).T
    inflow = (1 - problem.discount) * problem.start
    flow, inflow = np.vstack([flow, np.ones(n * a)]), np.append(inflow, 1.0)

    def most_often(x: float) -> float:
        paid = (problem.p * (problem.rewards >= x)).sum(axis=-1).ravel()
        return -linprog(-paid, A_eq=flow, b_eq=inflow, method="highs").fun

    return max(x for x in np.unique(problem.rewards) if most_often(x) >= 1 - level - 1e-9)


@examples(150)
@given(problems(), levels, st.booleans())
def test_var_is_the_enumerated_optimum(problem, level, sparse):
    solution = mvpi.optimize(problem.mdp(sparse), mvpi.VaR(level))
    assert solution.value == enumerated(problem, level)
    assert solution.upper_bound == solution.value
    assert solution.converged
    assert solution.policy.ndim == 1
    assert solution.trace == tuple(sorted(solution.trace))


@pytest.mark.parametrize("discount", [0.9, 1.0])
@pytest.mark.parametrize("level", [0.1, 0.45])
@pytest.mark.parametrize("seed", range(8))
def test_randomised_policies_reach_no_more(seed, level, discount):
    problem = random_problem(seed, 4, 3, discount, next_state=True)
    assert mvpi.optimize(problem.mdp(), mvpi.VaR(level)).value == by_linear_programs(problem, level)


@pytest.mark.parametrize("level", [0.1, 0.2, 0.3, 0.7])
def test_a_probability_that_is_just_reached_counts(level):
    """One state that pays 1 with probability `1 - level` and else 0, against 0.5 for sure."""
    p = np.full((2, 2, 2), [level, 1 - level])
    r = np.zeros((2, 2, 2))
    r[:, 0] = [0.0, 1.0]
    r[:, 1] = 0.5
    for discount in (0.9, 1.0):
        mdp = mvpi.MDP(p, r, discount)
        at, below = (mvpi.optimize(mdp, mvpi.VaR(x)) for x in (level, level - 1e-6))
        assert (at.value, at.upper_bound, at.converged) == (1.0, 1.0, True)
        assert (below.value, below.upper_bound, below.converged) == (0.5, 0.5, True)


def test_var_takes_few_solves():
    problem = random_problem(3, 60, 4, 0.95, next_state=True)
    solution = mvpi.optimize(problem.mdp(), mvpi.VaR(0.2))
    assert solution.converged
    assert solution.solves <= 2 * np.log2(60 * 4 * 60) + 2


def test_progress_is_told_bounds_that_close():
    calls: list[tuple[int, float, float]] = []
    mdp = random_problem(3, 10, 3, 0.95, next_state=True).mdp()
    solution = mvpi.optimize(mdp, mvpi.VaR(0.2), progress=lambda *call: calls.append(call))
    assert [call[0] for call in calls] == list(range(1, solution.solves + 1))
    assert all(best <= solution.value <= bound for _, best, bound in calls)


def test_policy_iteration_has_no_utility_to_improve():
    with pytest.raises(mvpi.InputError, match="for finite MDPs only"):
        mvpi.policy_iteration(mvpi.examples.four_state(), mvpi.VaR(0.1))
