"""The risk of the return, and ranges of risk aversions: what learners are given, and who acts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.rllib_problems import (
    Bets,
    Gamble,
    Seen,
    assert_same_bits,
    brief,
    dqn,
    ppo,
    sac,
    trained,
    watching,
)
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.connectors.env_to_module import FlattenObservations, MeanStdFilter
from ray.rllib.connectors.learner import AddOneTsToEpisodesAndTruncate
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

import mvpi
from mvpi.augmenter.columns import Columns
from mvpi.envs import ReturnSoFar
from mvpi.rllib import augmenter_of, policy_of, risk_averse
from mvpi.rllib._connector import AugmentRewards
from mvpi.rllib._replay import STEPS

RANGE = mvpi.RiskRange(0.5, 2.0)
RISKS = [
    mvpi.OfReturn(0.7),
    mvpi.OfReturn(mvpi.CVaR(0.3)),
    RANGE,
    mvpi.OfReturn(RANGE),
]


@pytest.fixture(autouse=True)
def _forget() -> None:
    Seen.forget()


def chunk(risk: mvpi.Risk, rewards: list[float], lam: float, earned: float, before: int = 0) -> Any:
    """A chunk of an episode that had earned something before it, its observations extended."""
    columns = Columns(risk)
    so_far = earned + np.append(0.0, np.cumsum(rewards))
    raw = columns.raw({"risk_aversion": lam, "return_so_far": so_far}, so_far.shape)
    seen = np.concatenate([np.full((len(so_far), 2), 7.0), columns.encode(raw)], axis=1)
    return SingleAgentEpisode(
        observations=list(seen.astype(np.float32)),
        actions=[0] * len(rewards),
        rewards=rewards,
        t_started=before,
        len_lookback_buffer=before,
    ).to_numpy()


def piped(episodes: list[Any], risk: Any, y: Any, drawn: bool = False) -> list[Any]:
    """As pieces after ours see them: sampled, with an artificial step, or drawn from a buffer."""
    columns = Columns(risk)
    ours = AugmentRewards(columns=columns, redraws=drawn and "risk_aversion" in columns)
    ours.use(risk, y, seed=0)
    seen, shared = list(episodes), {}
    for piece in [ours] if drawn else [AddOneTsToEpisodesAndTruncate(), ours]:
        piece(rl_module=None, batch={}, episodes=seen, shared_data=shared)
    return seen


def by_hand(risk: mvpi.Risk, rewards: Any, y: float, lam: float, earned: float) -> list[float]:
    """One reward after the other, by the measure of one risk aversion."""
    of_return = isinstance(risk, mvpi.OfReturn)
    one = risk.risk if of_return else risk
    one = mvpi.MeanVariance(lam) if isinstance(one, mvpi.RiskRange) else one
    augmented = []
    for reward in rewards:
        augmented.append(float(one.augment(reward, y - of_return * earned)))
        earned += reward
    return augmented


@pytest.mark.parametrize("risk", RISKS, ids=str)
def test_the_connector(risk: Any) -> None:
    """Chunks from the middle of episodes; RLlib's artificial step stays 0."""
    given = [([1.0, 2.0, -0.5], 0.5, 3.0), ([4.0], 2.0, 0.0), ([0.0, 1.0], 1.25, -2.0)]
    before = [chunk(risk, *one) for one in given]
    new = piped(before, risk, 1.5)
    for episode, (rewards, lam, earned) in zip(new, given, strict=True):
        expected = [*by_hand(risk, rewards, 1.5, lam, earned), 0.0]
        assert episode.get_rewards() == pytest.approx(expected, rel=1e-5)
    assert [list(e.get_rewards()) for e in before] == [[*rewards, 0.0] for rewards, _, _ in given]


def test_the_return_telescopes() -> None:
    """Augmented rewards of an episode sum to its augmented return, however it is cut."""
    risk, rewards = mvpi.OfReturn(0.7), [1.0, -2.0, 3.0, 0.5]
    parts = [chunk(risk, rewards[:1], 0.0, 0.0), chunk(risk, rewards[1:], 0.0, 1.0)]
    total = sum(sum(e.get_rewards()) for e in piped(parts, risk, 1.2))
    assert total == pytest.approx(float(risk.augment(sum(rewards), 1.2)), rel=1e-5)


def test_what_came_before_a_chunk_is_not_counted() -> None:
    """Rewards in the lookback buffer are in the return so far already."""
    risk = mvpi.OfReturn(1.0)
    episode = chunk(risk, [9.0, 9.0, 1.0, 2.0], 0.0, 0.0, before=2)
    (new,) = piped([episode], risk, 20.0)
    assert new.rewards.data[:2].tolist() == [9.0, 9.0]
    assert new.get_rewards()[:2] == pytest.approx(by_hand(risk, [1.0, 2.0], 20.0, 0.0, 18.0), 1e-4)


def test_y_along_a_range() -> None:
    y = np.linspace(3.0, 1.0, 11)  # of the coordinate, from -1 to 1: y(1.0) = 2
    (new,) = piped([chunk(RANGE, [1.0], 1.0, 0.0)], RANGE, y)
    assert new.get_rewards()[0] == pytest.approx(1.0 - 1.0 + 2.0 * 2.0, rel=1e-5)


@pytest.mark.parametrize("risk", [RANGE, mvpi.OfReturn(RANGE)], ids=str)
def test_drawn_transitions_get_fresh_risk_aversions(risk: Any) -> None:
    """The same in both observations, another in each transition; what the buffer holds stays."""
    before = [chunk(risk, [0.5 + i % 3], 1.0, float(i)) for i in range(200)]
    columns, names = Columns(risk), Columns(risk).names
    new = piped(before, risk, 1.5, drawn=True)
    drawn = []
    for i, episode in enumerate(new):
        seen = columns.decode(episode.get_observations()[:, 2:])
        assert episode.get_observations()[:, :2].tolist() == [[7.0, 7.0]] * 2
        assert before[i].get_observations()[0, 2 + names.index("risk_aversion")] == 0.0
        first, second = columns.named(seen)["risk_aversion"]
        assert first == second
        if "return_so_far" in names:
            assert columns.named(seen)["return_so_far"] == pytest.approx([i, i + 0.5 + i % 3], 1e-5)
        rewards = by_hand(risk, [0.5 + i % 3], 1.5, first, i)
        assert episode.get_rewards() == pytest.approx(rewards, rel=1e-4, abs=1e-4)
        drawn.append(first)
    beyond = 4.0**0.1  # a tenth of the range on a logarithmic scale, see RiskRange.draw
    assert 0.5 / beyond - 1e-6 <= min(drawn) < 0.5
    assert 2.0 < max(drawn) <= 2.0 * beyond + 1e-6
    assert np.mean(np.log(drawn)) == pytest.approx(0.0, abs=0.15)  # uniform on a log scale


def test_sums_over_several_steps() -> None:
    """Of what was earned on the way, with the return so far of every step."""
    risk = mvpi.OfReturn(0.5)
    episode = chunk(risk, [99.0], 0.0, 2.0)
    episode.custom_data[STEPS] = (np.array([1.0, -1.0, 2.0]), 0.9)
    (new,) = piped([episode], risk, 1.5, drawn=True)
    steps = by_hand(risk, [1.0, -1.0, 2.0], 1.5, 0.0, 2.0)
    assert new.get_rewards() == pytest.approx([np.dot(0.9 ** np.arange(3), steps)], rel=1e-5)


# ---- whole algorithms -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(ppo().env_runners(num_envs_per_env_runner=3), id="PPO-vector"),
        pytest.param(dqn(), id="DQN", marks=pytest.mark.slow),
        pytest.param(dqn(n_step=3, gamma=0.5), id="DQN-3-steps"),
        pytest.param(sac(), id="SAC"),
    ],
)
def test_the_return_of_whole_algorithms(build: Any, config: Any) -> None:
    """`y` is RLlib's own mean return; drawn rewards are those of the formula."""
    risk = mvpi.OfReturn(0.5)
    algorithm = build(risk_averse(watching(config), risk=risk, return_scale=10.0))
    columns = Columns(risk, 10.0)
    result = algorithm.train()
    while not Seen.episodes:  # SAC learns from 40 steps on, and has 30 in an iteration
        result = algorithm.train()
    y = augmenter_of(algorithm).y
    if "PPO" in type(algorithm).__name__:  # one sample: RLlib's mean is over the same episodes
        assert y == pytest.approx(result["env_runners"]["episode_return_mean"], rel=1e-6)
    assert result["mvpi"]["y"] == y == result["mvpi"]["return_mean"]
    drawn = Seen.episodes[-1]
    checked = 0
    for episode in drawn:
        so_far = columns.decode(np.asarray(episode.get_observations())[:, 2:])[:, 0]
        raw = np.diff(so_far)
        steps, gamma = episode.custom_data.get(STEPS, (raw, 0.0))
        steps = raw[:-1] if Seen.kept and len(raw) > 1 else steps  # the artificial step
        assert np.sum(steps) == pytest.approx(raw.sum(), abs=1e-4)
        expected = by_hand(risk, steps, y, 0.0, so_far[0])
        if STEPS in episode.custom_data:
            expected = [np.dot(gamma ** np.arange(len(steps)), expected)]
        found = np.asarray(episode.get_rewards())[: len(expected)]
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-3)
        checked += 1
    assert checked >= 16


def test_complete_episodes_are_acted_with_many_risk_aversions(build: Any) -> None:
    """With a seed and whole episodes RLlib resets with that seed before every sample."""
    config = ppo().env_runners(batch_mode="complete_episodes")
    algorithm = build(risk_averse(config, risk=RANGE))
    kept: list[Any] = []
    plain = algorithm._mvpi.observe
    algorithm._mvpi.observe = lambda samples: (kept.extend(samples), plain(samples))
    algorithm.train()
    began = np.concatenate([sample.times for sample in kept]) == 0
    acted = np.concatenate([sample.seen for sample in kept])[began, 0, 0]
    assert acted.size > 20
    assert np.unique(acted).size == acted.size


def test_a_return_ends_where_its_episode_is_cut(build: Any) -> None:
    """Nothing is bootstrapped there: half of the episodes of `Gamble` are cut."""
    algorithm = build(risk_averse(dqn(), risk=mvpi.OfReturn(0.5)))
    algorithm.train()
    ended = [e for e in algorithm.local_replay_buffer.episodes if e.is_done]
    assert {len(e) for e in ended} == {5, 7}
    assert all(e.is_terminated and not e.is_truncated for e in ended)
    returns = [e.get_return() for e in ended]
    assert augmenter_of(algorithm).y == pytest.approx(np.mean(returns), rel=1e-6)


def test_before_any_episode_has_ended(build: Any) -> None:
    """`y` is the mean of returns so far, and is that of returns as soon as there is one."""
    config = ppo("Pendulum-v1", train_batch_size=60, minibatch_size=60)
    config.reporting(min_sample_timesteps_per_iteration=60)
    algorithm = build(risk_averse(watching(config), risk=mvpi.OfReturn(0.01)))
    result = algorithm.train()
    assert not augmenter_of(algorithm).ready
    assert "mvpi" not in result
    (episode,) = Seen.episodes[0]
    so_far = Columns(mvpi.OfReturn(0.01)).decode(episode.get_observations()[:60, 3:])[:, 0]
    raw = np.append(np.diff(so_far), 0.0)
    y = so_far[-1] + algorithm._mvpi.augmenter.rewards[-1]
    found = np.asarray(episode.get_rewards())[:59]
    assert found == pytest.approx(by_hand(mvpi.OfReturn(0.01), raw[:59], y, 0.0, 0.0), rel=1e-2)
    for _ in range(3):
        result = algorithm.train()
    assert result["mvpi"]["y"] == pytest.approx(result["env_runners"]["episode_return_mean"], 1e-4)


class CartPoleSoFar(ReturnSoFar):
    """What RLlib would be given by hand."""

    def __init__(self, config: Any) -> None:
        super().__init__(gym.make("CartPole-v1"))


def test_risk_0_is_the_plain_algorithm(ray_session: None) -> None:
    """On the environment with the return so far, bit for bit."""
    wanted, _ = trained(ppo(CartPoleSoFar), 2)
    found, _ = trained(risk_averse(ppo("CartPole-v1"), risk=mvpi.OfReturn(0.0)), 2)
    assert_same_bits(found, wanted)


@pytest.mark.parametrize(
    ("config", "risk"),
    [
        pytest.param(ppo(), mvpi.OfReturn(mvpi.VarianceBudget(4.0)), id="PPO"),
        pytest.param(dqn(), mvpi.OfReturn(RANGE), id="DQN"),
    ],
)
def test_checkpoints(build: Any, config: Any, risk: Any, tmp_path: Path) -> None:
    """`y`, the window and what the policy does survive; a damaged file changes nothing."""
    algorithm = build(risk_averse(config, risk=risk))
    algorithm.train()
    again = Algorithm.from_checkpoint(algorithm.save_to_path(str(tmp_path)))
    before, after = augmenter_of(algorithm), augmenter_of(again)
    lam = None if mvpi.risk.range_of(risk) is None else 1.0
    for one, other in zip(before.state()[0].values(), after.state()[0].values(), strict=True):
        assert one.tobytes() == other.tobytes()
    assert after.risk == before.risk
    assert after.metrics() == before.metrics()
    policies = [policy_of(a, lam) for a in (algorithm, again)]
    for earned in (-3.0, 0.0, 8.0):
        one, other = (p.predict(np.zeros(2, np.float32), earned) for p in policies)
        assert one == other
    state = again.get_state("mvpi")["mvpi"]
    for name, bad in [("samples_counts", [np.inf, 1.0]), ("samples", np.zeros((3, 1)))]:
        damaged = {**state["arrays"], name: np.array(bad)}
        with pytest.raises(mvpi.InputError):
            again._mvpi.set_state({**state, "arrays": damaged})
        assert augmenter_of(again).metrics() == before.metrics()
    again.train()
    again.stop()


def test_acting_at_a_risk_aversion(build: Any) -> None:
    """Policies by hand and by RLlib's own evaluation see the risk aversion that was chosen."""
    chosen = {"env_config": {"mvpi": {"risk_aversion": 2.0}}}
    config = ppo(Bets).evaluation(
        evaluation_interval=1, evaluation_num_env_runners=0, evaluation_config=chosen
    )
    algorithm = build(risk_averse(config, risk=mvpi.OfReturn(RANGE)))
    algorithm.train()
    (env,) = algorithm.eval_env_runner.env.unwrapped.envs
    env.reset(seed=0)
    assert env.get_wrapper_attr("raw").tolist() == [2.0, 0.0]
    policy = policy_of(algorithm, 2.0)
    observation, module = np.zeros(1, np.float32), algorithm.get_module()
    for earned in (0.0, 3.0):
        seen = np.array([[0.0, 1.0, np.arcsinh(earned)]], np.float32)
        logits = module.forward_inference({"obs": algorithm_tensor(seen)})["action_dist_inputs"]
        best = int(logits.argmax())
        assert policy.predict(observation, return_so_far=earned) == best
    assert mvpi.evaluate(policy, episodes=3).lengths.tolist() == [3, 3, 3]
    assert mvpi.evaluate(policy, Bets, episodes=3).lengths.tolist() == [3, 3, 3]
    for wrong, words in [(None, "from 0.5 to 2: policy_of"), (3.0, "in the range of training")]:
        with pytest.raises(mvpi.InputError, match=words):
            policy_of(algorithm, wrong)
    with pytest.raises(mvpi.InputError, match="return so far"):
        policy.predict(observation)


def algorithm_tensor(values: Any) -> Any:
    import torch

    return torch.as_tensor(values)


def test_a_connector_that_changes_observations_is_noticed(build: Any) -> None:
    config = ppo().env_runners(env_to_module_connector=lambda *_, **__: MeanStdFilter())
    algorithm = build(risk_averse(config, risk=mvpi.OfReturn(0.5)))
    with pytest.raises(mvpi.InputError, match="such as MeanStdFilter"):
        algorithm.train()


def test_another_environment_for_evaluation_after_risk_averse(build: Any) -> None:
    config = risk_averse(ppo(), risk=mvpi.OfReturn(0.5))
    config.evaluation(evaluation_num_env_runners=0, evaluation_interval=1)
    with pytest.raises(mvpi.InputError, match="would not be extended"):
        build(config.evaluation(evaluation_config={"env": Gamble}))


class NoNumbers(Gamble):
    """Now and then a reward that is no number."""

    def step(self, action: int) -> Any:
        observation, reward, *rest = super().step(action)
        return (observation, np.nan if self._time == 3 else reward, *rest)


@pytest.mark.parametrize("risk", [mvpi.MeanVariance(0.5), mvpi.OfReturn(RANGE)], ids=str)
def test_rewards_that_are_no_numbers(build: Any, risk: Any) -> None:
    """The policy sees none of them, so that the error is that of the rewards."""
    algorithm = build(risk_averse(ppo(NoNumbers), risk=risk))
    with pytest.raises(mvpi.InputError, match="rewards must be finite, the environment gave nan:"):
        algorithm.train()


class Dictionaries(gym.ObservationWrapper[Any, Any, Any]):
    """`Gamble` with observations of two parts."""

    def __init__(self, config: Any) -> None:
        super().__init__(Gamble())
        parts = {"a": self.env.observation_space, "z": gym.spaces.Discrete(3)}
        self.observation_space = gym.spaces.Dict(parts)

    def observation(self, observation: Any) -> Any:
        return {"a": observation, "z": 1}


class Flattened(gym.wrappers.FlattenObservation[Any, Any, Any]):
    def __init__(self, config: Any) -> None:
        super().__init__(Dictionaries(config))


def test_dictionaries_are_flattened_by_the_environment(build: Any) -> None:
    flat = {"env_to_module_connector": lambda *_, **__: FlattenObservations()}
    algorithm = build(risk_averse(ppo(Dictionaries).env_runners(**flat), risk=RANGE))
    with pytest.raises(mvpi.InputError, match="or FlattenObservation of gymnasium"):
        algorithm.train()
    result = build(risk_averse(ppo(Flattened), risk=RANGE)).train()
    assert result["mvpi"]["y_low"] > 0.0


def test_the_seed_may_be_set_after_risk_averse(build: Any) -> None:
    """Risk aversions that learners draw follow from the seed of the config that is built."""

    def drawn(config: Any) -> list[float]:
        Seen.forget()
        algorithm = build(risk_averse(watching(brief(config)), risk=RANGE).debugging(seed=7))
        algorithm.local_replay_buffer.rng = np.random.default_rng(0)
        algorithm.train()
        return [float(e.get_observations(0)[-1]) for e in Seen.episodes[0]]

    assert drawn(dqn().debugging(seed=1)) == drawn(dqn().debugging(seed=2))


def test_refusals() -> None:
    risk = mvpi.OfReturn(0.5)
    vector = ppo().env_runners(gym_env_vectorize_mode="vector_entry_point")
    other = ppo().evaluation(evaluation_config={"env": "CartPole-v1"})
    chosen = ppo().evaluation(evaluation_config={"env_config": {"mvpi": {"risk_aversion": 1.0}}})
    for config, words in [
        (ppo(None), r"call config\.environment"),
        (vector, 'gym_env_vectorize_mode="sync"'),
        (ppo().environment(env_config={"mvpi": 1}), "rename it"),
        (other, "evaluation_config="),
        (chosen, "leave risk_aversion out"),
    ]:
        with pytest.raises(mvpi.InputError, match=words) as caught:
            risk_averse(config, risk=risk)
        assert "\n" not in str(caught.value)
    with pytest.raises(mvpi.InputError, match="discounted occupancy"):
        risk_averse(ppo(), risk=risk, occupancy="discounted")
    with pytest.raises(mvpi.InputError, match="return_scale"):
        risk_averse(ppo(), risk=risk, return_scale=0.0)
    with pytest.raises(mvpi.InputError, match="call risk_averse last"):
        risk_averse(ppo(), risk=risk).environment(Gamble).build_algo()
