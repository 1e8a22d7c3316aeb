"""`RiskRange` and `OfReturn` with every algorithm: what is drawn and seen, where returns end."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.sb3_algorithms import (
    ALGORITHMS,
    LIMIT,
    OFF_POLICY,
    ON_POLICY,
    OURS_AND_SBX,
    QUICK,
    SBX,
    Algorithm,
    Echo,
    Pair,
    Reach,
    each,
)
from helpers.sb3_checks import Rollouts, equal, weights
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.her import HerReplayBuffer

import mvpi
from mvpi import CVaR, InputError, MeanVariance, OfReturn, RiskRange
from mvpi.envs import ExtendedObservation, ReturnSoFar
from mvpi.risk import range_of
from mvpi.sb3 import at, augmenter_of, risk_averse

COLUMNS = "`RiskRange` and `OfReturn`"
RANGE = RiskRange(0.5, 2.0)
RISKS = [RANGE, OfReturn(MeanVariance(0.3)), OfReturn(RANGE)]


OFTEN = ("stable_baselines3.SAC", "stable_baselines3.DQN", "stable_baselines3.PPO")


def each_with_every_risk(algorithms: list[Algorithm]) -> pytest.MarkDecorator:
    """In every run all algorithms with the last risk, which has both columns; few of SBX."""
    marked = [
        pytest.param(
            a,
            risk,
            id=f"{risk.text}-{a}",
            marks=[]
            if str(a) in OFTEN or (risk == RISKS[-1] and (a.library != SBX or a.name in QUICK))
            else [pytest.mark.slow],
        )
        for risk in RISKS
        for a in algorithms
    ]
    return pytest.mark.parametrize(("algorithm", "risk"), marked)


SCALE = 5.0
PPO_ = next(a for a in ALGORITHMS if str(a) == "stable_baselines3.PPO")
SAC_ = OURS_AND_SBX[0]


def lam_of(seen: Any) -> Any:
    """By hand: the range is from 0.5 to 2, a factor of 2 either side of 1."""
    return 2.0 ** np.asarray(seen, np.float64)


def named(risk: Any, seen: Any) -> dict[str, Any]:
    """The columns of `seen`, what networks see of them, decoded by hand."""
    found = {}
    for i, name in enumerate(risk.columns):
        values = np.asarray(seen[..., i], np.float64)
        found[name] = lam_of(values) if name == "risk_aversion" else SCALE * np.sinh(values)
    return found


def augmented(risk: Any, rewards: Any, y: Any, columns: dict[str, Any]) -> Any:
    """By the formula, and for a range times a factor of the risk aversion alone."""
    known, lam = range_of(risk), columns.get("risk_aversion")
    balance = 1.0 if known is None else known.balance(lam)
    return balance * risk.augment_extended(rewards, y, columns)


def y_for(augmenter: Any, columns: dict[str, Any]) -> Any:
    lam = columns.get("risk_aversion")
    return augmenter.y if lam is None else augmenter.y_at(lam)


class DrawnColumns:
    """Every batch that reaches `train`, with the rewards that are expected in it."""

    def __init__(self, model: Any, raw_of: Any) -> None:
        self.batches: list[tuple[Any, Any]] = []
        draw, augmenter = model.replay_buffer.sample, augmenter_of(model)

        def sample(*args: Any, **kwargs: Any) -> Any:
            batch = draw(*args, **kwargs)
            seen = batch.observations
            seen = seen["extension"] if isinstance(seen, dict) else seen[:, 2:]
            columns = named(augmenter.risk, seen.numpy())
            y = y_for(augmenter, columns)
            expected = augmented(augmenter.risk, raw_of(batch), y, columns)
            self.batches.append((batch, expected))
            return batch

        model.replay_buffer.sample = sample


def echoed(batch: Any) -> Any:
    return batch.next_observations[:, 0].numpy()


def before_in_episode(given: Any) -> Any:
    """The return of an episode before each of its steps."""
    episodes = np.reshape(given, (-1, LIMIT))
    return (np.cumsum(episodes, axis=1) - episodes).ravel()


@each_with_every_risk(OFF_POLICY)
@pytest.mark.supports(COLUMNS)
def test_drawn_rewards_are_augmented_by_their_columns(algorithm: Algorithm, risk: Any) -> None:
    env = algorithm.env()
    model = algorithm.plugged(risk, env, return_scale=SCALE)
    drawn = DrawnColumns(model, echoed)
    model.learn(20 * LIMIT)
    assert type(model) is algorithm.cls
    assert len(drawn.batches) > 10
    for batch, expected in drawn.batches:
        np.testing.assert_allclose(batch.rewards.numpy()[:, 0], expected, rtol=2e-5, atol=2e-5)
    rows = slice(0, 20 * LIMIT)
    stored = named(risk, model.replay_buffer.observations[rows, 0, 2:])
    if risk.of_return:
        wanted = before_in_episode(env.given)
        np.testing.assert_allclose(stored["return_so_far"], wanted, rtol=1e-5, atol=1e-5)
    if "risk_aversion" in stored:
        # One for an episode while acting; others, the same on both sides, when drawn.
        acted = stored["risk_aversion"].reshape(-1, LIMIT)
        assert (acted == acted[:, :1]).all()
        assert len(np.unique(acted[:, 0])) > 5
        now, then = (o[:, 2].numpy() for o in (batch.observations, batch.next_observations))
        np.testing.assert_array_equal(now, then)
        assert not np.isin(lam_of(now), acted).all()
    np.testing.assert_array_equal(model.replay_buffer.rewards[rows, 0], np.float32(env.given))


class Ending(Echo):
    """Episodes terminate, none is cut."""

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, info = super().step(action)
        return seen, reward, terminated or truncated, False, info


AT_RISK_0 = [
    pytest.param(a, risk, id=f"{a}-{risk}", marks=[] if str(a) in OFTEN else [pytest.mark.slow])
    for a in ALGORITHMS
    for risk in ((MeanVariance(0.0), CVaR(0.3, 0.0)) if a.name == "PPO" else (MeanVariance(0.0),))
    if a.library != "sbx"
]


@pytest.mark.parametrize(("algorithm", "risk"), AT_RISK_0)
def test_at_risk_0_it_is_the_plain_class_in_the_extended_environment(
    algorithm: Algorithm, risk: Any
) -> None:
    plain = algorithm.plain(ReturnSoFar(Ending(algorithm.discrete))).learn(150)
    plugged = algorithm.plugged(OfReturn(risk), Ending(algorithm.discrete))
    before = weights(plugged)
    plugged.learn(150)
    assert equal(weights(plugged), weights(plain))
    assert not equal(weights(plugged), before)


@each([a for a in OFF_POLICY if a.name in ("SAC", "DQN")])
def test_a_return_ends_at_the_time_limit(algorithm: Algorithm) -> None:
    ends = {}
    for risk in (RANGE, OfReturn(1.0)):
        model = algorithm.plugged(risk).learn(20 * LIMIT)
        batch = model.replay_buffer.sample(500)
        last = batch.next_observations[:, 1].numpy() == LIMIT
        done = batch.dones.numpy()[:, 0] == 1.0
        assert not done[~last].any()
        ends[risk] = done[last].mean()
    assert ends[OfReturn(1.0)] == 1.0
    assert 0.0 < ends[RANGE] < 0.6  # one episode in four terminates


@each(OFF_POLICY[2:3] + ON_POLICY[:1])
def test_y_is_that_of_the_returns(algorithm: Algorithm) -> None:
    env = algorithm.env()
    model = algorithm.plugged(OfReturn(CVaR(0.3)), env, return_scale=SCALE)
    model.learn(192)
    whole = np.reshape(env.given[: len(env.given) // LIMIT * LIMIT], (-1, LIMIT))
    y = CVaR(0.3).dual(whole.sum(axis=1))
    assert augmenter_of(model).y == pytest.approx(y, rel=1e-5, abs=1e-5)
    metrics = augmenter_of(model).metrics()
    assert metrics["return_mean"] == pytest.approx(whole.sum(axis=1).mean(), rel=1e-5, abs=1e-5)


class Seen(Rollouts):
    """Also keeps the observations of rollouts."""

    def __init__(self) -> None:
        super().__init__()
        self.observations: list[Any] = []

    def _on_rollout_end(self) -> None:
        super()._on_rollout_end()
        self.observations.append(self.model.rollout_buffer.observations.copy())  # type: ignore[attr-defined]


@each_with_every_risk(ON_POLICY)
@pytest.mark.supports(COLUMNS)
def test_rollouts_are_augmented_by_their_columns(algorithm: Algorithm, risk: Any) -> None:
    steps = 64
    env, run = algorithm.env(), Seen()
    model = algorithm.plugged(risk, env, return_scale=SCALE, n_steps=steps)
    model.learn(steps, callback=run)
    raw = np.array(env.given)
    columns = named(risk, run.observations[0][:, 0, 2:])
    padded = np.concatenate([raw, np.zeros(-steps % LIMIT)])
    if risk.of_return:
        wanted = before_in_episode(padded)[:steps]
        np.testing.assert_allclose(columns["return_so_far"], wanted, rtol=1e-5, atol=1e-5)
    expected = augmented(risk, raw, y_for(augmenter_of(model), columns), columns)
    found = run.rewards[0][:, 0]
    at_limit = (np.arange(steps) + 1) % LIMIT == 0
    np.testing.assert_allclose(found[~at_limit], expected[~at_limit], rtol=2e-5, atol=2e-5)
    added = np.abs(found - expected)[at_limit] > 1e-3
    assert not added.any() if risk.of_return else added.any()


# Environments.


def test_a_dictionary_of_observations() -> None:
    for algorithm in OURS_AND_SBX:
        model = risk_averse(
            algorithm.cls,
            "MultiInputPolicy",
            Pair(algorithm.env()),
            risk=OfReturn(RANGE),
            return_scale=SCALE,
            **algorithm.settings,
        )
        drawn = DrawnColumns(model, lambda batch: batch.next_observations["reward"][:, 0].numpy())
        model.learn(20 * LIMIT)
        for batch, expected in drawn.batches:
            np.testing.assert_allclose(batch.rewards.numpy()[:, 0], expected, rtol=2e-5, atol=2e-5)
    ppo = risk_averse(
        PPO, "MultiInputPolicy", Pair(Echo()), risk=OfReturn(RANGE), **PPO_.settings
    ).learn(64)
    assert augmenter_of(ppo).ready


@pytest.mark.parametrize("algorithm", [SAC_, PPO_], ids=str)
def test_several_environments_and_their_last_observations(algorithm: Algorithm) -> None:
    envs = DummyVecEnv([algorithm.env for _ in range(3)])
    model = algorithm.plugged(OfReturn(RANGE), envs, return_scale=SCALE)
    seen: Any = model.get_env()
    assert seen.observation_space.shape == (4,)
    model.learn(30 * LIMIT)
    seen.seed(0)
    first = seen.reset()
    assert (first[:, 3] == 0.0).all()
    assert len(np.unique(first[:, 2])) == 3
    total = np.zeros(3)
    for _ in range(LIMIT):
        observations, rewards, dones, infos = seen.step(np.zeros((3, 2), np.float32))
        total += rewards
    assert dones.all()
    last = np.array([info["terminal_observation"] for info in infos])
    np.testing.assert_array_equal(last[:, 2], first[:, 2])  # the risk aversion of the episode
    np.testing.assert_allclose(SCALE * np.sinh(last[:, 3]), total, rtol=1e-5, atol=1e-5)
    assert (observations[:, 3] == 0.0).all()
    assert (observations[:, 2] != first[:, 2]).all()


def test_finite_observations_become_vectors() -> None:
    settings = {"learning_starts": 10, "policy_kwargs": {"net_arch": [8]}, "seed": 0}
    model = risk_averse(DQN, "MlpPolicy", "FrozenLake-v1", risk=RANGE, **settings).learn(60)
    assert model.observation_space.shape == (17,)
    envs = DummyVecEnv([lambda: gym.make("FrozenLake-v1")] * 2)
    several = risk_averse(DQN, "MlpPolicy", envs, risk=RANGE, **settings).learn(60)
    assert several.observation_space == model.observation_space
    policy = at(model, 1.0)
    extended = np.concatenate([np.eye(16)[3], [0.0]]).astype(np.float32)
    assert (
        policy.predict(3, deterministic=True)[0] == model.predict(extended, deterministic=True)[0]
    )
    result = mvpi.evaluate(policy, "FrozenLake-v1", episodes=2)
    assert len(result.returns) == 2


def test_an_environment_that_is_extended_already() -> None:
    env = ReturnSoFar(Echo(), SCALE)
    model = SAC_.plugged(OfReturn(1.0), env, return_scale=SCALE)
    assert model.observation_space.shape == (3,)
    envs = DummyVecEnv([lambda: Monitor(ReturnSoFar(Echo(), SCALE))])
    assert SAC_.plugged(OfReturn(1.0), envs, return_scale=SCALE).observation_space.shape == (3,)
    again = SAC_.plugged(OfReturn(1.0), model.get_env(), return_scale=SCALE)
    assert again.observation_space.shape == (3,)
    with pytest.raises(InputError, match=r"extended by return_so_far \(return_scale 5\) already"):
        SAC_.plugged(OfReturn(1.0), env)
    with pytest.raises(InputError, match="the risk needs risk_aversion, return_so_far"):
        SAC_.plugged(OfReturn(RANGE), envs, return_scale=SCALE)


# What is refused.


def test_what_cannot_be_right_is_refused() -> None:
    with pytest.raises(InputError, match="sums over 3 steps do not keep: leave n_steps at 1"):
        SAC_.plugged(RANGE, n_steps=3)
    scaled = VecNormalize(DummyVecEnv([Echo]), norm_reward=False)
    with pytest.raises(InputError, match="VecNormalize would also scale return_so_far"):
        PPO_.plugged(OfReturn(1.0), scaled)
    with pytest.raises(InputError, match="return_scale must be > 0"):
        SAC_.plugged(OfReturn(1.0), return_scale=0.0)
    with pytest.raises(InputError, match="discounted occupancy"):
        SAC_.plugged(RANGE, occupancy="discounted")
    her = {**SAC_.settings, "replay_buffer_class": HerReplayBuffer}
    with pytest.raises(InputError, match="HerReplayBuffer gives steps the rewards of other goals"):
        risk_averse(SAC, "MultiInputPolicy", Reach(), risk=OfReturn(1.0), **her)
    model = risk_averse(SAC, "MultiInputPolicy", Reach(), risk=RANGE, **her)
    model.learn(60)


def test_nothing_is_learned_before_an_episode_has_ended() -> None:
    for algorithm in (SAC_, PPO_):
        model = algorithm.plugged(OfReturn(1.0), Endless())
        before = weights(model)
        model.learn(128)
        assert equal(weights(model), before)
        assert not augmenter_of(model).ready


class Endless(Echo):
    """An episode without an end."""

    def step(self, action: Any) -> Any:
        seen, reward, *_, info = super().step(action)
        return seen, reward, False, False, info


# One policy.


@pytest.mark.parametrize("algorithm", [SAC_, PPO_], ids=str)
def test_one_policy_of_a_range(algorithm: Algorithm) -> None:
    model = algorithm.plugged(RANGE).learn(64)
    policy = at(model, 2.0)
    assert policy.risk == MeanVariance(2.0)
    plain = np.array([0.3, 2.0], np.float32)
    theirs = model.predict(np.array([0.3, 2.0, 1.0], np.float32), deterministic=True)[0]
    for seen in (plain, np.append(plain, -0.5).astype(np.float32)):
        np.testing.assert_array_equal(policy.predict(seen, deterministic=True)[0], theirs)
    batch = policy.predict(np.stack([plain] * 4), deterministic=True)[0]
    np.testing.assert_allclose(batch, np.stack([theirs] * 4), rtol=1e-5)
    ours = mvpi.evaluate(policy, Echo, episodes=3, seed=1).returns
    env = lambda: ExtendedObservation(Echo(), RANGE, risk_aversion=2.0)  # noqa: E731
    np.testing.assert_array_equal(ours, mvpi.evaluate(model, env, episodes=3, seed=1).returns)
    with pytest.raises(InputError, match=r"from 0.5 to 2: choose one by mvpi.sb3.at\(model"):
        mvpi.evaluate(model, Echo, episodes=1)
    with pytest.raises(InputError, match="risk_aversion must be in the range"):
        at(model, 3.0)
    with pytest.raises(InputError, match="observations must have 2 entries"):
        policy.predict(np.zeros(5, np.float32))
    with pytest.raises(InputError, match="is no range of risk aversions"):
        at(algorithm.plugged(1.0), 1.0)


@pytest.mark.parametrize(
    ("kind", "env", "settings"),
    [
        (SAC, "Pendulum-v1", {"learning_starts": 20}),
        (DQN, "CartPole-v1", {"learning_starts": 20}),
        (PPO, "CartPole-v1", {"n_steps": 40, "batch_size": 20}),
    ],
)
def test_a_range_of_one_value_is_the_plain_model(kind: Any, env: str, settings: Any) -> None:
    def trained(risk: Any) -> Any:
        policy = {"net_arch": [8]}
        model = risk_averse(
            kind, "MlpPolicy", env, risk=risk, seed=3, policy_kwargs=policy, **settings
        )
        return model.learn(80)

    plain, ranged, other = (trained(risk) for risk in (0.7, RiskRange(0.7, 0.7), 0.0))
    assert equal(weights(ranged), weights(plain))
    assert not equal(weights(ranged), weights(other))


def test_one_policy_of_a_range_of_returns() -> None:
    model = SAC_.plugged(OfReturn(RANGE), return_scale=SCALE).learn(64)
    policy = at(model, 0.5)
    seen = np.array([0.1, 1.0, 0.7], np.float32)
    whole = np.array([0.1, 1.0, -1.0, 0.7], np.float32)
    ours, theirs = (
        m.predict(o, deterministic=True)[0] for m, o in ((policy, seen), (model, whole))
    )
    np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(InputError, match=r"wrap the environment in mvpi.envs.ReturnSoFar"):
        policy.predict(seen[:2])
    plain = mvpi.evaluate(policy, Echo, episodes=2).returns
    wrapped = mvpi.evaluate(policy, lambda: ReturnSoFar(Echo(), SCALE), episodes=2).returns
    np.testing.assert_array_equal(plain, wrapped)


def test_a_model_of_returns_is_evaluated_in_the_plain_environment() -> None:
    model = PPO_.plugged(OfReturn(1.0), return_scale=SCALE).learn(64)
    plain = mvpi.evaluate(model, Echo, episodes=3).returns
    wrapped = mvpi.evaluate(model, lambda: ReturnSoFar(Echo(), SCALE), episodes=3).returns
    np.testing.assert_array_equal(plain, wrapped)
