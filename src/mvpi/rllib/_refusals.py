"""Configs that cannot be risk-averse, refused by `risk_averse` and again when they are built."""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.cql import CQLConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from mvpi.errors import InputError

ON_POLICY = (PPOConfig, IMPALAConfig)  # APPO's config is a kind of IMPALA's
_OFF_POLICY = (DQNConfig, SACConfig)


def refuse(config: Any) -> None:
    """An `InputError` for other algorithms, other sources of rewards and several agents."""
    name = type(config).__name__
    if not isinstance(config, ON_POLICY + _OFF_POLICY) or isinstance(config, CQLConfig):
        raise InputError(
            f"{name} is not supported: use PPO, APPO, IMPALA, SAC or DQN; for data collected "
            "before, see mvpi.offline"
        )
    if config.is_offline:
        raise InputError(
            f"{name} reads rewards from {config.input_!r}: sample them from an environment, or see "
            "mvpi.offline"
        )
    if not (config.enable_rl_module_and_learner and config.enable_env_runner_and_connector_v2):
        raise InputError(
            f"{name} is on RLlib's old API stack: config.api_stack(enable_rl_module_and_learner="
            "True, enable_env_runner_and_connector_v2=True)"
        )
    if config.is_multi_agent:
        _refuse_several_agents(name, sorted(map(str, config.policies)))
    env: Any = config.env
    if isinstance(env, type) and issubclass(env, MultiAgentEnv):
        _refuse_several_agents(name, env.__name__)


def _refuse_several_agents(name: str, which: Any) -> None:
    raise InputError(
        f"{name} has several agents, {which}: one y for all of them would mean nothing; use an "
        "environment of one agent"
    )
