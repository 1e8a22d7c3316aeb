"""Finite data with `RiskRange` and `OfReturn`: against `mvpi.optimize` on the MDP they count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mvpi
from mvpi import InputError, OfReturn, RiskRange, offline
from mvpi.cli import main
from mvpi.errors import NoConvergence
from mvpi.offline import Dataset
from mvpi.offline._empirical_mdp import EmpiricalMDP


def coins(seed: int) -> tuple[mvpi.MDP, Dataset]:
    """An MDP in which coins decide, with rewards that are whole numbers, and data that count it."""
    rng = np.random.default_rng(seed)
    p = np.zeros((4, 2, 4))
    for s, a in np.ndindex(4, 2):
        p[s, a, rng.choice(4, 2, replace=False)] = 0.5
    rewards = rng.integers(-2, 3, (4, 2, 4)).astype(float)
    s, a, following = np.nonzero(p)
    columns = (s, a, rewards[s, a, following], following)
    data = Dataset(*columns, np.zeros(len(s), bool), starts=[0])
    return mvpi.MDP(p, rewards, 0.9, start=0), data


@pytest.mark.filterwarnings("ignore::mvpi.offline.CoverageWarning")
@pytest.mark.parametrize("seed", range(3))
def test_a_range_has_the_optimum_at_every_risk_aversion(seed: int) -> None:
    mdp, data = coins(seed)
    found = offline.learn(data, RiskRange(0.0, 2.0), 0.9)
    for lam in (0.0, 0.3, 1.0, 2.0):
        policy = found.at(lam)
        assert policy.shape == (4, 2)
        d = mdp.reward_distribution(mdp.occupancy(policy))
        best = mvpi.optimize(mdp, lam)
        assert mvpi.MeanVariance(lam).value(*d) == pytest.approx(best.value, abs=1e-7)
        alone = offline.learn(data, lam, 0.9)
        one = mdp.reward_distribution(mdp.occupancy(alone))
        assert mvpi.MeanVariance(lam).value(*one) == pytest.approx(best.value, abs=1e-7)
    exact = mvpi.frontier(EmpiricalMDP(data, 0.9).mdp)
    np.testing.assert_allclose(found.frontier().means, exact.means)
    limit = float(exact.variances.mean())
    mixed = mdp.reward_distribution(mdp.occupancy(found.with_variance_at_most(limit)))
    assert mvpi.stats.variance(*mixed) <= limit + 1e-7
    expected = exact.with_variance_at_most(limit).mean
    assert mvpi.stats.mean(*mixed) == pytest.approx(expected, abs=1e-6)
    least = float(exact.means.mean())
    kept = mdp.reward_distribution(mdp.occupancy(found.with_mean_at_least(least)))
    assert mvpi.stats.mean(*kept) >= least - 1e-7
    with pytest.raises(InputError, match="must be in the range of training, 0 to 2, got 3"):
        found.at(3.0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("risk", [0.5, mvpi.CVaR(0.3), mvpi.Entropic(0.4)], ids=str)
@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_the_risk_of_the_return_is_that_of_the_mdp(seed: int, risk: Any, discount: float) -> None:
    mdp, data = coins(seed)
    policy = offline.learn(data, OfReturn(risk), discount, horizon=4)
    best = mvpi.optimize(mdp.with_discount(discount), OfReturn(risk), horizon=4)
    value = mvpi.risk.as_risk(risk).value(policy.returns, policy.probabilities)
    assert value == pytest.approx(best.value, abs=1e-8)
    assert policy(0, time=0, return_so_far=0.0) in (0, 1)


def test_a_range_of_the_return() -> None:
    mdp, data = coins(1)
    found = offline.learn(data, OfReturn(RiskRange(0.0, 1.0)), 0.9, horizon=3)
    for lam in (0.0, 0.4, 1.0):
        policy = found.at(lam)
        best = mvpi.optimize(mdp, OfReturn(lam), horizon=3)
        value = mvpi.MeanVariance(lam).value(policy.returns, policy.probabilities)
        assert value == pytest.approx(best.value, abs=1e-8)


def test_a_return_is_over_at_terminations_and_where_the_data_end() -> None:
    # Action 0 pays 1 and goes on, or ends; action 1 leads to state 1, of which the data have none.
    columns = ([0, 0, 0], [0, 0, 1], [1.0, 1.0, 1.5], [0, 0, 1], [False, True, False])
    data = Dataset(*columns, starts=[0])
    policy = offline.learn(data, OfReturn(0.0), 1.0, horizon=3)
    mean = float(policy.returns @ policy.probabilities)
    # With one, two, three steps to go: 1.5; max(1.5, 1 + 1.5 / 2); 1 + 1.75 / 2.
    assert mean == pytest.approx(1.875)
    assert [policy(0, t, float(t)) for t in range(3)] == [0, 0, 1]


@pytest.mark.filterwarnings("ignore::mvpi.offline.CoverageWarning")
def test_a_range_of_one_value_is_the_plain_one() -> None:
    _, data = coins(2)
    plain = offline.learn(data, 0.7, 0.9)
    np.testing.assert_array_equal(offline.learn(data, RiskRange(0.7, 0.7), 0.9), plain)


def test_contradictions_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, data = coins(0)
    with pytest.raises(InputError, match=r"needs the number of steps.*horizon=20"):
        offline.learn(data, OfReturn(1.0), 0.9)
    with pytest.raises(InputError, match="horizon is for the return"):
        offline.learn(data, 1.0, 0.9, horizon=3)
    with pytest.raises(InputError, match="y is for one risk aversion"):
        offline.learn(data, RiskRange(0, 1), 0.9, y=1.0)
    with pytest.raises(InputError, match="on_iteration is for one risk aversion"):
        offline.learn(data, RiskRange(0, 1), 0.9, on_iteration=print)
    with pytest.raises(NoConvergence, match="more than 1 risk-neutral solves"):
        offline.learn(data, RiskRange(0, 1), 0.9, iterations=1)
    files = [str(tmp_path / "data.npz"), "--out", str(tmp_path / "run")]
    data.save(files[0])
    for risk in ("range:0:2", "return:1.0"):
        with pytest.raises(SystemExit):
            main(["offline", "learn", *files, "--risk", risk])
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        assert "in Python, mvpi.offline.learn takes it" in told
    assert not (tmp_path / "run").exists()
