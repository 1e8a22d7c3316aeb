"""The risk measures: their definition as a maximum over `y`, their duals, the augmented reward."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

from mvpi.errors import InputError
from mvpi.risk import (
    CVaR,
    Entropic,
    MeanVariance,
    MonotoneMeanVariance,
    Risk,
    VaR,
    VarianceBudget,
    as_risk,
    learnable,
    parse_risk,
)

rewards = st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=8)
whole_rewards = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=8)
aversions = st.sampled_from([0.0, 1e-6, 0.01, 0.3, 1.0, 5.0])
measures = st.one_of(
    st.builds(MeanVariance, aversions),
    st.builds(CVaR, st.sampled_from([0.01, 0.07, 0.25, 0.5, 0.9, 1.0])),
    st.builds(CVaR, st.floats(0.01, 1.0), st.floats(0.0, 1.0)),
    st.builds(Entropic, aversions),
    st.builds(MonotoneMeanVariance, aversions),
)


@st.composite
def samples(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray | None]:
    """Rewards, with weights or without."""
    values = draw(st.one_of(rewards, whole_rewards))
    weights = draw(
        st.none() | st.lists(st.floats(0, 1), min_size=len(values), max_size=len(values))
    )
    assume(weights is None or sum(weights) > 1e-3)
    return np.array(values), None if weights is None else np.array(weights)


def average(values: np.ndarray, weights: np.ndarray | None) -> float:
    return float(np.average(values, weights=weights))


def objective(risk: Risk, y: float, values: np.ndarray, weights: np.ndarray | None) -> float:
    return y + average(risk.utility(values - y), weights)


def brute_force(risk: Risk, values: np.ndarray, weights: np.ndarray | None) -> float:
    """The largest `E[y + u(R - y)]`: at a reward value (kinks) or between them (Brent)."""
    low, high = values.min() - 1e-3, values.max() + 1e-3
    found = minimize_scalar(
        lambda y: -objective(risk, y, values, weights),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return max(-found.fun, *(objective(risk, y, values, weights) for y in (low, *values, high)))


class CappedQuadratic(Risk):
    """Mean-variance that does not punish good luck: `u` stays flat after its top."""

    def __init__(self, risk_aversion: float):
        self.risk_aversion = risk_aversion

    def utility(self, t):
        t = np.minimum(t, 0.5 / self.risk_aversion)
        return t - self.risk_aversion * t**2

    def dual(self, rewards, weights=None):
        r = np.asarray(rewards, dtype=float)
        top = 0.5 / self.risk_aversion

        def excess(y):
            return average(1 - 2 * self.risk_aversion * np.minimum(r - y, top), weights) - 1

        low, high = r.min() - 1e-9, r.max() + 1e-9
        return float(brentq(excess, low, high, xtol=1e-14))


# The definition: value(R) = max over y of E[y + u(R - y)]


@given(measures, samples())
def test_value_is_the_largest_expected_utility_over_y(risk, sample):
    value = risk.value(*sample)
    expected = brute_force(risk, *sample)
    assert value == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert value >= expected - 1e-9 * (1 + abs(expected))


@given(measures, samples())
def test_value_is_reached_at_the_dual(risk, sample):
    at_dual = objective(risk, risk.dual(*sample), *sample)
    assert risk.value(*sample) == pytest.approx(at_dual, rel=1e-9, abs=1e-9)


@given(measures, st.floats(-10, 10))
def test_a_constant_reward_is_worth_itself(risk, reward):
    assert risk.value([reward, reward]) == pytest.approx(reward, rel=1e-12, abs=1e-12)
    assert risk.dual([reward, reward]) == pytest.approx(reward, rel=1e-12, abs=1e-12)


@given(measures, samples(), st.floats(-100, 100))
def test_a_reward_on_top_of_every_step_adds_itself_to_the_value(risk, sample, shift):
    values, weights = sample
    moved = risk.value(values + shift, weights)
    assert moved == pytest.approx(risk.value(values, weights) + shift, rel=1e-9, abs=1e-9)


@given(measures, samples())
def test_no_measure_exceeds_the_mean(risk, sample):
    assert risk.value(*sample) <= average(*sample) + 1e-9


@given(measures, samples(), samples())
def test_proposition_1_better_at_the_old_dual_is_better_in_value(risk, old, new):
    """If the new policy is at least as good on `augment(r, y)`, its value is at least as good."""
    y = risk.dual(*old)
    gained = average(risk.augment(new[0], y), new[1]) - average(risk.augment(old[0], y), old[1])
    scale = 1 + float(np.abs(risk.augment(np.append(old[0], new[0]), y)).max())
    assert risk.value(*new) >= risk.value(*old) + gained - 1e-9 * scale


# The augmented reward


@given(measures, st.floats(-50, 50))
def test_a_reward_of_zero_stays_zero(risk, y):
    """So a finished episode keeps the value 0, whatever `y` is."""
    assert float(risk.augment(0.0, y)) == 0.0


@given(aversions, rewards, st.floats(-20, 20))
def test_mean_variance_augments_as_the_paper_writes_it(lam, values, y):
    r = np.array(values)
    paper = r - lam * r**2 + 2 * lam * r * y
    definition = MeanVariance(lam).utility(r - y) - MeanVariance(lam).utility(-y)
    np.testing.assert_allclose(MeanVariance(lam).augment(r, y), paper, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(MeanVariance(lam).augment(r, y), definition, rtol=1e-10, atol=1e-9)


def test_mean_variance_augments_small_rewards_at_a_large_dual_without_loss():
    """`u(r - y) - u(-y)` would cancel 20 digits here."""
    assert float(MeanVariance(0.5).augment(1e-6, 1e10)) == pytest.approx(1e4 + 1e-6, rel=1e-15)


@given(measures, samples(), st.floats(-20, 20))
def test_augment_differs_from_the_utility_by_a_constant_only(risk, sample, y):
    values, _ = sample
    augmented = risk.augment(values, y)
    difference = augmented - risk.utility(values - y)
    scale = 1 + float(np.abs(risk.utility(values - y)).max() + abs(float(risk.utility(-y))))
    assert np.ptp(difference) <= 1e-9 * scale


def test_augment_keeps_the_shape_of_the_rewards():
    r = np.arange(6.0).reshape(2, 3)
    for risk in (MeanVariance(1.0), CVaR(0.1), Entropic(1.0), VarianceBudget(1.0, 2.0)):
        assert risk.augment(r, 1.0).shape == (2, 3)


# Utilities and their slopes


@given(measures, st.floats(-5, 5), st.floats(-5, 5), st.floats(0, 1))
def test_utilities_are_concave_and_zero_at_zero(risk, left, right, share):
    middle = share * left + (1 - share) * right
    chord = share * float(risk.utility(left)) + (1 - share) * float(risk.utility(right))
    assert float(risk.utility(middle)) >= chord - 1e-9 * (1 + abs(chord))
    assert float(risk.utility(0.0)) == 0.0


@given(measures, st.floats(-5, 5))
def test_slope_is_the_left_derivative(risk, t):
    step = 1e-6
    quotient = float(risk.utility(t) - risk.utility(t - step)) / step
    kinked = isinstance(risk, CVaR) and 0 < t < 2 * step
    assume(not kinked)
    assert float(risk.slope(t)) == pytest.approx(quotient, rel=1e-4, abs=1e-4)


def test_slope_at_the_kink_is_the_one_from_the_left():
    assert float(CVaR(0.25).slope(0.0)) == 4.0
    assert float(CVaR(0.25).slope(1e-300)) == 0.0
    assert float(CVaR(0.25, weight=0.5).slope(0.0)) == 2.5


# Mean-variance


def test_mean_variance_of_one_and_three():
    assert MeanVariance(0.5).value([1, 3]) == 1.5
    assert MeanVariance(0.5).dual([1, 3]) == 2.0


@given(aversions, samples())
def test_mean_variance_is_mean_minus_aversion_times_variance(lam, sample):
    values, weights = sample
    mean = average(values, weights)
    variance = average((values - mean) ** 2, weights)
    assert MeanVariance(lam).value(*sample) == pytest.approx(
        mean - lam * variance, rel=1e-9, abs=1e-9
    )


def test_mean_variance_keeps_its_digits_far_from_zero():
    assert MeanVariance(1.0).value([1e9, 1e9 + 2]) == pytest.approx(1e9, rel=1e-15)


# CVaR


@pytest.mark.parametrize(
    ("level", "weight", "dual", "value"),
    [
        (0.25, 1.0, 1.0, 1.0),
        (0.5, 1.0, 2.0, 1.5),
        (0.375, 1.0, 2.0, (1 + 0.5 * 2) / 1.5),
        (1.0, 1.0, 4.0, 2.5),
        (0.5, 0.5, 2.0, 0.5 * 2.5 + 0.5 * 1.5),
        (0.5, 0.0, 2.0, 2.5),
    ],
)
def test_cvar_of_one_two_three_four(level, weight, dual, value):
    risk = CVaR(level, weight)
    assert risk.dual([3, 1, 4, 2]) == dual
    assert risk.value([3, 1, 4, 2]) == pytest.approx(value, rel=1e-14)


@pytest.mark.parametrize("percent", [1, 7, 14, 28, 29, 55, 56, 57, 58, 95])
def test_cvar_of_one_to_a_hundred_is_the_mean_of_the_worst_percent(percent):
    """`level * 100` may round up past a whole number; the next value must not slip in."""
    value = CVaR(percent / 100).value(np.arange(1, 101))
    assert value == pytest.approx((1 + percent) / 2, rel=1e-12)
    assert CVaR(percent / 100).dual(np.arange(1, 101)) == percent


@given(samples(), st.floats(0.01, 0.99), st.floats(0.0, 1.0))
def test_cvar_grows_with_the_level_and_falls_with_the_weight(sample, level, weight):
    assert CVaR(level).value(*sample) <= CVaR((1 + level) / 2).value(*sample) + 1e-9
    assert CVaR(level, 1.0).value(*sample) <= CVaR(level, weight).value(*sample) + 1e-9


# Entropic


def test_entropic_of_a_coin_toss():
    expected = -math.log((1 + math.exp(-2.0)) / 2) / 2
    assert Entropic(2.0).value([0, 1]) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("beta", [1e-3, 1.0, 50.0, 1e6])
def test_entropic_survives_huge_rewards(beta):
    """Half the steps pay -1e6: the certainty equivalent is `-1e6 + log(2) / beta`."""
    value = Entropic(beta).value([-1e6, 1e6])
    assert value == pytest.approx(-1e6 + math.log(2) / beta, rel=1e-14)


@pytest.mark.parametrize("y", [-1e6, 0.0, 1e6])
def test_entropic_augments_huge_rewards_without_overflow(y):
    augmented = Entropic(1.0).augment([-1e6, -1.0, 0.0, 1.0, 1e6], y)
    assert np.isfinite(augmented).all()
    assert (np.diff(augmented) >= 0).all()


@given(rewards, st.sampled_from([1e-5, 1e-6, 1e-8]))
def test_entropic_at_a_small_aversion_is_mean_minus_half_of_it_times_variance(values, beta):
    x = np.array(values)
    value = Entropic(beta).value(x)
    third = beta**2 * np.mean(np.abs(x - x.mean()) ** 3)
    assert value == pytest.approx(x.mean() - beta / 2 * x.var(), abs=third + 1e-12)


@given(samples(), st.floats(1e-300, 10.0), st.floats(1e-300, 10.0))
def test_entropic_falls_as_the_aversion_grows(sample, one, other):
    more, less = Entropic(max(one, other)), Entropic(min(one, other))
    assert more.value(*sample) <= less.value(*sample) + 1e-9


def test_entropic_at_the_smallest_positive_aversion_is_the_mean():
    assert Entropic(5e-324).value([0.0, 1.0]) == pytest.approx(0.5)


@given(samples())
def test_entropic_lies_between_the_worst_reward_and_the_mean(sample):
    values, weights = sample
    possible = values if weights is None else values[weights > 0]
    for beta in (1e-300, 1e-12, 1.0, 1e3, 1e12):
        assert possible.min() - 1e-9 <= Entropic(beta).value(*sample) <= average(*sample) + 1e-9


def test_entropic_ignores_a_terrible_reward_that_never_happens():
    assert Entropic(1.0).value([-1e9, 1.0, 1.0], [0.0, 0.5, 0.5]) == 1.0


# Variance budget


def test_a_variance_budget_augments_like_mean_variance_at_its_price():
    r = np.linspace(-2, 2, 9)
    priced = VarianceBudget(limit=0.5, risk_aversion=3.0)
    np.testing.assert_array_equal(priced.augment(r, 0.7), MeanVariance(3.0).augment(r, 0.7))
    np.testing.assert_array_equal(VarianceBudget(0.5).augment(r, 0.7), r)


@pytest.mark.parametrize(("limit", "price"), [(1.0, 7.0), (0.0, 0.0), (1.0, 0.0)])
def test_a_variance_budget_is_worth_the_mean_when_nothing_is_over_or_the_price_is_zero(
    limit, price
):
    assert VarianceBudget(limit, price).value([1, 3]) == 2.0


def test_a_variance_over_the_limit_costs_its_price():
    assert VarianceBudget(limit=0.25, risk_aversion=2.0).value([1, 3]) == 2.0 - 2.0 * 0.75


def test_learning_begins_at_the_price_of_a_policy_whose_mean_is_its_deviation():
    # Mean s and variance s^2 at a position s: at this price s = sqrt(limit) is the best one.
    priced = learnable(VarianceBudget(limit=0.36))
    s = np.linspace(0.0, 2.0, 2_001)
    assert s[np.argmax(s - priced.risk_aversion * s**2)] == pytest.approx(0.6)
    assert learnable(VarianceBudget(0.36, risk_aversion=0.1)) == VarianceBudget(0.36, 0.1)


# Monotone mean-variance


@given(samples(), st.sampled_from([0.05, 0.5, 3.0]))
def test_monotone_mean_variance_is_the_capped_parabola(sample, lam):
    monotone, capped = MonotoneMeanVariance(lam), CappedQuadratic(lam)
    assert monotone.value(*sample) == pytest.approx(capped.value(*sample), rel=1e-7, abs=1e-7)
    assert monotone.value(*sample) >= MeanVariance(lam).value(*sample) - 1e-9


@given(samples(), st.sampled_from([0.05, 0.5, 3.0]))
def test_the_monotone_dual_makes_the_mean_slope_one(sample, lam):
    risk = MonotoneMeanVariance(lam)
    slope = average(risk.slope(sample[0] - risk.dual(*sample)), sample[1])
    assert slope == pytest.approx(1.0, abs=1e-9)


@given(samples(), st.sampled_from([0.0, 0.05, 0.5, 3.0]), st.floats(0, 50), st.integers(0, 7))
def test_more_reward_is_never_worse_for_the_monotone_measure(sample, lam, more, which):
    values, weights = sample
    better = values.copy()
    better[which % len(values)] += more
    risk = MonotoneMeanVariance(lam)
    assert risk.value(better, weights) >= risk.value(values, weights) - 1e-9


@given(samples())
def test_without_good_luck_the_monotone_measure_is_mean_variance(sample):
    values, weights = sample
    lam = 0.5 / (1e-3 + float(values.max()) - average(values, weights))
    expected = MeanVariance(lam).value(values, weights)
    risk = MonotoneMeanVariance(lam)
    assert risk.value(values, weights) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    y = average(values, weights)
    augmented, plain = risk.augment(values, y), MeanVariance(lam).augment(values, y)
    assert np.ptp(augmented - plain) <= 1e-9 * (1.0 + np.abs(plain).max())


@pytest.mark.parametrize("lam", [0.1, 0.7, 5.0])
@pytest.mark.parametrize("std", [0.2, 3.0])
def test_the_monotone_value_of_a_gaussian_reward(lam, std):
    """With `d = (z - m) / s`: `s (phi(d) + d Phi(d)) = top`, and the second moment of the same."""
    top = 0.5 / lam
    first = lambda d: std * (norm.pdf(d) + d * norm.cdf(d)) - top  # noqa: E731
    d = brentq(first, -8.0, top / std + 1.0, xtol=1e-14)
    squares = std**2 * ((1 + d**2) * norm.cdf(d) + d * norm.pdf(d))
    expected = 1.5 + std * d - 0.5 * top - lam * squares
    found = MonotoneMeanVariance(lam).gaussian_value(1.5, std)
    assert found == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    "risk", [MeanVariance(0.7), CVaR(0.2), CVaR(0.3, 0.5), CVaR(1.0), Entropic(1.3), VaR(0.2)]
)
def test_closed_forms_for_gaussian_rewards_are_what_the_quadrature_gives(risk):
    assert risk.gaussian_value(0.4, 1.7) == pytest.approx(
        Risk.gaussian_value(risk, 0.4, 1.7), abs=2e-3 if isinstance(risk, VaR) else 1e-6
    )


# The value at risk


@given(samples(), st.sampled_from([0.05, 0.25, 1 / 3, 0.5, 0.9]))
def test_var_is_the_largest_value_that_is_reached_often_enough(sample, level):
    values, weights = sample
    often = [average(values >= x, weights) for x in values]
    paid = values if weights is None else values[weights > 0]
    expected = max((x for x, p in zip(values, often, strict=True) if p >= 1 - level - 1e-12))
    assert VaR(level).value(values, weights) == min(expected, paid.max())


@pytest.mark.parametrize("level", [0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.9])
def test_var_of_a_tie_is_not_lost_to_rounding(level):
    values = np.arange(10.0)
    assert VaR(level).value(values) == round(10 * level)
    assert VaR(level).value(values, np.full(10, 0.1)) == round(10 * level)


# A user's own measure


@given(samples(), st.sampled_from([0.05, 0.5, 3.0]))
def test_a_measure_needs_only_a_utility_and_a_dual(sample, lam):
    risk = CappedQuadratic(lam)
    assert risk.value(*sample) == pytest.approx(brute_force(risk, *sample), rel=1e-7, abs=1e-7)
    assert float(risk.augment(0.0, 1.7)) == 0.0
    assert risk.value(*sample) >= MeanVariance(lam).value(*sample) - 1e-9


def test_a_measure_without_a_dual_cannot_be_made():
    class Incomplete(Risk):
        def utility(self, t):
            return np.asarray(t)

    with pytest.raises(TypeError, match="dual"):
        Incomplete()


def test_the_slope_of_a_users_measure_is_the_left_derivative():
    risk = CappedQuadratic(0.5)
    t = np.array([-3.0, 0.0, 0.5, 1.0, 2.0])
    np.testing.assert_allclose(risk.slope(t), [4.0, 1.0, 0.5, 0.0, 0.0], atol=1e-6)


# Numbers for risks, and refusals


@pytest.mark.parametrize("number", [1, 1.0, np.float32(1), np.int64(1)])
def test_a_plain_number_is_mean_variance(number):
    assert as_risk(number) == MeanVariance(1.0)


def test_a_risk_is_taken_as_it_is():
    risk = CVaR(0.1)
    assert as_risk(risk) is risk


@pytest.mark.parametrize(
    ("text", "risk"),
    [
        ("0", MeanVariance(0.0)),
        ("1.5", MeanVariance(1.5)),
        ("1e-3", MeanVariance(1e-3)),
        ("cvar:0.1", CVaR(0.1)),
        ("cvar:0.1:0.5", CVaR(0.1, 0.5)),
        ("entropic:2", Entropic(2.0)),
        ("budget:0.25", VarianceBudget(0.25)),
        ("monotone:2", MonotoneMeanVariance(2.0)),
        ("var:0.05", VaR(0.05)),
    ],
)
def test_a_text_names_a_risk(text, risk):
    assert parse_risk(text) == risk
    assert parse_risk(risk.text) == risk


@pytest.mark.parametrize(
    "text",
    [
        "",
        "low",
        "cvar",
        "cvar:",
        "cvar:a",
        "cvar:0.1:0.2:0.3",
        "sharpe:1",
        ":1",
        "1:2",
        "monotone",
        "monotone:",
        "monotone:x",
        "monotone:1:2",
        "var",
        "var:",
        "var:0.1:1",
        "VaR:0.1",
    ],
)
def test_a_text_that_names_no_risk_is_refused_with_the_choices(text):
    with pytest.raises(InputError) as caught:
        parse_risk(text)
    message = str(caught.value)
    assert "cvar:LEVEL" in message
    assert message.endswith(f"got {text!r}")
    assert "\n" not in message


def test_a_text_with_a_number_out_of_bounds_names_the_bound():
    with pytest.raises(InputError, match="level must be > 0 and <= 1, got 2"):
        parse_risk("cvar:2")


@pytest.mark.parametrize("kind", [Decimal, Fraction, np.float32])
def test_numbers_of_any_kind_are_kept_as_floats(kind):
    half = kind("0.5")
    for risk in (MeanVariance(half), CVaR(half, half), Entropic(half), VarianceBudget(half, half)):
        assert {type(number) for number in vars(risk).values()} == {float}
        assert risk.augment([1.0, 2.0], 0.3).dtype == np.float64


def test_risks_are_values():
    assert CVaR(0.1) == CVaR(0.1, 1.0)
    assert len({MeanVariance(1.0), MeanVariance(1.0), Entropic(1.0)}) == 2
    with pytest.raises(AttributeError):
        MeanVariance(1.0).risk_aversion = 2.0


REFUSED = [
    (lambda: MonotoneMeanVariance(-1.0), "risk_aversion must be >= 0, got -1.0"),
    (lambda: MonotoneMeanVariance(math.nan), "risk_aversion must be >= 0, got nan"),
    (lambda: MonotoneMeanVariance(math.inf), "risk_aversion must be >= 0, got inf"),
    (lambda: MonotoneMeanVariance("1"), "risk_aversion must be >= 0, got '1'"),
    (lambda: MonotoneMeanVariance(None), "risk_aversion must be >= 0, got None"),
    (lambda: MonotoneMeanVariance(True), "risk_aversion must be >= 0, got True"),
    (lambda: MonotoneMeanVariance(1.0).value([]), "values must not be empty"),
    (lambda: MonotoneMeanVariance(1.0).dual([math.nan]), "values[0] is nan"),
    (lambda: MonotoneMeanVariance(1.0).dual([1e308, -1e308]), "too large: scale them"),
    (lambda: MonotoneMeanVariance(1.0).dual([1.0], [0.0]), "weights must not all be zero"),
    (lambda: MonotoneMeanVariance(1.0).augment([math.nan], 0.0), "must be finite"),
    (lambda: MonotoneMeanVariance(1.0).augment([1.0], math.inf), "y must be finite, got inf"),
    (lambda: parse_risk("monotone:-2"), "risk_aversion must be >= 0, got -2.0"),
    (lambda: parse_risk("monotone:nan"), "risk_aversion must be >= 0, got nan"),
    (lambda: VaR(0.0), "level must be > 0 and <= 1, got 0.0"),
    (lambda: VaR(1.0), "level must be > 0 and < 1, got 1"),
    (lambda: VaR(-0.1), "level must be > 0 and <= 1, got -0.1"),
    (lambda: VaR(5), "level must be > 0 and <= 1, got 5.0"),
    (lambda: VaR("5%"), "level must be > 0 and <= 1, got '5%'"),
    (lambda: VaR(None), "level must be > 0 and <= 1, got None"),
    (lambda: VaR([0.1]), "level must be > 0 and <= 1, got [0.1]"),
    (lambda: VaR(0.1).value([]), "values must not be empty"),
    (lambda: VaR(0.1).value([1.0, math.inf]), "values[1] is inf"),
    (lambda: VaR(0.1).dual([1.0], [1.0, 2.0]), "1 values, 2 weights"),
    (lambda: VaR(0.1).utility(0.0), "for finite MDPs only"),
    (lambda: VaR(0.1).augment([1.0], 0.0), "for finite MDPs only"),
    (lambda: learnable(VaR(0.1)), "for finite MDPs only"),
    (lambda: parse_risk("var:0"), "level must be > 0 and <= 1, got 0.0"),
    (lambda: parse_risk("var:1"), "level must be > 0 and < 1, got 1"),
    (lambda: parse_risk("var:nan"), "level must be > 0 and <= 1, got nan"),
    (lambda: MeanVariance(-1.0), "risk_aversion must be >= 0, got -1.0"),
    (lambda: MeanVariance(math.nan), "risk_aversion must be >= 0, got nan"),
    (lambda: MeanVariance(math.inf), "risk_aversion must be >= 0, got inf"),
    (lambda: MeanVariance("1"), "risk_aversion must be >= 0, got '1'"),
    (lambda: MeanVariance(None), "risk_aversion must be >= 0, got None"),
    (lambda: MeanVariance(True), "risk_aversion must be >= 0, got True"),
    (lambda: MeanVariance([1.0, 2.0]), "risk_aversion must be >= 0, got [1.0, 2.0]"),
    (lambda: Entropic(-0.5), "risk_aversion must be >= 0, got -0.5"),
    (lambda: Entropic(-math.inf), "risk_aversion must be >= 0, got -inf"),
    (lambda: CVaR(0.0), "level must be > 0 and <= 1, got 0.0"),
    (lambda: CVaR(-0.1), "level must be > 0 and <= 1, got -0.1"),
    (lambda: CVaR(5), "level must be > 0 and <= 1, got 5.0"),
    (lambda: CVaR("5%"), "level must be > 0 and <= 1, got '5%'"),
    (lambda: CVaR(0.5, weight=1.5), "weight must be >= 0 and <= 1, got 1.5"),
    (lambda: CVaR(0.5, weight=-1), "weight must be >= 0 and <= 1, got -1.0"),
    (lambda: CVaR(0.5, weight=math.nan), "weight must be >= 0 and <= 1, got nan"),
    (lambda: VarianceBudget(-2.0), "limit must be >= 0, got -2.0"),
    (lambda: VarianceBudget(math.inf), "limit must be >= 0, got inf"),
    (lambda: VarianceBudget(1.0, risk_aversion=-3), "risk_aversion must be >= 0, got -3.0"),
    (lambda: as_risk(-4), "risk_aversion must be >= 0, got -4.0"),
    (lambda: as_risk("low"), "or a measure such as mvpi.CVaR(0.1), got 'low'"),
    (lambda: as_risk(None), "or a measure such as mvpi.CVaR(0.1), got None"),
    (lambda: MeanVariance(1.0).value([]), "values must not be empty"),
    (lambda: CVaR(0.5).value([1.0, math.nan]), "values[1] is nan"),
    (lambda: Entropic(1.0).value([1.0], [-1.0]), "weights[0] is -1.0"),
    (lambda: Entropic(0.0).dual([math.inf]), "values[0] is inf"),
    (lambda: VarianceBudget(1.0).dual([1.0, 2.0], [1.0]), "2 values, 1 weights"),
]


@pytest.mark.parametrize(("make", "fragment"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_bad_number_is_refused_in_one_line_with_its_bound(make, fragment):
    with pytest.raises(InputError) as caught:
        make()
    message = str(caught.value)
    assert fragment in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("cvar:0.1", r"or a measure such as .*; that is mvpi\.CVaR\(level=0\.1, weight=1\.0\)$"),
        ("1.0", "that is 1.0$"),
        ("Pendulum-v1", "got 'Pendulum-v1'$"),
        (None, "a risk must be a number, .* got None$"),
        (CVaR, "a risk must be a number, .* got <class"),
    ],
)
def test_what_is_no_risk_is_told_what_one_is(given, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_risk(given)
