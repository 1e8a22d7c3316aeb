"""What learners are given, by three routes: the formula, the connector alone, whole algorithms."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from helpers.rllib_problems import Gamble, Portfolio, Seen, brief, dqn, ppo, sac, watching
from ray.rllib.connectors.learner import AddOneTsToEpisodesAndTruncate
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.replay_buffers.episode_replay_buffer import EpisodeReplayBuffer
from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer

import mvpi
from mvpi.rllib import augmenter_of, risk_averse
from mvpi.rllib._connector import AugmentRewards
from mvpi.rllib._replay import draws_new_episodes
from mvpi.rllib._runner import sampled


@pytest.fixture(autouse=True)
def _forget() -> None:
    Seen.forget()


def chunk(rewards: list[float], before: int = 0, terminated: bool = False) -> Any:
    """A chunk of an episode, of which `before` rewards belong to the chunk before."""
    n = len(rewards)
    episode = SingleAgentEpisode(
        observations=[np.zeros(1)] * (n + 1),
        actions=[0] * n,
        rewards=rewards,
        terminated=terminated,
        t_started=before,
        len_lookback_buffer=before,
    )
    return episode.to_numpy()


def piped(episodes: list[Any], risk: Any, y: float) -> Any:
    """The episodes as the pieces after ours see them, behind RLlib's artificial step."""
    shared: dict[str, Any] = {}
    ours = AugmentRewards()
    ours.use(mvpi.risk.as_risk(risk), y)
    seen = list(episodes)
    for piece in (AddOneTsToEpisodesAndTruncate(), ours):
        piece(rl_module=None, batch={}, episodes=seen, shared_data=shared)
    return seen


@pytest.mark.parametrize("risk", [mvpi.MeanVariance(0.7), mvpi.CVaR(0.2), mvpi.Entropic(0.3)])
def test_the_connector(risk: Any) -> None:
    rewards = [[1.0, 2.0, -0.5], [4.0]]
    new = piped([chunk(r) for r in rewards], risk, 1.5)
    for episode, raw in zip(new, rewards, strict=True):
        assert episode.get_rewards().tolist() == [*risk.augment(raw, 1.5), 0.0]


def test_what_others_hold_stays_raw() -> None:
    """Env runners keep chunks for their metrics; what came before a chunk is not augmented."""
    episode = chunk([9.0, 9.0, 1.0, 2.0], before=2)
    (new,) = piped([episode], 1.0, 0.5)
    assert episode.rewards.data.tolist() == [9.0, 9.0, 1.0, 2.0, 0.0]  # RLlib's step, not ours
    assert new.rewards.data.tolist() == [9.0, 9.0, 1.0, 0.0, 0.0]  # 2 - 4 + 2 * 2 * 0.5


def test_arrays_from_the_object_store() -> None:
    """They cannot be written to."""
    episode = chunk([1.0, 2.0])
    episode.rewards.data.flags.writeable = False
    new = [episode]
    ours = AugmentRewards()
    ours.use(mvpi.MeanVariance(1.0), 0.0)
    ours(rl_module=None, batch={}, episodes=new, shared_data={})
    assert new[0].get_rewards().tolist() == [0.0, -2.0]


def test_whole_numbers_as_rewards() -> None:
    (new,) = piped([chunk([1, 2])], 0.25, 0.0)
    assert new.get_rewards().tolist() == [0.75, 1.0, 0.0]


def test_what_env_runners_report() -> None:
    reported = sampled([chunk([9.0, 1.0, 2.0], before=1), chunk([3.0], terminated=True)])
    assert reported.rewards.tolist() == [1.0, 2.0, 3.0]
    assert reported.times.tolist() == [1, 2, 0]
    assert reported.terminated.tolist() == [False, False, True]
    assert sampled([]).rewards.size == 0


def test_no_y_is_an_error() -> None:
    with pytest.raises(mvpi.InputError, match=r"told no y.*call risk_averse last"):
        AugmentRewards()(rl_module=None, batch={}, episodes=[chunk([1.0])], shared_data={})


def test_too_large_for_float32() -> None:
    ours = AugmentRewards()
    ours.use(mvpi.MeanVariance(1.0), 0.0)
    with pytest.raises(mvpi.InputError, match=r"beyond what float32 can hold"):
        ours(rl_module=None, batch={}, episodes=[chunk([1e30])], shared_data={})


def given(episodes: list[Any], *, drawn_anew: bool) -> list[Any]:
    """Rewards of drawn episodes as learners are given them."""
    ours = AugmentRewards()
    ours.use(mvpi.CVaR(0.3), 0.4, drawn_anew=drawn_anew)
    ours(rl_module=None, batch={}, episodes=episodes, shared_data={})
    return [float(episode.get_rewards(0)) for episode in episodes]


@pytest.mark.parametrize("kind", [EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer])
def test_what_is_drawn_is_augmented_without_copies(kind: Any) -> None:
    """The same numbers as by copies, and what the buffer holds stays raw."""
    raw = np.random.default_rng(0).normal(size=(6, 5))
    draws = []
    for drawn_anew in (False, True):
        buffer = kind(capacity=100)
        buffer.rng = np.random.default_rng(1)
        buffer.add([chunk(rewards, terminated=True) for rewards in raw.tolist()])
        assert draws_new_episodes(buffer)
        new = []
        for _ in range(3):
            drawn = buffer.sample(50, n_step=1, gamma=0.9, sample_episodes=True)
            before = [float(episode.get_rewards(0)) for episode in drawn]
            new.append(given(drawn, drawn_anew=drawn_anew))
            np.testing.assert_array_equal(new[-1], mvpi.CVaR(0.3).augment(before, 0.4))
        draws.append(new)
        stored = [episode.get_rewards() for episode in buffer.episodes]
        np.testing.assert_array_equal(stored, raw)
    assert draws[0] == draws[1]


def test_buffers_of_the_user_are_not_trusted() -> None:
    class Own(EpisodeReplayBuffer):
        """May return what it holds."""

    assert not draws_new_episodes(Own())
    assert not draws_new_episodes(None)


# ---- whole algorithms -----------------------------------------------------------------------


def test_ppo_learns_from_its_batch(build: Any) -> None:
    """`y` of the batch; the connector of the user comes after ours and sees augmented rewards."""
    algorithm = build(risk_averse(watching(ppo(train_batch_size=1200)), risk=0.5))
    result = algorithm.train()
    (seen,) = Seen.kept
    raw = augmenter_of(algorithm).rewards
    y = float(np.mean(raw))
    ones, threes, artificial = (np.isclose(seen, r).sum() for r in _augmented(y))
    assert augmenter_of(algorithm).y == y == result["mvpi"]["y"]
    assert result["mvpi"]["reward_variance"] == pytest.approx(np.var(raw))
    assert (ones, threes) == ((raw == 1.0).sum(), (raw == 3.0).sum())
    assert ones + threes == raw.size >= 1200
    assert ones + threes + artificial == len(seen)
    assert result["env_runners"]["episode_return_min"] >= 5.0  # raw: 5 steps of 1 at least


def _augmented(y: float) -> list[float]:
    return [*mvpi.MeanVariance(0.5).augment([1.0, 3.0], y), 0.0]


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("kind", ["EpisodeReplayBuffer", "PrioritizedEpisodeReplayBuffer"])
def test_replay_stays_raw(build: Any, n_step: int, kind: str) -> None:
    """Drawn rewards, and sums of several, against sums of augmented ones from the buffer."""
    config = brief(dqn(n_step=n_step, gamma=0.5, replay_buffer_config={"type": kind}))
    algorithm = build(risk_averse(watching(config), risk=0.5))
    algorithm.train()
    y = augmenter_of(algorithm).y
    buffer = algorithm.local_replay_buffer
    raw = [np.asarray(e.get_rewards()) for e in buffer.episodes]
    assert {*np.concatenate(raw)} == {1.0, 3.0}
    assert augmenter_of(algorithm).rewards.size == sum(map(len, raw))  # as sampled, not as drawn
    augmented = [mvpi.MeanVariance(0.5).augment(r, y) for r in raw]
    possible = [
        sum(0.5**k * r for k, r in enumerate(rewards[i : i + n_step]))
        for rewards in augmented
        for i in range(len(rewards))
    ]
    drawn = np.array(Seen.kept[-1])
    assert np.abs(drawn[:, None] - possible).min(axis=1).max() < 1e-12


def test_a_budget_finds_its_risk_aversion(build: Any) -> None:
    """By the same steps as an `Augmenter` that is shown the same rewards."""
    budget = mvpi.VarianceBudget(0.3)
    algorithm = build(risk_averse(ppo(train_batch_size=1000), risk=budget))
    by_hand = mvpi.Augmenter(budget, window=1000)
    for _ in range(2):
        result = algorithm.train()
        ours = augmenter_of(algorithm)
        by_hand.resize(ours.window)
        by_hand.observe(np.array(ours.rewards))
        assert ours.risk == by_hand.risk
        assert result["mvpi"]["risk_aversion"] == by_hand.risk.risk_aversion > 0.91


def test_off_policy_window_and_evaluation(build: Any) -> None:
    """`window` rewards at most; those of evaluations are not among them."""
    config = dqn().evaluation(evaluation_interval=1, evaluation_num_env_runners=0)
    config = config.evaluation(evaluation_duration=3)
    algorithm = build(risk_averse(config, risk=0.1, window=50))
    result = algorithm.train()
    assert augmenter_of(algorithm).rewards.size == 50
    steps = result["env_runners"]["num_env_steps_sampled_lifetime"]
    assert augmenter_of(algorithm).state()[1]["observed"] == steps
    assert not [key for key in result["evaluation"]["env_runners"] if "mvpi" in key]


def test_evaluation_on_the_env_runner_that_trains(build: Any) -> None:
    """Without `config.evaluation(...)`: its rewards are neither observed nor left in results."""
    algorithm = build(risk_averse(ppo(), risk=0.1))
    algorithm.train()
    before = augmenter_of(algorithm).state()[1]["observed"]
    found = algorithm.evaluate()["env_runners"]
    assert found["num_episodes"] > 0
    assert not [key for key in found if "mvpi" in key]
    assert augmenter_of(algorithm).state()[1]["observed"] == before


def test_discounted_occupancy(build: Any) -> None:
    """Whole episodes that terminate, every step of which pays 1: a mean of 1 - gamma^length."""
    config = ppo("CartPole-v1", gamma=0.9, train_batch_size=1000)
    config = config.env_runners(batch_mode="complete_episodes")
    algorithm = build(risk_averse(config, risk=0.1, occupancy="discounted"))
    kept: list[Any] = []
    plain = algorithm._mvpi.observe
    algorithm._mvpi.observe = lambda samples: (kept.extend(samples), plain(samples))
    algorithm.train()
    times = np.concatenate([sample.times for sample in kept])
    terminated = np.concatenate([sample.terminated for sample in kept])
    assert terminated.sum() > 20
    expected = np.mean(1.0 - 0.9 ** (times[terminated] + 1))
    assert augmenter_of(algorithm).y == pytest.approx(expected)


def test_deep_copies_of_a_config() -> None:
    config = risk_averse(sac(Portfolio), risk=0.3)
    assert deepcopy(config)._learner_connector == config._learner_connector
    assert config.env == Portfolio
    assert ppo().env is Gamble
