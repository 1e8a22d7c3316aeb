"""Several env runners, several learners, asynchronous algorithms: one `y` for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.rllib_problems import Portfolio, appo, dqn, impala, ppo, sac, weights

import mvpi
from mvpi.rllib import augmenter_of, policy_of, risk_averse
from mvpi.rllib._connector import AugmentRewards

pytestmark = [pytest.mark.usefixtures("ray_session"), pytest.mark.slow]


def told(worker: Any) -> Any:
    """The risk and `y` that a learner or an aggregator has."""
    pieces = worker._learner_connector.connectors
    (ours,) = (piece for piece in pieces if isinstance(piece, AugmentRewards))
    return ours.risk, ours.y


def learners(algorithm: Any) -> list[Any]:
    return [result.get() for result in algorithm.learner_group.foreach_learner(told)]


@pytest.mark.parametrize("make", [ppo, dqn], ids=["PPO", "DQN"])
def test_two_learners_share_y(build: Any, make: Any) -> None:
    config = make().learners(num_learners=2).env_runners(num_env_runners=2)
    risk = mvpi.VarianceBudget(0.3)
    algorithm = build(risk_averse(config, risk=risk))
    for _ in range(6):  # beyond 1,000 rewards, after which the budget is adapted
        result = algorithm.train()
        ours = augmenter_of(algorithm)
        assert learners(algorithm) == [(ours.risk, ours.y)] * 2
        assert ours.y == np.mean(ours.rewards) == result["mvpi"]["y"]
    assert 1.0 < ours.y < 3.0
    assert ours.risk.risk_aversion != mvpi.risk.learnable(risk).risk_aversion


def test_two_learners_are_two_halves(build: Any) -> None:
    """Each has another half of the batch, and neither has a `y` of its own half."""
    config = ppo("CartPole-v1", train_batch_size=400).learners(num_learners=2)
    algorithm = build(risk_averse(config, risk=1.0))
    algorithm.train()
    assert learners(algorithm) == [(mvpi.MeanVariance(1.0), 1.0)] * 2


def test_two_learners_share_y_along_a_range(build: Any) -> None:
    """Restored too, by another number of learners and env runners than saved it."""
    risk = mvpi.OfReturn(mvpi.RiskRange(0.5, 2.0))
    saved = build(risk_averse(ppo().env_runners(num_envs_per_env_runner=3), risk=risk))
    saved.train()
    config = ppo().learners(num_learners=2).env_runners(num_env_runners=1)
    algorithm = build(risk_averse(config, risk=risk))
    algorithm._mvpi.set_state(saved.get_state("mvpi")["mvpi"])
    for _ in range(2):
        (one, along), (other, along_other) = learners(algorithm)
        ours = augmenter_of(algorithm)
        assert one == other == ours.risk
        assert np.ptp(along) > 0.0
        np.testing.assert_array_equal(along, along_other)
        assert [along[0], along[-1]] == [*ours.y_at([0.5, 2.0])]
        algorithm.train()


@pytest.mark.parametrize("make", [impala, appo], ids=["IMPALA", "APPO"])
@pytest.mark.parametrize(("num_learners", "aggregators"), [(0, 0), (1, 0), (2, 0), (1, 1)], ids=str)
def test_asynchronous(build: Any, make: Any, num_learners: int, aggregators: int) -> None:
    config = make("CartPole-v1").env_runners(num_env_runners=2)
    config.learners(num_learners=num_learners, num_aggregator_actors_per_learner=aggregators)
    algorithm = build(risk_averse(config, risk=0.2))
    for _ in range(3):
        result = algorithm.train()
    assert result["mvpi"]["y"] == 1.0
    assert result["mvpi"]["reward_variance"] == 0.0
    assert result["learners"]["__all_modules__"]["num_env_steps_trained_lifetime"] > 0
    if aggregators:
        manager = algorithm._aggregator_actor_manager
        found = [result.get() for result in manager.foreach_actor(told)]
    else:
        found = learners(algorithm)
    assert found == [(mvpi.MeanVariance(0.2), 1.0)] * len(found)
    assert found


@pytest.mark.parametrize("make", [impala, appo], ids=["IMPALA", "APPO"])
def test_asynchronous_rewards_of_many_kinds(build: Any, make: Any) -> None:
    """`y` is the mean of the latest rewards that were sampled, of all runners."""
    config = make().env_runners(num_env_runners=2)
    algorithm = build(risk_averse(config, risk=0.2))
    for _ in range(4):
        result = algorithm.train()
    ours = augmenter_of(algorithm)
    assert ours.window == 1000
    assert ours.y == np.mean(ours.rewards) == result["mvpi"]["y"]
    assert {*ours.rewards} == {1.0, 3.0}
    assert result["env_runners"]["episode_return_min"] >= 5.0  # raw
    assert learners(algorithm) == [(mvpi.MeanVariance(0.2), ours.y)]


@pytest.mark.parametrize("make", [impala, dqn], ids=["IMPALA", "DQN"])
def test_the_policy_is_what_learners_have(build: Any, make: Any) -> None:
    """IMPALA leaves the first weights in the env runner of this process while others sample."""
    algorithm = build(risk_averse(make().env_runners(num_env_runners=1), risk=0.2))
    for _ in range(2):
        algorithm.train()
    learned = weights(algorithm)["module"]["default_policy"]
    for name, value in policy_of(algorithm)._module.state_dict().items():
        assert value.numpy().tobytes() == np.asarray(learned[name]).tobytes()


def test_many_runners_of_a_replay(build: Any) -> None:
    """Every reward that reaches the buffer is observed, and none else."""
    config = sac(Portfolio).env_runners(num_env_runners=2, num_envs_per_env_runner=2)
    algorithm = build(risk_averse(config, risk=1.0))
    algorithm.train()
    stored = [r for e in algorithm.local_replay_buffer.episodes for r in e.get_rewards()]
    assert sorted(augmenter_of(algorithm).rewards) == sorted(stored)
