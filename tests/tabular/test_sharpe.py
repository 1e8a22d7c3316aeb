"""The largest Sharpe ratio: against all mixtures of two policies, and where it is infinite."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.examples import examples
from helpers.problems import problems, random_problem
from hypothesis import given
from hypothesis import strategies as st

import mvpi

shares = np.linspace(0.0, 1.0, 101)[:, None, None]


@examples(100)
@given(problems(max_states=3), st.sampled_from([0.01, 0.1, 0.5, 2.0, 100.0]))
def test_no_mixture_of_two_policies_has_a_larger_ratio(problem, below):
    mean, variance = problem.moments
    spread = float(np.ptp(problem.r)) or 1.0
    risk_free = float(mean.max()) - below * spread
    found = mvpi.frontier(problem.mdp()).max_sharpe(risk_free)
    step = mean - mean[:, None]
    m = mean[:, None] + shares * step
    v = (1 - shares) * variance[:, None] + shares * variance + shares * (1 - shares) * step**2
    if v.min() < 1e-9 * spread**2:
        assert found.value > 1e3 or mean[variance.argmin()] <= risk_free
        return
    best = ((m - risk_free) / np.sqrt(v)).max()
    assert found.value == pytest.approx(best, rel=1e-6)
    assert best <= found.upper_bound * (1 + 1e-9)
    assert found.converged
    assert found.policy.ndim == 1
    assert found.value == pytest.approx((found.mean - risk_free) / found.std, rel=1e-9)


def test_a_steady_gain_has_an_infinite_ratio():
    """Actions: 1 for sure, 2 for sure, 0 or 10."""
    p = np.full((2, 3, 2), 0.5)
    r = np.array([[[1.0, 1.0], [2.0, 2.0], [0.0, 10.0]]] * 2)
    frontier = mvpi.frontier(mvpi.MDP(p, r, 0.9))
    steady = frontier.max_sharpe()
    assert (steady.mean, steady.variance, steady.value, steady.gap) == (2.0, 0.0, math.inf, 0.0)
    assert steady.converged
    assert steady.sharpe == math.inf
    risky = frontier.max_sharpe(risk_free=2.0)
    assert (risky.mean, risky.std) == (pytest.approx(5.0), pytest.approx(5.0))
    assert risky.value == pytest.approx(3 / 5)
    assert risky.sharpe == pytest.approx(1.0)


@pytest.mark.parametrize("risk_free", [5.0, 5.1, 1e9])
def test_a_reward_that_nobody_beats_is_named(risk_free):
    p = np.full((2, 2, 2), 0.5)
    r = np.array([[[1.0, 1.0], [0.0, 10.0]]] * 2)
    with pytest.raises(mvpi.InputError, match="risk_free must be < 5, the largest mean"):
        mvpi.frontier(mvpi.MDP(p, r, 0.9)).max_sharpe(risk_free)


@pytest.mark.parametrize("risk_free", [math.nan, math.inf, "0", None, [0.0]])
def test_a_bad_risk_free_reward_is_refused(risk_free):
    frontier = mvpi.frontier(mvpi.examples.four_state())
    with pytest.raises(mvpi.InputError, match="risk_free must be finite"):
        frontier.max_sharpe(risk_free)


@pytest.mark.parametrize("discount", [0.95, 1.0])
def test_the_ratio_is_that_of_the_best_tradeoff_at_its_price(discount):
    """With `t` the largest ratio, the optimum maximises `m - lam v` at `lam = t / (2 std)`."""
    mdp = random_problem(5, 40, 4, discount).mdp()
    best = mvpi.frontier(mdp).max_sharpe(-1.0)
    price = best.value / (2 * best.std)
    value = mvpi.optimize(mdp, price).value
    assert value == pytest.approx(best.mean - price * best.variance, abs=1e-7)
