"""The policy of an algorithm by itself, to act with after training."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.connectors.common.frame_stacking import FrameStacking
from ray.rllib.connectors.env_to_module import MeanStdFilter, PrevActionsPrevRewards
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns as RllibColumns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from mvpi.augmenter.columns import Columns
from mvpi.envs.extended import Extender
from mvpi.errors import InputError
from mvpi.risk import RETURN_SO_FAR, RISK_AVERSION, range_of
from mvpi.rllib._driver import plug_of
from mvpi.rllib._environment import plain_environment
from mvpi.rollout.factory import EnvFactory, as_env_factory


class Policy:
    """What an algorithm has learned so far, at one risk aversion: it does not explore.

    It predicts actions for observations of the plain environment. `mvpi.evaluate` counts the
    return so far itself. Of a range it is the policy that was learned for `acted`, which is
    `risk_aversion`, unless another one did better at it in recent episodes by more than chance.
    """

    def __init__(
        self,
        algorithm: Any,
        columns: Columns,
        risk_aversion: float | None = None,
        acted: float | None = None,
    ) -> None:
        runner = algorithm.env_runner
        if runner is None:
            raise InputError(
                "policy_of needs the env runner of the driver: leave out "
                "config.env_runners(create_local_env_runner=False)"
            )
        if runner.module.is_stateful():
            raise InputError(
                "this module is recurrent, and predict has no memory: use algorithm.evaluate()"
            )
        _refuse_memory(runner._env_to_module)
        self.risk_aversion, self.acted = risk_aversion, acted
        self.columns = columns if risk_aversion is None else columns.at(risk_aversion)
        self.env_factory: EnvFactory = as_env_factory(
            partial(plain_environment, algorithm.config.env, dict(algorithm.config.env_config))
        )
        self._all_columns = columns
        self._module = deepcopy(runner.module)
        # IMPALA and APPO never send weights to this process's env runner while others sample.
        self._module.set_state(algorithm.learner_group.get_weights()[DEFAULT_MODULE_ID])
        self._to_module, self._to_env = deepcopy((runner._env_to_module, runner._module_to_env))
        _freeze_filters(self._to_module)
        with_env: gym.Env[Any, Any] = self.env_factory.evaluation()
        self._spaces = with_env.observation_space, with_env.action_space
        with_env.close()
        self._extender = Extender(self._spaces[0], columns) if columns.size else None

    def predict(self, observation: Any, return_so_far: npt.ArrayLike | None = None) -> Any:
        """The action for an observation; `OfReturn` also needs what the episode has earned."""
        given = {RETURN_SO_FAR: return_so_far, RISK_AVERSION: self.acted}
        raw = self._all_columns.values((), **given)
        seen_space, action_space = self._spaces
        if self._extender is not None:
            observation, seen_space = self._extender(observation, raw), self._extender.space
        episode = SingleAgentEpisode(
            observations=[observation],
            observation_space=seen_space,
            action_space=action_space,
            len_lookback_buffer=0,
        )
        common: dict[str, Any] = {
            "episodes": [episode],
            "rl_module": self._module,
            "explore": False,
            "shared_data": {},
        }
        with torch.no_grad():
            batch = self._module.forward_inference(self._to_module(batch={}, **common))
            actions = self._to_env(batch=batch, **common)
        chosen = actions.get(RllibColumns.ACTIONS_FOR_ENV, actions[RllibColumns.ACTIONS])
        return chosen[0]

    def act(
        self,
        observation: Any,
        rng: np.random.Generator,
        return_so_far: npt.ArrayLike | None = None,
    ) -> Any:
        """The same action: nothing is drawn."""
        del rng
        return self.predict(observation, return_so_far)


def _refuse_memory(pipeline: Any) -> None:
    for piece in pipeline.connectors:
        if isinstance(piece, FrameStacking | PrevActionsPrevRewards):
            raise InputError(
                f"{type(piece).__name__} looks at earlier steps, and predict has no memory: use "
                "algorithm.evaluate()"
            )


def _freeze_filters(pipeline: Any) -> None:
    """Normalise by what was seen in training: to predict must not change the policy."""
    for piece in pipeline.connectors:
        if isinstance(piece, MeanStdFilter):
            piece._update_stats = False


def policy_of(algorithm: Algorithm, risk_aversion: float | None = None) -> Policy:
    """The policy that an algorithm has learned so far; `mvpi.evaluate` takes it.

    Trained with a `RiskRange`, it is that of one `risk_aversion` of the range. Training on does not
    change it.
    """
    plug = plug_of(algorithm)
    known = range_of(plug.augmenter.risk)
    if known is not None and risk_aversion is None:
        raise InputError(
            f"this {type(algorithm).__name__} was trained for every risk aversion from "
            f"{known.low:g} to {known.high:g}: policy_of(algorithm, risk_aversion)"
        )
    if known is None and risk_aversion is not None:
        raise InputError(
            f"this {type(algorithm).__name__} was trained with {plug.augmenter.risk}, at one risk "
            f"aversion: leave {risk_aversion:g} out"
        )
    if risk_aversion is None:
        return Policy(algorithm, plug.columns)
    acted = plug.augmenter.best_of_range(risk_aversion)
    return Policy(algorithm, plug.columns, risk_aversion, acted)
