"""The plug itself: refusals, callbacks, time limits, and what it relies on in SB3."""

from __future__ import annotations

import inspect
import math
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers.sb3_algorithms import ALGORITHMS, LIMIT, Algorithm, Echo
from helpers.sb3_checks import LoggedRows, Rollouts, equal, weights
from sb3_contrib import ARS
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common import buffers
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback, StopTrainingOnMaxEpisodes
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.her import her_replay_buffer

from mvpi.augmenter import Augmenter
from mvpi.errors import InputError
from mvpi.risk import MeanVariance, VarianceBudget
from mvpi.sb3 import RELIES_ON, RELIES_ON_ATTRIBUTES, augmenter_of, risk_averse

RISK = MeanVariance(1.0)
PPO_ = next(a for a in ALGORITHMS if str(a) == "stable_baselines3.PPO")
SAC_ = next(a for a in ALGORITHMS if str(a) == "stable_baselines3.SAC")
both = pytest.mark.parametrize("algorithm", [PPO_, SAC_], ids=str)


# Refusals.


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (ARS, r"ARS has no rewards .*Monitor\(mvpi.envs.AugmentedReward\(env, risk\)\)"),
        ("SAC", "must be a class of Stable-Baselines3, got 'SAC'"),
        (dict, "must be a class of Stable-Baselines3, got <class 'dict'>"),
    ],
)
def test_what_cannot_be_plugged(algorithm: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        risk_averse(algorithm, "MlpPolicy", Echo(), risk=1.0)


@both
@pytest.mark.parametrize(
    "mistake",
    [
        {"risk": -1.0},
        {"risk": "much"},
        {"window": 0},
        {"window": 2.5},
        {"_init_setup_model": False},
    ],
)
def test_mistakes(algorithm: Algorithm, mistake: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        algorithm.plugged(**{"risk": 1.0, **mistake})


def test_a_plain_model_has_no_augmenter() -> None:
    with pytest.raises(InputError, match="this PPO was not made by"):
        augmenter_of(PPO_.plain())


@both
@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (lambda _: math.nan, "rewards must be finite, the environment gave nan"),
        (lambda r: 1e30 * r, r"MeanVariance.* y = .*float32 can hold: lower the risk aversion"),
    ],
    ids=["not a number", "too large"],
)
def test_rewards_that_nothing_can_be_learned_from(
    algorithm: Algorithm, reward: Any, message: str
) -> None:
    model = algorithm.plugged(RISK, gym.wrappers.TransformReward(Echo(), reward))
    with pytest.raises(InputError, match=message):
        model.learn(64)


def test_ars_compares_augmented_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    from mvpi.envs import AugmentedReward

    compared: list[float] = []
    evaluate = import_module("sb3_contrib.ars.ars").evaluate_policy

    def watched(*args: Any, **kwargs: Any) -> Any:
        returns, lengths = evaluate(*args, **kwargs)
        compared.extend(returns)
        return returns, lengths

    monkeypatch.setattr("sb3_contrib.ars.ars.evaluate_policy", watched)
    env = Echo()
    ARS("LinearPolicy", Monitor(AugmentedReward(env, RISK)), n_delta=1, seed=0).learn(30)
    y = np.cumsum(env.given) / np.arange(1, len(env.given) + 1)
    augmented = np.array([RISK.augment(*pair) for pair in zip(env.given, y, strict=True)])
    np.testing.assert_allclose(compared, augmented.reshape(-1, LIMIT).sum(axis=1), rtol=1e-5)


class Simulator(DummyVecEnv):
    """An adapter that has no environments inside which could be asked."""

    complaint: type[Exception]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        raise self.complaint


@pytest.mark.parametrize("complaint", [NotImplementedError, AttributeError])
def test_environments_that_cannot_be_asked(complaint: type[Exception]) -> None:
    env = Simulator([Echo])
    env.complaint = complaint
    assert augmenter_of(PPO_.plugged(RISK, env)).risk == RISK


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


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [(PPO_, {}), (SAC_, {"learning_starts": 10_000, "train_freq": (1, "episode")})],
    ids=["PPO", "SAC"],
)
def test_every_row_of_the_log_is_of_recent_rewards(
    algorithm: Algorithm, more: dict[str, Any]
) -> None:
    env, log = algorithm.env(), LoggedRows()
    model = algorithm.plugged(RISK, env, window=64, **more)
    model.set_logger(Logger(None, [log]))
    model.learn(256, log_interval=1)
    assert all(0.5 < row["mvpi/reward_variance"] < 50.0 for row in log.rows[1:])
    assert "mvpi/y" in log.rows[0]
    env.scale = 100.0
    model.learn(256, log_interval=1)
    assert log.rows[-1]["mvpi/reward_variance"] > 5_000.0


ALONE = """
import sys
sys.modules["mvpi"] = None
import numpy as np
from stable_baselines3 import SAC
model = SAC.load(sys.argv[1])
action, _ = model.predict(np.ones(2, np.float32), deterministic=True)
print(action.tobytes().hex())
for learn in (model.collect_rollouts, model.train):
    try:
        learn()
    except TypeError as error:
        print(error)
"""


def test_a_saved_model_acts_without_this_package_but_does_not_learn(tmp_path: Path) -> None:
    model = SAC_.plugged(RISK).learn(10)
    model.save(tmp_path / "model.zip")
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path / "model.zip")],
        capture_output=True,
        text=True,
        check=True,
    )
    action, *refusals = done.stdout.splitlines()
    ours = model.predict(np.ones(2, np.float32), deterministic=True)[0]
    assert action == ours.tobytes().hex()
    assert refusals == ["'dict' object is not callable"] * 2


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


class Blocks(Echo):
    """Rewards of rollouts of 5 steps: always 1, or 0 and 1.8 by turns."""

    REWARDS = (1.0, 0.0, 1.0, 1.8)

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, self.REWARDS[(len(self.given) - 1) // 5 % 4], *rest


def test_short_rollouts_know_the_risk_between_them() -> None:
    """Measured within a rollout, `y` would be the reward, which makes `r + lam r^2` of it."""
    run = Rollouts()
    model = risk_averse(A2C, "MlpPolicy", Blocks(), risk=1.0, seed=0, gamma=0.0, device="cpu")
    augmenter = augmenter_of(model)
    model.learn(200, callback=run)
    steady, nothing, _, much = (np.mean(r) for r in run.rewards[-4:])
    expected = RISK.augment(Blocks.REWARDS, float(np.mean(Blocks.REWARDS)))
    np.testing.assert_allclose([steady, nothing, much], expected[[0, 1, 3]], rtol=0.01)
    assert steady > (nothing + much) / 2
    assert augmenter is augmenter_of(model)
    assert augmenter.window == 1_000
    assert augmenter.metrics()["reward_variance"] == pytest.approx(np.var(Blocks.REWARDS))


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
    assert augmenter_of(model).window == 1_024


# What it relies on.


def named(name: str) -> Any:
    module, path = name.split(":")
    thing: Any = import_module(f"stable_baselines3.{module}")
    for part in path.split("."):
        thing = getattr(thing, part)
    return thing


def moved(relies_on: dict[str, tuple[str, ...]]) -> list[str]:
    """Names that are gone or take other arguments."""
    gone = []
    for name, arguments in relies_on.items():
        try:
            missing = set(arguments) - set(inspect.signature(named(name)).parameters)
        except AttributeError:
            missing = {"it is gone"}
        if missing:
            gone.append(f"{name}: {', '.join(sorted(missing))}")
    return gone


def test_sb3_still_has_what_the_plug_relies_on() -> None:
    assert moved(RELIES_ON) == []


@pytest.mark.parametrize(("name", "attributes"), RELIES_ON_ATTRIBUTES.items())
def test_instances_still_have_what_the_plug_reads(name: str, attributes: tuple[str, ...]) -> None:
    classes = [c for c in named(name).__mro__ if c.__module__.startswith("stable_baselines3")]
    source = "".join(map(inspect.getsource, classes))
    for attribute in attributes:
        assert re.search(rf"self\.{attribute}\b.* = |def {attribute}\(", source), attribute


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


# The table of supported algorithms.


def test_a_part_of_the_table_of_algorithms() -> None:
    from sb3 import support_table

    page = support_table.table({("a", "x"): True, ("a", "old"): True, ("b", "x"): False})
    known = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    ran = {("b", "x"): True, ("a", "y"): False}
    new = support_table.table(support_table.merged(ran, known, page))
    assert new.splitlines()[2:] == ["| a | yes | no |", "| b | yes | - |"]


def test_the_table_of_algorithms_is_that_of_the_tests() -> None:
    """What it says is what a run in which everything passes would write."""
    from sb3 import support_table
    from sb3 import test_every_algorithm as tests
    from sb3 import test_export as export
    from sb3 import test_extended_risks as extended
    from sb3 import test_model_files as files
    from sb3 import test_training as training

    columns = (
        *(tests.RISK_0, tests.UPDATE, tests.STATE, tests.SEVERAL),
        *(extended.COLUMNS, files.NO_PICKLE, files.OTHER_RISK, files.ATTACH),
        *(training.RESUMED, export.EXPORT),
    )
    everything = {
        (str(a), column): True
        for a in ALGORITHMS
        for column in columns
        if column != export.EXPORT or a.name not in export.WITHOUT
    }
    assert support_table.on_page() == support_table.table(everything)
