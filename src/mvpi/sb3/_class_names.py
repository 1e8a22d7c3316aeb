"""Classes that a file may name: those of policies, buffers and the like of known packages.

A name leads to a class only if it is in one of these packages and of one of these kinds. So a file
cannot have anything else imported or called.
"""

from __future__ import annotations

import enum
import sys
from importlib import import_module
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.type_aliases import TrainFreq
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule, LinearSchedule

from mvpi.risk import Risk

SCHEDULES = (ConstantSchedule, FloatSchedule, LinearSchedule)
KINDS: dict[str, tuple[type[Any], ...]] = {
    "gymnasium.spaces": (gym.Space,),
    "mvpi.risk": (Risk,),
    "sb3_contrib": (BasePolicy, BaseBuffer, BaseFeaturesExtractor),
    "stable_baselines3": (BasePolicy, BaseBuffer, ActionNoise, BaseFeaturesExtractor),
    "torch.nn.modules": (torch.nn.Module,),
    "torch.optim": (torch.optim.Optimizer,),
}
"""Packages, and the base classes of what they may be asked for, also by a pickle."""
_KINDS_OF_JSON: dict[str, tuple[type[Any], ...]] = {
    **KINDS,
    "sb3_contrib": (*KINDS["sb3_contrib"], tuple),
    "sbx": (BasePolicy,),
    "stable_baselines3": (
        *KINDS["stable_baselines3"],
        *SCHEDULES,
        TrainFreq,
        enum.Enum,
        torch.optim.Optimizer,
    ),
}
"""The same for files of JSON, where a class is only named and nothing is called."""


def kinds_in(module: str, kinds: dict[str, tuple[type[Any], ...]] = KINDS) -> tuple[Any, ...]:
    """The base classes of what a module may be asked for; none if it is in no known package."""
    return next((k for p, k in kinds.items() if f"{module}.".startswith(f"{p}.")), ())


def name_of(cls: type[Any]) -> str:
    """The name of a class."""
    return f"{cls.__module__}:{cls.__qualname__}"


def is_known(cls: type[Any]) -> bool:
    """Whether `known_class` finds the class by its name."""
    kinds = kinds_in(cls.__module__, _KINDS_OF_JSON)
    return bool(kinds) and issubclass(cls, kinds) and "." not in cls.__qualname__


def known_class(name: Any) -> type[Any]:
    """The class of a name; `ValueError` if it is none of those that a file may name."""
    module, _, inside = str(name).partition(":")
    kinds = kinds_in(module, _KINDS_OF_JSON)
    if kinds and inside.isidentifier():
        try:
            found = getattr(import_module(module), inside)
        except (ImportError, AttributeError):
            found = None
        if isinstance(found, type) and issubclass(found, kinds):
            return found
    raise ValueError(f"{str(name)[:80]!r} is no class that a file may name")


def loaded_class(name: Any, kind: type[Any]) -> type[Any] | None:
    """The class of a name if it is of a kind and its module is loaded. Nothing is imported."""
    module, _, inside = str(name).partition(":")
    found: Any = sys.modules.get(module)
    for part in inside.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) and issubclass(found, kind) else None
