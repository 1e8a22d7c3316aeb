"""The efficient frontier against linear programs and enumeration."""

from __future__ import annotations

import functools
import itertools
import math
from itertools import pairwise

import numpy as np
import pytest
from helpers.examples import examples
from helpers.problems import Problem, flow_constraints, forbidding, problems, random_problem
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import linprog

import mvpi
from mvpi import InputError
from mvpi.tabular.frontier import Frontier

DISCOUNTS = (0.3, 0.9, 0.99, 1.0)
TOLERANCE = 1e-6
"""Of means and variances, in units in which the rewards go from -1 to 1."""

cases = examples(60)


class Units:
    """Rewards moved and scaled to [-1, 1]: what the linear programs see."""

    def __init__(self, problem: Problem):
        possible = problem.rewards[problem.p > 0]
        self.problem = problem
        # Beyond this the rewards themselves are rounded to less than the tolerance.
        assume(problem.largest < 1e6 * (np.ptp(possible) or problem.largest))
        self.centre = 0.5 * (possible.max() + possible.min())
        self.scale = 0.5 * np.ptp(possible) or 1.0
        scaled = (problem.rewards - self.centre) / self.scale
        self.first = (problem.p * scaled).sum(-1).ravel()
        self.second = (problem.p * scaled**2).sum(-1).ravel()
        self.rounding = 1e-9 + 4e-15 * problem.largest / self.scale
        self.system, self.right = flow_constraints(problem)

    def mean(self, mean: float) -> float:
        return (mean - self.centre) / self.scale

    def variance(self, variance: float) -> float:
        return variance / self.scale**2

    @property
    def deterministic(self) -> tuple[np.ndarray, np.ndarray]:
        means, variances = self.problem.moments
        return (means - self.centre) / self.scale, variances / self.scale**2

    def least_variance(self, m: float) -> float:
        """At this (scaled) mean, up to rounding, over all policies."""
        for presolve in (True, False):  # presolve takes rounding for a contradiction
            found = linprog(
                self.second,
                A_eq=np.vstack([self.system, self.first]),
                b_eq=np.append(self.right, m),
                method="highs",
                options={"presolve": presolve},
            )
            if found.status == 0:
                break
        assert found.status == 0, found.message
        return found.fun - m**2

    def most_mean(self, limit: float) -> float:
        """The largest (scaled) mean of a mix of two policies within the limit, by enumeration."""
        means, variances = self.deterministic
        best = means[variances <= limit + 1e-9].max(initial=-math.inf)
        left, right = np.ix_(variances <= limit, variances > limit)
        low, high = left.ravel(), right.ravel()
        m, v = means[low][:, None], variances[low][:, None]
        width, second = means[high] - m, variances[high] - v
        # variance(share) = v + share (second + width^2) - share^2 width^2, first above the limit
        slope, spare = second + width**2, limit - v
        root = np.sqrt(np.maximum(slope**2 - 4 * width**2 * spare, 0.0))
        share = 2 * spare / np.maximum(slope + root, 1e-300)
        return max(best, (m + np.clip(share, 0, 1) * width).max(initial=-math.inf))


def close(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE


def moments(mdp: mvpi.MDP, policy: np.ndarray) -> tuple[float, float]:
    values, weights = mdp.reward_distribution(mdp.occupancy(policy))
    mean = float(values @ weights)
    return mean, float((values - mean) ** 2 @ weights)


def check_moments(units: Units, mdp: mvpi.MDP, solution: mvpi.Solution) -> None:
    mean, variance = moments(mdp, solution.policy)
    assert close(units.mean(mean), units.mean(solution.mean))
    assert close(units.variance(variance), units.variance(solution.variance))


@cases
@given(problems(DISCOUNTS, max_states=4))
def test_points_are_least_variances_and_belong_to_their_policies(problem: Problem) -> None:
    units, mdp = Units(problem), problem.mdp()
    frontier = mvpi.frontier(mdp)
    assert len(frontier) == len(frontier.variances) == len(frontier.policies) >= 1
    for mean, variance, policy in zip(
        frontier.means, frontier.variances, frontier.policies, strict=True
    ):
        assert close(units.variance(variance), units.least_variance(units.mean(mean)))
        real_mean, real_variance = moments(mdp, policy)
        assert close(units.mean(real_mean), units.mean(mean))
        assert close(units.variance(real_variance), units.variance(variance))
    assert (np.diff(frontier.means) > 0).all()
    assert (np.diff(frontier.variances) > 0).all()


@cases
@given(problems(DISCOUNTS, max_states=5))
def test_no_deterministic_policy_dominates(problem: Problem) -> None:
    units = Units(problem)
    frontier = mvpi.frontier(problem.mdp())
    means, variances = units.deterministic
    for mean, variance in zip(frontier.means, frontier.variances, strict=True):
        m, v = units.mean(mean), units.variance(variance)
        assert not ((means >= m - 1e-10) & (variances < v - TOLERANCE)).any()
        assert not ((means > m + TOLERANCE) & (variances <= v - 1e-10)).any()
    assert close(units.mean(frontier.means[-1]), means.max())
    assert close(units.variance(frontier.variances[0]), variances.min())


@cases
@given(problems(DISCOUNTS, max_states=4))
def test_best_agrees_with_optimize(problem: Problem) -> None:
    units, mdp = Units(problem), problem.mdp()
    frontier = mvpi.frontier(mdp)
    for scaled in (0.0, 0.05, 0.7, 4.0, 50.0):
        risk_aversion = scaled / units.scale
        best = frontier.best(risk_aversion)
        expected = mvpi.optimize(mdp, risk_aversion)
        tolerance = TOLERANCE * units.scale * (1 + scaled)
        assert best.value == pytest.approx(expected.value, rel=1e-12, abs=tolerance)
        assert best.upper_bound >= best.value - 1e-12 * problem.largest
        assert best.upper_bound == pytest.approx(best.value, rel=1e-12, abs=tolerance)
        assert best.value == pytest.approx(
            best.mean - risk_aversion * best.variance, rel=1e-12, abs=tolerance
        )
        check_moments(units, mdp, best)


@cases
@given(problems(DISCOUNTS, max_states=4), st.floats(0.0, 1.2))
def test_largest_mean_within_a_variance(problem: Problem, share: float) -> None:
    units, mdp = Units(problem), problem.mdp()
    frontier = mvpi.frontier(mdp)
    low, high = frontier.variances[[0, -1]]
    limit = float(low + share * (high - low))
    found = frontier.with_variance_at_most(limit)
    check_moments(units, mdp, found)
    m, v = units.mean(found.mean), units.variance(found.variance)
    assert v <= units.variance(limit) + TOLERANCE
    assert found.value == pytest.approx(found.mean, rel=1e-12)
    assert found.upper_bound >= found.value - 1e-12 * problem.largest
    assert close(units.least_variance(m), v)
    # The mean is steep where the variance is almost least: it gets less of a tolerance.
    limits = units.variance(limit) + np.array([-TOLERANCE, TOLERANCE])
    assert units.most_mean(limits[0]) - TOLERANCE <= m <= units.most_mean(limits[1]) + TOLERANCE
    top = units.mean(frontier.means[-1])
    for larger in np.linspace(m, top, 6)[1:]:
        if larger > m + 1e-3:
            assert units.least_variance(larger) >= units.variance(limit) - TOLERANCE


@cases
@given(problems(DISCOUNTS, max_states=4), st.floats(-0.2, 1.0))
def test_least_variance_from_a_mean_on(problem: Problem, share: float) -> None:
    units, mdp = Units(problem), problem.mdp()
    frontier = mvpi.frontier(mdp)
    low, high = frontier.means[[0, -1]]
    target = float(low + share * (high - low))
    found = frontier.with_mean_at_least(target)
    check_moments(units, mdp, found)
    m, v = units.mean(target), units.variance(found.variance)
    assert units.mean(found.mean) >= m - TOLERANCE
    assert found.value == -found.variance
    assert found.upper_bound >= found.value
    means, variances = units.deterministic
    least = variances[means >= m - units.rounding].min(initial=math.inf)
    if means.min() <= m <= means.max():
        least = min(least, units.least_variance(m))
    assert close(v, least)


@cases
@given(problems(DISCOUNTS, max_states=4))
def test_ranges_of_the_risk_aversion_tile_the_axis(problem: Problem) -> None:
    units = Units(problem)
    frontier = mvpi.frontier(problem.mdp())
    assert len(frontier.risk_aversions) == len(frontier)
    spans = [(i, *span) for i, span in reversed(list(enumerate(frontier.risk_aversions))) if span]
    assert spans[0][0] == len(frontier) - 1
    assert spans[-1][0] == 0
    assert spans[0][1] == 0.0
    assert spans[-1][2] == math.inf
    assert all(left[2] == right[1] for left, right in pairwise(spans))
    for i, low, high in spans:
        assert low < high or math.isclose(low, high)
        inside = 0.5 * (low + high) if math.isfinite(high) else 2 * low + 1 / units.scale
        best = frontier.best(inside)
        value = frontier.means[i] - inside * frontier.variances[i]
        tolerance = 1e-9 * units.scale * (1 + inside * units.scale)
        assert best.value == pytest.approx(value, rel=1e-12, abs=tolerance)
    for i, span in enumerate(frontier.risk_aversions):
        if span is None:
            for _, low, high in spans:
                at = 0.5 * (low + high) if math.isfinite(high) else 2 * low + 1 / units.scale
                mine = frontier.means[i] - at * frontier.variances[i]
                assert mine <= frontier.best(at).value + 1e-9 * units.scale


def test_range_and_policy_agree_where_they_are_clear_cut() -> None:
    frontier = mvpi.frontier(random_problem(5, 5, 3, 0.9).mdp())
    assert len(frontier) > 2
    for i, span in enumerate(frontier.risk_aversions):
        if span is not None:
            inside = min(0.5 * (span[0] + span[1]), 2 * span[0] + 1)
            np.testing.assert_array_equal(frontier.best(inside).policy, frontier.policies[i])


@pytest.mark.parametrize("cost", [1e4, 1e9, 1e12])
@pytest.mark.parametrize("seed", [1, 5, 9])
def test_a_cost_that_forbids_actions_leaves_the_frontier_as_it_is_without_them(
    seed: int, cost: float
) -> None:
    costly, free = (mvpi.frontier(problem.mdp()) for problem in forbidding(seed, cost))
    np.testing.assert_allclose(costly.means, free.means, atol=1e-10)
    np.testing.assert_allclose(costly.variances, free.variances, atol=1e-10)
    questions = [
        *(("best", price) for price in (0.0, 0.3, 3.0, 100.0)),
        *(("with_variance_at_most", 1e-11 + float(v)) for v in _steps(free.variances)),
        *(("with_mean_at_least", float(m)) for m in _steps(free.means)),
    ]
    for name, number in questions:
        found, expected = getattr(costly, name)(number), getattr(free, name)(number)
        assert found.value == pytest.approx(expected.value, abs=1e-9)
        assert expected.value - 1e-10 <= found.upper_bound <= expected.value + 1e-7
        assert found.converged


def _steps(numbers: np.ndarray) -> np.ndarray:
    return np.linspace(numbers[0], numbers[-1], 4)


def test_converged_is_whether_the_gap_is_what_was_asked_for() -> None:
    mdp = random_problem(5, 5, 3, 0.9).mdp()
    for tolerance in (0.0, 1e-2):
        found = mvpi.frontier(mdp, tolerance=tolerance)
        middle = found.means.mean(), found.variances.mean()
        for answer in (
            found.best(0.5),
            found.with_mean_at_least(middle[0]),
            found.with_variance_at_most(middle[1]),
        ):
            assert answer.gap > 0
            assert answer.converged == (tolerance > 0)


@pytest.fixture
def small() -> Frontier:
    return mvpi.frontier(small_problem().mdp())


def small_problem() -> Problem:
    return random_problem(3, 4, 3, 0.9, next_state=True)


def test_asking_twice_gives_the_same(small: Frontier) -> None:
    middle = float(small.variances[[0, -1]].mean()), float(small.means[[0, -1]].mean())
    questions = (
        lambda: small.best(0.4),
        lambda: small.with_variance_at_most(middle[0]),
        lambda: small.with_mean_at_least(middle[1]),
    )
    first = [ask() for ask in questions]
    for ask, before in zip(reversed(questions), reversed(first), strict=True):
        after = ask()
        np.testing.assert_array_equal(after.policy, before.policy)
        facts = ("mean", "variance", "value", "dual", "upper_bound", "converged", "solves")
        assert [getattr(after, f) for f in facts] == [getattr(before, f) for f in facts]
    again = mvpi.frontier(small_problem().mdp())
    np.testing.assert_array_equal(again.means, small.means)
    np.testing.assert_array_equal(again.variances, small.variances)


def test_answers_at_the_ends(small: Frontier) -> None:
    assert small.with_variance_at_most(1e6).mean == pytest.approx(small.means[-1], rel=1e-14)
    least = small.with_variance_at_most(float(small.variances[0]))
    assert least.mean == pytest.approx(small.means[0], abs=1e-6)
    assert small.with_mean_at_least(-1e6).variance == pytest.approx(small.variances[0], rel=1e-12)
    most = small.with_mean_at_least(float(small.means[-1]))
    assert most.variance == pytest.approx(small.variances[-1], rel=1e-9)
    assert small.best(0.0).mean == pytest.approx(small.means[-1], rel=1e-14)
    assert small.best(1e9).variance == pytest.approx(small.variances[0], rel=1e-6)


@pytest.mark.parametrize("offset", [0.0, 100.0, -1e4])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_its_own_points_can_be_asked_for(offset: float, scale: float) -> None:
    for seed in range(10):
        problem = random_problem(seed, 2, 2, 0.9, offset=offset, scale=scale)
        frontier = mvpi.frontier(problem.mdp())
        for mean, variance in zip(frontier.means, frontier.variances, strict=True):
            exact = {"rel": 1e-5, "abs": 1e-9 * scale**2}
            found = frontier.with_mean_at_least(float(mean))
            assert found.variance == pytest.approx(variance, **exact)
            found = frontier.with_variance_at_most(float(variance))
            assert found.mean == pytest.approx(mean, abs=1e-5 * scale)


def test_means_and_variances_cannot_be_written(small: Frontier) -> None:
    for array in (small.means, small.variances):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


def test_unreachable_requests_name_the_bound(small: Frontier) -> None:
    with pytest.raises(InputError, match=r"limit must be >= ") as caught:
        small.with_variance_at_most(0.5 * float(small.variances[0]))
    assert _named(caught.value) == pytest.approx(small.variances[0], rel=1e-7)
    with pytest.raises(InputError, match=r"target must be <= ") as caught:
        small.with_mean_at_least(float(small.means[-1]) + 0.1)
    assert _named(caught.value) == pytest.approx(small.means[-1], rel=1e-7)


def _named(error: InputError) -> float:
    """The bound that a message names."""
    return float(str(error).split("= ")[1].split(",")[0])


@pytest.mark.parametrize("seed", range(10))
def test_the_bound_that_a_message_names_is_accepted(seed: int) -> None:
    """Rounded to the nearest of eight digits, half of them would be refused by the same words."""
    rng = np.random.default_rng(seed)
    rewards = 100.0 * rng.normal(size=(3, 2, 3))
    mdp = mvpi.MDP(rng.dirichlet(np.ones(3), (3, 2)), rewards, 0.9)
    efficient = mvpi.frontier(mdp)
    requests = [
        (efficient.with_variance_at_most, 0.0),
        (lambda limit: mvpi.optimize(mdp, mvpi.VarianceBudget(limit)), 0.0),
        (efficient.with_mean_at_least, 1e3),
    ]
    for request, impossible in requests:
        with pytest.raises(InputError) as caught:
            request(impossible)
        assert request(_named(caught.value)).converged


@pytest.mark.parametrize("wrong", [math.nan, "a lot", None, True, [1.0]])
@pytest.mark.parametrize("name", ["best", "with_variance_at_most", "with_mean_at_least"])
def test_requests_that_are_no_numbers(small: Frontier, name: str, wrong: object) -> None:
    with pytest.raises(InputError) as caught:
        getattr(small, name)(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["best", "with_variance_at_most"])
def test_negative_requests(small: Frontier, name: str) -> None:
    with pytest.raises(InputError):
        getattr(small, name)(-0.1)


def test_the_four_state_example() -> None:
    mdp = mvpi.examples.four_state()
    g = mdp.discount / (1 + mdp.discount)
    frontier = mvpi.frontier(mdp)
    np.testing.assert_allclose(frontier.means, [-g, 0.0], atol=1e-12)
    np.testing.assert_allclose(frontier.variances, [g - g**2, g], atol=1e-12)
    (low, high), (zero, same) = frontier.risk_aversions
    assert (zero, high) == (0.0, math.inf)
    assert low == same == pytest.approx(1 / g)
    assert "2 efficient" in repr(frontier)


def test_an_mdp_without_a_choice() -> None:
    frontier = mvpi.frontier(mvpi.MDP(np.ones((1, 1, 1)), [[3.0]], 0.9))
    assert len(frontier) == 1
    assert frontier.means[0] == 3.0
    assert frontier.variances[0] == 0.0
    assert frontier.risk_aversions == ((0.0, math.inf),)
    frontier.plot()


def test_curve_passes_through_the_corners(small: Frontier) -> None:
    means, variances = small.curve()
    assert (np.diff(means) >= 0).all()
    for mean, variance in zip(small.means, small.variances, strict=True):
        nearest = np.hypot(means - mean, variances - variance).min()
        assert nearest == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("spread", ["variance", "standard deviation"])
def test_plot_is_saved_and_labelled(small: Frontier, tmp_path, spread) -> None:
    path = tmp_path / "frontier.png"
    axes = small.plot(str(path), spread=spread)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert spread in axes.get_xlabel()
    assert "mean" in axes.get_ylabel()
    assert axes.get_title()
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {"efficient", "risk-neutral", "least variance"} <= set(names)
    lines = {line.get_label(): line for line in axes.get_lines()}
    corners = small.variances if spread == "variance" else np.sqrt(small.variances)
    marks = lines["deterministic policies"]
    np.testing.assert_allclose(marks.get_xdata(), corners)
    np.testing.assert_allclose(marks.get_ydata(), small.means)
    assert lines["risk-neutral"].get_ydata()[0] == small.means[-1]
    assert lines["least variance"].get_ydata()[0] == small.means[0]
    assert any("lambda" in text.get_text() for text in axes.texts)


@pytest.mark.parametrize("cost", [1.0, 1e6, 1e12])
def test_only_the_efficient_part_is_drawn_as_such(cost: float) -> None:
    """Also where the dominated part goes on to the huge cost of what is not allowed."""
    found = mvpi.frontier(forbidding(1, cost)[0].mdp())
    lines = {line.get_label(): line for line in found.plot().get_lines()}
    variances, means = (np.asarray(part) for part in lines["efficient"].get_data())
    shown = means[~np.isnan(variances)]
    assert [shown.min(), shown.max()] == pytest.approx([found.means[0], found.means[-1]])


def test_plot_refuses_an_unknown_spread(small: Frontier) -> None:
    with pytest.raises(InputError, match="spread must be one of variance, standard deviation, got"):
        small.plot(spread="range")


def test_plot_draws_into_given_axes_and_no_file(small: Frontier, tmp_path, monkeypatch) -> None:
    from matplotlib.figure import Figure

    monkeypatch.chdir(tmp_path)
    axes = Figure().subplots()
    assert small.plot(axes=axes) is axes
    assert axes.get_lines()
    assert list(tmp_path.iterdir()) == []


def without_dominated() -> mvpi.MDP:
    """A sure 0, or a coin for more: every mixture of the two is efficient."""
    p = np.zeros((3, 2, 3))
    p[:, 0, 0] = 1.0
    p[:, 1, 1:] = 0.5
    return mvpi.MDP(p, np.array([0.0, 3.0, -1.0])[:, None].repeat(2, 1), 0.9, start=0)


PICTURES = {
    "1 vertex": lambda: mvpi.MDP(np.ones((1, 2, 1)), [[1.0, 0.5]], 0.9),
    "1 vertex, mean 0": lambda: mvpi.MDP(np.full((2, 1, 2), 0.5), [[1.0], [-1.0]], 0.9),
    "2 vertices": mvpi.examples.four_state,
    "2 vertices, a far dominated part": lambda: mvpi.MDP.from_gymnasium("CliffWalking-v1"),
    "2 vertices, nothing dominated": without_dominated,
    "7 vertices": mvpi.examples.maintenance,
    "9 vertices": lambda: mvpi.examples.inventory(30, 0.99),
    "23 vertices": lambda: mvpi.examples.random_sparse(20, 4, 3, 0.95, seed=3),
    "132 vertices": lambda: mvpi.examples.random_sparse(70, 4, 3, 0.95, seed=3),
}


@functools.cache
def frontier_of(name: str) -> Frontier:
    return mvpi.frontier(PICTURES[name]())


@pytest.mark.parametrize(
    ("name", "spread"),
    [
        pytest.param(name, spread, marks=[] if often or i % 3 == 0 else [pytest.mark.slow])
        for i, name in enumerate(PICTURES)
        for spread, often in (("variance", True), ("standard deviation", False))
    ],
)
def test_the_picture_is_filled_and_its_labels_cover_nothing(name: str, spread) -> None:
    from matplotlib.text import Text

    found = frontier_of(name)
    axes = found.plot(spread=spread)
    figure = axes.get_figure()
    figure.draw_without_rendering()
    left, right = axes.get_xlim()
    bottom, top = axes.get_ylim()
    vertices = found.variances if spread == "variance" else np.sqrt(found.variances)
    assert left >= 0.0
    assert left <= vertices[0] <= vertices[-1] <= right
    if len(found) > 1:
        assert found.means[-1] - found.means[0] > 0.8 * (top - bottom)
    labels = [Text.get_window_extent(text) for text in axes.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(labels, 2))
    frame = axes.get_window_extent()
    assert all(frame.contains(*box.min) and frame.contains(*box.max) for box in labels)
    assert not axes.get_legend().get_window_extent().overlaps(frame)
    lines = {line.get_label(): np.column_stack(line.get_data()) for line in axes.get_lines()}
    for points in lines.values():
        pixels = axes.transData.transform(np.asarray(points, dtype=float))
        assert not any(box.count_contains(pixels) for box in labels)
    assert ("dominated" in lines) == (name not in NOTHING_DOMINATED)
    supported = sum(span is not None for span in found.risk_aversions)
    assert len(labels) >= min(supported, 5)
    if supported <= 7:
        assert len(labels) == supported


NOTHING_DOMINATED = {
    "1 vertex, mean 0",
    "2 vertices",
    "2 vertices, nothing dominated",
    "7 vertices",
}


@pytest.mark.parametrize("far", [-100.0, -1e4, -1e6])
def test_no_sure_policy_of_less_mean_is_called_efficient(far: float) -> None:
    """Three things for sure, and a gamble: of what is sure only the best is efficient."""
    p = np.zeros((5, 4, 5))
    for action, states in enumerate(([0], [1], [2], [3, 4])):
        p[:, action, states] = 1.0 / len(states)
    r = np.array([far, -1.0, far + 0.5, 0.5, -0.25])[:, None].repeat(4, 1)
    found = mvpi.frontier(mvpi.MDP(p, r, 0.99, start=[0.0, 1.0, 0.0, 0.0, 0.0]))
    np.testing.assert_array_less(0.0, np.diff(found.means))
    np.testing.assert_array_less(0.0, np.diff(found.variances))
    assert found.means[0] == pytest.approx(-1.0)
    (low, high), *_ = found.risk_aversions
    assert 0.0 < low < high == math.inf


def test_cliff_walking_has_two_efficient_policies() -> None:
    found = mvpi.frontier(mvpi.MDP.from_gymnasium("CliffWalking-v1"))
    assert found.means == pytest.approx([-1.0, -0.12247897700103], abs=1e-9)
    ranges = [tuple(span) for span in found.risk_aversions if span is not None]
    assert ranges[1][1] == ranges[0][0] == pytest.approx(8.16470, abs=1e-4)
    assert ranges[0][1] == math.inf
