"""Evaluation and risk-neutral solves: dense against iterative, bounds against linear programs."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from helpers.examples import examples
from helpers.problems import Problem, best_linear, problems, random_problem
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import mvpi
from mvpi.errors import InputError
from mvpi.tabular._engines import backups
from mvpi.tabular._engines.linear_systems import rows_of
from mvpi.tabular._engines.local_policy_iteration import improve_locally
from mvpi.tabular._engines.methods import METHODS
from mvpi.tabular._engines.strategy import Iterate
from mvpi.tabular.chain import Chain, Values
from mvpi.tabular.examples import grid_world, inventory, random_sparse
from mvpi.tabular.mdp import MDP
from mvpi.tabular.solve import solve_rewards

LARGE = 20_500
"""Above this many states the compiled loops use threads."""


@pytest.fixture(params=["krylov", "direct", "auto"])
def evaluation(request) -> str:
    """How chains are evaluated; "krylov" uses no dense algebra, however small they are."""
    return request.param


def chain_of(mdp: MDP, policy: np.ndarray, evaluation: str) -> Chain:
    return Chain(mdp.policy_matrix(policy), mdp.discount, mdp.start, evaluation)


def applicable(mdp: MDP) -> list[str]:
    """The methods that a problem admits; the others are refused."""
    found = []
    for method in METHODS:
        try:
            mvpi.solve(mdp, tolerance=1e-3, method=method)
        except InputError:
            continue
        found.append(method)
    return found


def dense_chain(mdp: MDP, policy: np.ndarray) -> np.ndarray:
    return mdp.policy_matrix(policy).toarray()


def dense_values(mdp: MDP, policy: np.ndarray, rewards: np.ndarray) -> tuple[np.ndarray, float]:
    """Values and gain by least squares on the defining equations (v[0] = 0 at discount 1)."""
    n, p = mdp.n_states, dense_chain(mdp, policy)
    if mdp.discount < 1.0:
        v = np.linalg.solve(np.eye(n) - mdp.discount * p, rewards)
        return v, (1 - mdp.discount) * float(mdp.start @ v)
    system = np.vstack([np.hstack([np.eye(n) - p, np.ones((n, 1))]), np.eye(1, n + 1)])
    found = np.linalg.lstsq(system, np.append(rewards, 0.0), rcond=None)[0]
    return found[:-1], float(found[-1])


def dense_occupancy(mdp: MDP, policy: np.ndarray) -> np.ndarray:
    n, p = mdp.n_states, dense_chain(mdp, policy)
    if mdp.discount < 1.0:
        return np.linalg.solve(np.eye(n) - mdp.discount * p.T, (1 - mdp.discount) * mdp.start)
    system = np.vstack([np.eye(n) - p.T, np.ones((1, n))])
    return np.linalg.lstsq(system, np.eye(1, n + 1, n)[0], rcond=None)[0]


def ring(n: int, discount: float) -> MDP:
    """A cycle: periodic, and the reward of one state is felt a whole round later."""
    return MDP([csr_array(np.roll(np.eye(n), 1, axis=1))], np.eye(1, n).T, discount, start=0)


def two_bridges(n: int, discount: float, bridge: float = 1e-6) -> MDP:
    """Two groups of states that are hardly connected."""
    rng = np.random.default_rng(0)
    p = np.zeros((2 * n, 2, 2 * n))
    for block in (slice(0, n), slice(n, 2 * n)):
        p[block, :, block] = rng.dirichlet(np.ones(n), (n, 2)) * (1 - bridge)
    p[:n, :, n] += bridge
    p[n:, :, 0] += bridge
    return MDP(p, rng.normal(size=(2 * n, 2)), discount)


def walk_to_an_absorbing_end(n: int, discount: float) -> MDP:
    """A random walk in which the last state keeps whoever arrives: slow, and absorbing."""
    rows, columns = np.arange(n - 1), np.arange(1, n)
    left = csr_array((np.full(n - 1, 0.5), (columns, rows)), shape=(n, n)).tolil()
    right = csr_array((np.full(n - 1, 0.5), (rows, columns)), shape=(n, n))
    left[0, 0] = 0.5
    left[n - 1] = 0
    left[n - 1, n - 1] = 1.0
    return MDP([csr_array(left) + right], -np.eye(1, n).T, discount)


CHAINS = {
    "random, discount 0.9": lambda: random_sparse(50, discount=0.9),
    "random, discount 0.9999": lambda: random_sparse(50, discount=0.9999),
    "random, average": lambda: random_sparse(50, discount=1.0),
    "one state": lambda: MDP([[[1.0]]], [[2.0]], 0.99),
    "one state, average": lambda: MDP([[[1.0]]], [[2.0]], 1.0),
    "ring, discount 0.9": lambda: ring(7, 0.9),
    "ring, discount 0.9999": lambda: ring(30, 0.9999),
    "ring, average": lambda: ring(30, 1.0),
    "grid, discount 0.999": lambda: grid_world(9, discount=0.999, seed=1),
    "grid, discount 0.9999": lambda: grid_world(9, discount=0.9999, seed=1),
    "grid, average": lambda: grid_world(9, discount=1.0, seed=1),
    "inventory, discount 0.9999": lambda: inventory(80, discount=0.9999),
    "inventory, average": lambda: inventory(80, discount=1.0),
    "walk to an end, discount 0.9999": lambda: walk_to_an_absorbing_end(60, 0.9999),
    "walk to an end, average": lambda: walk_to_an_absorbing_end(60, 1.0),
    "two groups, discount 0.9999": lambda: two_bridges(20, 0.9999),
    "two groups, average": lambda: two_bridges(20, 1.0),
}


def paid(mdp: MDP) -> np.ndarray:
    """`E[r | s, a]`."""
    return mdp.expected(lambda r: r)


def mixed_policy(mdp: MDP) -> np.ndarray:
    """A stochastic policy that is not uniform."""
    return np.random.default_rng(3).dirichlet(np.ones(mdp.n_actions), mdp.n_states)


@pytest.fixture(params=CHAINS.values(), ids=CHAINS.keys())
def mdp(request) -> MDP:
    return request.param()


# One policy: values and occupancy


def test_iterative_values_are_the_direct_ones(mdp, evaluation):
    policy = mixed_policy(mdp)
    rewards = (policy * paid(mdp)).sum(axis=1)
    values, gain = dense_values(mdp, policy, rewards)
    found = chain_of(mdp, policy, evaluation).evaluate(rewards, tolerance=1e-12)
    scale = float(np.abs(rewards).max())
    assert found.gain == pytest.approx(gain, abs=1e-10 * scale)
    shape, shape_found = values - values[0], found.values - found.values[0]
    np.testing.assert_allclose(shape_found, shape, atol=1e-7 * (scale + np.abs(shape).max()))


def test_iterative_occupancy_is_the_direct_one(mdp, evaluation):
    policy = mixed_policy(mdp)
    d = chain_of(mdp, policy, evaluation).occupancy()
    np.testing.assert_allclose(d, dense_occupancy(mdp, policy), atol=1e-9)
    assert d.sum() == pytest.approx(1.0, abs=1e-14)
    assert (d >= 0).all()


def test_direct_values_and_occupancy_solve_their_equations(mdp):
    policy = mixed_policy(mdp)
    rewards = (policy * paid(mdp)).sum(axis=1)
    chain = mdp.chain(policy)
    _, gain = dense_values(mdp, policy, rewards)
    scale = float(np.abs(rewards).max())
    assert chain.evaluate(rewards, tolerance=1e-12).gain == pytest.approx(gain, abs=1e-10 * scale)
    np.testing.assert_allclose(chain.occupancy(), dense_occupancy(mdp, policy), atol=1e-9)


def test_values_and_occupancy_agree_on_the_gain(mdp, evaluation):
    """`(1 - g) mu v = d r`: two iterative methods, one number."""
    policy = mixed_policy(mdp)
    rewards = (policy * paid(mdp)).sum(axis=1)
    chain = chain_of(mdp, policy, evaluation)
    gain = chain.evaluate(rewards, tolerance=1e-12).gain
    assert gain == pytest.approx(float(chain.occupancy() @ rewards), abs=1e-9)


def test_a_guess_changes_nothing_but_the_work(evaluation):
    mdp = grid_world(9, discount=0.999, seed=1)
    policy = mixed_policy(mdp)
    rewards = (policy * paid(mdp)).sum(axis=1)
    guess = np.random.default_rng(0).normal(size=mdp.n_states) * 100
    cold = chain_of(mdp, policy, evaluation).evaluate(rewards, tolerance=1e-12)
    warm = chain_of(mdp, policy, evaluation).evaluate(rewards, tolerance=1e-12, guess=guess)
    assert warm.gain == pytest.approx(cold.gain, abs=1e-10)
    np.testing.assert_allclose(warm.values, cold.values, atol=1e-7)


@pytest.mark.parametrize("discount", [0.99, 0.9999, 1.0])
def test_a_long_ring_is_felt_all_the_way_round(discount):
    """500 states, above the dense limit; the reward comes once a round, when it starts anew."""
    n = 500
    mdp = ring(n, discount)
    once_a_round = 1 / n if discount == 1.0 else (1 - discount) / (1 - discount**n)
    policy = np.zeros(n, np.int64)
    assert mdp.chain(policy).evaluate(mdp.rewards[:, 0], 1e-13).gain == pytest.approx(
        once_a_round, rel=1e-8
    )
    assert mdp.chain(policy).occupancy()[0] == pytest.approx(once_a_round, rel=1e-8)


# The best policy: bounds


@examples(80)
@given(problems(discounts=(0.3, 0.9, 0.999, 1.0)))
def test_bounds_bracket_the_linear_program(problem):
    rewards = (problem.p * problem.rewards).sum(axis=2)
    optimum, _ = best_linear(problem, rewards)
    found = solve_rewards(problem.mdp(), rewards, tolerance=1e-10 * problem.largest)
    slack = 1e-9 * problem.largest
    assert found.lower - slack <= optimum <= found.upper + slack
    assert found.upper - found.lower <= 1e-9 * problem.largest
    reached = (problem.mdp().occupancy(found.policy) * rewards).sum()
    assert found.lower - slack <= reached <= found.upper + slack


@examples(80)
@given(problems(discounts=(0.9, 0.999, 1.0)), st.sampled_from(METHODS))
def test_bounds_of_every_method_bracket_the_linear_program(problem, method):
    mdp = problem.mdp()
    if mdp.discount == 1.0 and method in ("ordered sweeps", "local policy iteration"):
        return
    rewards = (problem.p * problem.rewards).sum(axis=2)
    optimum, _ = best_linear(problem, rewards)
    found = solve_rewards(mdp, rewards, tolerance=1e-10 * problem.largest, method=method)
    slack = 1e-9 * problem.largest
    assert found.lower - slack <= optimum <= found.upper + slack
    assert found.upper - found.lower <= 1e-9 * problem.largest


def test_every_method_meets_the_chosen_one(mdp):
    rewards = paid(mdp)
    chosen = solve_rewards(mdp, rewards)
    scale = float(np.abs(rewards).max())
    for method in applicable(mdp):
        found = solve_rewards(mdp, rewards, method=method)
        assert found.upper - found.lower <= 1e-9 * scale, method
        assert found.lower <= chosen.upper + 1e-10 * scale, method
        assert chosen.lower <= found.upper + 1e-10 * scale, method


@pytest.mark.parametrize("method", ["inexact policy iteration", "policy iteration"])
def test_groups_hardly_joined_are_solved(method):
    """A step in 10^9 leads to the other group; single precision alone would not see it."""
    mdp = two_bridges(20, 1.0, bridge=1e-9)
    found = solve_rewards(mdp, paid(mdp), method=method)
    assert found.upper - found.lower <= 1e-6


@pytest.mark.parametrize("discount", [0.99, 0.9999, 1.0])
@pytest.mark.parametrize("make", [grid_world, inventory], ids=["grid", "inventory"])
def test_slowly_mixing_problems_above_the_dense_limit_match_the_linear_program(make, discount):
    mdp = make(20 if make is grid_world else 350, discount=discount)
    shape = (mdp.n_states, mdp.n_actions, mdp.n_states)
    problem = Problem(mdp.transitions.toarray().reshape(shape), paid(mdp), mdp.discount, mdp.start)
    optimum, _ = best_linear(problem, paid(mdp))
    found = solve_rewards(mdp, paid(mdp))
    assert found.upper - found.lower <= 1e-9
    assert found.lower - 1e-6 <= optimum <= found.upper + 1e-6


@pytest.mark.parametrize("price", [0.01, 0.05, 0.2])
def test_improving_locally_changes_nothing_but_the_work(price):
    mdp = inventory(3_000)
    start = solve_rewards(mdp, paid(mdp))
    rewards = mdp.expected(lambda r: r - price * r**2)
    near, far = (
        solve_rewards(mdp, rewards, policy=start.policy, tolerance=1e-12, method=method)
        for method in ("local policy iteration", "policy iteration")
    )
    np.testing.assert_array_equal(near.policy, far.policy)
    np.testing.assert_allclose(near.values, far.values, rtol=1e-9, atol=1e-9)
    assert near.upper == pytest.approx(far.upper, rel=1e-9)


def test_residuals_are_right_everywhere_after_a_local_improvement():
    mdp = inventory(3_000)
    rewards = paid(mdp).copy()
    found = solve_rewards(mdp, rewards)
    rewards[1_500, 2] += 50.0
    iterate = Iterate(mdp, rewards, found.values.copy(), found.policy.copy())
    iterate.back_up()
    improve_locally(iterate)
    assert (iterate.values != found.values).sum() > 100
    expected = np.empty(mdp.n_states)
    assert backups.backup(mdp, rewards, iterate.values, iterate.policy, expected) == 0
    np.testing.assert_array_equal(iterate.residual, expected)


@given(st.integers(0, 10_000), st.sampled_from([0.9, 1.0]), st.booleans())
def test_a_warm_start_reaches_the_same_optimum(seed, discount, with_values):
    problem = random_problem(seed, states=5, actions=3, discount=discount)
    mdp, rng = problem.mdp(), np.random.default_rng(seed)
    policy = rng.integers(3, size=5)
    values = Values(rng.normal(size=5), rng.normal()) if with_values else None
    cold = solve_rewards(mdp, problem.r)
    warm = solve_rewards(mdp, problem.r, policy=policy, values=values)
    assert warm.lower <= cold.upper + 1e-12
    assert cold.lower <= warm.upper + 1e-12


@pytest.mark.parametrize("discount", [0.9, 1.0])
@pytest.mark.parametrize("method", ["auto", "inexact policy iteration", "policy iteration"])
def test_a_warm_start_keeps_its_policy_where_nothing_is_better(discount, method):
    p = np.array([[0.25, 0.75], [0.5, 0.5]])[:, None, :].repeat(3, axis=1)
    mdp = MDP(p, [[1.0, 1.0, 1.0], [0.5, 0.5, 0.25]], discount)
    for policy in ([0, 0], [2, 1], [1, 0]):
        found = solve_rewards(mdp, mdp.rewards, policy=np.array(policy), method=method)
        np.testing.assert_array_equal(found.policy, policy)


def test_the_start_policy_and_values_are_left_alone():
    mdp = random_problem(3, 5, 3, 0.9).mdp()
    policy, values = np.zeros(5, np.int64), np.ones(5)
    solve_rewards(mdp, mdp.rewards, policy=policy, values=Values(values, 0.0))
    assert policy.tolist() == [0] * 5
    assert values.tolist() == [1.0] * 5


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e-6, 1e6, 1e12, 1e30])
@pytest.mark.parametrize("make", ["dense", "random", "grid"])
def test_bounds_scale_with_the_rewards(make, scale):
    """Also where single precision would not: what it computes has a scale of its own."""
    mdp = {
        "dense": lambda: random_problem(4, 5, 3, 0.99).mdp(),
        "random": lambda: random_sparse(300),
        "grid": lambda: grid_world(20, seed=1),
    }[make]()
    unit = solve_rewards(mdp, paid(mdp), tolerance=1e-10)
    found = solve_rewards(mdp, scale * paid(mdp), tolerance=1e-10 * scale)
    assert found.upper == pytest.approx(scale * unit.upper, rel=1e-8)
    np.testing.assert_array_equal(found.policy, unit.policy)


# Large problems, solved with threads


@pytest.fixture(scope="module")
def large() -> MDP:
    return random_sparse(LARGE, actions=3, successors=4, discount=0.9, seed=2)


@pytest.fixture(scope="module")
def large_average() -> MDP:
    return random_sparse(LARGE, actions=3, successors=4, discount=1.0, seed=2)


def value_iteration(mdp: MDP, sweeps: int) -> tuple[float, float]:
    """Bounds on the largest `E[R]` from plain value iteration, with no help but numpy."""
    v = np.zeros(mdp.n_states)
    for _ in range(sweeps):
        new = (mdp.rewards + mdp.discount * (mdp.transitions @ v).reshape(mdp.rewards.shape)).max(1)
        change, v = new - v, new
    rest = mdp.discount / (1 - mdp.discount) if mdp.discount < 1 else 0.0
    if mdp.discount == 1.0:
        return float(change.min()), float(change.max())
    base = (1 - mdp.discount) * float(mdp.start @ v)
    return tuple(base + (1 - mdp.discount) * rest * float(c) for c in (change.min(), change.max()))


@pytest.mark.parametrize("problem", ["large", "large_average"])
def test_a_large_problem_matches_plain_value_iteration(problem, request):
    mdp = request.getfixturevalue(problem)
    low, high = value_iteration(mdp, 120)
    assert high - low < 1e-6
    found = solve_rewards(mdp, mdp.rewards)
    assert found.upper - found.lower <= 1e-9
    assert low - 1e-9 <= found.lower
    assert found.upper <= high + 1e-9


@pytest.mark.parametrize("states", [90, LARGE])
def test_rows_of_a_table_are_those_of_scipy(states):
    table = random_sparse(states, actions=3).transitions
    rows = np.random.default_rng(0).integers(3 * states, size=states)
    ours, theirs = rows_of(table, rows), table[rows]
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        assert getattr(ours, name).dtype == getattr(theirs, name).dtype


@pytest.mark.parametrize("make", [lambda: grid_world(145, seed=1), lambda: inventory(LARGE)])
def test_results_do_not_depend_on_the_number_of_threads(make):
    """Slowly mixing, so that sweeps and the Krylov method, or the banded LU, take part."""
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one thread only on this machine")
    mdp, before = make(), numba.get_num_threads()
    answers = []
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            found = solve_rewards(mdp, paid(mdp))
            answers.append((found, mdp.occupancy(found.policy)))
    finally:
        numba.set_num_threads(before)
    (one, occupancy), (two, occupancy_two) = answers
    assert (one.lower, one.upper) == (two.lower, two.upper)
    np.testing.assert_array_equal(one.policy, two.policy)
    np.testing.assert_array_equal(one.values, two.values)
    np.testing.assert_array_equal(occupancy, occupancy_two)


def test_a_large_slow_problem_meets_its_bounds_and_its_occupancy():
    mdp = inventory(LARGE)
    found = solve_rewards(mdp, paid(mdp))
    assert found.upper - found.lower <= 1e-9
    reached = float((mdp.occupancy(found.policy) * paid(mdp)).sum())
    assert found.lower - 1e-9 <= reached <= found.upper + 1e-9
