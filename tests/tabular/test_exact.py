"""The exact solver on shapes that are hard, against rational arithmetic and known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.exact import ExactMDP
from scipy.sparse import coo_array, csr_array
from tabular.exact_checks import Tally

import mvpi
from mvpi import InputError
from mvpi.tabular.frontier import Frontier


def test_random_checks_find_nothing() -> None:
    tally = Tally()
    for number in range(12):
        tally.run(number)
    assert tally.checks > 200
    assert not tally.violations, str(tally)


def lotteries(*outcomes: tuple[float, ...], discount: float = 0.9) -> mvpi.MDP:
    """One decision, again and again: an action is a lottery, its outcomes are equally likely."""
    n = max(map(len, outcomes))
    p, r = np.zeros((n, len(outcomes), n)), np.zeros((n, len(outcomes), n))
    for a, values in enumerate(outcomes):
        p[:, a, : len(values)], r[:, a, : len(values)] = 1 / len(values), values
    return mvpi.MDP(p, r, discount, start=0)


SIZES = (1e2, 1e4, 1e5, 1e8)


@pytest.fixture(scope="module", params=SIZES)
def risky(request: pytest.FixtureRequest) -> tuple[mvpi.MDP, Frontier, float]:
    size = request.param
    mdp = lotteries((size, -size / 2), (0.02,), (-0.1,), (0.05, 0.01))
    return mdp, mvpi.frontier(mdp), size


def test_calm_policies_are_found_beside_risky_ones(
    risky: tuple[mvpi.MDP, Frontier, float],
) -> None:
    _, frontier, size = risky
    np.testing.assert_allclose(frontier.means, [0.02, 0.03, size / 4], rtol=1e-12)
    np.testing.assert_allclose(frontier.variances, [0.0, 0.0004, 9 / 16 * size**2], rtol=1e-12)
    assert frontier.variances[0] == 0.0
    assert frontier.converged


@pytest.mark.parametrize("price", [0.0, 1.0, 1e3, 1e6])
def test_the_best_of_calm_and_risky_policies(
    risky: tuple[mvpi.MDP, Frontier, float], price: float
) -> None:
    mdp, frontier, size = risky
    policies = ((0.02, 0.0), (0.03, 4e-4), (size / 4, 9 / 16 * size**2))
    truth = max(mean - price * variance for mean, variance in policies)
    for found in (frontier.best(price), mvpi.optimize(mdp, price)):
        assert found.value == pytest.approx(truth, rel=1e-12)
        assert found.upper_bound >= truth
        assert found.converged


def test_a_limit_of_no_variance(risky: tuple[mvpi.MDP, Frontier, float]) -> None:
    mdp, frontier, _ = risky
    for found in (
        frontier.with_variance_at_most(0.0),
        mvpi.optimize(mdp, mvpi.VarianceBudget(0.0)),
    ):
        assert (found.mean, found.variance) == (0.02, 0.0)
        assert found.converged


@pytest.mark.parametrize("limit", [1e-6, 4e-4, 0.5, 1e3])
def test_a_limit_holds_for_the_policy_that_is_returned(
    risky: tuple[mvpi.MDP, Frontier, float], limit: float
) -> None:
    mdp, frontier, _ = risky
    bounds = []
    for found in (
        frontier.with_variance_at_most(limit),
        mvpi.optimize(mdp, mvpi.VarianceBudget(limit)),
    ):
        rewards, weights = mdp.reward_distribution(mdp.occupancy(found.policy))
        assert mvpi.stats.variance(rewards, weights) <= limit * (1 + 1e-12)
        assert found.variance == pytest.approx(limit, rel=1e-9)
        bounds.append(found.upper_bound)
        assert found.converged
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-6)


def test_nearly_absorbing_bounds_are_above_the_optimum() -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        p = np.eye(3)[:, None] + 1e-7 * rng.random((3, 2, 1)) * (
            rng.dirichlet(np.ones(3), (3, 2)) - np.eye(3)[:, None]
        )
        r = rng.normal(size=(3, 2))
        exact = ExactMDP(p, np.repeat(r[..., None], 3, -1), 0.999999, np.full(3, 1 / 3))
        mdp = mvpi.MDP(p, r, 0.999999)
        frontier = mvpi.frontier(mdp)
        for price in (0.0, 0.3, 3.0, 100.0):
            truth = exact.best_tradeoff(price)
            for found in (frontier.best(price), mvpi.optimize(mdp, price)):
                assert found.upper_bound >= truth * (1 - (truth > 0) * 1e-15)
                assert found.value == pytest.approx(float(truth), rel=1e-10)
                assert found.converged


def test_the_largest_mean_can_be_asked_for() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        p = rng.dirichlet(np.ones(4), (4, 3))
        mdp = mvpi.MDP(p, rng.normal(size=(4, 3)), 0.99)
        frontier = mvpi.frontier(mdp)
        for most in (frontier.means[-1], mvpi.optimize(mdp, 0.0).mean):
            assert frontier.with_mean_at_least(float(most) + 1e-10).mean == frontier.means[-1]


def test_an_edge_may_lead_to_a_dominated_corner() -> None:
    """A policy with more variance than a better one is no answer, but a mixture with it is."""
    mdp = lotteries((-3.0,), (-1.7, -0.6), (-1.375, -0.325))
    frontier = mvpi.frontier(mdp)
    np.testing.assert_allclose(frontier.means, [-3.0, -0.85])
    share, limit = 0.05, 0.05 * 0.55**2 + 0.05 * 0.95 * 1.85**2  # of the second lottery
    for found in (
        frontier.with_variance_at_most(limit),
        mvpi.optimize(mdp, mvpi.VarianceBudget(limit)),
    ):
        assert found.mean == pytest.approx(-3.0 + share * 1.85, abs=1e-9)
        assert found.converged
    found = frontier.with_mean_at_least(-3.0 + share * 1.85)
    assert found.variance == pytest.approx(limit, abs=1e-9)
    assert found.converged


@pytest.mark.parametrize("leave", [1e-4, 1e-7, 1e-12])
@pytest.mark.parametrize("discount", [0.9, 0.999999])
def test_entropic_with_a_huge_aversion(leave: float, discount: float) -> None:
    """The first action pays 1 for ever; the second nearly always 2, but -1 now and then."""
    p, r = np.zeros((3, 2, 3)), np.zeros((3, 2, 3))
    p[0, 0, 0], r[0, 0, 0] = 1.0, 1.0
    p[0, 1], r[0, 1] = [1 - leave, leave, 0.0], [2.0, -1.0, 0.0]
    p[1:, :, 2], r[1:, :, 2] = 1.0, -1.0
    mdp = mvpi.MDP(p, r, discount, start=0)
    found = mvpi.optimize(mdp, mvpi.Entropic(1e8))
    assert found.policy[0] == 0
    assert found.value == pytest.approx(1.0, abs=1e-12)
    assert 1.0 <= found.upper_bound <= 1.0 + 1e-9
    assert found.converged


@pytest.mark.parametrize("seed", [18, 19, 24, 32, 80])
def test_entropic_finds_the_one_place_to_stay(seed: int) -> None:
    """Nearly absorbing states at discount 1; one of them can be kept for ever, and pays 1."""
    rng = np.random.default_rng(seed)
    n, actions = int(rng.integers(2, 6)), int(rng.integers(2, 4))
    leave = 10.0 ** -rng.integers(1, 13, (n, actions, 1))
    p = np.eye(n)[:, None] + leave * (
        rng.dirichlet(np.full(n, 0.5), (n, actions)) - np.eye(n)[:, None]
    )
    s, a = int(rng.integers(n)), int(rng.integers(actions))
    p[s, a], r = np.eye(n)[s], -np.ones((n, actions))
    r[s] = 1.0
    if rng.random() < 0.5:
        r = rng.choice([-1.0, 1.0], (n, actions))
        r[s, a] = 1.0
    found = mvpi.optimize(mvpi.MDP(p, r, 1.0), mvpi.Entropic(1e8))
    assert found.value == 1.0
    assert 1.0 <= found.upper_bound <= 1.0 + 1e-9


def test_occupancies_of_rare_events_have_all_their_digits() -> None:
    leave, back = 1e-9, 1e-3
    p = np.array([[[1 - leave, leave]], [[back, 1 - back]]])
    visits = mvpi.MDP(p, [[0.0], [1.0]], 1.0).occupancy([0, 0])[1, 0]
    assert visits == pytest.approx(leave / (leave + back), rel=1e-14)


@pytest.mark.parametrize("form", [coo_array, csr_array])
def test_repeated_rewards_are_refused(form: type) -> None:
    """Two outcomes, 1 and 3, with one next state are no outcome of 4."""
    where = ([0, 0, 1], [1, 1, 0])
    p = coo_array(([0.5, 0.5, 1.0], where), shape=(2, 2))
    r = coo_array(([1.0, 3.0, 0.0], where), shape=(2, 2))
    if form is csr_array:
        r = csr_array((r.data, r.coords[1], [0, 2, 3]), shape=(2, 2))
    with pytest.raises(InputError, match=r"rewards\[0\] must have one entry per next .*from_rows"):
        mvpi.MDP([p], [r])
    summed = mvpi.MDP([p], [[4.0], [0.0]], 0.9)  # repeated probabilities add up
    assert summed.transitions.nnz == 2
    table = csr_array(([0.5, 0.5, 1.0], [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    kept = mvpi.MDP.from_rows(table, [1.0, 3.0, 0.0], 1.0)
    assert mvpi.optimize(kept, 0.0).mean == pytest.approx(1.0)


def test_no_advice_to_forbid_by_a_cost() -> None:
    """An action that is not allowed is said to be so: minus infinity, or `allowed=`."""
    with pytest.raises(InputError, match="state 0 has none that is allowed"):
        mvpi.MDP(np.ones((1, 1, 1)), [[-math.inf]])
    with pytest.raises(InputError, match="a state does not have is left out with allowed="):
        mvpi.MDP(np.ones((1, 1, 1)), [[-1e160]])
