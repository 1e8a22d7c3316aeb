"""The paper's four-state example: every exact answer that is known for it.

With `p` the probability of the gamble in state 0 and `g = gamma / (1 + gamma)`, gamma = 0.7:
mean `-g (1 - p)`, variance `g - mean^2`; the gamble is best below a risk aversion of
`1 / g = 2.42857`, the sure loss above, and both are fixed points of MVPI above half of that.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvpi.risk import CVaR, MeanVariance, VarianceBudget
from mvpi.tabular.examples import four_state
from mvpi.tabular.optimize import optimize
from mvpi.tabular.policy_iteration import policy_iteration
from mvpi.tabular.solve import solve_rewards

G = 0.7 / 1.7
THRESHOLD = 1.7 / 0.7
GAMBLE, SURE_LOSS = 0, 1


def policy(p: float) -> np.ndarray:
    """Gamble with probability `p`; elsewhere the action does not matter."""
    return np.array([[p, 1 - p], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])


def pure(action: int) -> np.ndarray:
    return np.array([action, 0, 0, 0])


def mean_and_variance(p: float) -> tuple[float, float]:
    mdp = four_state()
    rewards, weights = mdp.reward_distribution(mdp.occupancy(policy(p)))
    mean = weights @ rewards
    return mean, weights @ (rewards - mean) ** 2


def test_the_printed_numbers():
    assert pytest.approx(0.41176, abs=5e-6) == G
    assert pytest.approx(2.42857, abs=5e-6) == THRESHOLD
    assert pytest.approx(1.21429, abs=5e-6) == THRESHOLD / 2


@given(st.floats(0.0, 1.0))
def test_mean_and_variance_of_any_mixture(p):
    mean, variance = mean_and_variance(p)
    assert mean == pytest.approx(-G * (1 - p), abs=1e-14)
    assert variance == pytest.approx(G - mean**2, abs=1e-14)


@pytest.mark.parametrize("discount", [0.1, 0.7, 0.99, 1.0])
def test_the_formulas_hold_for_any_discount(discount):
    mdp, g = four_state(discount), discount / (1 + discount)
    rewards, weights = mdp.reward_distribution(mdp.occupancy(policy(0.25)))
    assert weights @ rewards == pytest.approx(-0.75 * g, abs=1e-14)
    assert MeanVariance(1.0).value(rewards, weights) == pytest.approx(
        -0.75 * g - (g - (0.75 * g) ** 2), abs=1e-14
    )


@pytest.mark.parametrize("lam", [0.0, 1.0, 2.0, 2.42, 2.428571])
def test_below_the_threshold_the_gamble_is_best(lam):
    solution = optimize(four_state(), lam)
    assert solution.policy[0] == GAMBLE
    assert solution.mean == pytest.approx(0.0, abs=1e-12)
    assert solution.variance == pytest.approx(G, abs=1e-12)
    assert solution.value == pytest.approx(-lam * G, abs=1e-10)
    assert solution.upper_bound == pytest.approx(-lam * G, abs=1e-8)


@pytest.mark.parametrize("lam", [2.428572, 2.43, 4.0, 8.0, 100.0])
def test_above_the_threshold_the_sure_loss_is_best(lam):
    solution = optimize(four_state(), lam)
    assert solution.policy[0] == SURE_LOSS
    assert solution.mean == pytest.approx(-G, abs=1e-12)
    assert solution.variance == pytest.approx(G - G**2, abs=1e-12)
    assert solution.value == pytest.approx(-G - lam * (G - G**2), abs=1e-10)


def test_at_the_threshold_both_are_worth_the_same():
    gamble, loss = -THRESHOLD * G, -G - THRESHOLD * (G - G**2)
    assert gamble == pytest.approx(loss, abs=1e-14)
    assert optimize(four_state(), THRESHOLD).value == pytest.approx(gamble, abs=1e-10)


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.2, 1.3, 2.4, 2.5, 8.0, 100.0])
def test_the_gamble_is_a_fixed_point_of_mvpi_for_every_risk_aversion(lam):
    solution = policy_iteration(four_state(), lam, pure(GAMBLE))
    assert solution.policy[0] == GAMBLE
    assert len(solution.trace) == 1
    assert solution.converged


@pytest.mark.parametrize("lam", [1.21429, 1.3, 2.4, 2.5, 8.0])
def test_the_sure_loss_is_a_fixed_point_above_half_the_threshold(lam):
    solution = policy_iteration(four_state(), lam, pure(SURE_LOSS))
    assert solution.policy[0] == SURE_LOSS
    assert len(solution.trace) == 1


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.2, 1.21428])
def test_the_sure_loss_is_no_fixed_point_below_half_the_threshold(lam):
    solution = policy_iteration(four_state(), lam, pure(SURE_LOSS))
    assert solution.policy[0] == GAMBLE
    assert solution.trace[0] < solution.trace[1]


@pytest.mark.parametrize(("lam", "action"), [(2.42, GAMBLE), (2.44, SURE_LOSS)])
def test_from_the_uniform_policy_mvpi_goes_to_the_optimum(lam, action):
    """At p = 1/2 the mean is -g/2, and the sure loss is better at that `y` above 1/g."""
    solution = policy_iteration(four_state(), lam)
    assert solution.policy[0] == action
    assert solution.value == pytest.approx(optimize(four_state(), lam).value, abs=1e-12)


@given(st.floats(0.0, 1.0), st.floats(0.01, 10.0))
def test_the_derivative_in_p_changes_sign_where_gradient_ascent_turns(p, lam):
    """`dJ/dp = g (1 + 2 lam mean)`, positive when p > 1 - 1 / (2 lam g)."""
    mean, _ = mean_and_variance(p)
    step = 1e-5 if p < 0.5 else -1e-5
    values = [m - lam * v for m, v in (mean_and_variance(p), mean_and_variance(p + step))]
    slope = (values[1] - values[0]) / step
    assert slope == pytest.approx(G * (1 + 2 * lam * mean), abs=1e-4)


@pytest.mark.parametrize("y", [-0.5, -0.3, 0.0])
def test_the_improvement_step_prefers_the_sure_loss_below_a_mean(y):
    """With augmented rewards the sure loss wins when `2 lam y < -1`."""
    lam = 1.5
    rewards = four_state().expected(lambda r: MeanVariance(lam).augment(r, y))
    best = solve_rewards(four_state(), rewards).policy[0]
    assert best == (SURE_LOSS if 2 * lam * y < -1 else GAMBLE)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_variance_budget_mixes_gamble_and_sure_loss(share):
    """Variance `g - g^2 (1 - p)^2` at most v: the largest mean has p = 1 - sqrt(g - v) / g."""
    limit = G - G**2 * (1 - share) ** 2
    solution = optimize(four_state(), VarianceBudget(limit))
    assert solution.mean == pytest.approx(-G * (1 - share), abs=1e-9)
    assert solution.variance == pytest.approx(limit, abs=1e-9)
    assert solution.policy[0, GAMBLE] == pytest.approx(share, abs=1e-8)


def test_cvar_of_the_worst_tenth_is_minus_one_for_both_and_the_mean_decides():
    """Both lose 1 in more than a tenth of the steps; a little care for the mean breaks the tie."""
    assert optimize(four_state(), CVaR(0.1)).value == pytest.approx(-1.0, abs=1e-9)
    solution = optimize(four_state(), CVaR(0.1, weight=0.9))
    assert solution.policy[0] == GAMBLE
    assert solution.value == pytest.approx(-0.9, abs=1e-9)


def test_an_unreachable_budget_names_the_least_variance():
    with pytest.raises(ValueError, match="limit must be >=") as caught:
        optimize(four_state(), VarianceBudget(0.2))
    bound = float(str(caught.value).split(">= ")[1].split(",")[0])
    assert math.isclose(bound, G - G**2, rel_tol=1e-7)
    assert "got 0.2" in str(caught.value)
