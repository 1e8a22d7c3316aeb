"""What is refused, in one line that names the remedy."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.rllib_problems import Gamble, dqn, ppo
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.cql import CQLConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import (
    FlattenObservations,
    MeanStdFilter,
    PrevActionsPrevRewards,
)
from ray.rllib.examples.envs.classes.multi_agent import MultiAgentCartPole

import mvpi
from mvpi.rllib import augmenter_of, policy_of, risk_averse


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (PPOConfig, "an AlgorithmConfig of RLlib"),
        (BCConfig(), "BCConfig is not supported.*mvpi.offline"),
        (CQLConfig(), "CQLConfig is not supported.*mvpi.offline"),
        (MARWILConfig(), "use PPO, APPO, IMPALA, SAC or DQN"),
        (PPOConfig().offline_data(input_="/data"), "reads rewards from '/data'"),
        (
            PPOConfig().api_stack(
                enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False
            ),
            "old API stack: config.api_stack",
        ),
        (PPOConfig().multi_agent(policies={"a", "b"}), r"several agents, \['a', 'b'\]"),
        (ppo(MultiAgentCartPole), "several agents, MultiEnv"),
        (risk_averse(ppo(), risk=1.0), "risk-averse already"),
    ],
)
def test_configs(config: Any, words: str) -> None:
    with pytest.raises(mvpi.InputError, match=words) as caught:
        risk_averse(config, risk=1.0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"risk": -1.0},
        {"risk": mvpi.VarianceBudget(0.0)},
        {"risk": 1.0, "window": 0},
        {"risk": 1.0, "occupancy": "all"},
    ],
)
def test_arguments(arguments: Any) -> None:
    with pytest.raises(mvpi.InputError):
        risk_averse(ppo(), **arguments)


def test_what_replaces_ours_is_noticed(build: Any) -> None:
    config = risk_averse(ppo(), risk=1.0).learners(learner_connector=None)
    with pytest.raises(mvpi.InputError, match="call risk_averse last"):
        config.build_algo()
    config = risk_averse(ppo(), risk=1.0).callbacks(on_sample_end=print_nothing)
    with pytest.raises(mvpi.InputError, match=r"on_sample_end=.*call risk_averse last"):
        config.build_algo()  # not later: with a checkpoint's y it would train on, with that one
    algorithm = build(risk_averse(ppo(), risk=1.0).callbacks(on_algorithm_init=print_nothing))
    with pytest.raises(mvpi.InputError, match="call risk_averse last"):
        algorithm.train()
    plain = build(ppo())
    with pytest.raises(mvpi.InputError, match="not built from a config of"):
        augmenter_of(plain)


def test_several_agents_after_risk_averse(build: Any) -> None:
    config = risk_averse(ppo(), risk=1.0).environment(MultiAgentCartPole)
    config.environment(env_config={"num_agents": 2})
    config.multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda agent, _: "ab"[agent])
    with pytest.raises(mvpi.InputError, match=r"several agents, \['a', 'b'\]"):
        build(config)


def test_a_function_that_makes_no_connector(build: Any) -> None:
    config = risk_averse(ppo().learners(learner_connector=lambda *_: None), risk=1.0)
    with pytest.raises(mvpi.InputError, match=r"must return a ConnectorV2.*got None"):
        build(config)


def print_nothing(**_: Any) -> None:
    """A user's callback."""


class Normalised(gym.wrappers.NormalizeReward):  # type: ignore[type-arg]
    def __init__(self, config: Any) -> None:
        super().__init__(Gamble())


@pytest.mark.filterwarnings("ignore")
def test_normalised_rewards(build: Any) -> None:
    with pytest.raises(mvpi.InputError, match="NormalizeReward"):
        build(risk_averse(dqn(Normalised), risk=1.0))


def test_a_policy_needs_the_env_runner_of_the_driver(build: Any) -> None:
    config = risk_averse(ppo(), risk=1.0)
    config.env_runners(num_env_runners=1, create_local_env_runner=False)
    with pytest.raises(mvpi.InputError, match="create_local_env_runner=False"):
        policy_of(build(config))


def test_a_policy_has_no_memory(build: Any) -> None:
    pieces = [PrevActionsPrevRewards(), FlattenObservations()]
    config = ppo().env_runners(env_to_module_connector=lambda *_, **__: pieces)
    with pytest.raises(mvpi.InputError, match="PrevActionsPrevRewards looks at earlier steps"):
        policy_of(build(risk_averse(config, risk=1.0)))


def test_to_predict_changes_no_filter(build: Any) -> None:
    """Of observations that are normalised, the same one is predicted the same for ever."""
    config = ppo().env_runners(env_to_module_connector=lambda *_, **__: MeanStdFilter())
    algorithm = build(risk_averse(config, risk=1.0))
    algorithm.train()
    policy = policy_of(algorithm)

    def filters() -> Any:
        return policy._to_module.get_state()

    before = str(filters())
    for _ in range(3):
        policy.predict(np.array([9.0, -9.0], np.float32))
    assert str(filters()) == before
    assert "running_stats" in before


def test_the_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['ray'] = None; import mvpi.rllib"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "mvpi.rllib needs the package ray:" in run.stderr
    assert "'.[rllib]'" in run.stderr
