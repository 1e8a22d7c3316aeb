"""A measure defined here, of one utility and one dual, wherever a risk is accepted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import mvpi
from mvpi import offline, stats
from mvpi.envs import Markowitz
from mvpi.errors import InputError
from mvpi.report.grouping import agent_name
from mvpi.risk import Risk, forms, parse_risk, risk_text


@dataclass(frozen=True)
class TwoSlopes(Risk):
    """Slope `share` for gains and `2 - share` for losses.

    That is the slope of `CVaR(1/2, weight=1 - share)`: two routes to one number.
    """

    share: float
    name = "two-sided"

    def utility(self, t: npt.ArrayLike) -> np.ndarray:
        t = np.asarray(t, dtype=float)
        return np.where(t > 0, self.share * t, (2.0 - self.share) * t)

    def dual(self, rewards: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float:
        return stats.quantile(rewards, 0.5, weights)


RISK, SAME = TwoSlopes(0.4), mvpi.CVaR(0.5, 0.6)


def test_it_is_a_cvar_with_a_mean() -> None:
    rewards = np.random.default_rng(0).normal(size=50)
    assert RISK.value(rewards) == pytest.approx(SAME.value(rewards))
    np.testing.assert_allclose(RISK.augment(rewards, 0.2), SAME.augment(rewards, 0.2))


def test_its_text_is_known_from_its_name() -> None:
    assert risk_text(RISK) == "two-sided:0.4"
    assert parse_risk("two-sided:0.4") == RISK
    assert "two-sided:SHARE" in forms()
    with pytest.raises(InputError, match=r"two-sided:SHARE.*, got 'two-sided:x'"):
        parse_risk("two-sided:x")
    assert agent_name("td3", "two-sided:0.4") == "MVPI-TD3, two-sided:0.4"


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_finite_mdps(discount: float) -> None:
    rng = np.random.default_rng(3)
    mdp = mvpi.MDP(rng.dirichlet(np.ones(5), size=(5, 3)), rng.normal(size=(5, 3, 5)), discount)
    ours, known = mvpi.optimize(mdp, RISK), mvpi.optimize(mdp, SAME)
    assert ours.converged
    assert ours.value == pytest.approx(known.value, abs=1e-7)
    local = mvpi.policy_iteration(mdp, RISK)
    assert local.value == pytest.approx(mvpi.policy_iteration(mdp, SAME).value)
    assert local.value <= ours.upper_bound + 1e-9


def test_a_portfolio_of_gaussian_rewards() -> None:
    env = Markowitz()
    np.testing.assert_allclose(env.best_action(RISK), env.best_action(SAME), atol=1e-4)
    assert env.value([0.7, -0.2], RISK) == pytest.approx(env.value([0.7, -0.2], SAME), abs=1e-6)


def test_augmenter() -> None:
    augmenter, known = mvpi.Augmenter(RISK), mvpi.Augmenter(SAME)
    for one in (augmenter, known):
        one.observe(np.random.default_rng(1).normal(size=2_000))
    np.testing.assert_allclose(augmenter.augment([1.0, -1.0]), known.augment([1.0, -1.0]))
    assert augmenter.metrics() == pytest.approx(known.metrics())
    np.testing.assert_allclose(mvpi.augment([1.0, 3.0], RISK), mvpi.augment([1.0, 3.0], SAME))


@pytest.mark.parametrize("algorithm", ["TD3", "PPO"])
def test_agents_learn_save_and_load(algorithm: str, tmp_path: Path) -> None:
    small = {"n_steps": 64} if algorithm == "PPO" else {"learning_starts": 20, "batch_size": 8}
    agents = []
    for risk in (RISK, SAME):
        agent = getattr(mvpi, algorithm)("mvpi/Markowitz-v0", risk, hidden=(8, 8), **small)
        agent.learn(130)
        agents.append(agent)
    actions = [agent.predict(np.ones(1)) for agent in agents]
    np.testing.assert_allclose(*actions, atol=1e-4)
    agents[0].save(tmp_path / "own.safetensors")
    loaded = mvpi.load(tmp_path / "own.safetensors")
    assert loaded.risk == RISK
    np.testing.assert_array_equal(loaded.predict(np.ones(1)), actions[0])


def test_a_run_directory_resumes(tmp_path: Path) -> None:
    settings = {"hidden": (8, 8), "learning_starts": 20, "batch_size": 8}
    whole = mvpi.TD3("mvpi/Markowitz-v0", RISK, **settings)
    whole.learn(120, out=tmp_path / "whole")
    for steps in (60, 120):
        part = mvpi.TD3("mvpi/Markowitz-v0", RISK, **settings)
        part.learn(steps, out=tmp_path / "parts")
    assert part.risk == RISK
    np.testing.assert_array_equal(part.predict(np.ones(1)), whole.predict(np.ones(1)))


def test_sb3() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    from mvpi.sb3 import augmenter_of, risk_averse

    made = {"learning_starts": 10, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}, "seed": 0}
    actions = []
    for risk in (RISK, SAME):
        model = risk_averse(sb3.SAC, "MlpPolicy", Markowitz(), risk=risk, **made).learn(40)
        assert augmenter_of(model).risk == risk
        actions.append(model.predict(np.ones(1), deterministic=True)[0])
    np.testing.assert_allclose(*actions, atol=1e-4)


def test_offline_finite() -> None:
    rng = np.random.default_rng(0)
    states, actions = rng.integers(3, size=400), rng.integers(2, size=400)
    rewards = np.where(actions == 0, rng.choice([-3.0, 4.0], size=400), 0.2)
    columns = states, actions, rewards, rng.integers(3, size=400)
    data = offline.Dataset(*columns, terminations=np.zeros(400, bool), starts=[0])
    ours, known = (offline.learn(data, risk, 0.9) for risk in (RISK, SAME))
    np.testing.assert_allclose(ours, known, atol=1e-6)


def test_its_defaults() -> None:
    assert RISK.learnable() is RISK
    assert RISK.repriced(1.0, 0.1) is RISK
    assert RISK.with_price(3.0) is RISK
    assert (RISK.price, RISK.variance_limit, RISK.needs_price) == (None, None, False)
    assert RISK.utility_floor == -math.inf
    assert not RISK.is_neutral
    assert RISK.label == "two-sided:0.4"


@pytest.mark.parametrize("name", ["Two", "two:sided", "1e3", "nan", "inf", "a b", 3, "cvar"])
def test_a_name_that_no_text_could_have_or_that_is_taken_is_refused(name: object) -> None:
    with pytest.raises(InputError, match="name") as caught:
        type("Odd", (TwoSlopes,), {"name": name})
    assert "\n" not in str(caught.value)
    assert isinstance(parse_risk("cvar:0.1"), mvpi.CVaR)


def test_a_measure_without_a_name_is_written_as_its_repr() -> None:
    class Plain(TwoSlopes):
        name = ""

    assert risk_text(Plain(0.4)).endswith("Plain(share=0.4)")
