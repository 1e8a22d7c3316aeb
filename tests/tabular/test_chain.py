"""The Markov chain of a policy: values and occupancies with known answers, by every route."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from mvpi._types import Array
from mvpi.tabular import NotUnichain
from mvpi.tabular._matrices import closed_classes, drifts, reached_from
from mvpi.tabular.chain import DIRECT_UP_TO, Chain

SMALL, LARGE = DIRECT_UP_TO // 2, 3 * DIRECT_UP_TO
"""Solved by dense linear algebra, and by the systems of large chains."""


def ring(n: int, forward: float) -> csr_array:
    """`n` states in a circle: one step forward with some probability, otherwise stay."""
    states = np.arange(n)
    matrix = np.zeros((n, n))
    matrix[states, states] = 1.0 - forward
    matrix[states, (states + 1) % n] += forward
    return csr_array(matrix)


def queue(n: int, up: float, down: float) -> csr_array:
    """A birth-death chain on 0 to `n - 1`; its stationary distribution is geometric."""
    states = np.arange(n)
    matrix = np.zeros((n, n))
    matrix[states[:-1], states[1:]] = up
    matrix[states[1:], states[:-1]] = down
    matrix[states, states] = 1.0 - matrix.sum(axis=1)
    return csr_array(matrix)


def uniform(n: int) -> Array:
    return np.full(n, 1.0 / n)


@pytest.mark.parametrize("n", [SMALL, LARGE])
@pytest.mark.parametrize("discount", [0.5, 0.99, 0.999999])
def test_values_and_occupancy_of_a_chain_that_ends(n: int, discount: float) -> None:
    """From state 0 to the last, which absorbs: `v(s) = g^(n - 1 - s) / (1 - g)` for reward 1
    there."""
    states = np.arange(n)
    matrix = csr_array((np.ones(n), (states, np.minimum(states + 1, n - 1))), shape=(n, n))
    start = np.eye(n)[0]
    chain = Chain(matrix, discount, start)
    found = chain.evaluate(np.eye(n)[-1], 1e-12)
    assert (1.0 - discount) * found.values == pytest.approx(discount ** (n - 1 - states), abs=1e-9)
    assert found.gain == pytest.approx(discount ** (n - 1), abs=1e-11)
    expected = (1.0 - discount) * discount**states
    expected[-1] = discount ** (n - 1)
    assert chain.occupancy() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("n", [SMALL, LARGE])
def test_the_stationary_distribution_of_a_queue_is_geometric(n: int) -> None:
    chain = Chain(queue(n, up=0.2, down=0.3), 1.0, uniform(n))
    expected = (0.2 / 0.3) ** np.arange(n)
    assert chain.occupancy() == pytest.approx(expected / expected.sum(), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("n", [SMALL, LARGE])
@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_the_gain_is_the_mean_reward_under_the_occupancy(n: int, discount: float) -> None:
    rng = np.random.default_rng(n)
    matrix = csr_array(rng.dirichlet(np.ones(n), n))
    start, rewards = rng.dirichlet(np.ones(n)), rng.normal(size=n)
    chain = Chain(matrix, discount, start)
    found = chain.evaluate(rewards, 1e-12)
    assert found.gain == pytest.approx(float(chain.occupancy() @ rewards), abs=1e-10)
    image = rewards + discount * (matrix @ found.values)
    error = image - found.values - (found.gain if discount == 1.0 else 0.0)
    assert np.ptp(error) == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize("evaluation", ["auto", "direct", "krylov"])
def test_all_ways_of_evaluation_agree(evaluation: str) -> None:
    matrix, start = ring(LARGE, 0.7), np.eye(LARGE)[3]
    rewards = np.random.default_rng(0).normal(size=LARGE)
    dense = np.eye(LARGE) - 0.999 * matrix.toarray()
    chain = Chain(matrix, 0.999, start, evaluation)  # type: ignore[arg-type]
    assert chain.evaluate(rewards, 1e-12).values == pytest.approx(
        np.linalg.solve(dense, rewards), abs=1e-7
    )
    assert chain.occupancy() == pytest.approx(0.001 * np.linalg.solve(dense.T, start), abs=1e-10)


@pytest.mark.parametrize("n", [SMALL, LARGE])
def test_relative_values_have_mean_zero_over_the_start(n: int) -> None:
    start = np.random.default_rng(1).dirichlet(np.ones(n))
    found = Chain(ring(n, 0.5), 0.99, start).evaluate_relative(np.arange(n) / n, 1e-12)
    assert float(start @ found.values) == pytest.approx(0.0, abs=1e-8)


def test_the_support_is_what_the_start_reaches_and_at_discount_1_what_recurs() -> None:
    matrix = csr_array(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]))
    start = np.array([0.0, 1.0, 0.0])
    assert Chain(matrix, 0.9, start).support.tolist() == [False, True, True]
    assert Chain(matrix, 1.0, start).support.tolist() == [False, False, True]


def test_two_closed_classes_are_refused_at_discount_1_only() -> None:
    matrix, start = csr_array(np.eye(2)), uniform(2)
    assert Chain(matrix, 0.9, start).occupancy() == pytest.approx(start)
    with pytest.raises(NotUnichain, match="one holds state A, another state B"):
        Chain(matrix, 1.0, start, name="AB".__getitem__)


def test_closed_classes_and_reachable_states() -> None:
    edges = [(0, 1), (1, 0), (2, 0), (2, 3), (3, 3)]
    rows, columns = zip(*edges, strict=True)
    matrix = csr_array((np.ones(len(edges)), (rows, columns)), shape=(4, 4))
    assert closed_classes(matrix) == [0, 3]
    assert reached_from(matrix, np.array([0])).tolist() == [0, 1]
    assert reached_from(matrix, np.array([2])).tolist() == [0, 1, 2, 3]


def test_a_drift_does_not_cancel_where_a_chain_hardly_moves() -> None:
    """`P x - x = (0, -1e-12)` for `x` near 1e6, where `P x` has no digits left for it."""
    matrix = csr_array(np.array([[1.0, 0.0], [1e-12, 1.0 - 1e-12]]))
    drift, size = drifts(matrix, np.array([1e6, 1e6 + 1.0]))
    assert drift == pytest.approx([0.0, -1e-12], rel=1e-12)
    assert (size >= np.abs(drift)).all()
