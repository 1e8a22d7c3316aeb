"""Every algorithm that is plugged: the columns of docs/algorithms.md.

`python tests/sb3/support_table.py` runs this file and writes the table from what passed.
"""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from helpers.sb3_algorithms import (
    ALGORITHMS,
    OFF,
    OFF_POLICY,
    ON_POLICY,
    Algorithm,
    Echo,
    each,
    each_kind,
)
from helpers.sb3_checks import Drawn, Rollouts, equal, weights
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv

from mvpi.risk import CVaR, MeanVariance
from mvpi.sb3 import augmenter_of

every_algorithm = each(ALGORITHMS)
off_policy = each(OFF_POLICY)
on_policy = each(ON_POLICY)
ONE_OF_EACH = [a for a in ALGORITHMS if a.name in ("SAC", "PPO", "TQC", "TRPO")]
"""With and without a replay buffer, of each library: what they log does not differ otherwise."""

RISK = MeanVariance(1.0)
RISK_0 = "at risk 0 the plain class, bit for bit"
UPDATE = "updates learn from augmented rewards"
STATE = "`save` and `load` keep `y`"
SEVERAL = "several environments"


@every_algorithm
@pytest.mark.supports(RISK_0)
def test_at_risk_0_nothing_changes(algorithm: Algorithm) -> None:
    """Long enough for a ring of the replay buffer to be full."""
    ring = {"buffer_size": 150} if algorithm.kind == OFF else {}
    # One after the other: SB3 draws from global generators, which a model seeds when it is made.
    plain = algorithm.plain(**ring)
    plain.learn(200)
    plugged = algorithm.plugged(risk=0.0, **ring)
    before = weights(plugged)
    plugged.learn(200)
    assert type(plugged) is algorithm.cls
    assert equal(weights(plugged), weights(plain))
    assert not equal(weights(plugged), before)
    assert plugged.num_timesteps == plain.num_timesteps
    assert np.array_equal(
        *(m.predict(np.ones(2, np.float32), deterministic=True)[0] for m in (plain, plugged))
    )


@off_policy
@pytest.mark.supports(UPDATE)
def test_drawn_rewards_are_augmented(algorithm: Algorithm) -> None:
    env = algorithm.env()
    model = algorithm.plugged(RISK, env, window=50)
    drawn = Drawn(model)
    model.learn(120)
    assert len(drawn.batches) > 10
    for batch, y in drawn.batches:
        raw = batch.next_observations[:, 0].numpy()
        np.testing.assert_array_equal(
            batch.rewards.numpy()[:, 0], RISK.augment(raw, y).astype(np.float32)
        )
    assert y == pytest.approx(np.mean(env.given[-50:]), rel=1e-12)
    np.testing.assert_array_equal(model.replay_buffer.rewards[:120, 0], np.float32(env.given))


@off_policy
@pytest.mark.supports(UPDATE)
def test_an_update_is_the_plain_one_on_augmented_rewards(algorithm: Algorithm) -> None:
    # Nothing is trained before step 100.
    plain = algorithm.plain(learning_starts=100).learn(100)
    plugged = algorithm.plugged(RISK, learning_starts=100).learn(100)
    y = augmenter_of(plugged).y
    stored = plain.replay_buffer.rewards
    assert np.array_equal(stored, plugged.replay_buffer.rewards)
    stored[:] = RISK.augment(stored, y)
    before = weights(plain)
    for model in (plain, plugged):
        model.set_random_seed(5)
        model.train(gradient_steps=3, batch_size=16)
    assert equal(weights(plugged), weights(plain))
    assert not equal(weights(plain), before)


@on_policy
@pytest.mark.supports(UPDATE)
def test_rollouts_are_augmented_but_for_the_value_at_a_time_limit(algorithm: Algorithm) -> None:
    steps = algorithm.settings["n_steps"]
    env, plain_run, run = algorithm.env(), Rollouts(), Rollouts()
    algorithm.plain().learn(steps, callback=plain_run)
    model = algorithm.plugged(RISK, env)
    model.learn(steps, callback=run)

    raw = np.array(env.given)
    added = plain_run.rewards[0][:, 0] - raw  # by SB3, at time limits
    assert 0 < np.count_nonzero(added) < steps / 2
    y = raw.mean()
    expected = RISK.augment(raw, y) + added
    np.testing.assert_allclose(run.rewards[0][:, 0], expected, rtol=1e-6, atol=1e-6)
    assert augmenter_of(model).y == pytest.approx(y, rel=1e-12)

    # Advantages are linear in rewards: their change is that of the change of the rewards.
    change, carried = np.zeros(steps), 0.0
    decay = model.gamma * model.gae_lambda
    starts = model.rollout_buffer.episode_starts[:, 0]
    for t in reversed(range(steps)):
        going_on = t + 1 < steps and not starts[t + 1]
        carried = (RISK.augment(raw, y) - raw)[t] + decay * going_on * carried
        change[t] = carried
    np.testing.assert_allclose(
        (run.advantages[0] - plain_run.advantages[0])[:, 0], change, rtol=1e-4, atol=1e-4
    )


@on_policy
@pytest.mark.supports(UPDATE)
def test_an_iteration_is_the_plain_one_in_an_augmented_environment(algorithm: Algorithm) -> None:
    steps = algorithm.settings["n_steps"]
    model = algorithm.plugged(RISK)
    model.learn(steps)
    y = augmenter_of(model).y
    env = gym.wrappers.TransformReward(algorithm.env(), lambda r: float(RISK.augment(r, y)))
    masks = env.unwrapped.action_masks  # type: ignore[attr-defined]
    env.action_masks = masks  # type: ignore[attr-defined]
    plain = algorithm.plain(env)
    plain.learn(steps)
    for ours, theirs in zip(weights(model), weights(plain), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=2e-5)


@each_kind(ALGORITHMS)
@pytest.mark.supports(STATE)
def test_saving_and_loading_keeps_y_and_the_window(algorithm: Algorithm, tmp_path: Path) -> None:
    model = algorithm.plugged(CVaR(0.3), window=70)
    model.learn(130)
    model.save(tmp_path / "model.zip")
    there = augmenter_of(model)
    env = algorithm.env()
    again = algorithm.cls.load(tmp_path / "model.zip", env=env)
    loaded = augmenter_of(again)
    assert type(again) is algorithm.cls
    assert loaded.risk == CVaR(0.3)
    assert loaded.y == there.y
    np.testing.assert_array_equal(np.sort(loaded.rewards), np.sort(there.rewards))
    assert loaded.window == there.window == 70
    again.learn(10 if algorithm.kind == "off-policy" else algorithm.settings["n_steps"])
    seen = np.array([*there.rewards[-70:], *env.given])
    kept = np.sort(loaded.rewards)
    assert len(kept) == 70
    assert np.isin(kept, seen).all()
    assert np.isin(env.given[-70:], kept).all()
    assert loaded.y == CVaR(0.3).dual(loaded.rewards)


@each_kind(ALGORITHMS)
@pytest.mark.supports(SEVERAL)
def test_several_environments(algorithm: Algorithm) -> None:
    envs = DummyVecEnv([algorithm.env for _ in range(3)])
    model = algorithm.plugged(RISK, envs, window=60)
    model.learn(240)
    given = np.array([env.unwrapped.given for env in envs.envs])  # type: ignore[attr-defined]
    recent = given[:, -20:].ravel()
    assert augmenter_of(model).y == pytest.approx(recent.mean(), rel=1e-9)


@each(ONE_OF_EACH)
def test_the_logger_gets_rows_and_returns_stay_raw(algorithm: Algorithm, tmp_path: Path) -> None:
    env = Echo(algorithm.discrete, scale=10.0)
    model = algorithm.plugged(RISK, gym.wrappers.TimeLimit(env, 7))
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(320, log_interval=1)
    model.logger.close()
    table = np.genfromtxt(tmp_path / "progress.csv", delimiter=",", names=True, deletechars="")
    last = table[-1] if table.ndim else table
    assert last["mvpi/risk_aversion"] == 1.0
    for name in ("mvpi/y", "mvpi/reward_mean", "mvpi/reward_variance"):
        assert np.isfinite(last[name])
    assert last["mvpi/reward_variance"] > 50.0  # raw: the noise alone has 100
    returns = np.add.reduceat(env.given, np.arange(0, len(env.given), 7))
    assert returns.min() <= last["rollout/ep_rew_mean"] <= returns.max()
