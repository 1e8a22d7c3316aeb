"""Statistics of samples and of discrete distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvpi import stats
from mvpi.errors import InputError

samples = st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=12)
levels = st.one_of(st.floats(0.01, 1.0), st.sampled_from([0.05, 0.07, 0.1, 0.25, 0.5, 1.0]))


@st.composite
def counted(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Values with ties, and how often each occurs (some never)."""
    values = draw(st.lists(st.integers(-3, 3), min_size=1, max_size=8))
    counts = draw(st.lists(st.integers(0, 4), min_size=len(values), max_size=len(values)))
    counts[draw(st.integers(0, len(values) - 1))] += 1
    return np.array(values, dtype=float), np.array(counts)


def mean_of_worst(values: np.ndarray, level: float) -> float:
    """The mean of the smallest `level * n` values, one of them counted in part."""
    x = np.sort(values)
    amount = level * len(x)
    share = np.clip(amount - np.arange(len(x)), 0.0, 1.0)
    return float(share @ x / amount)


@pytest.mark.parametrize(
    ("statistic", "answer"),
    [
        (stats.mean, 2.5),
        (stats.variance, 1.25),
        (stats.sharpe, 2.5 / math.sqrt(1.25)),
        (lambda x, w=None: stats.quantile(x, 0.5, w), 2.0),
        (lambda x, w=None: stats.cvar(x, 0.75, w), 2.0),
    ],
    ids=["mean", "variance", "sharpe", "quantile", "cvar"],
)
@pytest.mark.parametrize("weights", [None, [1, 1, 1, 1], [0.25] * 4, [7e-9] * 4])
def test_known_answers_for_one_two_three_four(statistic, answer, weights):
    assert statistic([4, 1, 3, 2], weights) == pytest.approx(answer, rel=1e-14)


def test_variance_keeps_its_digits_far_from_zero():
    assert stats.variance([1e9, 1e9 + 1, 1e9 + 2]) == pytest.approx(2 / 3, rel=1e-12)


@pytest.mark.parametrize("weights", [None, [0.1, 0.2, 0.3]])
def test_values_that_are_all_the_same_have_no_variance_not_even_from_rounding(weights):
    assert stats.variance([0.1] * 3, weights) == 0.0


@pytest.mark.parametrize(
    ("values", "answer"), [([2, 2], math.inf), ([-2, -2], -math.inf), ([0.1] * 3, math.inf)]
)
def test_sharpe_of_a_constant_is_infinite_with_the_sign_of_the_mean(values, answer):
    assert stats.sharpe(values) == answer


def test_sharpe_of_nothing_but_zeros_is_not_a_number():
    assert math.isnan(stats.sharpe([0.0, 0.0]))


@given(counted(), levels)
def test_weights_are_counts_of_repeated_values(sample, level):
    values, counts = sample
    expanded = np.repeat(values, counts)
    assert stats.mean(values, counts) == pytest.approx(expanded.mean(), abs=1e-12)
    assert stats.variance(values, counts) == pytest.approx(expanded.var(), abs=1e-12)
    assert stats.cvar(values, level, counts) == pytest.approx(
        stats.cvar(expanded, level), abs=1e-12
    )


@given(counted(), st.integers(1, 40), st.integers(1, 40))
def test_weighted_quantile_with_ties_is_that_of_the_expanded_sample(sample, part, whole):
    values, counts = sample
    level = min(part, whole) / whole
    expanded = np.repeat(values, counts)
    assert stats.quantile(values, level, counts) == stats.quantile(expanded, level)


@given(samples, levels)
def test_quantile_is_the_smallest_value_that_reaches_the_level(values, level):
    y = stats.quantile(values, level)
    x = np.array(values)
    assert y in x
    assert np.mean(x <= y) >= level * (1 - 1e-9)
    assert np.mean(x < y) < level


@pytest.mark.parametrize("percent", range(1, 101))
def test_quantile_of_one_to_a_hundred_is_the_percentage(percent):
    """`0.07 * 100` is 7.000000000000001, yet 7 of 100 values are 7%."""
    assert stats.quantile(np.arange(1, 101), percent / 100) == percent
    assert stats.quantile(np.arange(1, 101), percent / 100, np.full(100, 0.01)) == percent


@given(samples, levels)
def test_cvar_is_the_mean_of_the_worst_share(values, level):
    expected = mean_of_worst(np.array(values), level)
    assert stats.cvar(values, level) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(samples)
def test_cvar_of_everything_is_the_mean_and_of_nearly_nothing_the_minimum(values):
    assert stats.cvar(values, 1.0) == pytest.approx(np.mean(values), rel=1e-12, abs=1e-9)
    assert stats.cvar(values, 1e-9) == min(values)


@given(st.integers(1, 12), st.integers(1, 4), st.floats(0.01, 1.0), st.integers(0, 10**6))
def test_cvar_along_an_axis_is_that_of_every_sample(count, samples, level, seed):
    rows = np.random.default_rng(seed).integers(-3, 4, (samples, count)).astype(float)
    expected = [stats.cvar(row, level) for row in rows]
    np.testing.assert_allclose(stats.cvar(rows, level, axis=1), expected, atol=1e-12)
    np.testing.assert_allclose(stats.cvar(rows.T, level, axis=0), expected, atol=1e-12)


def test_cvar_along_an_axis_refuses_what_it_cannot_do():
    for values, weights, message in (
        ([[1.0]], [1.0], "weights or an axis, not both"),
        ([[math.nan]], None, "must be finite"),
        ([[]], None, "must not be empty"),
    ):
        with pytest.raises(InputError, match=message):
            stats.cvar(values, 0.5, weights, axis=1)


def test_sharpe_ratios_of_arrays_are_those_of_every_element():
    mean, variance = np.array([1.0, -2.0, 3.0, -3.0, 0.0]), np.array([4.0, 1.0, 0.0, 0.0, 0.0])
    expected = [0.5, -2.0, math.inf, -math.inf, math.nan]
    np.testing.assert_array_equal(stats.sharpe_ratio(mean, variance), expected)


def test_values_of_zero_weight_do_not_count():
    values, weights = [-1e9, 1.0, 2.0, 1e9], [0, 1, 1, 0]
    assert stats.mean(values, weights) == 1.5
    assert stats.variance(values, weights) == 0.25
    assert stats.quantile(values, 1.0, weights) == 2.0
    assert stats.cvar(values, 0.5, weights) == 1.0


def test_quantile_at_level_one_ignores_values_of_zero_weight_in_a_large_sample():
    """A sum of many weights rounds to less than one; the last value must still not be taken."""
    n = 300_001
    weights = np.append(np.random.default_rng(0).random(n), 0.0)
    values = np.append(np.zeros(n), 1.0)
    assert stats.quantile(values, 1.0, weights) == 0.0


def test_arrays_of_any_shape_are_one_sample():
    assert stats.mean([[1, 2], [3, 4]], [[1, 0], [0, 1]]) == 2.5


def test_the_input_is_left_alone():
    values, weights = np.array([3.0, 1.0]), np.array([1.0, 3.0])
    stats.cvar(values, 0.5, weights)
    assert values.tolist() == [3.0, 1.0]
    assert weights.tolist() == [1.0, 3.0]


BAD_SAMPLES = [
    ([], None, "must not be empty"),
    ([1.0, math.nan], None, "values[1] is nan"),
    ([math.inf], None, "values[0] is inf"),
    ([0.0, 0.0, -math.inf], None, "values[2] is -inf"),
    (["a"], None, "values must be an array of numbers"),
    ([[1.0], [1.0, 2.0]], None, "values must be an array of numbers"),
    (None, None, "values"),
    ([1.0], [1.0, 2.0], "1 values, 2 weights"),
    ([1.0, 2.0], [1.0], "2 values, 1 weights"),
    ([1.0, 2.0], [1.0, -0.5], "weights[1] is -0.5"),
    ([1.0, 2.0], [math.nan, 1.0], "weights[0] is nan"),
    ([1.0, 2.0], [1.0, math.inf], "weights[1] is inf"),
    ([1.0, 2.0], [0.0, 0.0], "must not all be zero"),
    ([1.0], ["x"], "weights must be an array of numbers"),
]


@pytest.mark.parametrize(("values", "weights", "fragment"), BAD_SAMPLES)
@pytest.mark.parametrize(
    "statistic",
    [
        stats.mean,
        stats.variance,
        stats.sharpe,
        lambda x, w: stats.quantile(x, 0.5, w),
        lambda x, w: stats.cvar(x, 0.5, w),
    ],
    ids=["mean", "variance", "sharpe", "quantile", "cvar"],
)
def test_bad_samples_are_refused_in_one_line(statistic, values, weights, fragment):
    with pytest.raises(InputError) as caught:
        statistic(values, weights)
    message = str(caught.value)
    assert fragment in message
    assert "\n" not in message


BAD_LEVELS = [
    0,
    0.0,
    -0.1,
    1.0000001,
    2,
    math.nan,
    math.inf,
    -math.inf,
    "0.5",
    None,
    [0.5, 1],
    True,
]


@pytest.mark.parametrize("level", BAD_LEVELS, ids=repr)
@pytest.mark.parametrize("statistic", [stats.quantile, stats.cvar])
def test_bad_levels_are_refused_with_the_value_and_the_bound(statistic, level):
    with pytest.raises(InputError) as caught:
        statistic([1.0, 2.0], level)
    message = str(caught.value)
    assert message.startswith("level must be > 0 and <= 1, got ")
    shown = message.removeprefix("level must be > 0 and <= 1, got ")
    assert shown in (repr(level), str(float(level)) if isinstance(level, int | float) else "")


@pytest.mark.parametrize(
    ("bounds", "value", "message"),
    [
        ({}, math.nan, "x must be finite, got nan"),
        ({"at_least": 0.0}, -1, "x must be >= 0, got -1.0"),
        ({"above": 0.0}, 0, "x must be > 0, got 0.0"),
        ({"at_most": 1.0}, 1.5, "x must be <= 1, got 1.5"),
        ({"at_least": 0.0, "at_most": 1.0}, "half", "x must be >= 0 and <= 1, got 'half'"),
    ],
)
def test_a_number_out_of_bounds_is_refused_with_its_bounds(bounds, value, message):
    with pytest.raises(InputError) as caught:
        stats.check_number(value, "x", **bounds)
    assert str(caught.value) == message


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int64(1), np.array(1.0)])
def test_a_number_of_any_type_becomes_a_float(value):
    number = stats.check_number(value, "x", at_least=0.0, at_most=1.0)
    assert number == 1.0
    assert type(number) is float


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (-5, "-5"),
        (-(10**12), "-1000000000000"),
        (10**12 + 1, "1.000e+12"),
        (10**400, "1.000e+400"),
        (10**400 - 1, "9.999e+399"),
        (123456 * 10**5000, "1.234e+5005"),
        (-(2**20_000), "-3.980e+6020"),
    ],
    ids=lambda value: value if isinstance(value, str) else "value",
)
def test_whole_numbers_of_any_size_are_refused_in_few_characters(value, shown):
    with pytest.raises(InputError, match="x must be a whole number >= 1") as caught:
        stats.check_count(value, "x")
    assert str(caught.value).endswith(f", got {shown}")
