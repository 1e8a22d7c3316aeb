"""Environments: what Gymnasium asks of them, and the answers that are known."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import mvpi
from mvpi import stats
from mvpi.envs import FourState, Liquidity, Markowitz, NoisyActions, RiskyZone, Task
from mvpi.errors import InputError
from mvpi.risk import CVaR, Entropic, MeanVariance, MonotoneMeanVariance, Risk, VarianceBudget

RISKS = [MeanVariance(0.5), MeanVariance(2.0), Entropic(1.5), CVaR(0.3), CVaR(0.6, 0.4)]
RISKS += [MonotoneMeanVariance(0.8), MonotoneMeanVariance(3.0)]


@pytest.mark.parametrize("name", ["FourState", "Liquidity", "Markowitz"])
def test_gymnasium_accepts_it(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checker comments on unusual but legal spaces
        check_env(gym.make(f"mvpi/{name}-v0").unwrapped, skip_render_check=True)


def test_four_states_pay_what_the_table_says() -> None:
    mdp = mvpi.examples.four_state()
    for action in (0, 1):
        env = FourState(horizon=20_000)
        state, _ = env.reset(seed=action)
        rewards, done = [], False
        visits = np.zeros(4)
        while not done:
            visits[state] += 1
            state, reward, _, done, _ = env.step(action)
            rewards.append(reward)
        policy = np.full(4, action)
        average = mvpi.MDP.from_rows(mdp.transitions, mdp.rewards, 1.0, mdp.start)
        exact = average.occupancy(policy).sum(axis=1)
        np.testing.assert_allclose(visits / visits.sum(), exact, atol=0.01)
        assert stats.mean(rewards) == pytest.approx(-0.5 * action, abs=0.01)


@pytest.mark.parametrize("risk", RISKS, ids=str)
def test_portfolio_value_is_that_of_a_sample(risk: Risk) -> None:
    env = Markowitz(horizon=10**9)
    env.reset(seed=1)
    action = np.array([0.7, -0.2])
    rewards = [env.step(action)[1] for _ in range(40_000)]
    assert env.value(action, risk) == pytest.approx(risk.value(rewards), abs=0.03)


@pytest.mark.parametrize("risk", [*RISKS, VarianceBudget(0.05)], ids=str)
def test_no_portfolio_beats_the_best(risk: Risk) -> None:
    env = Markowitz(mean=(0.3, 0.1, -0.2), covariance=np.diag([0.5, 0.4, 0.3]).tolist())
    best = env.best_action(risk)
    assert np.abs(best).max() <= env.bound + 1e-12
    rng = np.random.default_rng(0)
    tried = [*rng.uniform(-1, 1, (1_000, 3)), *(best + 0.02 * rng.standard_normal((1_000, 3)))]
    if isinstance(risk, VarianceBudget):
        assert best @ env.covariance @ best == pytest.approx(risk.limit, rel=1e-6)
        tried = [a for a in tried if a @ env.covariance @ a <= risk.limit]
    values = [env.value(np.clip(a, -1, 1), risk) for a in tried]
    assert env.value(best, risk) >= max(values) - 1e-9


@pytest.mark.parametrize("lam", [0.5, 1.0, 2.0])
def test_best_portfolio_is_that_of_markowitz(lam: float) -> None:
    env = Markowitz()
    formula = np.linalg.solve(env.covariance, env.mean) / (2 * lam)
    np.testing.assert_allclose(env.best_action(lam), formula, atol=1e-6)


def test_noise_has_its_deviation_and_stays_in_the_box() -> None:
    class Echo(Markowitz):
        def step(self, action: Any) -> Any:
            self.last = np.array(action)
            return super().step(action)

    env = NoisyActions(Echo(), std=0.1)
    env.reset(seed=0)
    noise = []
    for _ in range(4_000):
        env.step(np.array([0.1, -0.3]))
        noise.append(env.unwrapped.last - [0.1, -0.3])
    assert np.std(noise) == pytest.approx(0.1, rel=0.05)
    assert np.mean(noise) == pytest.approx(0.0, abs=0.01)
    for _ in range(100):
        env.step(np.ones(2))
        assert np.abs(env.unwrapped.last).max() <= 1.0


def test_noise_is_seeded_with_the_environment() -> None:
    def rewards() -> list[float]:
        env = NoisyActions(Markowitz())
        env.reset(seed=5)
        return [float(env.step(np.zeros(2))[1]) for _ in range(5)]

    assert rewards() == rewards()


class Steps(FourState):
    """Whole numbers as actions: noise cannot be added to them."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(-3, 3, (1,), np.int64)


@given(std=st.floats(max_value=-1e-9) | st.just(float("nan")))
def test_noise_below_zero_is_refused(std: float) -> None:
    with pytest.raises(mvpi.InputError, match="std must be >= 0"):
        NoisyActions(Markowitz(), std)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NoisyActions(FourState()), "needs a Box of real actions"),
        (lambda: NoisyActions(Steps()), "needs a Box of real actions"),
        (lambda: FourState(horizon=0), "horizon must be a whole number >= 1"),
        (lambda: Markowitz(horizon="x"), "horizon must be a whole number >= 1"),
        (lambda: Markowitz(mean=(0.2, np.nan)), "must be finite"),
        (lambda: Markowitz(covariance=((0.2, 0.5), (0.05, 0.1))), "must be symmetric"),
        (lambda: RiskyZone(Markowitz(), 0.0, 1.0), "needs a MuJoCo environment"),
        (lambda: Markowitz((1.0, 2.0), ((1.0,),)), r"\(n,\) and \(n, n\)"),
        (lambda: Markowitz((1.0, 2.0), ((1.0, 2.0), (2.0, 1.0))), "positive definite"),
        (lambda: Markowitz(bound=0.0), "bound must be > 0"),
        (Task("NoSuchEnv-v0"), "'NoSuchEnv-v0' cannot be made"),
        (Task("no_such_module:Env-v0"), "cannot be made"),
        (Task("Hopper-v5", -0.1), "action_noise must be >= 0"),
        (Task("CartPole-v1", 0.1), "needs a Box of real actions"),
    ],
)
def test_mistakes_are_one_line(make: Any, message: str) -> None:
    with pytest.raises(mvpi.InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def earned(env: gym.Env[Any, Any], action: int, seed: int = 0) -> float:
    """The return of an episode of one action."""
    env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        _, reward, over, _, _ = env.step(action)
        total += reward
    return total


def test_money_that_is_never_locked_up_grows_at_the_liquid_rate() -> None:
    assert earned(Liquidity(), 0) == pytest.approx(50 * np.log(1.001))


def test_locked_money_comes_back_multiplied() -> None:
    """Without defaults and with one factor the wealth is a recursion; locking all, a power."""
    env = Liquidity(maturity=2, share=1.0, factors=(1.5, 1.5), default=0.0, horizon=9)
    assert earned(env, 1) == pytest.approx(3 * np.log(1.5))  # three steps a round: lock, wait, back
    env = Liquidity(maturity=1, share=0.5, factors=(2.0, 2.0), default=0.0, horizon=3)
    liquid, locked = 1.0, 0.0
    for _ in range(3):
        liquid, locked = 1.001 * 0.5 * liquid + 2.0 * locked, 0.5 * liquid
    assert earned(env, 1) == pytest.approx(np.log(liquid + locked))


def test_defaults_come_as_often_as_they_should() -> None:
    env = Liquidity(maturity=1, share=0.5, factors=(2.0, 2.0), default=0.3, horizon=2)
    lost = np.log(1.001 * 0.5 * 1.001 * 0.5 + 0.25 * 1.001)
    returns = np.array([earned(env, 1, seed) for seed in range(2_000)])
    share = np.isclose(returns, lost).mean()
    assert abs(share - 0.3) < 4.5 * np.sqrt(0.3 * 0.7 / 2_000)


@pytest.mark.parametrize(
    "wrong",
    [{"maturity": 0}, {"share": 0.0}, {"share": 1.0}, {"default": -0.1}, {"horizon": 0}],
)
def test_liquidity_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Liquidity(**wrong)
