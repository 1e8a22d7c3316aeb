"""The risk-neutral optimum: one solve, known answers, the linear program, and huge costs."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import weakref
from dataclasses import FrozenInstanceError, asdict, replace
from itertools import pairwise

import numpy as np
import pytest
from helpers.examples import examples
from helpers.problems import best_linear, forbidding, problems, random_problem
from hypothesis import given

import mvpi
from mvpi.errors import InputError
from mvpi.tabular._engines.methods import METHODS, choose
from mvpi.tabular.chain import Chain
from mvpi.tabular.examples import grid_world, inventory, random_sparse
from mvpi.tabular.mdp import MDP


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
def test_risk_zero_takes_one_solve(mdp, risk):
    solution = mvpi.optimize(mdp, risk)
    assert solution.solves == 1
    assert solution.converged
    alone = mvpi.solve(mdp)
    assert (alone.value, alone.upper_bound) == (solution.value, solution.upper_bound)
    assert (alone.policy == solution.policy).all()


@examples(60)
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


def evaluations(monkeypatch) -> list[float]:
    """The accuracy of each policy evaluation from now on."""
    seen: list[float] = []
    evaluate = Chain.evaluate_relative

    def counted(self, rewards, tolerance, guess=None):
        seen.append(tolerance)
        return evaluate(self, rewards, tolerance, guess)

    monkeypatch.setattr(Chain, "evaluate_relative", counted)
    return seen


def test_the_variance_is_evaluated_when_it_is_first_read(monkeypatch):
    mdp = random_sparse(400)
    occupied = mdp.reward_distribution(mdp.occupancy(mvpi.solve(mdp).policy))
    seen = evaluations(monkeypatch)
    solution = mvpi.solve(mdp)
    assert len(seen) == 1  # the mean
    first = solution.variance
    assert len(seen) == 2
    assert solution.variance == first
    assert math.isclose(first, solution.std**2)
    assert len(seen) == 2
    assert first == pytest.approx(mvpi.stats.variance(*occupied), rel=1e-8)


@pytest.mark.parametrize(
    "other",
    [
        copy.copy,
        copy.deepcopy,
        lambda solution: pickle.loads(pickle.dumps(solution)),
        lambda solution: replace(solution, trace=()),
        lambda solution: mvpi.Solution(**asdict(solution)),
    ],
    ids=["copy", "deepcopy", "pickle", "replace", "asdict"],
)
def test_copies_of_a_solution_have_its_variance(other):
    mdp = grid_world(12)
    solution, known = mvpi.solve(mdp), mvpi.solve(mdp).variance
    assert f"variance={known:.8g}" in repr(mvpi.solve(mdp))
    copied = other(solution)
    assert type(vars(copied)["variance"]) is float
    assert copied.variance == solution.variance == known > 0.0
    assert (copied.policy == solution.policy).all()
    with pytest.raises(FrozenInstanceError):
        copied.variance = 1.0


def test_a_solution_releases_its_chain_once_the_variance_is_known():
    solution = mvpi.solve(random_sparse(400))
    chain = weakref.ref(vars(solution)["variance"].args[0])
    assert isinstance(chain(), Chain)
    assert solution.variance > 0.0
    gc.collect()
    assert chain() is None


@pytest.mark.parametrize("rewards", ["per pair", "per next state"])
def test_expected_rewards_in_compiled_loops_are_the_sums_of_the_rows(rewards):
    rng = np.random.default_rng(0)
    mdp = random_sparse(300, 3, 7)
    paid = rng.normal(size=mdp.shape if rewards == "per pair" else mdp.transitions.nnz) + 1e3
    mdp = MDP.from_rows(mdp.transitions, paid, 0.9)
    table, exact = mdp.transitions, paid**2
    if rewards == "per next state":
        rows = [slice(first, last) for first, last in pairwise(table.indptr)]
        exact = [math.fsum(table.data[row] * paid[row] ** 2) for row in rows]
    assert mdp.expected(lambda r: r**2).ravel() == pytest.approx(np.ravel(exact), rel=1e-14)


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


# Methods


def ladder(n: int, discount: float) -> MDP:
    """Up or down a ladder whose top pays: states are many steps from any reward."""
    p = np.zeros((n, 2, n))
    for s in range(n):
        p[s, 0, max(s - 1, 0)] = p[s, 1, min(s + 1, n - 1)] = 0.9
        p[s, :, s] += 0.1
    return MDP(p, np.eye(1, n, n - 1).T.repeat(2, axis=1), discount)


@pytest.mark.parametrize(
    ("mdp", "method"),
    [
        (random_problem(3, 4, 3, 0.9).mdp(), "policy iteration"),
        (random_sparse(300, discount=1.0), "inexact policy iteration"),
        (inventory(300), "local policy iteration"),
        (grid_world(100), "ordered sweeps"),
        (random_sparse(300, successors=8), "modified policy iteration"),
    ],
    ids=repr,
)
def test_the_choice_of_a_method(mdp, method):
    assert choose(mdp) == method


@pytest.mark.parametrize("discount", [0.9, 0.999, 1.0])
@pytest.mark.parametrize(
    "make",
    [
        lambda g: random_sparse(400, discount=g),
        lambda g: inventory(300, discount=g),
        lambda g: grid_world(14, discount=g),
        lambda g: ladder(90, g),
    ],
    ids=["random", "inventory", "grid", "ladder"],
)
def test_every_method_gives_the_same_certified_answer(make, discount):
    mdp = make(discount)
    chosen, refused = mvpi.solve(mdp), []
    for method in METHODS:
        try:
            found = mvpi.solve(mdp, method=method)
        except InputError:
            refused.append(method)
            continue
        assert found.converged, method
        assert found.value == pytest.approx(chosen.value, abs=1e-8), method
        accuracy = 1e-10 * float(np.ptp(mdp.rewards))  # of the means, a tenth of the tolerance
        assert found.value <= chosen.upper_bound + accuracy
        assert chosen.value <= found.upper_bound + accuracy
    assert set(refused) <= {"ordered sweeps", "local policy iteration"}
    assert ("ordered sweeps" in refused) == (discount == 1.0)


def test_an_unknown_method_is_refused_with_the_options():
    with pytest.raises(
        InputError, match=r"method must be one of 'auto', .*'ordered sweeps'.*got 'vi'"
    ):
        mvpi.solve(random_sparse(5), method="vi")


def test_methods_that_do_not_apply_are_refused_with_a_remedy():
    with pytest.raises(InputError, match="needs a discount below 1, got 1: use 'auto'"):
        mvpi.solve(random_sparse(80, discount=1.0), method="ordered sweeps")
    with pytest.raises(InputError, match="needs transitions to neighbouring states only"):
        mvpi.solve(random_sparse(300), method="local policy iteration")
