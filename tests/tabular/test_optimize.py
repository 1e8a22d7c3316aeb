"""The certified optimum against enumeration of all deterministic policies and linear programs."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from typing import ClassVar

import numpy as np
import pytest
from helpers.examples import examples
from helpers.problems import (
    Problem,
    best_linear,
    cvar,
    entropic,
    forbidding,
    mean_variance,
    problems,
    random_problem,
)
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import brentq

from mvpi import stats
from mvpi.errors import InputError
from mvpi.risk import CVaR, Entropic, MeanVariance, MonotoneMeanVariance, Risk, VarianceBudget
from mvpi.tabular import _step_problem
from mvpi.tabular._dual_search import DualSearch
from mvpi.tabular._step_problem import StepProblem
from mvpi.tabular.examples import inventory, random_sparse
from mvpi.tabular.frontier import frontier
from mvpi.tabular.mdp import MDP
from mvpi.tabular.optimize import optimize
from mvpi.tabular.policy_iteration import policy_iteration
from mvpi.tabular.solution import Solution

solve_module = importlib.import_module("mvpi.tabular.solve")

EXACT = 1e-8
"""How far an optimum may be from the enumerated one, relative to the size of the numbers."""

prices = st.sampled_from([0.0, 0.01, 0.3, 1.0, 1.0, 3.0, 30.0])
levels = st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.77, 1.0])
weights = st.sampled_from([1.0, 1.0, 0.5, 0.1, 0.0])


def half_range(problem: Problem) -> float:
    """A price per this much reward is an aversion that matters, whatever the units."""
    return 0.5 * float(np.ptp(problem.r)) or 1.0


def best_value(problem: Problem, risk: Risk) -> float:
    """The best value of a deterministic policy, from the definition of the measure."""
    if isinstance(risk, MeanVariance):
        return float(mean_variance(*problem.laws, risk.risk_aversion).max())
    if isinstance(risk, CVaR):
        return float(cvar(*problem.laws, risk.level, risk.weight).max())
    if isinstance(risk, Entropic) and risk.risk_aversion > 0:
        return float(entropic(*problem.laws, risk.risk_aversion).max())
    if isinstance(risk, Entropic):
        return float(mean_variance(*problem.laws, 0.0).max())
    return max(risk.value(*law) for law in zip(*problem.laws, strict=True))


def size(problem: Problem, risk: Risk) -> float:
    """How large the numbers are that are added up to a value."""
    quadratic = isinstance(risk, MeanVariance | MonotoneMeanVariance)
    aversion = risk.risk_aversion if quadratic else 0.0
    return problem.largest + aversion * half_range(problem) ** 2


def check(problem: Problem, risk: Risk, solution: Solution, best: float) -> None:
    """The solution is the optimum, knows it, and its numbers are those of its policy."""
    scale = size(problem, risk)
    assert solution.value == pytest.approx(best, rel=0, abs=EXACT * scale)
    assert solution.upper_bound >= solution.value
    assert solution.upper_bound >= best - 1e-10 * scale
    assert solution.gap < 1e-6 * scale
    # A gap of 1e-9 of the range is out of reach when the rewards share their first digits.
    assert solution.converged or problem.largest > 1e4 * half_range(problem)
    mdp = problem.mdp()
    rewards, shares = mdp.reward_distribution(mdp.occupancy(solution.policy))
    mean = float(shares @ rewards)
    assert solution.mean == pytest.approx(mean, rel=0, abs=1e-9 * problem.largest)
    assert solution.variance == pytest.approx(
        float(shares @ (rewards - mean) ** 2), rel=0, abs=1e-9 * half_range(problem) ** 2 + 1e-14
    )
    assert solution.value == pytest.approx(risk.value(rewards, shares), rel=0, abs=1e-9 * scale)
    assert all(a <= b for a, b in pairwise(solution.trace))


# Every engine against enumeration


@examples(300)
@given(problems(), prices, st.booleans())
def test_mean_variance_is_the_enumerated_optimum(problem, price, sparse):
    risk = MeanVariance(price / half_range(problem))
    solution = optimize(problem.mdp(sparse), risk)
    check(problem, risk, solution, best_value(problem, risk))
    assert solution.dual == pytest.approx(solution.mean, rel=1e-12, abs=1e-12)


@examples(200)
@given(problems(), levels, weights, st.booleans())
def test_cvar_is_the_enumerated_optimum(problem, level, weight, sparse):
    risk = CVaR(level, weight)
    check(problem, risk, optimize(problem.mdp(sparse), risk), best_value(problem, risk))


@examples(200)
@given(problems(), prices, st.booleans())
def test_entropic_is_the_enumerated_optimum(problem, price, sparse):
    risk = Entropic(price / half_range(problem))
    check(problem, risk, optimize(problem.mdp(sparse), risk), best_value(problem, risk))


@examples(100)
@given(problems(max_states=4), prices, st.booleans())
def test_monotone_mean_variance_is_the_enumerated_optimum(problem, price, sparse):
    risk = MonotoneMeanVariance(price / half_range(problem))
    solution = optimize(problem.mdp(sparse), risk)
    check(problem, risk, solution, best_value(problem, risk))


@examples(60)
@given(problems(max_states=4), st.sampled_from([0.3, 1.0, 3.0]))
def test_mean_variance_by_search_over_the_dual_is_the_same_optimum(problem, price):
    """Two routes that share nothing but the risk-neutral solver."""
    risk = MeanVariance(price / half_range(problem))
    searched = DualSearch(StepProblem(problem.mdp()), risk, 1e-9 * half_range(problem)).run()
    check(problem, risk, searched, optimize(problem.mdp(), risk).value)


# A user's own measures


@dataclass(frozen=True)
class TwoSlopes(Risk):
    """`u(t)` is 0.5 t for gains and 3 t for losses; neither slope nor closed form is given."""

    def utility(self, t):
        t = np.asarray(t, dtype=float)
        return np.minimum(0.5 * t, 3.0 * t)

    def dual(self, rewards, weights=None):
        """`E[u'(R - y)] = 1` at the quantile of level (1 - 0.5) / (3 - 0.5)."""
        return CVaR(0.2).dual(rewards, weights)


@dataclass(frozen=True)
class ThreeSlopes(Risk):
    """Slopes 4, 1 and 0.25 with kinks away from zero: the best `y` is a reward plus a kink."""

    kinks: ClassVar = (-0.5, 0.75)

    def utility(self, t):
        t = np.asarray(t, dtype=float)
        low, high = self.kinks
        return t - 3.0 * np.maximum(low - t, 0.0) - 0.75 * np.maximum(t - high, 0.0)

    def dual(self, rewards, weights=None):
        r = np.asarray(rewards, dtype=float).ravel()
        w = None if weights is None else np.asarray(weights).ravel()
        candidates = np.unique([r - k for k in self.kinks])
        values = [y + np.average(self.utility(r - y), weights=w) for y in candidates]
        return float(candidates[int(np.argmax(values))])


@dataclass(frozen=True)
class CappedQuadratic(Risk):
    """Mean-variance that does not punish good luck."""

    risk_aversion: float

    def utility(self, t):
        t = np.minimum(t, 0.5 / self.risk_aversion)
        return t - self.risk_aversion * t**2

    def dual(self, rewards, weights=None):
        r = np.asarray(rewards, dtype=float).ravel()
        w = None if weights is None else np.asarray(weights).ravel()
        top = 0.5 / self.risk_aversion

        def excess(y):
            return np.average(1 - 2 * self.risk_aversion * np.minimum(r - y, top), weights=w) - 1

        # Strictly inside, rounding could spoil the signs at the ends for constant rewards.
        width = 1e-9 * (1 + np.abs(r).max())
        return float(brentq(excess, r.min() - width, r.max() + width, xtol=1e-13))


small_problems = st.builds(
    random_problem,
    st.integers(0, 2**32 - 1),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([0.5, 0.95, 1.0]),
    next_state=st.booleans(),
    whole=st.booleans(),
)


@examples(60)
@given(small_problems, st.sampled_from([TwoSlopes(), ThreeSlopes()]))
def test_a_users_piecewise_linear_measure_is_the_enumerated_optimum(problem, risk):
    check(problem, risk, optimize(problem.mdp(), risk), best_value(problem, risk))


@examples(60)
@given(small_problems, st.sampled_from([0.1, 0.5, 2.0]))
def test_a_users_smooth_measure_is_the_enumerated_optimum(problem, lam):
    risk = CappedQuadratic(lam)
    check(problem, risk, optimize(problem.mdp(), risk), best_value(problem, risk))


def test_two_slopes_are_a_mean_and_cvar_in_disguise():
    """`min(t / 2, 3 t)` is CVaR at 0.2 with weight 1/2."""
    mdp = random_problem(11, 5, 3, 0.9).mdp()
    assert optimize(mdp, TwoSlopes()).value == pytest.approx(
        optimize(mdp, CVaR(0.2, weight=0.5)).value, abs=1e-8
    )


# Variance budgets


def lower_hull(points: np.ndarray) -> np.ndarray:
    """The lower convex hull of points `(m, q)`, by increasing `m` (monotone chain)."""
    hull: list[np.ndarray] = []
    for point in points[np.lexsort((-points[:, 1], points[:, 0]))]:
        while hull and hull[-1][0] >= point[0] - 1e-15:
            hull.pop()
        while len(hull) > 1:
            (m0, q0), (m1, q1) = hull[-2], hull[-1]
            if (m1 - m0) * (point[1] - q0) > (q1 - q0) * (point[0] - m0):
                break
            hull.pop()
        hull.append(point)
    return np.array(hull)


def largest_mean(hull: np.ndarray, limit: float) -> float:
    """The largest mean on the hull with a variance of at most `limit`, edge by edge."""
    best = max((m for m, q in hull if q - m**2 <= limit), default=-math.inf)
    for (m0, q0), (m1, q1) in pairwise(hull):

        def variance(m, m0=m0, q0=q0, m1=m1, q1=q1):
            return q0 + (m - m0) / (m1 - m0) * (q1 - q0) - m**2 - limit

        # Concave between the corners: it leaves the limit once, from a left corner within it.
        if variance(m0) <= 0 < variance(m1):
            best = max(best, brentq(variance, m0, m1, xtol=1e-15))
    return float(best)


@st.composite
def budgets(draw: st.DrawFn, **options) -> tuple[Problem, float]:
    """A problem and a variance between the least and the largest there is."""
    problem = draw(problems(**options))
    _, variances = problem.moments
    share = draw(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.5]))
    least = float(variances.min())
    return problem, least + share * (float(variances.max()) - least)


@examples(150)
@given(budgets(), st.booleans())
def test_a_variance_budget_is_met_by_the_largest_mean_on_the_hull(case, sparse):
    problem, limit = case
    scale, centre = half_range(problem), float(problem.r.mean())
    values, shares = problem.laws
    scaled = (values - centre) / scale
    hull = lower_hull(np.stack([(scaled * shares).sum(1), (scaled**2 * shares).sum(1)], axis=1))
    # A hair of variance more or less brackets what rounding can do to the mean.
    low, high = (
        centre + scale * largest_mean(hull, limit / scale**2 + hair) for hair in (-1e-11, 1e-11)
    )
    mdp = problem.mdp(sparse)
    solution = optimize(mdp, VarianceBudget(limit + 1e-12 * scale**2))
    slack = EXACT * problem.largest
    assert low - slack <= solution.mean <= high + slack
    assert solution.value == solution.mean
    assert solution.variance <= limit + 1e-10 * scale**2
    assert solution.upper_bound >= low - slack
    assert solution.gap < 1e-6 * problem.largest
    rewards, shares = mdp.reward_distribution(mdp.occupancy(solution.policy))
    mean = float(shares @ rewards)
    assert solution.mean == pytest.approx(mean, rel=0, abs=slack)
    assert solution.variance == pytest.approx(
        float(shares @ (rewards - mean) ** 2), rel=0, abs=EXACT * scale**2
    )


def least_square(problem: Problem, mean: float) -> float:
    """The least `E[R^2]` of any policy with this `E[R]`, by linear programming."""
    first = (problem.p * problem.rewards).sum(axis=2)
    second = (problem.p * problem.rewards**2).sum(axis=2)
    value, _ = best_linear(problem, -second, extra=(first.reshape(1, -1), np.array([mean])))
    return -value


def corners_by_linear_programs(problem: Problem) -> list[tuple[float, float]]:
    """The corners `(m, q)` of the lower boundary: one linear program along every chord."""
    first = (problem.p * problem.rewards).sum(axis=2)
    second = (problem.p * problem.rewards**2).sum(axis=2)

    def farthest(a, b):
        _, d = best_linear(problem, a * first - b * second)
        return float((d * first).sum()), float((d * second).sum())

    def between(left, right):
        a, b = right[1] - left[1], right[0] - left[0]
        if b < 1e-7:
            return []
        middle = farthest(a, b)
        if a * (middle[0] - left[0]) - b * (middle[1] - left[1]) < 1e-9:
            return []
        return [*between(left, middle), middle, *between(middle, right)]

    ends = farthest(-1.0, 1e-6), farthest(1.0, 1e-6)
    return [ends[0], *between(*ends), ends[1]]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_a_variance_budget_agrees_with_linear_programs(seed, discount):
    """`V(m) = min E[R^2] - m^2` from linear programs; the largest `m` with `V(m) <= v`."""
    problem = random_problem(seed, 4, 3, discount, next_state=seed % 2 == 0)
    corners = corners_by_linear_programs(problem)
    variances = [q - m**2 for m, q in corners]
    limit = min(variances) + 0.4 * (variances[-1] - min(variances))

    def excess(m):
        return least_square(problem, m) - m**2 - limit

    expected = max(m for (m, _), v in zip(corners, variances, strict=True) if v <= limit + 1e-12)
    for (left, _), (right, _) in pairwise(corners):
        if excess(left + 1e-9) <= 0 < excess(right - 1e-9):
            expected = max(expected, brentq(excess, left + 1e-9, right - 1e-9, xtol=1e-9))
    solution = optimize(problem.mdp(), VarianceBudget(limit))
    assert solution.mean == pytest.approx(expected, abs=1e-5)


def test_a_budget_no_policy_reaches_names_the_least_variance():
    problem = random_problem(8, 4, 2, 0.9)
    least = float(problem.moments[1].min())
    with pytest.raises(InputError) as caught:
        optimize(problem.mdp(), VarianceBudget(0.5 * least))
    message = str(caught.value)
    assert "\n" not in message
    assert f"got {0.5 * least:.8g}" in message
    named = float(message.split(">= ")[1].split(",", maxsplit=1)[0])
    assert named == pytest.approx(least, rel=1e-7)
    assert optimize(problem.mdp(), VarianceBudget(named * (1 + 1e-6))).variance <= named * 1.00001


def test_a_generous_budget_gives_the_risk_neutral_optimum():
    problem = random_problem(9, 5, 3, 0.95)
    free = optimize(problem.mdp(), 0.0)
    budget = optimize(problem.mdp(), VarianceBudget(1e6))
    assert budget.mean == pytest.approx(free.mean, abs=1e-9)
    assert budget.policy.ndim == 1


def test_the_largest_mean_grows_with_the_budget():
    problem = random_problem(10, 5, 3, 0.9)
    _, variances = problem.moments
    limits = np.linspace(variances.min() + 1e-9, variances.max(), 25)
    means = [optimize(problem.mdp(), VarianceBudget(float(v))).mean for v in limits]
    assert all(a <= b + 1e-9 for a, b in pairwise(means))


def test_a_budget_in_an_average_reward_mdp_with_places_to_stay_gives_a_policy_that_keeps_it():
    """Between staying in 0 (reward 0) and staying in 1 (a fair bet of -1 or 3) one has to mix."""
    p = np.zeros((3, 2, 3))
    p[0, 0, 0] = 1.0
    p[0, 1, [1, 2]] = 0.5
    p[1:, 0, 1:] = 0.5
    p[1:, 1, 0] = 1.0
    rewards = np.array([[0.0, 0.0], [3.0, 3.0], [-1.0, -1.0]])
    mdp = MDP(p, rewards, discount=1.0)
    solution = optimize(mdp, VarianceBudget(2.0))
    values, shares = mdp.reward_distribution(mdp.occupancy(solution.policy))
    mean = float(shares @ values)
    assert mean == pytest.approx(solution.mean, abs=1e-6)
    assert float(shares @ (values - mean) ** 2) <= 2.0 + 1e-6


# Policy iteration stays below


def climb(problem: Problem, risk: Risk, seed: int) -> tuple[Solution, Solution]:
    """Policy iteration from a random start, deterministic or not, and the global optimum."""
    rng = np.random.default_rng(seed)
    n, a, _ = problem.p.shape
    start = rng.integers(a, size=n) if seed % 2 else rng.dirichlet(np.ones(a), n)
    return policy_iteration(problem.mdp(), risk, start), optimize(problem.mdp(), risk)


@examples(150)
@given(
    problems(),
    st.one_of(
        st.builds(lambda p: (MeanVariance, p), prices),
        st.builds(lambda p: (Entropic, p), prices),
        st.builds(lambda p: (MonotoneMeanVariance, p), prices),
        st.builds(lambda p: (CVaR, p), levels),
    ),
    st.integers(0, 1000),
)
def test_policy_iteration_climbs_to_a_fixed_point_below_the_optimum(problem, measure, seed):
    kind, number = measure
    risk = kind(number) if kind is CVaR else kind(number / half_range(problem))
    found, best = climb(problem, risk, seed)
    scale = size(problem, risk)
    assert all(a <= b for a, b in pairwise(found.trace))
    assert found.value == pytest.approx(found.trace[-1], rel=1e-12, abs=1e-9 * scale)
    assert found.value <= best.upper_bound + 1e-10 * scale
    assert found.upper_bound == math.inf
    assert found.converged
    values, shares = problem.laws
    at_dual = (shares * risk.utility(values - found.dual)).sum(axis=1).max() + found.dual
    assert at_dual <= found.value + 1e-9 * scale


def test_policy_iteration_from_many_starts_stops_below_the_optimum():
    """100 states, 5 actions: all 20 starts end at the same local optimum, 1.0102 < 1.0143."""
    rng = np.random.default_rng(1)
    p, r = rng.dirichlet(np.full(100, 0.02), (100, 5)), 2 * rng.normal(size=(100, 5))
    mdp = MDP(p, r, discount=0.9)
    best = optimize(mdp, 1.0)
    assert best.gap <= 1e-8
    for _ in range(20):
        found = policy_iteration(mdp, 1.0, rng.integers(5, size=100))
        assert found.converged
        assert found.value < best.value - 1e-3


@pytest.mark.parametrize("seed", range(2))
def test_policy_iteration_on_dense_random_problems_never_beats_the_optimum(seed):
    rng = np.random.default_rng(seed)
    p, r = rng.dirichlet(np.ones(100), (100, 5)), 2 * rng.normal(size=(100, 5))
    mdp = MDP(p, r, discount=0.9)
    bound = optimize(mdp, 1.0).upper_bound
    starts = rng.integers(5, size=(4, 100))
    assert all(policy_iteration(mdp, 1.0, start).value <= bound + 1e-12 for start in starts)


# Attacks


def test_a_constant_reward_leaves_nothing_to_choose():
    problem = random_problem(1, 4, 3, 0.9, scale=0.0, offset=7.0)
    for risk in (0.0, 5.0, CVaR(0.1), Entropic(2.0), VarianceBudget(0.0)):
        solution = optimize(problem.mdp(), risk)
        assert solution.value == pytest.approx(7.0, abs=1e-12)
        assert solution.variance == pytest.approx(0.0, abs=1e-12)
        assert solution.gap <= 1e-8


@pytest.mark.parametrize(
    "risk",
    [1.0, CVaR(0.3), Entropic(1.0), VarianceBudget(10.0), TwoSlopes()],
    ids=lambda risk: type(risk).__name__,
)
def test_one_state_and_one_action_is_its_own_optimum(risk):
    solution = optimize(MDP([[[1.0]]], [[3.0]], 0.9), risk)
    assert solution.value == pytest.approx(3.0, abs=1e-9)
    assert solution.policy.tolist() == [0]


@pytest.mark.parametrize("price", [1e-320, 1e-200, 1e-15, 1e-9, 1e9, 1e15, 1e200])
def test_mean_variance_at_extreme_aversions(price):
    """Next to nothing is risk-neutral; next to infinity is the least variance."""
    problem = random_problem(13, 4, 3, 0.9)
    solution = optimize(problem.mdp(), price)
    means, variances = problem.moments
    if price < 1:
        assert solution.mean == pytest.approx(means.max(), abs=1e-8)
    else:
        assert solution.variance == pytest.approx(variances.min(), abs=1e-8)


@pytest.mark.parametrize("scale", [1e-150, 1e-9, 1e9, 1e140])
@pytest.mark.parametrize("measure", ["mean-variance", "CVaR", "entropic", "budget"])
def test_the_unit_of_the_reward_does_not_matter(scale, measure):
    problem = random_problem(14, 4, 3, 0.9)
    scaled = Problem(problem.p, scale * problem.r, problem.discount, problem.start)
    limit = float(np.median(problem.moments[1]))
    unit, large = {
        "mean-variance": (MeanVariance(1.0), MeanVariance(1.0 / scale)),
        "CVaR": (CVaR(0.3), CVaR(0.3)),
        "entropic": (Entropic(2.0), Entropic(2.0 / scale)),
        "budget": (VarianceBudget(limit), VarianceBudget(limit * scale**2)),
    }[measure]
    expected = optimize(problem.mdp(), unit)
    found = optimize(scaled.mdp(), large)
    assert found.value == pytest.approx(scale * expected.value, rel=1e-7)
    assert found.upper_bound == pytest.approx(scale * expected.upper_bound, rel=1e-7)


@pytest.mark.parametrize("offset", [1e6, -1e9])
def test_a_large_constant_on_top_of_the_rewards_does_not_drown_the_variance(offset):
    problem = random_problem(15, 4, 3, 0.9)
    moved = Problem(problem.p, problem.r + offset, problem.discount, problem.start)
    expected, found = optimize(problem.mdp(), 1.0), optimize(moved.mdp(), 1.0)
    np.testing.assert_array_equal(found.policy, expected.policy)
    assert found.variance == pytest.approx(expected.variance, abs=1e-6)


@examples(150)
@example(random_problem(2, 3, 2, 0.5, zeros=0.5, one_start=True), 200.0)
@example(random_problem(10000, 3, 3, 0.5, zeros=0.5, one_start=True), 200.0)
@given(
    st.builds(
        random_problem,
        st.integers(0, 2**32 - 1),
        st.integers(1, 5),
        st.integers(1, 3),
        st.sampled_from([0.5, 0.9, 0.99, 0.9999]),
        next_state=st.booleans(),
        whole=st.booleans(),
        zeros=st.sampled_from([0.0, 0.5, 0.9]),
        one_start=st.just(True),
    ),
    st.sampled_from([15.0, 60.0, 200.0, 600.0, 3000.0]),
)
def test_entropic_at_a_large_aversion_is_the_enumerated_optimum(problem, beta):
    """`exp(-beta r)` spans hundreds of digits, and some policies avoid the worst rewards."""
    best = float(entropic(*problem.laws, beta).max())
    solution = optimize(problem.mdp(), Entropic(beta))
    assert solution.upper_bound >= best - 1e-9
    assert solution.value == pytest.approx(best, abs=EXACT)
    assert solution.gap < 1e-6


def test_entropic_prefers_six_to_three_although_a_loss_exists_elsewhere():
    """State 0 is never left; its rewards 3 and 6 are the same to `exp(-60 (r + 6))`."""
    p = np.zeros((2, 3, 2))
    p[:, :, 0] = 1.0
    p[1, 0] = [0.3, 0.7]
    mdp = MDP(p, [[3.0, 0.0, 6.0], [-3.0, 6.0, -6.0]], discount=0.99, start=0)
    solution = optimize(mdp, Entropic(60.0))
    assert solution.upper_bound >= 6.0 - 1e-9
    assert solution.value == pytest.approx(6.0, abs=EXACT)


@pytest.mark.parametrize(
    "risk",
    [MeanVariance(1.0), CVaR(0.2), Entropic(1.0), VarianceBudget(0.3)],
    ids=lambda risk: type(risk).__name__,
)
@pytest.mark.parametrize("cost", [1e6, 1e9])
@pytest.mark.parametrize("seed", range(4))
def test_a_large_cost_that_forbids_an_action_does_not_blur_the_others(risk, seed, cost):
    """As the message for infinite rewards advises; the answer is that without those actions."""
    costly, free = forbidding(seed, cost)
    if isinstance(risk, VarianceBudget):
        mean, variance = free.moments
        risk = VarianceBudget(float(np.median(variance)))
        hull = lower_hull(np.stack([mean, variance + mean**2], axis=1))
        best = largest_mean(hull, risk.limit)
    else:
        best = best_value(free, risk)
    solution = optimize(costly.mdp(), risk)
    assert solution.value == pytest.approx(best, abs=1e-6)
    assert solution.upper_bound >= best - 1e-12
    assert solution.gap < 1e-3
    if isinstance(risk, VarianceBudget):
        values, shares = costly.mdp().reward_distribution(costly.mdp().occupancy(solution.policy))
        mean = float(values @ shares)
        assert float((values - mean) ** 2 @ shares) <= risk.limit + 1e-12
        assert solution.gap < 1e-9


@pytest.mark.parametrize(("far", "price"), [(1e3, 1.1e3), (1e4, 1e6), (1e6, 1e7)])
def test_a_calm_policy_that_is_paid_far_less_is_seen_in_its_own_units(far, price):
    """Action 0 tosses a coin, 1 always pays the same, 2 almost; only the last two are far away."""
    p = np.full((2, 3, 2), 0.5)
    problem = Problem(
        p, np.array([[1.0, -far, -far + 0.1], [-1.0, -far, -far + 0.2]]), 0.9, np.full(2, 0.5)
    )
    assert best_value(problem, MeanVariance(price)) == -far
    for risk in (MeanVariance(price), VarianceBudget(0.0)):
        solution = optimize(problem.mdp(), risk)
        assert (solution.value, solution.variance) == (-far, 0.0)
        assert -far <= solution.upper_bound <= -far + 1e-7
        assert solution.converged
        np.testing.assert_array_equal(solution.policy, [1, 1])


@pytest.mark.parametrize("beta", [1e-300, 1e-14, 1e-6, 1e12, 1e18])
def test_entropic_at_extreme_aversions(beta):
    for seed in range(3):
        problem = random_problem(seed, 4, 3, 0.9, zeros=0.5, one_start=True)
        solution = optimize(problem.mdp(), Entropic(beta))
        best = max(Entropic(beta).value(*law) for law in zip(*problem.laws, strict=True))
        assert solution.value == pytest.approx(best, abs=1e-12)
        assert solution.upper_bound >= best - 1e-12
        assert solution.converged


@pytest.mark.parametrize("distance", [1e-6, 1e-10, 1e-14])
def test_discounts_next_to_one_lose_no_digits(distance):
    problem = random_problem(1, 4, 3, 1 - distance, offset=3.0)
    for risk in (MeanVariance(0.0), MeanVariance(1.0), CVaR(0.3), Entropic(1.0)):
        solution = optimize(problem.mdp(), risk)
        best = best_value(problem, risk)
        assert solution.value == pytest.approx(best, abs=1e-13)
        assert best <= solution.upper_bound <= best + 1e-9
        assert solution.converged
    problem.r[:, 0] = 0.3
    steady = optimize(problem.mdp(), VarianceBudget(0.0))
    assert (steady.variance, steady.converged) == (0.0, True)
    assert steady.mean == pytest.approx(0.3, abs=1e-14)


def test_cvar_of_rewards_far_from_zero_takes_no_longer():
    near = random_problem(3, 4, 3, 0.999)
    far = Problem(near.p, near.r + 1e6, near.discount, near.start)
    expected, solution = optimize(near.mdp(), CVaR(0.3)), optimize(far.mdp(), CVaR(0.3))
    np.testing.assert_array_equal(solution.policy, expected.policy)
    assert solution.converged
    assert solution.solves <= 2 * expected.solves


@pytest.mark.parametrize("cost", [0.0, 1e9])
@pytest.mark.parametrize("scale", [1e-9, 1e6])
def test_a_risk_neutral_policy_that_is_always_paid_the_same(scale, cost):
    """Then nothing it is paid says what a small reward is; a cost of no account must not."""
    for seed in range(5):
        problem = random_problem(seed, 4, 3, 0.95, scale=0.1)
        problem.r[:, 0], problem.r[0, 1] = 0.0, -cost or problem.r[0, 1]
        scaled = Problem(problem.p, scale * problem.r, problem.discount, problem.start)
        for risk in (MeanVariance(0.0), MeanVariance(10 / scale), CVaR(0.9)):
            solution = optimize(scaled.mdp(), risk)
            best = best_value(scaled, risk)
            assert solution.value == pytest.approx(best, abs=1e-9 * scale)
            assert best - 1e-12 * scale <= solution.upper_bound <= best + 1e-6 * scale


@pytest.mark.parametrize(
    "risk", [MeanVariance(1.0), CVaR(0.2), Entropic(1.0)], ids=lambda risk: type(risk).__name__
)
def test_a_large_reward_that_cannot_be_reached_does_not_blur_the_others(risk):
    problem = random_problem(5, 4, 3, 0.9, one_start=True)
    problem.p[:3, :, 3] = 0.0
    problem.p[:] /= problem.p.sum(axis=2, keepdims=True)
    problem.r[3] = 1e6
    solution = optimize(problem.mdp(), risk)
    best = max(risk.value(*law) for law in zip(*problem.laws, strict=True))
    assert solution.value == pytest.approx(best, abs=1e-6)
    assert solution.gap < 1e-3


@pytest.mark.parametrize("level", [1e-6, 1e-3, 0.999])
def test_cvar_at_extreme_levels(level):
    problem = random_problem(16, 4, 3, 0.9)
    risk = CVaR(level)
    check(problem, risk, optimize(problem.mdp(), risk), best_value(problem, risk))


@pytest.mark.parametrize(
    "mdp", [inventory(2_000), random_sparse(2_000, discount=0.999)], ids=["inventory", "random"]
)
def test_few_solves_are_enough(mdp):
    """Each solve on one side of the optimum shrinks what is left there by a constant factor."""
    solution = optimize(mdp, 1.0, tolerance=1e-7)
    assert solution.converged
    assert solution.value <= solution.upper_bound
    assert solution.solves <= 16


def test_a_looser_tolerance_saves_solves_and_keeps_its_promise():
    mdp = random_sparse(200, discount=0.95, seed=3)
    tight, loose = optimize(mdp, 1.0), optimize(mdp, 1.0, tolerance=1e-2)
    assert loose.solves < tight.solves
    assert loose.value <= tight.value + 1e-12
    assert loose.upper_bound >= tight.value
    assert loose.gap <= 1e-2 * np.ptp(mdp.rewards)


@pytest.mark.parametrize("risk", [1.0, CVaR(0.2), VarianceBudget(0.2)], ids=repr)
def test_progress_counts_solves_and_closes_in_on_the_value(risk):
    calls: list[tuple[int, float, float]] = []
    mdp = random_sparse(100, discount=0.9, seed=17)
    solution = optimize(mdp, risk, progress=lambda *call: calls.append(call))
    assert calls
    assert all(b[0] > a[0] for a, b in pairwise(calls))
    assert calls[-1][0] <= solution.solves
    assert all(best <= solution.value + 1e-12 <= bound for _, best, bound in calls)


@pytest.mark.parametrize(
    "risk", [0.0, 1.0, CVaR(0.3), Entropic(1.0), VarianceBudget(0.1)], ids=repr
)
def test_all_solves_are_counted(risk, monkeypatch):
    solves: list[object] = []
    for module in (_step_problem, solve_module):
        original = module.solve_rewards
        counting = partial(lambda solve, *a, **b: solves.append(a) or solve(*a, **b), original)
        monkeypatch.setattr(module, "solve_rewards", counting)
    assert optimize(random_problem(3, 4, 3, 0.9).mdp(), risk).solves == len(solves)


def test_asking_twice_gives_the_same_answer():
    mdp = random_problem(18, 5, 3, 0.9).mdp()
    one, two = optimize(mdp, 1.0), optimize(mdp, 1.0)
    assert (one.value, one.upper_bound, one.trace) == (two.value, two.upper_bound, two.trace)
    np.testing.assert_array_equal(one.policy, two.policy)


def test_a_solution_cannot_be_changed():
    solution = optimize(random_problem(19, 3, 2, 0.9).mdp(), 1.0)
    with pytest.raises(ValueError, match="read-only"):
        solution.policy[0] = 1
    with pytest.raises(AttributeError):
        solution.value = 0.0


@pytest.mark.parametrize("tolerance", [-1.0, math.nan, math.inf, "small", None])
def test_a_bad_tolerance_is_refused(tolerance):
    for method in (partial(optimize, risk=1.0), frontier):
        with pytest.raises(InputError, match="tolerance must be >= 0"):
            method(random_problem(20, 3, 2, 0.9).mdp(), tolerance=tolerance)


@pytest.mark.parametrize(
    ("risk", "message"),
    [
        (-1.0, "risk_aversion must be >= 0, got -1.0"),
        (math.nan, "risk_aversion must be >= 0, got nan"),
        ("risky", "a risk must be a number, .* got 'risky'"),
        (None, "a risk must be a number, .* got None"),
    ],
)
def test_a_bad_risk_is_refused(risk, message):
    with pytest.raises(InputError, match=message):
        optimize(random_problem(20, 3, 2, 0.9).mdp(), risk)


def statistics(mdp, policy):
    values, shares = mdp.reward_distribution(mdp.occupancy(policy))
    return stats.mean(values, shares), stats.variance(values, shares)


@pytest.mark.parametrize("cost", [100.0, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("price", [0.5, 10.0])
def test_an_avoidable_state_may_cost_anything(cost, price):
    """State 3 is a trap that no good policy gets to: what it costs must not blur the rest."""
    p = np.zeros((4, 2, 4))
    p[np.arange(4)[:, None], np.arange(2), [[1, 3], [2, 1], [0, 1], [2, 3]]] = 1.0
    rewards = np.array([[3.0, -3.0], [-2.0, 2.0], [2.0, 1.0], [-cost, -cost]])
    problem = Problem(p, rewards, 0.99, np.eye(4)[0])
    mdp, risk = problem.mdp(), MeanVariance(price)
    solution = optimize(mdp, risk)
    assert solution.value == pytest.approx(best_value(problem, risk), abs=EXACT)
    assert (solution.mean, solution.variance) == pytest.approx(
        statistics(mdp, solution.policy), abs=EXACT
    )
    assert solution.upper_bound >= solution.value - EXACT
    assert solution.converged or cost > 1e6  # squares of more leave too few digits for a proof


@pytest.mark.parametrize("bonus", [10.0, 1e3, 1e6, 1e9])
def test_a_bonus_that_is_declined_may_be_huge(bonus):
    p = np.zeros((3, 2, 3))
    p[np.arange(3), :, [1, 2, 0]] = 1.0
    problem = Problem(p, np.array([[1.0, bonus], [-1.0, -1.0], [0.5, 0.3]]), 0.9, np.eye(3)[0])
    mdp, risk = problem.mdp(), MeanVariance(1.0)
    solution = optimize(mdp, risk)
    assert solution.value == pytest.approx(best_value(problem, risk), abs=EXACT)
    assert solution.upper_bound >= solution.value - EXACT
    assert solution.gap < 1e-4
    chosen = frontier(mdp).best(1.0)
    assert (chosen.mean, chosen.variance) == pytest.approx(
        statistics(mdp, chosen.policy), abs=EXACT
    )


@pytest.mark.parametrize("cost", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("limit", [0.5, 0.9, 1.5])
def test_a_budget_is_kept_beside_a_policy_that_pays_the_same_huge_cost_for_ever(cost, limit):
    p = np.zeros((2, 2, 2))
    p[np.arange(2), :, [1, 0]] = 1.0
    mdp = MDP(p, [[1.0, -cost], [-1.0, -cost]], 0.9, 0)
    solution = optimize(mdp, VarianceBudget(limit))
    assert solution.variance <= limit * (1 + 1e-9)
    if limit > 1:
        alternating = statistics(mdp, np.zeros(2, int))
        assert (solution.mean, solution.variance) == pytest.approx(alternating, abs=EXACT)


@pytest.mark.parametrize("discount", [1 - 1e-6, 1 - 5e-7, 1 - 1e-7, 1 - 1e-8, 1 - 1e-10, 1.0])
@pytest.mark.parametrize("risk", [MeanVariance(0.0), MeanVariance(1.0), Entropic(1.0)], ids=repr)
def test_slow_chains_at_discounts_next_to_1(discount, risk):
    """A ring of 100 states: all answers are those of the average reward, nearly."""
    n = 100
    p = np.zeros((n, 2, n))
    for s, a in product(range(n), range(2)):
        p[s, a, (s + 1 + a) % n] = 0.9
        p[s, a, (s - 1) % n] = 0.1
    rewards = np.full((n, 2), -1.0)
    rewards[0] = 0.0
    near = optimize(MDP(p, rewards, discount, 1), risk)
    average = optimize(MDP(p, rewards, 1.0), risk)
    assert near.value == pytest.approx(average.value, abs=(1 - discount) + 1e-9)
    assert near.converged
