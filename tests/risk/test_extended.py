"""RiskRange and OfReturn by themselves: known answers, and two routes to one number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mvpi
from mvpi import CVaR, Entropic, InputError, MeanVariance, VarianceBudget
from mvpi.augmenter.columns import Columns
from mvpi.augmenter.dual_estimates import FEWEST_EPISODES, ExtendedDual
from mvpi.augmenter.monotone_regression import monotone_fit
from mvpi.risk import RETURN_SO_FAR, RISK_AVERSION, Risk, parse_risk, risk_text
from mvpi.risk.extended import BEYOND, OfReturn, RiskRange, at, range_of

MEASURES = [MeanVariance(0.7), CVaR(0.2), CVaR(0.3, 0.5), Entropic(0.8), VarianceBudget(1.0, 0.4)]


@pytest.mark.parametrize("inner", MEASURES, ids=str)
def test_augmented_rewards_of_an_episode_sum_to_the_augmented_return(inner: Risk) -> None:
    r = np.random.default_rng(0).normal(size=20)
    before = np.cumsum(r) - r
    y = 0.37
    steps = OfReturn(inner).augment_extended(r, y, {RETURN_SO_FAR: before})
    total = inner.utility(r.sum() - y) - inner.utility(-y)
    assert steps.sum() == pytest.approx(float(total), abs=1e-10)


def test_the_augmented_reward_of_mean_variance_is_that_of_the_design() -> None:
    r, g, lam, y = np.array([1.0, -2.0]), np.array([0.5, 3.0]), 0.25, 2.0
    steps = OfReturn(lam).augment_extended(r, y, {RETURN_SO_FAR: g})
    assert np.allclose(steps, r - lam * r**2 + 2 * lam * r * (y - g))


@pytest.mark.parametrize("low", [0.0, 0.1])
def test_a_range_augments_like_each_of_its_measures(low: float) -> None:
    rng = np.random.default_rng(1)
    known = RiskRange(low, 2.0)
    lam, r, y = known.draw(rng, 50), rng.normal(size=50), rng.normal(size=50)
    together = known.augment_extended(r, y, {RISK_AVERSION: lam})
    apart = [float(MeanVariance(x).augment(a, b)) for x, a, b in zip(lam, r, y, strict=True)]
    assert np.allclose(together, apart, rtol=1e-13)


@given(st.floats(0.0, 10.0), st.floats(0.1, 10.0), st.floats(0.0, 1.0))
def test_coordinates_of_a_range_can_be_turned_back(low: float, width: float, share: float) -> None:
    known = RiskRange(low, low + width)
    lam = low + share * width
    x = known.coordinate(lam) if lam > 0 or low == 0 else known.coordinate(low)
    assert -1.0 - 1e-9 <= x <= 1.0 + 1e-9
    assert known.from_coordinate(x) == pytest.approx(lam, rel=1e-9, abs=1e-9)


def test_draws_go_a_little_beyond_both_ends_and_never_below_0() -> None:
    known = RiskRange(0.5, 5.0)
    places = np.sort(known.coordinate(known.draw(np.random.default_rng(0), 100_000)))
    nodes = BEYOND * np.sin(np.linspace(-0.5 * np.pi, 0.5 * np.pi, places.size))
    assert np.abs(places - nodes).max() < 0.02
    from_zero = RiskRange(0.0, 5.0).draw(np.random.default_rng(0), 100_000)
    assert from_zero.min() == 0.0
    assert np.mean(from_zero == 0.0) == pytest.approx(0.5 - np.asin(1.0 / BEYOND) / np.pi, abs=0.01)
    assert 5.0 < from_zero.max() <= 2.5 * (1.0 + BEYOND)


@pytest.mark.parametrize("known", [RiskRange(0.0, 2.0), RiskRange(0.5, 5.0)], ids=str)
def test_the_balance_depends_on_the_risk_aversion_alone(known: RiskRange) -> None:
    """1 in the middle, positive everywhere, and the same whatever the unit of the reward."""
    lam = known.draw(np.random.default_rng(0), 1_000)
    assert (known.balance(lam) > 0.0).all()
    assert known.balance(known.from_coordinate(0.0)) == pytest.approx(1.0)
    cents = RiskRange(known.low / 100.0, known.high / 100.0)
    assert np.allclose(cents.balance(lam / 100.0), known.balance(lam))
    columns = Columns(known)
    assert np.array_equal(columns.balance(lam[:, None]), known.balance(lam))
    assert Columns(OfReturn(1.0)).balance(np.zeros((3, 1))) == 1.0


def test_sums_by_bin_follow_a_window_that_is_full() -> None:
    """Against a regression of the samples that are left."""
    known, rng = RiskRange(0.0, 2.0), np.random.default_rng(7)
    dual = ExtendedDual(known, window=20)
    for size in (3, 150, 90, 1, 700, 11):
        lam = known.draw(rng, size)
        dual.observe(rng.normal(size=size) - lam, lam[:, None], np.zeros(size, bool))
    values, coordinates = dual.samples()
    grid = known.grid(9)
    fit = monotone_fit(coordinates, values)
    assert np.allclose(dual.y_at(grid), fit(known.coordinate(grid)), atol=1e-10)


def test_texts() -> None:
    for text in ("range:0.0:1.5", "return:0.5", "return:cvar:0.1:1.0", "return:range:0.1:1.0"):
        assert risk_text(parse_risk(text)) == text
    assert parse_risk("return:cvar:0.1") == OfReturn(CVaR(0.1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("range:2:1", "high must be >= low, got the range 2 to 1"),
        ("range:-1:1", "low must be >= 0, got -1.0"),
        ("range:0:inf", "high must be .* got inf"),
        ("range:1", "risk must be"),
        ("return:", "risk must be"),
        ("return:return:1", "of the return already"),
        ("return:cvar:2", "level must be"),
    ],
)
def test_texts_that_are_no_measure(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_risk(text)


def test_a_range_is_not_one_measure() -> None:
    known = RiskRange(0.0, 1.0)
    for use in (known.utility, known.dual, known.value):
        with pytest.raises(InputError, match="stands for many measures"):
            use([1.0])
    with pytest.raises(InputError, match="in the range of training, 0 to 1, got 2"):
        known.at(2.0)
    with pytest.raises(InputError, match="no range of risk aversions"):
        at(MeanVariance(1.0), 1.0)
    assert at(OfReturn(known), 0.5) == OfReturn(0.5)
    assert range_of(OfReturn(known)) == known
    assert RiskRange(1.0, 1.0).learnable() == MeanVariance(1.0)


def test_columns_follow_an_episode() -> None:
    columns = Columns(OfReturn(RiskRange(0.1, 1.0)), return_scale=10.0)
    rng = np.random.default_rng(0)
    raw = columns.begin(rng, 3)
    lam = raw[:, 0].copy()
    for _ in range(5):
        raw = columns.step(raw, [1.0, 2.0, -3.0])
    assert np.array_equal(raw[:, 0], lam)
    assert np.allclose(raw[:, 1], [5.0, 10.0, -15.0])
    assert np.allclose(columns.decode(columns.encode(raw)), raw, rtol=1e-6)
    following = columns.step(raw, 1.0)
    columns.redraw(rng, raw, following)
    assert np.array_equal(raw[:, 0], following[:, 0])
    assert (raw[:, 0] != lam).tolist() == [True, False, True]
    columns.redraw(rng, raw, every=1)
    assert (raw[:, 0] != lam).all()


def test_a_plain_measure_has_no_columns_and_draws_nothing() -> None:
    columns, rng = Columns(MeanVariance(1.0)), np.random.default_rng(0)
    before = rng.bit_generator.state
    raw = columns.begin(rng, 4)
    columns.redraw(rng, raw)
    assert raw.shape == (4, 0)
    assert columns.step(raw, [1.0] * 4) is raw
    assert rng.bit_generator.state == before


def test_the_fit_is_the_isotonic_regression() -> None:
    """Against scipy's, weighted by the numbers in the bins."""
    from scipy.optimize import isotonic_regression

    rng = np.random.default_rng(2)
    x = rng.uniform(-1.0, 1.0, 400)
    values = -x + rng.normal(size=400)
    fit = monotone_fit(x, values)
    places = np.floor((x + 1.0) * 10).astype(int)
    counts = np.bincount(places, minlength=20)
    means = np.bincount(places, values, minlength=20) / counts
    other = isotonic_regression(means, weights=counts, increasing=False).x
    assert np.allclose(fit.values, other)
    assert fit(-5.0) == fit.values[0]
    assert fit(5.0) == fit.values[-1]


def test_y_of_a_range_is_the_mean_at_every_risk_aversion() -> None:
    known, rng = RiskRange(0.5, 5.0), np.random.default_rng(3)
    dual = ExtendedDual(known, window=10_000)
    for _ in range(160):  # the last quarter is in use
        lam = known.draw(rng, 1_000)
        dual.observe(1.0 / lam + 0.3 * rng.normal(size=1_000), lam[:, None], np.zeros(1_000, bool))
    grid = known.grid(9)
    assert np.allclose(dual.y_at(grid), 1.0 / grid, rtol=0.06)
    lam, values, errors = dual.errors()
    assert np.mean(np.abs(values - 1.0 / lam) < 3.0 * errors + 0.03 / lam) > 0.9


def test_y_of_a_range_is_that_of_the_last_quarter() -> None:
    """Between `window` and ten times as many samples."""
    known, rng = RiskRange(0.0, 2.0), np.random.default_rng(8)
    dual = ExtendedDual(known, window=100)
    held = []
    for _ in range(70):
        lam = known.draw(rng, 90)
        dual.observe(np.full(90, 1.0 + len(held)), lam[:, None], np.zeros(90, bool))
        held.append(dual.samples()[0].size)
    seen = 90 * (1 + np.arange(70))
    assert held == np.clip(seen // 4, np.minimum(seen, 100), 1_000).tolist()
    grid = known.grid(9)
    fit = monotone_fit(*reversed(dual.samples()))
    assert np.allclose(dual.y_at(grid), fit(known.coordinate(grid)), atol=1e-9)
    assert dual.y_at(grid).min() > 58.0  # the last 1,000 samples are from the last 12 rounds


def test_y_of_the_return_is_its_dual() -> None:
    rng = np.random.default_rng(4)
    dual = ExtendedDual(OfReturn(CVaR(0.25)), window=1_000)
    r = rng.normal(size=(400, 5))
    before = np.cumsum(r, axis=1) - r
    done = np.tile([False] * 4 + [True], 400)
    dual.observe(r.ravel(), before.reshape(-1, 1), done)
    recent = r.sum(axis=1)[-200:]  # those that ended in the last 1,000 steps
    assert dual.y(np.zeros((1, 1)))[0] == CVaR(0.25).dual(recent)


def test_y_is_measured_on_a_hundred_episodes_at_least() -> None:
    dual = ExtendedDual(OfReturn(1.0), window=10)
    returns = np.arange(150.0)
    dual.observe(returns, np.zeros((150, 1)), np.ones(150, bool))
    assert dual.y(np.zeros((1, 1)))[0] == returns[-FEWEST_EPISODES:].mean()


@pytest.mark.parametrize(
    "risk", [RiskRange(0.1, 1.0), OfReturn(1.0), OfReturn(RiskRange(0.0, 2.0))]
)
def test_a_restored_dual_goes_on_as_it_would_have(risk: Risk) -> None:
    rng, columns = np.random.default_rng(5), Columns(risk)

    def some(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return rng.normal(size=count), columns.begin(rng, count), rng.random(count) < 0.3

    dual = ExtendedDual(risk, window=50)
    for size in (7, 300, 1, 80):
        dual.observe(*some(size))
    other = ExtendedDual(risk, window=50)
    other.restore(dual.arrays())
    more = some(33)
    places = columns.begin(rng, 20)
    for one in (dual, other):
        one.observe(*more)
    assert np.array_equal(dual.y(places), other.y(places))


def test_nothing_seen_is_said() -> None:
    with pytest.raises(InputError, match="none has ended yet"):
        ExtendedDual(OfReturn(1.0), 10).y(np.zeros((1, 1)))
    assert mvpi.MeanVariance(1.0).columns == ()


@pytest.mark.parametrize(
    "risk", [RiskRange(0.1, 1.0), OfReturn(1.0), OfReturn(RiskRange(0.0, 2.0))], ids=str
)
def test_what_has_no_place_for_columns_refuses_the_measure(risk: Risk) -> None:
    from mvpi.envs import Markowitz

    uses = (
        lambda: mvpi.augment([1.0, 2.0], risk),
        lambda: mvpi.TD3(Markowitz, risk, occupancy="discounted"),
        lambda: mvpi.PPO(Markowitz, risk, occupancy="discounted"),
    )
    for use in uses:
        with pytest.raises(InputError, match="is for measures of the per-step reward"):
            use()
