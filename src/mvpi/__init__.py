"""Risk-averse reinforcement learning by mean-variance policy iteration.

Give it an MDP or an environment and one number, the risk aversion; it gives you a policy whose
reward is steadier, and shows what the steadiness cost. The idea is in `mvpi.risk`; finite MDPs
are in `mvpi.tabular`, agents that learn in `mvpi.agents`, learning from data in `mvpi.offline`,
the plugs for Stable-Baselines3 and RLlib in `mvpi.sb3` and `mvpi.rllib`. Names are looked up when
first used, so that importing the package stays cheap.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mvpi._version import __version__
from mvpi.agents.registry import AGENTS
from mvpi.errors import InputError, missing_extra
from mvpi.risk import (
    CVaR,
    Entropic,
    MeanVariance,
    MonotoneMeanVariance,
    OfReturn,
    Risk,
    RiskRange,
    VaR,
    VarianceBudget,
)

if TYPE_CHECKING:
    from mvpi import envs, offline, stats, tabular
    from mvpi import sb3 as sb3
    from mvpi.agents.cvar_pg import CVaRPG
    from mvpi.agents.loading import load
    from mvpi.agents.mean_gini import MeanGini
    from mvpi.agents.mvp import MVP
    from mvpi.agents.ppo import PPO
    from mvpi.agents.prashanth import Prashanth
    from mvpi.agents.tamar import Tamar
    from mvpi.agents.td3 import TD3
    from mvpi.augmenter import Augmenter, augment
    from mvpi.envs import NoisyActions
    from mvpi.rollout.evaluation import Evaluation, evaluate
    from mvpi.tabular import examples
    from mvpi.tabular.frontier import Frontier, frontier
    from mvpi.tabular.mdp import MDP
    from mvpi.tabular.optimize import optimize
    from mvpi.tabular.policy_iteration import iterate, policy_iteration
    from mvpi.tabular.solution import Solution
    from mvpi.tabular.solve import solve

_LAZY = {
    **{agent.class_name: agent.module for agent in AGENTS.values()},
    "load": "mvpi.agents.loading",
    "NoisyActions": "mvpi.envs",
    "Augmenter": "mvpi.augmenter",
    "augment": "mvpi.augmenter",
    "Evaluation": "mvpi.rollout.evaluation",
    "evaluate": "mvpi.rollout.evaluation",
    "MDP": "mvpi.tabular",
    "Frontier": "mvpi.tabular",
    "Solution": "mvpi.tabular",
    "examples": "mvpi.tabular",
    "frontier": "mvpi.tabular",
    "iterate": "mvpi.tabular",
    "optimize": "mvpi.tabular",
    "policy_iteration": "mvpi.tabular",
    "solve": "mvpi.tabular.solve",
}
_MODULES = {"envs", "offline", "rllib", "sb3", "stats", "tabular"}

__all__ = [
    "MDP",
    "MVP",
    "PPO",
    "TD3",
    "Augmenter",
    "CVaR",
    "CVaRPG",
    "Entropic",
    "Evaluation",
    "Frontier",
    "InputError",
    "MeanGini",
    "MeanVariance",
    "MonotoneMeanVariance",
    "NoisyActions",
    "OfReturn",
    "Prashanth",
    "Risk",
    "RiskRange",
    "Solution",
    "Tamar",
    "VaR",
    "VarianceBudget",
    "__version__",
    "augment",
    "envs",
    "evaluate",
    "examples",
    "frontier",
    "iterate",
    "load",
    "offline",
    "optimize",
    "policy_iteration",
    "solve",
    "stats",
    "tabular",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"mvpi.{name}")
    if name in _LAZY:
        try:
            value = getattr(import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            raise missing_extra(error) or error from error
        globals()[name] = value
        return value
    # With name and obj the interpreter adds what may have been meant.
    raise AttributeError(
        f"module 'mvpi' has no attribute {name!r}", name=name, obj=sys.modules[__name__]
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
