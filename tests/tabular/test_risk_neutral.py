"""The risk-neutral optimum: one solve, known answers, the linear program, and huge costs."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from problems import best_linear, forbidding, problems, random_problem

import mvpi
from mvpi.errors import InputError
from mvpi.tabular.examples import grid_world, inventory, random_sparse
from mvpi.tabular.mdp import MDP


@pytest.fixture
def solves(monkeypatch) -> list[object]:
    """Every call of the solver underneath."""
    module = importlib.import_module("mvpi.tabular.solve")
    original, calls = module.solve, []
    for name in ("solve", "exploration", "optimize", "dual_search"):
        user = importlib.import_module(f"mvpi.tabular.{name}")
        monkeypatch.setattr(
            user, "solve", lambda *a, **b: calls.append(a) or original(*a, **b), raising=True
        )
    return calls


@pytest.mark.parametrize("risk", [0.0, mvpi.Entropic(0.0)], ids=repr)
@pytest.mark.parametrize(
    "mdp",
    [
        random_problem(3, 4, 3, 0.9).mdp(),
        random_problem(3, 4, 3, 1.0).mdp(),
        random_sparse(300, discount=0.999),
        grid_world(12),
        inventory(150),
    ],
    ids=repr,
)
def test_risk_zero_takes_one_solve(mdp, risk, solves):
    solution = mvpi.optimize(mdp, risk)
    assert len(solves) == solution.solves == 1
    assert solution.converged
    alone = mvpi.solve(mdp)
    assert (alone.value, alone.upper_bound) == (solution.value, solution.upper_bound)
    assert (alone.policy == solution.policy).all()


@settings(max_examples=60)
@given(problems())
def test_it_is_the_optimum_of_the_linear_program(problem):
    mdp = problem.mdp()
    solution = mvpi.solve(mdp)
    best, _ = best_linear(problem, mdp.expected(lambda r: r))
    scale = max(1.0, problem.largest)
    assert solution.value == pytest.approx(best, abs=1e-7 * scale)
    assert solution.upper_bound >= best - 1e-9 * scale
    assert solution.upper_bound >= solution.value == solution.mean == solution.dual


@pytest.mark.parametrize("mdp", [random_sparse(400), inventory(300), grid_world(15)], ids=repr)
def test_mean_and_variance_are_those_of_the_occupancy(mdp):
    solution = mvpi.solve(mdp)
    rewards, weights = mdp.reward_distribution(mdp.occupancy(solution.policy))
    mean = float(rewards @ weights)
    assert solution.mean == pytest.approx(mean, rel=1e-9)
    assert solution.variance == pytest.approx(float((rewards - mean) ** 2 @ weights), rel=1e-8)


@pytest.mark.parametrize("cost", [1e3, 1e6, 1e9])
def test_a_cost_that_is_avoided_does_not_blur_the_answer(cost):
    costly, free = forbidding(1, cost)
    solution, expected = mvpi.solve(costly.mdp()), mvpi.solve(free.mdp())
    assert solution.converged
    assert solution.value == pytest.approx(expected.value, abs=1e-8)
    assert solution.gap <= 1e-8


@pytest.mark.parametrize("shift", [0.0, 1e6, -1e9])
def test_a_common_reward_is_added_to_the_answer(shift):
    mdp = random_sparse(200)
    moved = MDP.from_rows(mdp.transitions, mdp.rewards + shift, mdp.discount)
    solution, expected = mvpi.solve(moved), mvpi.solve(mdp)
    rounding = 1e-15 * abs(shift)
    assert solution.value - shift == pytest.approx(expected.value, abs=1e-8 + rounding)
    assert solution.variance == pytest.approx(expected.variance, abs=1e-6)
    assert solution.converged


def test_states_that_cannot_be_reached_have_action_0():
    p = np.zeros((3, 2, 3))
    p[0, :, 0] = p[1, :, 1] = p[2, :, 2] = 1.0
    solution = mvpi.solve(MDP(p, [[0.0, 1.0], [0.0, 9.0], [0.0, 9.0]], 0.9, start=0))
    assert solution.policy.tolist() == [1, 0, 0]
    assert (solution.mean, solution.variance) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-15))


def test_rewards_that_are_all_the_same():
    solution = mvpi.solve(MDP(np.full((3, 2, 3), 1 / 3), np.full((3, 2), 0.1), 0.9))
    assert solution.value == pytest.approx(0.1, rel=1e-15)
    assert solution.variance == 0.0
    assert solution.converged


def test_a_tolerance_below_zero_is_refused():
    with pytest.raises(InputError, match=r"tolerance must be >= 0"):
        mvpi.solve(random_sparse(5), tolerance=-1.0)
