"""Replay buffers of all kinds: what is drawn, what is stored, what is saved."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers.sb3_algorithms import (
    BY_NAME,
    LIMIT,
    OURS_AND_SBX,
    Algorithm,
    Echo,
    Pair,
    Reach,
)
from helpers.sb3_checks import Drawn, equal, weights
from stable_baselines3 import DQN, PPO, SAC, HerReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

from mvpi.errors import InputError, RiskWarning
from mvpi.risk import CVaR, Entropic, MeanVariance, VarianceBudget
from mvpi.sb3 import augmenter_of, risk_averse

RISK = MeanVariance(1.5)
SAC_ = BY_NAME["stable_baselines3.SAC"]
two_libraries = pytest.mark.parametrize("algorithm", OURS_AND_SBX, ids=str)


def check_batches(model: Any, raw_of: Callable[[Any], Any], steps: int = 100) -> None:
    drawn = Drawn(model)
    model.learn(steps)
    assert drawn.batches
    risk = augmenter_of(model).risk
    for batch, y in drawn.batches:
        expected = risk.augment(raw_of(batch), y)
        np.testing.assert_allclose(batch.rewards.numpy()[:, 0], expected, rtol=1e-6, atol=1e-6)


def echoed(batch: Any) -> Any:
    return batch.next_observations[:, 0].numpy()


@pytest.mark.parametrize("risk", [CVaR(0.2, 0.7), Entropic(0.5), MeanVariance(2.0)], ids=str)
def test_any_risk_measure(risk: Any) -> None:
    check_batches(OURS_AND_SBX[0].plugged(risk), echoed)


@two_libraries
def test_dictionaries_of_observations(algorithm: Algorithm) -> None:
    env = Pair(algorithm.env())
    model = risk_averse(algorithm.cls, "MultiInputPolicy", env, risk=RISK, **algorithm.settings)
    assert isinstance(model.replay_buffer, DictReplayBuffer)
    check_batches(model, lambda batch: batch.next_observations["reward"][:, 0].numpy())


@pytest.mark.parametrize(
    ("algorithm", "strategy"),
    [
        pytest.param(a, strategy, id=f"{strategy}-{a}", marks=marks)
        for strategy, slow in (("future", False), ("final", True), ("episode", True))
        for a, marks in zip(OURS_AND_SBX, ([], [pytest.mark.slow] if slow else []), strict=True)
    ],
)
def test_hindsight(algorithm: Algorithm, strategy: str) -> None:
    model = risk_averse(
        algorithm.cls,
        "MultiInputPolicy",
        Reach(),
        risk=RISK,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"goal_selection_strategy": strategy, "n_sampled_goal": 3},
        **algorithm.settings,
    )
    assert isinstance(model.replay_buffer, HerReplayBuffer)

    def raw_of(batch: Any) -> Any:
        achieved = batch.next_observations["achieved_goal"].numpy()
        return -np.abs(achieved - batch.observations["desired_goal"].numpy())[:, 0]

    check_batches(model, raw_of)


@two_libraries
def test_n_steps_sum_augmented_rewards(algorithm: Algorithm) -> None:
    env = algorithm.env()
    model = algorithm.plugged(RISK, env, n_steps=3, gamma=0.9)
    assert isinstance(model.replay_buffer, NStepReplayBuffer)
    drawn = Drawn(model)
    model.learn(100)
    given, actions = np.float32(env.given), model.replay_buffer.actions[:100, 0, 0]
    counts = []
    for batch, y in drawn.batches:
        for i, total in enumerate(batch.rewards.numpy()[:, 0]):
            (at,) = np.flatnonzero(actions == batch.actions[i, 0].item())
            n = round(np.log(batch.discounts[i].item()) / np.log(0.9))
            assert n <= min(3, LIMIT - int(batch.observations[i, 1]))
            expected = sum(0.9**k * RISK.augment(given[at + k], y) for k in range(n))
            assert total == pytest.approx(expected, rel=1e-4, abs=1e-4)
            counts.append(n)
    # Fewer where the episode ends, or where the newest transitions have no successors yet.
    assert set(counts) == {1, 2, 3}


class Own(ReplayBuffer):
    """A user's class that prefers large rewards, and reads them without SB3's help."""

    plug = "a field of the user's own"

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        rows = np.argsort(self.rewards[: self.pos, 0])[-batch_size:]
        columns = (
            self.observations,
            self.actions,
            self.next_observations,
            self.dones,
            self.rewards,
        )
        parts = [self.to_torch(column[rows, 0].reshape(len(rows), -1)) for column in columns]
        return ReplayBufferSamples(*parts)


class OwnSums(Own):
    """A user's class with n-step sums of raw rewards: it cannot be plugged."""

    n_steps = 3


class LateSums(ReplayBuffer):
    """One that passes the sums to `_normalize_reward`, and not what it sums."""

    def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
        batch = super()._get_samples(batch_inds, env)
        sums = self._normalize_reward(3.0 * self.rewards[batch_inds], env)
        discounts = torch.full_like(batch.rewards, 0.9**3)
        return batch._replace(rewards=self.to_torch(sums), discounts=discounts)


class Nameless(Own):
    """One whose batches are not of a kind that SB3 knows."""

    def sample(self, batch_size: int, env: Any = None) -> Any:
        return SimpleNamespace(**super().sample(batch_size, env)._asdict())


class Tensors(ReplayBuffer):
    """One that keeps its rewards on torch's side."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rewards = torch.from_numpy(self.rewards)  # type: ignore[assignment]

    def add(self, *transition: Any) -> None:
        tensor = self.rewards
        self.rewards = tensor.numpy()  # type: ignore[attr-defined]
        super().add(*transition)
        self.rewards = tensor

    def to_torch(self, array: Any, copy: bool = True) -> torch.Tensor:
        return array if isinstance(array, torch.Tensor) else super().to_torch(array, copy)


@two_libraries
def test_a_buffer_of_the_users_own(algorithm: Algorithm) -> None:
    env = algorithm.env()
    model = algorithm.plugged(RISK, env, replay_buffer_class=Own)
    assert isinstance(model.replay_buffer, Own)
    check_batches(model, echoed)
    np.testing.assert_array_equal(model.replay_buffer.rewards[:100, 0], np.float32(env.given))


def test_a_buffer_of_tensors() -> None:
    model = OURS_AND_SBX[0].plugged(RISK, replay_buffer_class=Tensors)
    check_batches(model, echoed)
    again = OURS_AND_SBX[0].plugged(RISK)
    again.replay_buffer = copy.deepcopy(model.replay_buffer)
    again.learn(1)
    assert augmenter_of(again).rewards.size > 100


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (OwnSums, r"OwnSums sums rewards .*_normalize_reward"),
        (LateSums, r"LateSums sums rewards .*_normalize_reward"),
        (Nameless, r"Nameless.sample must return a named tuple .*got SimpleNamespace"),
    ],
)
def test_batches_that_cannot_be_augmented(own: Any, message: str) -> None:
    model = OURS_AND_SBX[0].plugged(RISK, replay_buffer_class=own)
    with pytest.raises(InputError, match=message):
        model.learn(100)


@pytest.mark.filterwarnings("ignore:`n_steps=3` is ignored")
def test_n_steps_are_never_ignored() -> None:
    algorithm = OURS_AND_SBX[1]  # SBX says nothing of it
    with pytest.raises(InputError, match="SB3 ignores n_steps=3 beside a replay_buffer_class"):
        algorithm.plugged(RISK, n_steps=3, replay_buffer_class=ReplayBuffer)
    for odd in (None, "3"):
        with pytest.raises(InputError, match="n_steps must be a whole number >= 1"):
            algorithm.plugged(RISK, n_steps=odd, replay_buffer_class=ReplayBuffer)
    told = {"n_steps": 3, "gamma": 0.99}
    model = algorithm.plugged(
        RISK, n_steps=3, replay_buffer_class=NStepReplayBuffer, replay_buffer_kwargs=told
    )
    assert model.replay_buffer.n_steps == 3


def test_nothing_is_stored_twice() -> None:
    plain = OURS_AND_SBX[0].plain()
    plugged = OURS_AND_SBX[0].plugged(RISK)

    def bytes_in(buffer: Any) -> int:
        return sum(value.nbytes for value in vars(buffer).values() if isinstance(value, np.ndarray))

    assert bytes_in(plugged.replay_buffer) == bytes_in(plain.replay_buffer)


def test_memory_saving_buffers() -> None:
    model = OURS_AND_SBX[0].plugged(
        RISK,
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
    )
    # Where an episode begins, the next observation is that of the reset.
    check_batches(model, lambda batch: raw_by_action(model, batch))


def raw_by_action(model: Any, batch: Any) -> Any:
    stored = model.replay_buffer
    rows = [np.flatnonzero(stored.actions[:, 0, 0] == a)[0] for a in batch.actions[:, 0].numpy()]
    return stored.rewards[rows, 0]


def test_a_ring_that_wraps_many_times() -> None:
    check_batches(OURS_AND_SBX[0].plugged(RISK, buffer_size=30, window=45), echoed, steps=200)


class WithoutInfos(DummyVecEnv):
    """Environments that have infos only when an episode has ended."""

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = super().step_wait()
        return observations, rewards, dones, infos if dones.any() else []


def test_infos_are_read_at_the_end_of_episodes_alone() -> None:
    settings = {"risk": 1.0, "n_steps": 32, "batch_size": 8, "seed": 0}
    plain, without = (
        weights(risk_averse(PPO, "MlpPolicy", envs([Echo, Echo]), **settings).learn(64))
        for envs in (DummyVecEnv, WithoutInfos)
    )
    assert equal(plain, without)


def test_environments_in_processes() -> None:
    envs = SubprocVecEnv([Echo, Echo])
    model = OURS_AND_SBX[0].plugged(RISK, envs)
    check_batches(model, echoed)
    envs.close()


# Saving.


def recent(model: Any) -> Any:
    return np.sort(augmenter_of(model).rewards)


@pytest.mark.parametrize("window", [40, 10_000])
def test_a_saved_buffer_brings_its_rewards(tmp_path: Path, window: int) -> None:
    algorithm = OURS_AND_SBX[0]
    settings = {"window": window, "train_freq": 1}
    model = algorithm.plugged(RISK, **settings)
    model.learn(150)
    model.save_replay_buffer(tmp_path / "replay.pkl")
    model.save(tmp_path / "model.zip")

    fresh = algorithm.plugged(RISK, **settings)
    fresh.load_replay_buffer(tmp_path / "replay.pkl")
    fresh.learn(1, reset_num_timesteps=False)
    both = SAC.load(tmp_path / "model.zip", env=algorithm.env())
    both.load_replay_buffer(tmp_path / "replay.pkl")
    both.learn(1, reset_num_timesteps=False)
    for loaded in (fresh, both):
        kept = min(window, 151)
        assert len(recent(loaded)) == kept
        assert np.isin(recent(loaded), [*recent(model), *loaded.replay_buffer.rewards[150]]).all()
        check_batches(loaded, echoed, steps=60)


def test_the_risk_is_the_models_not_the_buffers(tmp_path: Path) -> None:
    algorithm = OURS_AND_SBX[0]
    plain = algorithm.plain()
    plain.learn(90)
    plain.save_replay_buffer(tmp_path / "plain.pkl")
    averse = algorithm.plugged(0.3)
    averse.learn(90)
    averse.save_replay_buffer(tmp_path / "averse.pkl")
    for name in ("plain.pkl", "averse.pkl"):
        model = algorithm.plugged(RISK, train_freq=1)
        model.load_replay_buffer(tmp_path / name)
        model.learn(1)  # learn attaches what was loaded
        assert augmenter_of(model).risk == RISK
        assert augmenter_of(model).rewards.size == 91
        check_batches(model, echoed)


def test_buffers_can_be_pickled_and_copied() -> None:
    model = OURS_AND_SBX[0].plugged(RISK)
    model.learn(60)
    for again in (
        pickle.loads(pickle.dumps(model.replay_buffer)),
        copy.deepcopy(model.replay_buffer),
    ):
        assert type(again) is type(model.replay_buffer)
        np.testing.assert_array_equal(again.rewards, model.replay_buffer.rewards)
        raw = again.rewards[:60, 0]
        rewards = again.sample(500).rewards.numpy()[:, 0]
        assert np.isin(rewards, RISK.augment(raw, augmenter_of(model).y).astype(np.float32)).all()


def test_a_copy_of_a_model_learns_like_the_model() -> None:
    model = SAC_.plugged(RISK).learn(60)
    twin = copy.deepcopy(model)
    for one in (model, twin):
        one.set_random_seed(1)
        one.learn(60, reset_num_timesteps=False)
    assert equal(weights(twin), weights(model))
    ours, theirs = augmenter_of(twin), augmenter_of(model)
    assert ours is not theirs
    np.testing.assert_array_equal(ours.rewards, theirs.rewards)


def test_two_models_that_share_a_buffer_keep_their_risks() -> None:
    """Each draws with its own risk, whichever learned last."""
    first, second = SAC_.plugged(MeanVariance(1.0)).learn(60), SAC_.plugged(CVaR(0.3)).learn(20)
    second.replay_buffer = first.replay_buffer
    for model in (second, first, second):
        model.train(1, 16)
        own = augmenter_of(model)
        drawn = model.replay_buffer.sample(50).rewards.numpy()
        stored = model.replay_buffer.rewards[:60, 0]
        assert np.isin(drawn, own.augment(stored).astype(np.float32)).all()


def test_a_measure_of_ones_own_is_no_numpy_warning() -> None:
    class Own(MeanVariance):
        name = "own"

        def augment(self, rewards: Any, y: Any) -> Any:
            return np.log(np.asarray(rewards, np.float64))

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(InputError, match="numbers that are not finite"):
            SAC_.plugged(Own(1.0)).learn(60)


def test_hindsight_is_saved(tmp_path: Path) -> None:
    def her(**more: Any) -> Any:
        settings = {**OURS_AND_SBX[0].settings, "replay_buffer_class": HerReplayBuffer, **more}
        return risk_averse(SAC, "MultiInputPolicy", Reach(), risk=RISK, **settings)

    model = her()
    model.learn(80)
    model.save_replay_buffer(tmp_path / "replay.pkl")
    again = her()
    again.load_replay_buffer(tmp_path / "replay.pkl", truncate_last_traj=False)
    again.learn(40)
    assert augmenter_of(again).rewards.size == 120


# What a normalising wrapper may do.


def normalised(**options: Any) -> VecNormalize:
    return VecNormalize(DummyVecEnv([Echo]), **options)


@two_libraries
def test_normalised_observations_are_welcome(algorithm: Algorithm) -> None:
    model = algorithm.plugged(RISK, normalised(norm_reward=False))
    check_batches(model, lambda batch: raw_by_action(model, batch))


@pytest.mark.parametrize("algorithm", [OURS_AND_SBX[0], BY_NAME["stable_baselines3.PPO"]], ids=str)
def test_a_fixed_scale_of_rewards_is_welcome(algorithm: Algorithm) -> None:
    env = normalised(training=False, norm_obs=False)
    env.ret_rms.var = np.array(4.0)
    model = algorithm.plugged(RISK, env)
    if algorithm.kind == "off-policy":
        check_batches(model, lambda batch: echoed(batch) / 2.0)
    else:
        model.learn(100)
    (echo,) = env.unwrapped.envs  # type: ignore[attr-defined]
    assert augmenter_of(model).y == pytest.approx(np.mean(echo.unwrapped.given) / 2.0)


@pytest.mark.parametrize("algorithm", [*OURS_AND_SBX, BY_NAME["stable_baselines3.PPO"]], ids=str)
def test_normalised_rewards_are_refused(algorithm: Algorithm) -> None:
    with pytest.raises(InputError, match=r"VecNormalize\(norm_reward=True\) .*norm_reward=False"):
        algorithm.plugged(RISK, normalised())
    later = algorithm.plugged(RISK)
    later.set_env(normalised())
    with pytest.raises(InputError, match="norm_reward=False"):
        later.learn(100)
    wrapped = gym.wrappers.NormalizeReward(Echo())
    with pytest.raises(InputError, match="NormalizeReward divides rewards"):
        algorithm.plugged(RISK, wrapped)


def test_a_variance_budget_raises_its_price() -> None:
    model = risk_averse(
        DQN,
        "MlpPolicy",
        Echo(discrete=True, scale=3.0),
        risk=VarianceBudget(1.0),
        learning_starts=2_000,
    )
    with pytest.warns(RiskWarning, match="Huber's loss.* and the variance limit by"):
        model.learn(1_900)
    price = augmenter_of(model).risk.risk_aversion  # type: ignore[attr-defined]
    assert price == pytest.approx(0.5 + 0.05)  # one measurement, of more than twice the limit
