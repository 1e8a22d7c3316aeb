"""Ordered sweeps: their orders against plain searches, their values against dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, eye_array
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import spsolve

from mvpi.tabular._engines.fixed_point import fixed_point_steps
from mvpi.tabular._engines.linear_systems import make_system
from mvpi.tabular._engines.sweeps import Sweeps, depths, distances
from mvpi.tabular.examples import grid_world, random_sparse
from mvpi.tabular.mdp import MDP
from mvpi.tabular.solve import solve_rewards


def corridor(length: int, discount: float = 0.9) -> MDP:
    """Steps left or right that cost 1, until the left end, which absorbs."""
    moves = np.zeros((length, 2, length))
    for s in range(length):
        moves[s, 0, max(s - 1, 0)] = moves[s, 1, min(s + 1, length - 1)] = 1.0
    moves[0] = np.eye(length)[0]
    return MDP(moves, -np.append(0.0, np.ones(length - 1))[:, None].repeat(2, 1), discount)


@pytest.mark.parametrize("seed", range(5))
def test_distances_are_those_of_dijkstra(seed):
    mdp = random_sparse(80, actions=2, successors=1, seed=seed)
    ends = np.array([3, 40])
    moves = csr_array(mdp.transitions[::2] + mdp.transitions[1::2])
    expected = dijkstra(csr_array(moves.T), indices=ends, unweighted=True).min(axis=0)
    unreachable = np.isinf(expected)
    expected[unreachable] = expected[~unreachable].max() + 1
    np.testing.assert_array_equal(distances(mdp.transitions, ends), expected)


@given(st.integers(0, 10_000), st.integers(2, 40))
def test_depths_count_the_likeliest_moves_until_they_go_round(seed, states):
    matrix = random_sparse(states, actions=1, successors=3, seed=seed).transitions
    likelier = matrix.toarray()
    np.fill_diagonal(likelier, 0.0)
    following = np.where(likelier.any(axis=1), likelier.argmax(axis=1), np.arange(states))

    def depth(s: int) -> int:
        way = [s]
        while following[way[-1]] not in way:
            way.append(int(following[way[-1]]))
        return way.index(int(following[way[-1]]))

    np.testing.assert_array_equal(depths(matrix), [depth(s) for s in range(states)])


def test_one_pass_is_exact_where_no_step_leads_the_wrong_way():
    mdp = corridor(500)
    levels = distances(mdp.transitions, np.array([0]))
    found = Sweeps(mdp.transitions, mdp.discount, levels).run(mdp.rewards, np.full(500, -10.0))
    exact = -(1 - mdp.discount ** np.arange(500)) / (1 - mdp.discount)
    np.testing.assert_allclose(found, exact, atol=1e-12)


@pytest.mark.parametrize("side", [30, 60, pytest.param(145, marks=pytest.mark.slow)])
def test_a_pass_over_a_grid_is_as_good_however_large_it_is(side):
    mdp = grid_world(side)
    rewards = mdp.expected(lambda r: r)
    goal = np.flatnonzero(rewards[:, 0] == 0.0)
    wave = Sweeps(mdp.transitions, mdp.discount, distances(mdp.transitions, goal))
    start = np.full(mdp.n_states, -1.0 / (1 - mdp.discount))
    exact = solve_rewards(mdp, rewards, tolerance=1e-12).values
    exact -= exact[goal]
    np.testing.assert_allclose(wave.run(rewards, start), exact, atol=1e-4)


def test_a_reward_is_found_however_many_moves_away():
    """More than policy iteration makes improvements: sweeps must carry it."""
    mdp = corridor(1500, discount=0.999)
    rewards = np.zeros((1500, 2))
    rewards[0] = 1.0
    found = solve_rewards(mdp, rewards, tolerance=1e-9)
    exact = float(mdp.start @ mdp.discount ** np.arange(1500))
    assert found.lower == pytest.approx(exact, abs=1e-9)
    assert found.upper == pytest.approx(exact, abs=1e-9)


def test_a_rare_reward_nearby_is_found():
    rewards = np.zeros((2000, 4))
    rewards[7] = 1.0
    found = solve_rewards(random_sparse(2000, discount=0.99), rewards, tolerance=1e-9)
    assert 0.0 < found.lower <= found.upper <= found.lower + 1e-9


@pytest.mark.parametrize("levels", ["depths", "shuffled"])
def test_passes_never_go_beyond_the_values_they_approach_from_below(levels):
    """In any order: a pass consists of improvements."""
    mdp = grid_world(12, seed=3)
    rewards = mdp.expected(lambda r: r)
    exact = solve_rewards(mdp, rewards, tolerance=1e-12)
    best = exact.values - exact.values[np.flatnonzero(rewards[:, 0] == 0.0)]
    if levels == "depths":
        order = depths(mdp.policy_matrix(exact.policy))
    else:
        order = np.random.default_rng(0).integers(9, size=mdp.n_states)
    wave = Sweeps(mdp.transitions, mdp.discount, order)
    v = np.full(mdp.n_states, rewards.min() / (1 - mdp.discount))
    for _ in range(3):
        v, before = wave.run(rewards, v), v
        assert (v >= before - 1e-9).all()
        assert (v <= best + 1e-6).all()


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("side", [20, pytest.param(150, marks=pytest.mark.slow)])
def test_evaluation_with_sweeps_is_that_of_a_direct_method(side, seed):
    """With one way out, and with many places to stay; on one thread and on several."""
    mdp = grid_world(side, seed=seed)
    policy = solve_rewards(mdp, mdp.expected(lambda r: r), tolerance=1e-3).policy
    matrix = mdp.policy_matrix(policy)
    scaled = csr_array((mdp.discount * matrix.data, matrix.indices, matrix.indptr), matrix.shape)
    right = np.random.default_rng(0).normal(size=mdp.n_states)
    system = make_system(scaled)
    found = system.solve(right, 1e-10)
    assert np.abs(right - found + scaled @ found).max() <= 1e-10
    exact = spsolve((eye_array(mdp.n_states) - scaled).tocsc(), right)
    np.testing.assert_allclose(found, exact, atol=1e-6)


def test_fixed_point_steps_are_precise_beyond_single_precision():
    mdp = random_sparse(300, discount=0.999)
    matrix = mdp.policy_matrix(np.zeros(300, np.int64))
    right = np.random.default_rng(0).normal(size=300) + 100.0
    x, left = fixed_point_steps(matrix, mdp.discount, right, 1e-12, relative=True)
    residual = right - x + mdp.discount * (matrix @ x)
    assert np.ptp(residual) <= 1e-11
    np.testing.assert_allclose(left, residual, atol=1e-11)
