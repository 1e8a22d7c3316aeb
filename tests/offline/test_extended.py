"""TD3+BC with `RiskRange` and `OfReturn`: known answers, rewards row by row, resume, refusals."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mvpi
from mvpi import InputError, MeanVariance, OfReturn, RiskRange, offline
from mvpi.agents.td3 import TD3
from mvpi.cli import main
from mvpi.envs import Markowitz
from mvpi.offline import CoverageWarning, Dataset
from mvpi.offline._episodes import with_returns
from mvpi.offline._extended_dual import POINTS, ExtendedDuals
from mvpi.offline.settings import TD3BCSettings
from mvpi.offline.td3_bc import TD3BC
from mvpi.offline.training import learn_in
from mvpi.risk import Risk

TINY: dict[str, Any] = {
    "hidden": (8, 8),
    "batch_size": 16,
    "ratio_every": 20,
    "ratio_steps": 5,
}
MEASURES = [RiskRange(0.5, 2.0), OfReturn(1.0), OfReturn(mvpi.CVaR(0.3)), OfReturn(RiskRange(0, 2))]

pytestmark = pytest.mark.filterwarnings("ignore::mvpi.offline.CoverageWarning")


def portfolio(rows: int = 400, steps: int = 5, mean: tuple[float, float] = (0.4, 0.2)) -> Dataset:
    """Random portfolios, in episodes that a time limit cuts."""
    problem, rng = Markowitz(mean=mean), np.random.default_rng(0)
    a = rng.uniform(-1.0, 1.0, (rows, 2))
    returns = rng.multivariate_normal(problem.mean, problem.covariance, rows)
    s, over = np.ones((rows, 1)), np.zeros(rows, bool)
    cut = np.arange(rows) % steps == steps - 1
    return Dataset(s, a, (a * returns).sum(axis=1), s, over, s[:1], truncations=cut)


def learner(risk: Risk, **changes: Any) -> TD3BC:
    return TD3BC(portfolio(), risk, 0.5, settings=TD3BCSettings(**{**TINY, **changes}))


# Episodes.


def test_returns_are_counted_in_every_episode() -> None:
    data = portfolio(23)
    found = with_returns(data)
    so_far = found.data.observations[:, -1]
    for i in range(23):
        first = i - i % 5
        assert so_far[i] == pytest.approx(data.rewards[first:i].sum(), abs=1e-12)
    np.testing.assert_allclose(found.returns, data.rewards[:20].reshape(4, 5).sum(axis=1))
    np.testing.assert_array_equal(found.last, [4, 9, 14, 19])  # the last episode has no end
    np.testing.assert_array_equal(found.data.terminations, data.truncations)
    np.testing.assert_array_equal(found.data.starts, [[1.0, 0.0]])


def walk(ends: list[int], rows: int = 12) -> dict[str, Any]:
    """Rows that count steps of episodes; the numbers of a new episode begin at 0."""
    s, now = np.zeros((rows, 1)), 0
    over = np.isin(np.arange(rows), ends)
    for i in range(rows):
        s[i], now = now, 0 if over[i] else now + 1
    return {
        "observations": s,
        "actions": np.ones((rows, 1)),
        "rewards": np.arange(rows, dtype=float),
        "next_observations": s + 1.0,
        "terminations": np.zeros(rows, bool),
        "starts": np.zeros((1, 1)),
    }


def test_without_truncations_an_episode_ends_where_the_next_row_begins_elsewhere() -> None:
    rows = walk([3, 7, 11])
    plain = with_returns(Dataset(**rows))
    cut = np.isin(np.arange(12), [3, 7, 11])
    told = with_returns(Dataset(**rows, truncations=cut))
    np.testing.assert_array_equal(plain.returns, [6.0, 22.0])  # whether the last one ended: unknown
    np.testing.assert_array_equal(told.returns, [6.0, 22.0, 38.0])
    np.testing.assert_array_equal(plain.data.observations, told.data.observations)


def test_rows_before_the_first_start_are_left_out() -> None:
    rows = {name: x[2:] if len(x) > 1 else x for name, x in walk([3, 7, 11]).items()}
    found = with_returns(Dataset(**rows))
    assert len(found.data) == 8
    np.testing.assert_array_equal(found.returns, [22.0])


def test_what_is_not_in_order_is_refused() -> None:
    rows = walk([3, 7, 11])
    order = np.random.default_rng(0).permutation(12)
    mixed = {name: x[order] if len(x) > 1 else x for name, x in rows.items()}
    with pytest.raises(InputError, match=r"rows in order|episodes in order"):
        with_returns(Dataset(**mixed))
    with pytest.raises(InputError, match="row 4 does not begin where the one before led to"):
        with_returns(Dataset(**rows, truncations=np.zeros(12, bool)))
    with pytest.raises(InputError, match="none in the data begins at a start and ends"):
        with_returns(Dataset(**walk([])))


def test_truncations_are_kept_in_files_and_checked(tmp_path: Path) -> None:
    portfolio(10).save(tmp_path / "data.npz")
    again = Dataset.load(tmp_path / "data.npz")
    np.testing.assert_array_equal(again.truncations, portfolio(10).truncations)
    with pytest.raises(InputError, match=r"truncations must be \(N,\) booleans"):
        Dataset(**walk([3]), truncations=np.zeros(12))
    with pytest.raises(InputError, match="truncations must have a row per observation"):
        Dataset(**walk([3]), truncations=np.zeros(5, bool))


# What the update sees.


@pytest.mark.parametrize("risk", MEASURES, ids=str)
def test_rewards_are_augmented_with_the_columns_that_networks_see(risk: Risk) -> None:
    one = learner(risk)
    assert isinstance(one.ratio, ExtendedDuals)
    one.ratio.values = 0.1 * np.linspace(1.0, 0.5, len(one.ratio.values))
    drawn: list[Any] = []
    batch_of = one.data.batch
    one.data.batch = lambda rows: drawn.append(rows) or batch_of(rows)  # type: ignore[method-assign]
    batch = one._draw(4)
    rows, known = batch_of(drawn[0]), mvpi.risk.range_of(risk)
    raw = one.columns.decode(np.asarray(batch.s)[..., 1:])
    following = one.columns.decode(np.asarray(batch.next_s)[..., 1:])
    values = one.columns.named(raw)
    for i in np.ndindex(rows.rewards.shape):
        r, y, inner = rows.rewards[i], one.ratio.values[0], risk
        if known is not None:
            lam = float(values["risk_aversion"][i])
            grid = known.coordinate(one.ratio.risk_aversions)
            y = np.interp(known.coordinate(lam), grid, one.ratio.values)
            inner = MeanVariance(lam)
            assert following[(*i, 0)] == pytest.approx(lam, rel=1e-4, abs=1e-4)
        if risk.of_return:
            so_far = float(values["return_so_far"][i])
            assert so_far == pytest.approx(rows.observations[(*i, -1)], rel=1e-4, abs=1e-4)
            assert following[(*i, -1)] == pytest.approx(so_far + r, rel=1e-4, abs=1e-4)
            y = y - so_far
        assert batch.r[i] == pytest.approx(float(inner.augment(r, y)), rel=1e-3, abs=1e-4)
    if known is not None:
        assert len(np.unique(raw[..., 0])) > 40  # fresh for every transition
    np.testing.assert_array_equal(batch.continues, ~rows.terminations)


# Known answers.


@pytest.mark.slow
def test_one_run_comes_near_the_best_portfolio_at_every_risk_aversion() -> None:
    problem, known = Markowitz(mean=(0.4, 0.2)), RiskRange(1.0, 4.0)
    agent = offline.learn(
        portfolio(20_000),
        known,
        0.0,
        updates=12_000,
        alpha=20.0,
        hidden=(64, 64),
        batch_size=1_024,
        learning_rate=1e-3,
        ratio_every=3_000,
        ratio_steps=600,
        ratio_learning_rate=1e-3,
        low=-1.0,
        high=1.0,
    )
    frontier = agent.frontier()
    for lam, mean, (low, high) in zip(
        frontier.risk_aversions, frontier.means, frontier.mean_intervals, strict=True
    ):
        action = agent.at(lam).predict([1.0])
        best = problem.value(problem.best_action(lam), lam)
        assert problem.value(action, lam) > 0.8 * best  # as for a single risk aversion
        assert mean == pytest.approx(problem.value(action, 0.0), rel=0.1)
        assert low <= mean <= high
    budget = agent.with_variance_at_most(0.05).predict([1.0])
    assert budget @ problem.covariance @ budget == pytest.approx(0.05, rel=0.35)


def test_y_of_returns_is_that_of_a_known_policy() -> None:
    """A constant portfolio for five steps: Gaussian returns of known mean and variance."""
    problem, action = Markowitz(mean=(0.4, 0.2)), np.array([0.3, 0.4])
    found = with_returns(portfolio(20_000))
    from mvpi.offline._extended_dual import ReturnDuals

    duals = ReturnDuals(found, 0.9, learning_rate=1e-3, seed=0)
    duals.update(lambda s: np.tile(action, (len(s), 1)), 500)
    mean, deviation = 5 * action @ problem.mean, np.sqrt(5 * action @ problem.covariance @ action)
    by_mean = duals.estimate(OfReturn(1.0), variance_too=True)
    assert by_mean.y == pytest.approx(mean, rel=0.1)
    assert by_mean.interval[0] < mean < by_mean.interval[1]
    assert by_mean.rows == 4_000
    quantile = duals.estimate(OfReturn(mvpi.CVaR(0.3))).y
    assert quantile == pytest.approx(mean - 0.5244 * deviation, abs=0.2)


# Agents and files.


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("risk", MEASURES, ids=str)
def test_what_comes_out_is_an_agent_that_is_saved_and_loaded(risk: Risk, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    agent = offline.learn(portfolio(), risk, 0.5, updates=40, on_row=rows.append, **TINY)
    assert isinstance(agent, TD3)
    given = {"return_so_far": 0.3} if risk.of_return else {}
    known = mvpi.risk.range_of(risk)
    assert np.isfinite([x for row in rows for x in row.values() if x is not None]).all()
    agent.save(tmp_path / "whole.safetensors")
    again = mvpi.load(tmp_path / "whole.safetensors")
    if known is not None:
        with pytest.raises(InputError, match="choose one with"):
            agent.predict([1.0], **given)
        frontier, stored = agent.frontier(), again.frontier()
        assert len(frontier.means) == POINTS
        assert (np.diff(frontier.means) <= 0).all()
        assert (np.diff(frontier.variances) <= 0).all()
        np.testing.assert_array_equal(frontier.mean_intervals, stored.mean_intervals)
        with pytest.raises(InputError, match="must be in the range of training"):
            agent.at(3.0)
        agent, again = agent.at(1.0), again.at(1.0)
    action = agent.predict([1.0], **given)
    np.testing.assert_array_equal(action, again.predict([1.0], **given))
    agent.save(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(
        action, mvpi.load(tmp_path / "policy.safetensors").predict([1.0], **given)
    )
    assert mvpi.evaluate(agent, lambda: Markowitz(horizon=5), episodes=3).returns.shape == (3,)


def test_a_range_of_one_value_is_the_plain_one(tmp_path: Path) -> None:
    plain = offline.learn(portfolio(), 1.5, 0.5, updates=40, **TINY)
    one = offline.learn(portfolio(), RiskRange(1.5, 1.5), 0.5, updates=40, **TINY)
    for ours, theirs in zip(plain.parameters, one.at(1.5).policy.parameters, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert one.frontier().risk_aversions.tolist() == [1.5]
    for name, risk in (("plain", MeanVariance(1.5)), ("range", RiskRange(1.5, 1.5))):
        learn_in(tmp_path / name, learner(risk), 40)
    for file in ("config.json", "metrics.csv", "policy.safetensors", "checkpoint.safetensors"):
        assert (tmp_path / "plain" / file).read_bytes() == (tmp_path / "range" / file).read_bytes()


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize(
    "risk", [pytest.param(MEASURES[0], marks=pytest.mark.slow), *MEASURES[1:]], ids=str
)
def test_resumed_runs_end_with_the_same_bytes(risk: Risk, tmp_path: Path) -> None:
    learn_in(tmp_path / "whole", learner(risk), 60)

    def die(row: dict[str, Any]) -> None:
        if row["updates"] == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn_in(tmp_path / "cut", learner(risk), 60, die)
    learn_in(tmp_path / "cut", learner(risk), 60)
    learn_in(tmp_path / "cut", learner(risk), 60)  # nothing left to do: nothing changes
    for file in ("config.json", "metrics.csv", "policy.safetensors", "checkpoint.safetensors"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "cut" / file).read_bytes()


def test_contradictions_are_refused() -> None:
    with pytest.raises(InputError, match=r"y differs along RiskRange.*must be left out"):
        offline.learn(portfolio(), RiskRange(0, 1), 0.5, y=0.1, updates=20, **TINY)
    with pytest.raises(InputError, match="ratio_method must be combined"):
        offline.learn(
            portfolio(), RiskRange(0, 1), 0.5, updates=20, ratio_method="gen-dice", **TINY
        )
    given = offline.learn(portfolio(), OfReturn(1.0), 0.5, y=0.3, updates=20, **TINY)
    assert given.predict([1.0], return_so_far=0.0).shape == (2,)


def test_one_warning_for_all_risk_aversions() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        offline.learn(portfolio(60), RiskRange(0.0, 1.0), 0.99, updates=20, **TINY)
    told = [str(w.message) for w in caught if w.category is CoverageWarning]
    assert len(told) <= 1
    assert all(text.startswith("at risk aversion ") for text in told)


# The command line.


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = str(tmp_path / "data.npz"), str(tmp_path / "run")
    portfolio().save(data)
    sizes = "--hidden 8 8 --batch-size 16 --ratio-every 20 --ratio-steps 5 --updates 20"
    small = [*sizes.split(), "--discount", "0.5"]
    main(["offline", "learn", data, "--risk", "range:0.5:2", *small, "--out", out])
    main(["evaluate", out, "--env", "mvpi/Markowitz-v0", "--risk-aversion", "1", "--episodes", "3"])
    assert "objective" in capsys.readouterr().out
    other = str(tmp_path / "return")
    main(["offline", "learn", data, "--risk", "return:1.0", *small, "--out", other])
    main(["evaluate", other, "--env", "mvpi/Markowitz-v0", "--episodes", "3"])
    assert "of the return" in " ".join(capsys.readouterr().out.split())
