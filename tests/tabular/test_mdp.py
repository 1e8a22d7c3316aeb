"""The finite MDP: what it accepts, what it refuses, and the occupancy of a policy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.examples import examples
from helpers.problems import (
    Problem,
    best_linear,
    class_laws,
    places_to_stay,
    problems,
    random_problem,
    state_occupancy,
)
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.sparse import coo_array, csc_array, csc_matrix, csr_array, csr_matrix

from mvpi.errors import InputError
from mvpi.risk import CVaR, Entropic, MeanVariance, VarianceBudget
from mvpi.tabular import NotUnichain
from mvpi.tabular.examples import four_state
from mvpi.tabular.mdp import MDP
from mvpi.tabular.optimize import optimize

STAY_OR_SWAP = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]])
PAID_IN_STATE_1 = np.array([[0.0, 0.0], [1.0, 1.0]])


def random_policy(rng: np.random.Generator, n_states: int, n_actions: int) -> np.ndarray:
    return rng.dirichlet(np.ones(n_actions), n_states)


def by_power_series(problem: Problem, policy: np.ndarray) -> np.ndarray:
    """`(1 - g) sum_t g^t Pr(S_t, A_t)`, term by term until nothing is left."""
    p = np.einsum("sa,sat->st", policy, problem.p)
    states, total, weight = problem.start, np.zeros(len(problem.p)), 1 - problem.discount
    while weight > 1e-15:
        total = total + weight * states
        states = states @ p
        weight *= problem.discount
    return total[:, None] * policy


def same(one: MDP, other: MDP) -> bool:
    arrays = [
        (m.transitions.toarray(), m.expected(lambda r: r), m.expected(np.square), m.start)
        for m in (one, other)
    ]
    return all(np.allclose(x, y, rtol=1e-13, atol=1e-13) for x, y in zip(*arrays, strict=True))


# The same MDP, whichever way it comes in


@given(problems(), st.sampled_from([csr_array, csc_array, coo_array, csr_matrix, csc_matrix]))
def test_dense_and_sparse_inputs_make_the_same_mdp(problem, kind):
    n, actions, _ = problem.p.shape
    transitions = tuple(kind(problem.p[:, a]) for a in range(actions))
    dense = problem.mdp()
    sparse = MDP(transitions, problem.r, problem.discount, problem.start)
    assert same(dense, sparse)
    uniform = np.full((n, actions), 1 / actions)
    np.testing.assert_array_equal(dense.occupancy(uniform), sparse.occupancy(uniform))


@given(problems())
def test_rewards_of_transitions_may_be_sparse_too(problem):
    full = np.array(problem.rewards)
    dense = MDP(problem.p, full, problem.discount, problem.start)
    rewards = [csr_array(full[:, a]) for a in range(full.shape[1])]
    assert same(dense, MDP(problem.p, rewards, problem.discount, problem.start))
    assert same(dense, Problem(problem.p, full, problem.discount, problem.start).mdp(sparse=True))


@given(problems())
def test_from_rows_takes_what_the_attributes_hold(problem):
    mdp = problem.mdp()
    again = MDP.from_rows(mdp.transitions, mdp.rewards, mdp.discount, mdp.start)
    assert same(mdp, again)
    np.testing.assert_array_equal(mdp.rewards, again.rewards)


def test_from_rows_puts_action_a_of_state_s_in_row_s_times_actions_plus_a():
    rows = csr_array(np.array([[1, 0], [0, 1], [0, 1], [1, 0]], dtype=np.int64))
    assert same(MDP.from_rows(rows, PAID_IN_STATE_1), MDP(STAY_OR_SWAP, PAID_IN_STATE_1))


def test_from_rows_takes_rewards_per_stored_transition():
    rows = csr_array(np.array([[0.5, 0.5], [0.0, 1.0]]))
    mdp = MDP.from_rows(rows, [1.0, 2.0, 4.0])
    np.testing.assert_array_equal(mdp.expected(lambda r: r), [[1.5], [4.0]])


def test_repeated_entries_of_a_sparse_matrix_add_up():
    twice = coo_array(([0.5, 0.5, 1.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    np.testing.assert_array_equal(MDP([twice], [[0], [1]]).transitions.toarray(), [[0, 1], [1, 0]])


def test_stored_zeros_are_not_transitions():
    """A zero that is stored must neither join closed classes nor bring its reward along."""
    stored = csr_array(([1.0, 0.0, 0.0, 1.0], [0, 1, 0, 1], [0, 2, 4]), shape=(2, 2))
    for mdp in (MDP([stored], [[0.0], [1.0]], 1), MDP.from_rows(stored, [[0.0], [1.0]], 1)):
        with pytest.raises(NotUnichain):
            mdp.occupancy([0, 0])
    mdp = MDP.from_rows(stored, [1.0, -1e9, -1e9, 2.0], 0.9, start=0)
    np.testing.assert_array_equal(mdp.rewards, [1.0, 2.0])
    assert optimize(mdp, 1.0).mean == pytest.approx(1.0)


def test_repeated_next_states_keep_their_rewards():
    rows = csr_array(([0.5, 0.5, 0.0, 1.0], [1, 1, 0, 0], [0, 2, 4]), shape=(2, 2))
    mdp = MDP.from_rows(rows, [1.0, 3.0, 7.0, 5.0])
    np.testing.assert_array_equal(mdp.rewards, [1.0, 3.0, 5.0])
    np.testing.assert_array_equal(mdp.expected(lambda r: r**2), [[5.0], [25.0]])


def test_rows_a_little_off_are_made_to_sum_to_one():
    p = STAY_OR_SWAP * (1 + 5e-7)
    np.testing.assert_allclose(
        MDP(p, PAID_IN_STATE_1).transitions.sum(axis=1), 1.0, rtol=0, atol=1e-15
    )


def test_whole_numbers_and_lists_are_fine():
    mdp = MDP(STAY_OR_SWAP.astype(int).tolist(), [[0, 0], [1, 1]], discount=1, start=1)
    assert mdp.discount == 1.0
    assert mdp.rewards.dtype == np.float64


def test_rewards_of_impossible_transitions_do_not_matter():
    r = np.where(STAY_OR_SWAP > 0, 1.0, 1e9)
    mdp = MDP(STAY_OR_SWAP, r, 0.9)
    assert optimize(mdp, 1.0).value == pytest.approx(1.0, abs=1e-12)


def test_repr_counts_states_actions_and_transitions():
    assert repr(four_state()) == "MDP(4 states, 2 actions, 9 transitions, discount=0.7)"


# Start


@pytest.mark.parametrize("start", [1, np.int32(1), [0, 1], np.array([0.0, 1.0]), (0.0, 1.0)])
def test_a_start_state_is_a_start_distribution(start):
    mdp = MDP(STAY_OR_SWAP, PAID_IN_STATE_1, 0.9, start)
    np.testing.assert_array_equal(mdp.start, [0.0, 1.0])


def test_the_start_is_uniform_when_left_out():
    np.testing.assert_array_equal(MDP(STAY_OR_SWAP, PAID_IN_STATE_1).start, [0.5, 0.5])


# Occupancies


def test_occupancy_of_swap_then_stay():
    d = MDP(STAY_OR_SWAP, PAID_IN_STATE_1, 0.9, start=0).occupancy([1, 0])
    np.testing.assert_allclose(d, [[0.0, 0.1], [0.9, 0.0]], atol=1e-15)


@given(problems(discounts=(0.3, 0.9, 0.99)), st.integers(0, 1000))
def test_occupancy_is_the_discounted_sum_over_time(problem, seed):
    policy = random_policy(np.random.default_rng(seed), *problem.p.shape[:2])
    expected = by_power_series(problem, policy)
    np.testing.assert_allclose(problem.mdp().occupancy(policy), expected, atol=1e-11)


@given(problems(discounts=(0.3, 0.99, 0.9999, 1.0)), st.integers(0, 1000))
def test_occupancy_solves_the_flow_equations(problem, seed):
    policy = random_policy(np.random.default_rng(seed), *problem.p.shape[:2])
    chain = np.einsum("sa,sat->st", policy, problem.p)
    expected = state_occupancy(chain, problem.discount, problem.start)[:, None] * policy
    np.testing.assert_allclose(problem.mdp().occupancy(policy), expected, atol=1e-11)


@given(problems(), st.integers(0, 1000))
def test_a_deterministic_policy_is_one_with_probabilities_zero_and_one(problem, seed):
    n, actions, _ = problem.p.shape
    policy = np.random.default_rng(seed).integers(actions, size=n)
    mdp = problem.mdp()
    np.testing.assert_allclose(
        mdp.occupancy(policy), mdp.occupancy(np.eye(actions)[policy]), atol=1e-14
    )


def test_average_reward_occupancy_is_the_long_run_share_of_time():
    problem = random_problem(seed=5, states=4, actions=2, discount=1.0)
    policy = random_policy(np.random.default_rng(1), 4, 2)
    chain = np.einsum("sa,sat->st", policy, problem.p)
    long_run = np.linalg.matrix_power(chain, 2000)[0]
    np.testing.assert_allclose(problem.mdp().occupancy(policy).sum(axis=1), long_run, atol=1e-12)


def test_average_reward_does_not_depend_on_the_start():
    problem = random_problem(seed=6, states=5, actions=2, discount=1.0)
    one, other = (MDP(problem.p, problem.r, 1.0, start) for start in (0, 4))
    np.testing.assert_array_equal(one.occupancy([0] * 5), other.occupancy([0] * 5))


def test_average_reward_occupancy_of_a_periodic_chain_is_shared_equally():
    cycle = np.roll(np.eye(3), 1, axis=1)[:, None, :]
    np.testing.assert_allclose(MDP(cycle, np.zeros((3, 1)), 1).occupancy([0, 0, 0]), [[1 / 3]] * 3)


def test_average_reward_occupancy_leaves_transient_states_empty():
    p = np.array([[[0.0, 1.0, 0.0]], [[0.0, 0.5, 0.5]], [[0.0, 1.0, 0.0]]])
    d = MDP(p, np.zeros((3, 1)), 1).occupancy([0, 0, 0]).ravel()
    np.testing.assert_allclose(d, [0, 2 / 3, 1 / 3], atol=1e-15)


@pytest.mark.parametrize("discount", [1e-300, 1e-9, 0.999999, 1 - 1e-12])
def test_occupancy_at_extreme_discounts_stays_a_distribution(discount):
    d = MDP(STAY_OR_SWAP, PAID_IN_STATE_1, discount, start=0).occupancy([1, 0])
    assert (d >= 0).all()
    assert d.sum() == pytest.approx(1.0, abs=1e-12)
    assert d[1, 0] == pytest.approx(discount, rel=1e-12, abs=1e-300)


# Rewards that depend on the next state


@given(problems())
def test_expected_averages_a_function_and_never_applies_it_to_a_mean(problem):
    exact = (problem.p * problem.rewards**2).sum(axis=2)
    np.testing.assert_allclose(
        problem.mdp().expected(np.square), exact, rtol=1e-12, atol=1e-12 * problem.largest**2
    )


def test_expected_square_of_a_fair_bet_is_one():
    p = np.full((2, 1, 2), 0.5)
    mdp = MDP(p, np.array([[[1.0, -1.0]], [[1.0, -1.0]]]))
    np.testing.assert_array_equal(mdp.expected(np.square), [[1.0], [1.0]])
    np.testing.assert_array_equal(mdp.expected(lambda r: r), [[0.0], [0.0]])


@given(problems(), st.integers(0, 1000))
def test_reward_distribution_has_the_probability_of_every_reward(problem, seed):
    policy = random_policy(np.random.default_rng(seed), *problem.p.shape[:2])
    mdp = problem.mdp()
    d = mdp.occupancy(policy)
    values, weights = mdp.reward_distribution(d)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    for reward in np.unique(problem.rewards):
        exact = (d[:, :, None] * problem.p)[problem.rewards == reward].sum()
        assert weights[values == reward].sum() == pytest.approx(exact, abs=1e-12)


# Immutability


@pytest.mark.parametrize("next_state", [False, True])
def test_arrays_of_an_mdp_cannot_be_written(next_state):
    mdp = random_problem(1, 3, 2, 0.9, next_state=next_state).mdp()
    table = mdp.transitions
    for array in (table.data, table.indices, table.indptr, mdp.rewards, mdp.start):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_the_inputs_stay_the_users_own():
    p, r, start = STAY_OR_SWAP.copy(), PAID_IN_STATE_1.copy(), np.array([0.5, 0.5])
    mdp = MDP(p, r, 0.9, start)
    p[:], r[:], start[:] = 0.0, 7.0, 0.0
    assert same(mdp, MDP(STAY_OR_SWAP, PAID_IN_STATE_1, 0.9))


def test_from_rows_leaves_its_inputs_alone():
    rows = csr_array(STAY_OR_SWAP.reshape(4, 2) * (1 + 5e-7))
    before, rewards = rows.data.copy(), PAID_IN_STATE_1.copy()
    mdp = MDP.from_rows(rows, rewards)
    np.testing.assert_array_equal(rows.data, before)
    rows.data[:], rewards[:] = 0.0, 7.0
    assert same(mdp, MDP(STAY_OR_SWAP, PAID_IN_STATE_1))


# Refusals


def altered(array: np.ndarray, index: tuple[int, ...], value: float) -> np.ndarray:
    changed = array.copy()
    changed[index] = value
    return changed


P, R = STAY_OR_SWAP, PAID_IN_STATE_1
SPARSE = [csr_array(np.eye(2)), csr_array(np.eye(2)[::-1])]

MALFORMED = {
    "transitions of 2 dimensions": ((np.eye(2), R), "shape (S, A, S), got (2, 2)"),
    "transitions not square": ((np.ones((2, 2, 3)) / 3, R), "shape (S, A, S), got (2, 2, 3)"),
    "transitions by action": (
        (np.stack([np.eye(3)] * 2), np.zeros((3, 2))),
        "got (2, 3, 3); it looks like (A, S, S): use transitions.swapaxes(0, 1)",
    ),
    "transitions of text": (("abc", R), "transitions must be an array of numbers"),
    "transitions ragged": (([[[1.0]], [[0.5, 0.5]]], R), "transitions must be an array of numbers"),
    "transitions None": ((None, R), "transitions must"),
    "no states": ((np.zeros((0, 1, 0)), np.zeros((0, 1))), "must have a state and an action"),
    "no actions": ((np.zeros((2, 0, 2)), np.zeros((2, 0))), "must have a state and an action"),
    "row too large": (
        (altered(P, (1, 0, 0), 0.25), R),
        "transitions must sum to 1 over next states: state 1, action 0 sums to 1.25",
    ),
    "row too small": ((altered(P, (0, 1, 1), 0.9), R), "state 0, action 1 sums to 0.9"),
    "row empty": ((altered(P, (1, 1, 0), 0.0), R), "state 1, action 1 sums to 0"),
    "row off by a hair": ((altered(P, (0, 0, 0), 1.00001), R), "state 0, action 0 sums to 1.00001"),
    "probability negative": (
        (altered(altered(P, (0, 0, 0), 1.5), (0, 0, 1), -0.5), R),
        "probabilities >= 0: state 0, action 0, next state 1 has -0.5",
    ),
    "probability NaN": ((altered(P, (1, 1, 1), math.nan), R), "next state 1 has nan"),
    "probability infinite": ((altered(P, (1, 0, 1), math.inf), R), "next state 1 has inf"),
    "one sparse matrix": (
        (SPARSE[0], R),
        "got a single sparse matrix: wrap it in a list, or see MDP.from_rows",
    ),
    "sparse and dense": (
        ([SPARSE[0], np.eye(2)], R),
        "transitions[1] must be a scipy sparse matrix like the others, got ndarray",
    ),
    "dense and sparse": (([np.eye(2), SPARSE[0]], R), "transitions[0] must be a scipy sparse"),
    "sparse of two shapes": (
        ([SPARSE[0], csr_array(np.eye(3))], R),
        "transitions[1] must have shape (2, 2), got (3, 3)",
    ),
    "sparse not square": (([csr_array(np.ones((2, 3)) / 3)], R), "must have shape (2, 2), got"),
    "sparse without states": (([csr_array((0, 0))], np.zeros((0, 1))), "transitions[0] must have"),
    "sparse row sum": (
        ([SPARSE[0], 0.5 * SPARSE[1]], R),
        "state 0, action 1 sums to 0.5",
    ),
    "sparse negative": (
        ([csr_array([[2.0, -1.0], [0.0, 1.0]]), SPARSE[1]], R),
        "state 0, action 0, next state 1 has -1.0",
    ),
    "no sparse matrices": (([], R), "transitions must have shape (S, A, S), got (0,)"),
    "rewards too few": ((P, np.zeros((2, 1))), "shape (2, 2) or (2, 2, 2), got (2, 1)"),
    "rewards per state": ((P, np.zeros(2)), "shape (2, 2) or (2, 2, 2), got (2,)"),
    "rewards of text": ((P, [["a", "b"], ["c", "d"]]), "rewards must be an array of numbers"),
    "reward NaN": ((P, altered(R, (1, 0), math.nan)), "rewards[1, 0] is nan"),
    "reward infinite": ((P, altered(R, (0, 1), math.inf)), "rewards[0, 1] is inf"),
    "reward of a transition infinite": (
        (np.full((2, 2, 2), 0.5), altered(np.zeros((2, 2, 2)), (0, 1, 1), -math.inf)),
        "rewards[0, 1, 1] is -inf; an action that a state does not have is -inf for all next",
    ),
    "reward too large to be squared": (
        (P, altered(R, (0, 1), -1e160)),
        "rewards must be finite and at most 1e+150 in size: rewards[0, 1] is -1e+160",
    ),
    "reward of a transition NaN": (
        (P, altered(np.zeros((2, 2, 2)), (0, 1, 1), math.nan)),
        "rewards[0, 1, 1] is nan",
    ),
    "sparse rewards too few": (
        (SPARSE, SPARSE[:1]),
        "rewards must hold 2 matrices, one per action",
    ),
    "sparse rewards of another shape": (
        (SPARSE, [csr_array(np.eye(3))] * 2),
        "rewards[0] must have shape (2, 2), got (3, 3)",
    ),
    "sparse and dense rewards": ((SPARSE, [SPARSE[0], R]), "rewards[1] must be a scipy sparse"),
    "sparse reward NaN": ((SPARSE, [SPARSE[0], SPARSE[1] * math.nan]), "is nan"),
    "discount zero": ((P, R, 0), "discount must be a number in (0, 1], got 0"),
    "discount negative": ((P, R, -0.5), "discount must be a number in (0, 1], got -0.5"),
    "discount above one": ((P, R, 1.1), "in (0, 1], got 1.1"),
    "discount NaN": ((P, R, math.nan), "discount must be a number in (0, 1], got nan"),
    "discount infinite": ((P, R, math.inf), "discount must be a number in (0, 1], got inf"),
    "discount text": ((P, R, "x"), "discount must be a number in (0, 1], got 'x'"),
    "discount text of a number": ((P, R, "0.9"), "got '0.9'"),
    "discount None": ((P, R, None), "discount must be a number in (0, 1], got None"),
    "discount a list": ((P, R, [0.9]), "discount must be a number in (0, 1], got [0.9]"),
    "start too long": ((P, R, 0.9, [0.5, 0.25, 0.25]), "start must have shape (2,), a probability"),
    "start not one": ((P, R, 0.9, [0.5, 0.6]), "start must sum to 1, got a sum of 1.1"),
    "start negative": ((P, R, 0.9, [1.5, -0.5]), "start[1] is -0.5"),
    "start NaN": ((P, R, 0.9, [math.nan, 1.0]), "start[0] is nan"),
    "start state too large": ((P, R, 0.9, 2), "start must be a state from 0 to 1, got 2"),
    "start state negative": ((P, R, 0.9, -1), "start must be a state from 0 to 1, got -1"),
    "start text": ((P, R, 0.9, "first"), "start must be an array of numbers"),
    "start a fraction": ((P, R, 0.9, 0.5), "start must have shape (2,)"),
}


@pytest.mark.parametrize(("arguments", "fragment"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_mdp_is_refused_in_one_line(arguments, fragment):
    with pytest.raises(InputError) as caught:
        MDP(*arguments)
    message = str(caught.value)
    assert fragment in message
    assert "\n" not in message


ROWS = csr_array(STAY_OR_SWAP.reshape(4, 2))

MALFORMED_ROWS = {
    "pairs no multiple of states": (
        (ROWS[:3], R),
        "transitions must have shape (S * A, S) with row s * A + a, got (3, 2)",
    ),
    "no states": ((csr_array((0, 0)), R), "got (0, 0)"),
    "one row": ((np.array([1.0]), [[1.0]]), "transitions must have shape (S * A, S)"),
    "row sum": ((0.5 * ROWS, R), "state 0, action 0 sums to 0.5"),
    "negative": ((-ROWS, R), "state 0, action 0, next state 0 has -1.0"),
    "rewards of another shape": (
        (ROWS, np.zeros((4, 2))),
        "rewards must have shape (2, 2), or one value per stored transition, (4,), got (4, 2)",
    ),
    "rewards of text": ((ROWS, [["a", "b"], ["c", "d"]]), "rewards must be"),
    "reward NaN": ((ROWS, altered(R, (1, 1), math.nan)), "rewards[1, 1] is nan"),
    "discount": ((ROWS, R, 2), "got 2"),
    "start": ((ROWS, R, 0.9, 5), "got 5"),
}


@pytest.mark.parametrize(
    ("arguments", "fragment"), MALFORMED_ROWS.values(), ids=MALFORMED_ROWS.keys()
)
def test_malformed_rows_are_refused_in_one_line(arguments, fragment):
    with pytest.raises(InputError) as caught:
        MDP.from_rows(*arguments)
    message = str(caught.value)
    assert fragment in message
    assert "\n" not in message


BAD_POLICIES = {
    "fractions for actions": ([0.0, 1.0], "got float64 of shape (2,)"),
    "too short": ([0], "whole numbers of shape (2,), an action per state"),
    "too long": ([0, 1, 0], "got int64 of shape (3,)"),
    "action too large": ([0, 2], "policy[1] must be an action from 0 to 1, got 2"),
    "action negative": ([-1, 0], "policy[0] must be an action from 0 to 1, got -1"),
    "booleans": ([True, False], "got bool of shape (2,)"),
    "text": (["stay", "swap"], "of shape (2,)"),
    "None": (None, "policy must be whole numbers"),
    "one number": (0, "of shape ()"),
    "sums to less": ([[0.5, 0.4], [1, 0]], "policy[0] must be probabilities that sum to 1"),
    "negative": ([[1, 0], [1.5, -0.5]], "policy[1] must be probabilities that sum to 1, got [1.5"),
    "NaN": ([[1, 0], [math.nan, 1]], "policy[1] must be probabilities that sum to 1, got [nan"),
    "infinite": ([[math.inf, 0], [1, 0]], "policy[0] must be probabilities"),
    "three actions": ([[1, 0, 0], [1, 0, 0]], "probabilities of shape (2, 2), got"),
    "complex": ([[1j, 0], [1, 0]], "got complex128 of shape (2, 2)"),
    "ragged": ([[1, 0], [1]], "policy must be"),
}


@pytest.mark.parametrize(("policy", "fragment"), BAD_POLICIES.values(), ids=BAD_POLICIES.keys())
def test_a_bad_policy_is_refused_in_one_line(policy, fragment):
    with pytest.raises(InputError) as caught:
        MDP(P, R, 0.9).occupancy(policy)
    message = str(caught.value)
    assert fragment in message
    assert "\n" not in message


# Average reward with more than one closed class


def test_the_occupancy_of_a_policy_with_two_closed_classes_is_refused():
    with pytest.raises(NotUnichain) as caught:
        MDP(P, R, 1.0).occupancy([0, 0])
    message = str(caught.value)
    assert "2 closed classes (one holds state 0, another state 1)" in message
    assert "use a discount below 1" in message
    assert "\n" not in message


def test_below_discount_one_two_closed_classes_are_no_trouble():
    d = MDP(P, R, 0.999, start=[0.25, 0.75]).occupancy([0, 0])
    np.testing.assert_allclose(d, [[0.25, 0], [0.75, 0]], atol=1e-12)


@pytest.mark.parametrize("risk", [0.0, 1.0, CVaR(0.2), VarianceBudget(1.0)], ids=repr)
def test_an_mdp_with_two_closed_classes_cannot_be_optimised_on_average(risk):
    p = np.eye(2)[:, None, :].repeat(2, axis=1)
    with pytest.raises(NotUnichain, match="the MDP has 2 closed classes"):
        optimize(MDP(p, R, 1.0), risk)


@pytest.mark.parametrize(
    "risk", [0.0, 0.5, CVaR(0.3), Entropic(2.0), VarianceBudget(0.1)], ids=repr
)
def test_a_communicating_mdp_is_solved_although_staying_is_multichain(risk):
    """The best policy moves to state 1 and stays there; staying everywhere has two classes."""
    solution = optimize(MDP(P, R, 1.0), risk)
    assert solution.value == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_array_equal(solution.policy, [1, 0])
    assert solution.gap <= 1e-8


def moves(goals: list[list[int]], rewards: list[list[float]]) -> Problem:
    """An average-reward MDP in which action `a` leads from `s` to `goals[s][a]` for certain."""
    n = len(goals)
    return Problem(np.eye(n)[np.array(goals)], np.array(rewards), 1.0, np.full(n, 1 / n))


TIES = moves([[1, 0], [2, 1], [3, 0], [0, 3]], [[2.0, 2.0], [1.0, 0.0], [2.0, -1.0], [1.0, 0.0]])
"""Staying in 0 pays 2, and so much is tied that policies can be changed for ever."""


HALF_TIES = Problem(
    p=np.array(
        [
            [[0.3, 0.7, 0.0], [1.0, 0.0, 0.0], [0.7, 0.0, 0.3]],
            [[0.0, 0.0, 1.0], [0.7, 0.3, 0.0], [0.0, 0.7, 0.3]],
            [[0.7, 0.0, 0.3], [0.3, 0.0, 0.7], [0.0, 0.0, 1.0]],
        ]
    ),
    r=np.array(
        [
            [[-2.0, 2.0, -1.0], [0.0, 1.0, 2.0], [0.0, 2.0, -1.0]],
            [[1.0, 1.0, -2.0], [2.0, 2.0, -2.0], [0.0, 0.0, -1.0]],
            [[1.0, -2.0, -1.0], [2.0, 0.0, -2.0], [0.0, 0.0, 0.0]],
        ]
    ),
    discount=1.0,
    start=np.full(3, 1 / 3),
)
"""Staying in 0 and staying in 2 both pay 0 for certain."""


@examples(150)
@example(TIES, MeanVariance(0.3))
@given(
    places_to_stay(),
    st.sampled_from(
        [MeanVariance(0.0), MeanVariance(0.3), MeanVariance(2.0), CVaR(0.3), Entropic(1.0)]
    ),
)
def test_a_communicating_mdp_is_worth_the_best_closed_class_of_any_policy(problem, risk):
    """Many policies have several closed classes; every class can be reached and stayed in."""
    solution = optimize(problem.mdp(), risk)
    best = max(risk.value(values, weights) for _, values, weights in class_laws(problem))
    assert solution.value == pytest.approx(best, abs=1e-8)
    assert solution.upper_bound >= best - 1e-10
    assert solution.gap < 1e-6


@examples(100)
@example(TIES, 0.2)
@example(HALF_TIES, 0.0)
@given(places_to_stay(), st.sampled_from([0.0, 0.2, 0.5, 0.8]))
def test_a_variance_budget_is_kept_where_there_are_places_to_stay(problem, share):
    """The reported policy may have to walk between two places, and must say what that costs."""
    mdp = problem.mdp()
    variances = [
        np.average((r - np.average(r, weights=w)) ** 2, weights=w)
        for _, r, w in class_laws(problem)
    ]
    limit = min(variances) + share * (max(variances) - min(variances))
    solution = optimize(mdp, VarianceBudget(limit + 1e-9))
    values, weights = mdp.reward_distribution(mdp.occupancy(solution.policy))
    mean = np.average(values, weights=weights)
    assert solution.mean == pytest.approx(mean, abs=1e-6)
    assert np.average((values - mean) ** 2, weights=weights) <= limit + 1e-6
    assert solution.gap < 1e-6


@examples(150)
@example(moves([[1, 0], [0, 0]], [[-2.0, -0.25], [-1.0, 3.5]]), 0)
@given(places_to_stay(), st.integers(0, 2**32 - 1))
def test_a_waiting_room_is_left_for_better_and_refused_for_worse(problem, seed):
    """Two rooms lead into the MDP and are never returned to; one can wait there for a reward.

    If waiting pays less than the rest, the average is the same for every start and is found;
    if it pays more, the average depends on the start and that is said.
    """
    rng = np.random.default_rng(seed)
    n, actions, _ = problem.p.shape
    p, r = np.zeros((n + 2, actions, n + 2)), np.zeros((n + 2, actions, n + 2))
    p[2:, :, 2:], r[2:, :, 2:] = problem.p, problem.rewards
    p[0, 0, 0] = p[1, 0, 1] = 1.0
    p[0, 1:, 1] = p[1, 1:, 2] = 1.0
    r[0, 0, 0], r[1, 0, 1] = rng.normal(size=2)
    best = max(np.average(v, weights=w) for _, v, w in class_laws(problem))
    waiting = max(r[0, 0, 0], r[1, 0, 1])
    assume(abs(best - waiting) > 1e-6)
    mdp = MDP(p, r, 1.0)
    if waiting > best:
        with pytest.raises(InputError, match="depend on the start state"):
            optimize(mdp, 0.0)
    else:
        assert optimize(mdp, 0.0).value == pytest.approx(best, abs=1e-8)


def test_a_waiting_room_does_not_hide_a_better_cycle_that_takes_patience():
    """Round 1, 2, 3 pays 10 a step, but only at its end; staying pays at once, but less."""
    p, r = np.zeros((4, 2, 4)), np.zeros((4, 2))
    p[[0, 1, 2], 0, [0, 1, 2]] = 1.0
    p[[0, 1, 2], 1, [1, 2, 3]] = 1.0
    p[3, :, 1] = 1.0
    r[:, 0] = [1.0, 0.5, 0.5, 30.0]
    r[3, 1] = 30.0
    assert optimize(MDP(p, r, 1.0), 0.0).value == pytest.approx(10.0, abs=1e-8)


def test_a_better_place_that_cannot_be_returned_to_is_refused():
    """State 0 may stay for reward 1 or leave for ever: the best average depends on the start."""
    p = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    with pytest.raises(InputError, match="depend on the start state") as caught:
        optimize(MDP(p, [[1.0, 0.0], [0.0, 0.0]], 1.0), 0.0)
    assert "\n" not in str(caught.value)


def test_a_worse_place_that_cannot_be_returned_to_is_left():
    p = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    solution = optimize(MDP(p, [[-1.0, 0.0], [0.5, 0.0]], 1.0), 0.0)
    assert solution.value == pytest.approx(0.5, abs=1e-9)
    np.testing.assert_array_equal(solution.policy, [1, 0])


def test_the_linear_program_agrees_on_average_reward():
    problem = random_problem(seed=3, states=5, actions=3, discount=1.0)
    optimum, _ = best_linear(problem, problem.r)
    assert optimize(problem.mdp(), 0.0).mean == pytest.approx(optimum, abs=1e-9)


@pytest.mark.parametrize("n", [10, 70, 300, 2_000])
@pytest.mark.parametrize("up", [0.7, 0.5, 0.3])
def test_the_stationary_distribution_of_a_queue(n: int, up: float) -> None:
    """Geometric: a queue that tends to be full is empty once in (up / down)^n steps."""
    p = np.zeros((n, 1, n))
    states = np.arange(n)
    p[states, 0, np.minimum(states + 1, n - 1)] += up
    p[states, 0, np.maximum(states - 1, 0)] += 1.0 - up
    found = MDP(p, np.zeros((n, 1)), discount=1.0).occupancy(np.zeros(n, int))[:, 0]
    log = states * math.log(up / (1.0 - up))
    exact = np.exp(log - log.max())
    np.testing.assert_allclose(found, exact / exact.sum(), atol=1e-12)
