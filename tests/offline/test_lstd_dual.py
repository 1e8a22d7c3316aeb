"""`y` by several estimators: known answers, the closed form, what is warned of, a given `y`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mvpi import CVaR, Entropic, InputError, MeanVariance, Risk, VarianceBudget
from mvpi._storage.files import read_json
from mvpi._storage.metrics import read_metrics
from mvpi.cli import main
from mvpi.offline import (
    CoverageWarning,
    Dataset,
    PolicyDual,
    density_ratio,
    effective_size,
    learn_finite,
)
from mvpi.offline import policy_dual as estimate_y
from mvpi.offline._lstd_dual import PolicyDuals
from mvpi.offline.settings import TD3BCSettings
from mvpi.offline.td3_bc import TD3BC, learn_continuous
from mvpi.offline.training import learn_finite_in, learn_in
from mvpi.paper.offline import gathered

Array = npt.NDArray[np.float64]
MODULE = sys.modules["mvpi.offline._lstd_dual"]
SMALL: dict[str, Any] = {"hidden": (8, 8), "batch_size": 8, "ratio_every": 20, "ratio_steps": 5}
GAMMA, NOISE = 0.9, 0.3


def linear(rows: int = 4_000, seed: int = 0) -> Dataset:
    """`s' = 0.8 s + a + noise` and reward `-s^2`, with random actions, in episodes of 20 steps."""
    rng = np.random.default_rng(seed)
    episodes = rows // 20
    s = np.empty((21, episodes))
    s[0] = rng.normal(size=episodes)
    a = rng.uniform(-1.0, 1.0, (20, episodes))
    for t in range(20):
        s[t + 1] = 0.8 * s[t] + a[t] + NOISE * rng.normal(size=episodes)
    seen, action, following = (x.T.reshape(-1, 1) for x in (s[:-1], a, s[1:]))
    return Dataset(seen, action, -(seen[:, 0] ** 2), following, np.zeros(rows, bool), s[0][:, None])


def steering(observations: Array) -> Array:
    """The policy `a = -0.5 s`, which makes it `s' = 0.3 s + noise`."""
    return -0.5 * np.asarray(observations)


def steered_mean() -> float:
    """Its mean reward: `E[s_t^2]` is `0.09^t` from 1 towards its limit."""
    limit = NOISE**2 / (1.0 - 0.09)
    return -(limit + (1.0 - limit) * (1.0 - GAMMA) / (1.0 - GAMMA * 0.09))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_interval_holds_a_mean_that_is_known(seed: int) -> None:
    data = linear(seed=seed)
    found = estimate_y(data, steering, GAMMA, 1.0, steps=500, seed=seed)
    assert found.interval[0] <= steered_mean() <= found.interval[1]
    assert found.interval[1] - found.interval[0] < 0.5 * abs(data.rewards.mean() - steered_mean())
    assert found.y == pytest.approx(steered_mean(), abs=0.1)
    assert found.fitted_q_mean == pytest.approx(steered_mean(), abs=0.2)
    assert found.y == np.median(found.estimates) == pytest.approx(found.reward_mean)
    assert 0.0 < found.effective_size < len(data)


def test_the_dual_of_any_risk_is_that_of_the_policy() -> None:
    data = linear()
    rng = np.random.default_rng(1)
    s, rewards, weights = rng.normal(size=20_000), [], []
    for t in range(60):
        rewards.append(-(s**2))
        weights.append(np.full(len(s), GAMMA**t))
        s = 0.3 * s + NOISE * rng.normal(size=len(s))
    estimators = PolicyDuals(data, GAMMA).update(steering, 500)
    for risk in (CVaR(0.2), Entropic(0.1)):
        truth = risk.dual(np.concatenate(rewards), np.concatenate(weights))
        found = estimators.estimate(risk)
        assert found.interval[0] <= truth <= found.interval[1]
        assert found.y == pytest.approx(truth, abs=0.15)  # the data's is -1 or below


def test_with_features_that_tell_all_pairs_apart_the_ratio_is_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    s, a, following = (rng.integers(n, size=400) for n in (5, 2, 5))
    over, starts = rng.random(400) < 0.2, rng.integers(5, size=30)
    rewards, policy = rng.normal(size=400), rng.integers(2, size=5)
    exact = density_ratio(
        Dataset(s, a, rewards, following, over, starts), policy, GAMMA, method="exact"
    )
    monkeypatch.setattr(MODULE, "_RIDGE", 1e-12)
    pairs = (2 * s + a, 2 * following + policy[following], 2 * starts + policy[starts])
    inputs = [np.eye(10)[x] for x in pairs]
    sample = MODULE._Sample(*inputs, ~over, rewards, np.arange(400) // 10)
    np.testing.assert_allclose(
        MODULE._System(lambda x: x[:, :-1], sample, GAMMA).ratio(), exact, atol=1e-6
    )


def test_large_data_are_drawn_from_and_shuffled_rows_are_grouped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, order = linear(), np.random.default_rng(0).permutation(4_000)
    shuffled = Dataset(*data.batch(order), data.starts)
    whole = estimate_y(shuffled, steering, GAMMA, 1.0, steps=300)
    assert whole.interval[0] <= steered_mean() <= whole.interval[1]
    monkeypatch.setattr(MODULE, "_MOST_ROWS", 2_048)
    part = PolicyDuals(data, GAMMA).update(steering, 300)
    found = part.estimate(1.0)
    assert len(part._sample.rewards) == 2_048  # type: ignore[union-attr]
    assert found.interval[0] <= steered_mean() <= found.interval[1]
    assert 500 < found.effective_size <= 4_000


def test_what_the_data_cannot_support_is_not_reported() -> None:
    data = linear(400)
    ordered = np.sort(data.rewards)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        for action in (-50.0, 50.0):
            found = estimate_y(
                data, lambda s, a=action: np.full((len(s), 1), a), 0.99, 1.0, steps=5
            )
            assert ordered[:4].mean() <= found.interval[0] <= found.y <= found.interval[1]
            assert found.interval[1] <= ordered[-4:].mean()


def cancelled(monkeypatch: pytest.MonkeyPatch, names: set[int]) -> list[Array]:
    """Makes the ratios of some of the three estimators degenerate; returns those that are not."""
    solve, kept, asked = MODULE._System._solved, [], []

    def solved(system: Any, times: Array, starts: Array) -> Any:
        if len(times) > 1:  # resamples
            yield from solve(system, times, starts)
            return
        asked.append(system)
        (tau,) = solve(system, times, starts)
        if len(asked) - 1 in names:
            yield np.where(np.arange(len(tau)) % 2, 1.0, -0.99)  # 0.5% of it does not cancel
        else:
            kept.append(tau)
            yield tau

    monkeypatch.setattr(MODULE._System, "_solved", solved)
    return kept


@pytest.mark.parametrize("degenerate", range(3))
def test_a_degenerate_ratio_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch, degenerate: int
) -> None:
    data = linear()
    estimators = PolicyDuals(data, GAMMA).update(steering, 300)
    every = estimators.estimate(1.0)
    kept = cancelled(monkeypatch, {degenerate})
    found = estimators.estimate(1.0)
    others = [i for i in range(3) if i != degenerate]
    assert found.estimates == tuple(every.estimates[i] for i in others)
    assert found.intervals == tuple(every.intervals[i] for i in others)
    sizes = [effective_size(np.maximum(tau, 0.0)) for tau in kept]
    assert found.effective_size == pytest.approx(max(sizes))
    assert found.y == found.estimates[int(np.argmax(sizes))]
    assert found.interval[0] <= found.y <= found.interval[1]


def test_one_ratio_that_is_left_is_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    estimators = PolicyDuals(linear(), GAMMA).update(steering, 300)
    every = estimators.estimate(1.0)
    cancelled(monkeypatch, {0, 2})
    found = estimators.estimate(1.0)
    assert found.estimates == (found.y,) == (every.estimates[1],)


def test_without_a_ratio_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    data = linear(400)
    cancelled(monkeypatch, {0, 1, 2})
    with pytest.warns(CoverageWarning, match=r"400 transitions are worth 0\.0 of") as told:
        found = estimate_y(data, steering, GAMMA, 1.0, steps=5)
    assert len(told) == 1
    assert (found.estimates, found.intervals, found.effective_size) == ((), (), 0.0)
    assert found.y == pytest.approx(data.rewards.mean())
    ordered = np.sort(data.rewards)
    assert found.interval == pytest.approx((ordered[:4].mean(), ordered[-4:].mean()))


def agreeing(*intervals: tuple[float, float]) -> PolicyDual:
    middles = tuple(0.5 * (low + high) for low, high in intervals)
    return PolicyDual(1.5, (0.0, 4.0), middles, intervals, 1.5, 1.5, 1.0, 50.0, 100, True)


def test_disagreement_is_warned_of_in_one_line() -> None:
    agreeing((0.0, 2.0), (1.0, 4.0), (1.5, 1.8)).warn()
    with pytest.warns(
        CoverageWarning, match=r"disagree .* 0\.5, 2, 3\.5: y = 1\.5 .* 0 to 4; give"
    ):
        agreeing((0.0, 1.0), (1.0, 3.0), (3.0, 4.0)).warn()


def test_a_policy_the_data_do_not_show_is_warned_of() -> None:
    rng = np.random.default_rng(0)
    s, a = rng.normal(size=(2, 2_000, 1))
    data = Dataset(s, a, np.abs(a[:, 0]), s, np.ones(2_000, bool), s[:50])
    with pytest.warns(CoverageWarning, match="estimates of y are beyond the best or worst 1%"):
        estimate_y(data, lambda s: np.full((len(s), 1), 9.0), 0.9, 1.0, steps=300)


def test_estimates_are_refused_before_there_is_a_policy_and_on_finite_data() -> None:
    with pytest.raises(InputError, match="call update"):
        PolicyDuals(linear(400), GAMMA).estimate(1.0)
    with pytest.raises(InputError, match="method='exact'"):
        PolicyDuals(gathered(np.random.default_rng(0)), GAMMA)
    with pytest.raises(InputError, match="discount must be < 1"):
        PolicyDuals(linear(400), 1.0)


# In training.


def quiet(data: Dataset, *arguments: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        return learn_continuous(data, *arguments, **options)


def test_rows_say_where_y_lies() -> None:
    rows: list[dict[str, Any]] = []
    quiet(linear(400), 1.0, GAMMA, updates=40, on_row=rows.append, **SMALL)
    assert list(rows[-1]) == [
        *("updates", "y", "risk_aversion", "y_low", "y_high", "fitted_q_mean"),
        *("effective_size", "reward_mean", "reward_variance", "critic_loss", "actor_loss"),
    ]
    for row in rows:
        assert row["y_low"] <= row["y"] <= row["y_high"]
        assert row["y"] == pytest.approx(row["reward_mean"])


@pytest.mark.parametrize("method", ["combined", "gen-dice"])
@pytest.mark.parametrize("risk", [1.0, VarianceBudget(0.5)], ids=str)
def test_a_given_y_stays(method: str, risk: Any) -> None:
    rows: list[dict[str, Any]] = []
    options = {"updates": 60, "ratio_method": method, **SMALL}
    quiet(linear(400), risk, GAMMA, y=-7, on_row=rows.append, **options)
    assert [row["y"] for row in rows] == [-7.0] * 3
    assert rows[-1]["reward_mean"] > -5.0
    with pytest.raises(InputError, match="y must be"):
        quiet(linear(400), 1.0, GAMMA, y=float("nan"), **options)


def learner(y: float | None = None, **changes: Any) -> TD3BC:
    return TD3BC(linear(400), 1.0, GAMMA, y=y, settings=TD3BCSettings(**{**SMALL, **changes}))


@pytest.mark.filterwarnings("ignore::mvpi.offline.CoverageWarning")
def test_runs_of_one_ratio_are_as_before_and_others_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "old"
    learn_in(out, learner(ratio_method="gen-dice"), 20)
    config = read_json(out / "config.json")
    assert "y" not in config
    assert "y" not in config["settings"]
    assert list(read_metrics(out)[0]) == [
        *("updates", "y", "risk_aversion", "effective_size", "reward_mean", "reward_variance"),
        *("critic_loss", "actor_loss"),
    ]
    with pytest.raises(InputError, match="ratio_method is 'gen-dice' there and 'combined' here"):
        learn_in(out, learner(), 40)
    learn_in(out, learner(ratio_method="gen-dice"), 40)
    assert len(read_metrics(out)) == 2
    with pytest.raises(InputError, match=r"y is not given there and -2\.0 here"):
        learn_in(out, learner(y=-2.0, ratio_method="gen-dice"), 40)


@pytest.mark.filterwarnings("ignore::mvpi.offline.CoverageWarning")
def test_a_given_y_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    learn_in(tmp_path / "whole", learner(-2.0), 60)
    learn_in(tmp_path / "parts", learner(-2.0), 20)
    learn_in(tmp_path / "parts", learner(-2.0), 60)
    for name in ("config.json", "metrics.csv", "policy.safetensors", "checkpoint.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    with pytest.raises(InputError, match=r"y is -2\.0 there and not given here"):
        learn_in(tmp_path / "whole", learner(), 60)


# Finite data.


@pytest.mark.parametrize("risk", [MeanVariance(4.0), CVaR(0.2), Entropic(2.0)])
@pytest.mark.parametrize("y", [-0.8, 0.3])
def test_a_given_y_is_the_risk_neutral_problem_of_augmented_rewards(risk: Risk, y: float) -> None:
    data = gathered(np.random.default_rng(0))
    names = ("observations", "actions", "rewards", "next_observations", "terminations", "starts")
    columns = {name: getattr(data, name) for name in names}
    columns["rewards"] = risk.augment(data.rewards, y)
    expected = learn_finite(Dataset(**columns), 0.0, 0.7)
    np.testing.assert_allclose(learn_finite(data, risk, 0.7, y=y), expected, atol=1e-3)


def test_a_given_y_on_the_command_line(tmp_path: Path) -> None:
    data = gathered(np.random.default_rng(0))
    data.save(tmp_path / "data.npz")
    out = tmp_path / "run"
    command = ["offline", "learn", str(tmp_path / "data.npz"), "--discount", "0.7"]
    main([*command, "--out", str(out), "--y", "-0.5", "--json"])
    assert read_metrics(out)[-1]["y"] == -0.5
    assert read_json(out / "config.json")["y"] == -0.5
    with pytest.raises(InputError, match=r"y is -0\.5 there and not given here"):
        learn_finite_in(out, data, MeanVariance(1.0), 0.7)
    with pytest.raises(InputError, match=r"y must be left out, got 0\.5"):
        learn_finite_in(tmp_path / "other", data, VarianceBudget(0.3), 0.7, y=0.5)
    assert not (tmp_path / "other").exists()
