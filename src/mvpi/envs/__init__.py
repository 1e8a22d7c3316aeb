"""Environments: the paper's action noise, and small problems with known answers.

    NoisyActions(env, std)   Gaussian noise on every action, before it is clipped to the box
    RiskyZone(env, ...)      beyond a position the reward is noisy, and a little higher
    ReturnSoFar(env)         observations extended by the return so far, for OfReturn
    AugmentedReward(env, r)  the reward a risk-neutral method should see, for any training loop
    mvpi/FourState-v0        the paper's four-state example: a gamble or a sure loss
    mvpi/Markowitz-v0        a portfolio with independent Gaussian returns, solved in closed form
    mvpi/Liquidity-v0        a saver who may lock money up in a better, riskier asset (Tamar 2012)
    mvpi/RiskyPendulum-v0    InvertedPendulum whose right half pays a little more, and noisily
    mvpi/LateGamble-v0       InvertedPendulum with a late gamble, see `mvpi.envs.late_gamble`
    mvpi/Noisy*-v0           four MuJoCo tasks with a noisy zone, see `mvpi.envs.noisy_zone`

The ids are known to Gymnasium once this module is imported. Every environment here draws all its
randomness from `np_random`, so a training run on it can be resumed exactly.
"""

from __future__ import annotations

import gymnasium as gym

from mvpi.envs.extended import ExtendedObservation, ReturnSoFar
from mvpi.envs.late_gamble import LateGamble
from mvpi.envs.noisy_zone import EitherWay, RiskyZone
from mvpi.envs.problems import FourState, Liquidity, Markowitz
from mvpi.envs.task import Task
from mvpi.envs.wrappers import AugmentedReward, NoisyActions

__all__ = [
    "AugmentedReward",
    "EitherWay",
    "ExtendedObservation",
    "FourState",
    "LateGamble",
    "Liquidity",
    "Markowitz",
    "NoisyActions",
    "ReturnSoFar",
    "RiskyZone",
    "Task",
]

for _public in (
    AugmentedReward,
    EitherWay,
    ExtendedObservation,
    LateGamble,
    NoisyActions,
    ReturnSoFar,
    RiskyZone,
):
    _public.__module__ = __name__  # Gymnasium writes it into the specification of a wrapped one

gym.register("mvpi/FourState-v0", "mvpi.envs:FourState")
gym.register("mvpi/Markowitz-v0", "mvpi.envs:Markowitz")
gym.register("mvpi/Liquidity-v0", "mvpi.envs:Liquidity")

_ANT_OF_THE_PAPER = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}
"""Without contact forces, as at the time of the paper."""

gym.register("mvpi/RiskyPendulum-v0", "mvpi.envs.noisy_zone:risky_pendulum")
gym.register("mvpi/LateGamble-v0", "mvpi.envs.late_gamble:late_gamble")
gym.register("mvpi/NoisyInvertedPendulum-v0", "mvpi.envs.noisy_zone:noisy_pendulum")
for _name, _zone in {
    "Swimmer": {"threshold": 0.5},
    "HalfCheetah": {"threshold": -3.0, "below": True},
    "Ant": {"threshold": 0.5, **_ANT_OF_THE_PAPER},
}.items():
    gym.register(
        f"mvpi/Noisy{_name}-v0",
        "mvpi.envs.noisy_zone:noisy_walk",
        kwargs={"task": f"{_name}-v5", **_zone},
    )
