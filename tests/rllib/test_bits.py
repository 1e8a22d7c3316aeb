"""At risk 0 everything is what RLlib makes of it without the plug, bit for bit."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from helpers.rllib_problems import Portfolio, assert_same_bits, brief, dqn, ppo, sac, trained

from mvpi.rllib import augmenter_of, risk_averse

pytestmark = pytest.mark.usefixtures("ray_session")


@pytest.mark.parametrize(
    "plain",
    [
        pytest.param(ppo(), id="PPO"),
        pytest.param(ppo("CartPole-v1").env_runners(num_envs_per_env_runner=3), id="PPO-vector"),
        pytest.param(sac(Portfolio), id="SAC"),
        pytest.param(brief(dqn()), id="DQN", marks=pytest.mark.slow),
        pytest.param(brief(dqn(n_step=3)), id="DQN-3-steps"),
        pytest.param(
            sac(Portfolio, n_step=(1, 4), replay_buffer_config={"type": "EpisodeReplayBuffer"}),
            id="SAC-random-steps-uniform",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_risk_0(plain: Any) -> None:
    wanted, results = trained(plain, 2)
    found, others = trained(risk_averse(plain, risk=0.0), 2)
    assert_same_bits(found, wanted)
    for ours, theirs in zip(others, results, strict=True):
        returns = [r["env_runners"].get("episode_return_mean") for r in (ours, theirs)]
        assert returns[0] == returns[1]
        assert "mvpi" not in theirs
        assert not [key for key in ours["env_runners"] if "mvpi" in key]


def test_a_risk_changes_weights() -> None:
    plain, _ = trained(ppo(), 1)
    averse, _ = trained(risk_averse(ppo(), risk=0.5), 1)
    with pytest.raises(AssertionError):
        assert_same_bits(averse, plain)


def test_the_config_is_a_copy() -> None:
    plain = ppo()
    averse = risk_averse(plain, risk=1.0)
    assert type(averse) is type(plain)
    assert plain._learner_connector is None
    assert plain.callbacks_on_sample_end is None


def test_every_reward_of_cartpole_is_1() -> None:
    algorithm = risk_averse(ppo("CartPole-v1"), risk=1.0).build_algo()
    result = algorithm.train()
    assert isinstance(algorithm.env_runner.env, gym.vector.VectorEnv | gym.vector.VectorWrapper)
    assert augmenter_of(algorithm).y == 1.0
    assert result["mvpi"]["y"] == 1.0
    assert result["mvpi"]["reward_variance"] == 0.0
    algorithm.stop()
