"""The plug itself: refusals, callbacks, time limits, and what it relies on in SB3."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from algorithms import ALGORITHMS, Algorithm, Echo
from checks import Rollouts, equal, weights
from sb3_contrib import ARS
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common import buffers
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback, StopTrainingOnMaxEpisodes
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.her import her_replay_buffer

from mvpi.errors import InputError
from mvpi.risk import MeanVariance, VarianceBudget
from mvpi.running import Augmenter
from mvpi.sb3 import RELIES_ON, augmenter_of, risk_averse

RISK = MeanVariance(1.0)
PPO_ = next(a for a in ALGORITHMS if str(a) == "stable_baselines3.PPO")
SAC_ = next(a for a in ALGORITHMS if str(a) == "stable_baselines3.SAC")
both = pytest.mark.parametrize("algorithm", [PPO_, SAC_], ids=str)


# Refusals.


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (ARS, r"ARS has no rewards per step .*AugmentedReward\(env, risk\)"),
        ("SAC", "must be a class of Stable-Baselines3, got 'SAC'"),
        (dict, "must be a class of Stable-Baselines3, got <class 'dict'>"),
    ],
)
def test_what_cannot_be_plugged(algorithm: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        risk_averse(algorithm, "MlpPolicy", Echo(), risk=1.0)


@both
@pytest.mark.parametrize(
    "mistake", [{"risk": -1.0}, {"risk": "much"}, {"window": 0}, {"window": 2.5}]
)
def test_mistakes(algorithm: Algorithm, mistake: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        algorithm.plugged(**{"risk": 1.0, **mistake})


def test_a_plain_model_has_no_augmenter() -> None:
    with pytest.raises(InputError, match="this PPO was not made by"):
        augmenter_of(PPO_.plain())


def test_ars_takes_an_augmented_environment() -> None:
    from mvpi.envs import AugmentedReward

    env = AugmentedReward(Echo(), risk=1.0)
    ARS("LinearPolicy", env, n_delta=1, seed=0).learn(30)
    assert env.augmenter.rewards.size >= 30


# Time limits.


class NaiveRollout(buffers.RolloutBuffer):
    """The mistake: what is in the buffer is augmented, with SB3's `gamma * value` in it."""

    def compute_returns_and_advantage(self, last_values: Any, dones: Any) -> None:
        self.rewards = RISK.augment(self.rewards, self.rewards.mean()).astype(np.float32)
        super().compute_returns_and_advantage(last_values, dones)


def largest_error_at_time_limits(model: Any, env: Echo) -> float:
    """Between the rewards that advantages are made of and `augment(r, y) + gamma * value`."""
    run, steps = Rollouts(), PPO_.settings["n_steps"]
    values = ValuesAtLimits()
    model.learn(steps, callback=[run, values])
    raw = np.array(env.given)
    expected = RISK.augment(raw, raw.mean()) + model.gamma * np.array(values.at_limit)
    return float(np.abs(run.rewards[0][:, 0] - expected).max())


class ValuesAtLimits(BaseCallback):
    """The critic's value of the last observation where an episode was cut, else 0."""

    def __init__(self) -> None:
        super().__init__()
        self.at_limit: list[float] = []

    def _on_step(self) -> bool:
        (info,) = self.locals["infos"]
        value = 0.0
        if info.get("TimeLimit.truncated"):
            seen, _ = self.model.policy.obs_to_tensor(info["terminal_observation"])
            value = float(self.model.policy.predict_values(seen).item())  # type: ignore[operator]
        self.at_limit.append(value)
        return True


def test_the_value_at_a_time_limit_is_neither_squared_nor_in_y() -> None:
    env = Echo()
    assert largest_error_at_time_limits(PPO_.plugged(RISK, env), env) < 1e-5


def test_the_naive_way_is_found_out() -> None:
    def hopeful(model: Any) -> Any:
        with torch.no_grad():  # a critic that expects much
            model.policy.value_net.bias += 3.0
        return model

    env = Echo()
    naive = hopeful(PPO_.plain(env, rollout_buffer_class=NaiveRollout))
    assert largest_error_at_time_limits(naive, env) > 0.5
    env = Echo()
    assert largest_error_at_time_limits(hopeful(PPO_.plugged(RISK, env)), env) < 1e-5


# Ordinary life of a model.


@both
def test_stopping_in_the_middle_and_going_on(algorithm: Algorithm) -> None:
    env = algorithm.env()
    model = algorithm.plugged(RISK, env)
    model.learn(1_000, callback=StopTrainingOnMaxEpisodes(max_episodes=12))
    assert 12 * 7 <= len(env.given) < 12 * 7 + 5
    model.learn(150, reset_num_timesteps=False)
    assert np.isfinite(augmenter_of(model).y)


def test_evaluations_and_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for algorithm in (PPO_, SAC_):
        log = tmp_path / algorithm.name
        model = algorithm.plugged(RISK, tensorboard_log=str(log))
        evaluation = EvalCallback(Monitor(Echo()), eval_freq=100, n_eval_episodes=2, verbose=0)
        model.learn(300, callback=evaluation, log_interval=1)
        model.logger.close()
        (run,) = log.iterdir()
        events = EventAccumulator(str(run))
        events.Reload()
        names = events.Tags()["scalars"]
        assert {"mvpi/y", "mvpi/risk_aversion", "mvpi/reward_variance"} <= set(names)
        assert {"rollout/ep_rew_mean", "eval/mean_reward"} <= set(names)


class Again(BaseCallback):
    """Has the advantages computed once more, as methods with a curiosity bonus do."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer  # type: ignore[attr-defined]
        before = buffer.rewards.copy()
        values, dones = self.locals["values"], self.locals["dones"]
        buffer.compute_returns_and_advantage(values, dones)
        np.testing.assert_array_equal(buffer.rewards, before)


def test_rewards_are_augmented_once() -> None:
    once = PPO_.plugged(RISK)
    once.learn(128)
    twice = PPO_.plugged(RISK)
    twice.learn(128, callback=Again())
    assert equal(weights(once), weights(twice))


def test_a_rollout_that_was_filled_by_hand() -> None:
    model = PPO_.plugged(RISK)
    buffer = model.rollout_buffer
    rewards = np.linspace(-1.0, 2.0, 64, dtype=np.float32)
    for reward in rewards:
        zero = torch.zeros(1)
        buffer.add(np.zeros((1, 2)), np.zeros((1, 2)), reward[None], np.zeros(1), zero, zero)
    buffer.compute_returns_and_advantage(torch.zeros(1), np.zeros(1, bool))
    expected = RISK.augment(rewards, float(rewards.mean()))
    np.testing.assert_allclose(buffer.rewards[:, 0], expected, rtol=1e-6)


class Elsewhere(PPO):
    """Steps another environment than the one it is given."""

    def collect_rollouts(self, env: Any, callback: Any, *args: Any, **kwargs: Any) -> bool:
        return super().collect_rollouts(self.get_env(), callback, *args, **kwargs)  # type: ignore[arg-type]


def test_rewards_that_were_not_seen_are_an_error() -> None:
    model = risk_averse(Elsewhere, "MlpPolicy", Echo(), risk=1.0, **PPO_.settings)
    with pytest.raises(InputError, match="must step the environment that is passed to it"):
        model.learn(64)


class Doubled(SAC):
    """A user's subclass of an algorithm."""

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        super().train(2 * gradient_steps, batch_size)


def test_a_subclass_of_an_algorithm() -> None:
    model = risk_averse(Doubled, "MlpPolicy", Echo(), risk=1.0, **SAC_.settings)
    model.learn(60)
    assert type(model) is Doubled
    assert augmenter_of(model).rewards.size == 60


def test_a_longer_window_for_short_rollouts() -> None:
    env = Echo()
    model = risk_averse(A2C, "MlpPolicy", env, risk=1.0, window=100, seed=0)
    model.learn(200)
    assert augmenter_of(model).y == pytest.approx(np.mean(env.given[-100:]))


def test_settings_as_in_the_zoo() -> None:
    """Schedules, tuples, dictionaries: what RL Zoo makes of its files."""
    model = risk_averse(
        SAC,
        risk=1.0,
        policy="MlpPolicy",
        env=Echo(),
        learning_rate=lambda progress: 1e-3 * progress,
        train_freq=(1, "episode"),
        gradient_steps=-1,
        use_sde=True,
        policy_kwargs={"log_std_init": -3, "net_arch": [16, 16]},
        learning_starts=30,
        ent_coef="auto",
        seed=0,
    )
    model.learn(60)
    assert augmenter_of(model).rewards.size >= 60


def test_budgets_follow_the_rollouts() -> None:
    model = PPO_.plugged(VarianceBudget(0.5), Echo(scale=4.0), n_steps=1_024)
    model.learn(2_048)
    price = augmenter_of(model).risk.risk_aversion  # type: ignore[attr-defined]
    assert price == pytest.approx((0.5 + 2 * 0.05) / np.sqrt(0.5))


# What it relies on.


def moved(relies_on: dict[str, tuple[str, ...]]) -> list[str]:
    """Names that are gone or take other arguments."""
    gone = []
    for name, arguments in relies_on.items():
        module, path = name.split(":")
        thing: Any = import_module(f"stable_baselines3.{module}")
        try:
            for part in path.split("."):
                thing = getattr(thing, part)
            missing = set(arguments) - set(inspect.signature(thing).parameters)
        except AttributeError:
            missing = {"it is gone"}
        if missing:
            gone.append(f"{name}: {', '.join(sorted(missing))}")
    return gone


def test_sb3_still_has_what_the_plug_relies_on() -> None:
    assert moved(RELIES_ON) == []


def test_the_name_that_moved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(buffers.BaseBuffer, "_normalize_reward")
    monkeypatch.setattr(buffers.RolloutBuffer, "compute_returns_and_advantage", print)
    assert moved(RELIES_ON) == [
        "common.buffers:BaseBuffer._normalize_reward: it is gone",
        "common.buffers:RolloutBuffer.compute_returns_and_advantage: dones, last_values",
    ]


@pytest.mark.parametrize(
    "draw",
    [
        buffers.ReplayBuffer._get_samples,
        buffers.DictReplayBuffer._get_samples,
        buffers.NStepReplayBuffer._get_samples,
        her_replay_buffer.HerReplayBuffer._get_real_samples,
        her_replay_buffer.HerReplayBuffer._get_virtual_samples,
    ],
    ids=lambda f: f.__qualname__,
)
def test_replay_buffers_draw_through_normalize_reward(draw: Any) -> None:
    assert "self._normalize_reward(" in inspect.getsource(draw)


# Beyond SB3.


def test_augmented_reward_is_a_wrapper() -> None:
    from mvpi.envs import AugmentedReward

    shared = Augmenter(risk=0.5, window=20)
    envs = [AugmentedReward(gym.wrappers.RecordEpisodeStatistics(Echo()), shared) for _ in range(2)]
    for env in envs:
        env.reset(seed=1)
        raw = []
        for _ in range(7):
            _, reward, terminated, truncated, info = env.step(np.ones(2, np.float32))
            raw.append(info["raw_reward"])
            assert reward == MeanVariance(0.5).augment(info["raw_reward"], shared.y)
        assert terminated or truncated
        assert info["episode"]["r"] == pytest.approx(sum(raw))
    assert shared.y == pytest.approx(np.mean([e.unwrapped.given for e in envs]))  # type: ignore[attr-defined]


# The table in README.


def test_the_table_in_readme_is_that_of_the_tests() -> None:
    """What it says is what a run in which everything passes would write."""
    import support_table
    import test_every_algorithm as tests

    columns = (tests.RISK_0, tests.UPDATE, tests.STATE, tests.SEVERAL)
    everything = {(str(a), column): True for a in ALGORITHMS for column in columns}
    assert support_table.in_readme() == support_table.table(everything)
