"""What can be in the state of a model, its buffers and its environments, sorted into kinds.

plain     numbers, texts, arrays, tensors and containers of them: stored as they are
object    anything with attributes: its attributes are stored
code      functions of environments and callbacks that hold values: the values are stored
compared  tables and times of pandas, texts and dates: what they hold must be there already
constant  other functions, classes, recipes, devices, what only draws pictures: left as it is
hidden    all else, such as simulators in C and other processes: nothing is known of its state
"""

from __future__ import annotations

import io
import logging
import pathlib
import random
import re
import sys
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.monitor import ResultsWriter
from stable_baselines3.common.vec_env import VecEnv

from mvpi._storage.files import checksum
from mvpi.rollout.guard import generator_state, set_generator_state
from mvpi.sb3._hooks import Detached, Hook
from mvpi.sb3._plug import Plug

_METHODS = (types.MethodType, types.BuiltinFunctionType)
_GENERATORS: dict[Any, Any] = {
    kind.__name__: kind
    for kind in (
        *(np.random.PCG64, np.random.PCG64DXSM),
        *(np.random.MT19937, np.random.Philox, np.random.SFC64),
    )
}
_TORCH_OWN = frozenset(vars(torch.nn.Module()))
"""What torch itself keeps in a module; `state_dict` has it."""
_CONSTANT = (
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, partial),
    *(EnvSpec, ResultsWriter, Logger, Plug, Hook, Detached),
    *(torch.device, torch.dtype, torch.distributions.Distribution, np.dtype),
    *(pathlib.PurePath, re.Pattern, logging.Logger, io.IOBase),
)
_CONSTANT_PACKAGES = (
    *("pygame", "PIL", "matplotlib", "cv2", "pandas", "polars", "flax", "optax", "_thread"),
    *("threading", "tqdm", "rich", "gymnasium.envs.mujoco.mujoco_rendering"),
)
_SYSTEM = (
    "asyncio",
    "concurrent",
    "multiprocessing",
    "selectors",
    "socket",
    "subprocess",
    "weakref",
)
"""What has numbers that the operating system gave to this process: they mean nothing in another."""
_NOT_STATE: tuple[tuple[type[Any], frozenset[str]], ...] = (
    (VecEnv, frozenset({"buf_infos", "reset_infos", "actions", "class_attributes"})),
    (BaseCallback, frozenset({"model", "locals", "globals", "parent", "logger"})),
    (gym.Wrapper, frozenset({"_cached_spec"})),
)
"""Attributes that are written before anybody reads them."""


def is_constant(value: Any) -> bool:
    """Whether a value does not change while a model learns, or only in ways that do not count."""
    package = type(value).__module__
    if is_train_state(value):
        return False
    if isinstance(value, (type, types.GenericAlias, *_CONSTANT)):
        return True
    if f"{package}.".startswith(tuple(f"{name}." for name in _CONSTANT_PACKAGES)):
        return True
    return is_flax_module(value) or (package == "mujoco._structs" and not is_mujoco_data(value))


def is_of_system(value: Any) -> bool:
    """Whether a value is another process, a connection or the like."""
    return type(value).__module__.partition(".")[0] in _SYSTEM


def is_given(value: Any) -> bool:
    """Whether a value is code, which files do not hold: a function or a class of one's own."""
    return isinstance(value, type) or (callable(value) and not is_flax_module(value))


def is_train_state(value: Any) -> bool:
    """Whether it is what SBX keeps of a network and its optimiser: a tree of arrays of JAX."""
    module = sys.modules.get("flax.training.train_state")
    return module is not None and isinstance(value, module.TrainState)


def is_flax_module(value: Any) -> bool:
    """Whether it is a network of flax, which holds no parameters itself."""
    module = sys.modules.get("flax.linen")
    return module is not None and isinstance(value, module.Module)


def is_jax_array(value: Any) -> bool:
    module = sys.modules.get("jax")
    return module is not None and isinstance(value, module.Array)


def is_mujoco_data(value: Any) -> bool:
    return type(value).__name__ == "MjData" and type(value).__module__.startswith("mujoco")


def mujoco_arrays(data: Any) -> Iterator[tuple[str, Any]]:
    """The arrays of a simulation. Derived ones count: environments read those of the last step.

    What has as many rows as there are contacts now is made anew by every step.
    """
    for name in sorted(dir(data)):
        if name.startswith(("_", "efc_", "iefc_", "contact", "island", "tendon_efc")):
            continue
        value = getattr(data, name)
        if isinstance(value, np.ndarray) and value.flags.writeable:
            yield name, value


def content_of(value: Any) -> str | None:
    """What is in an array of texts or dates, or a table or time of pandas; None for all else."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "MmSU":
        return f"{value.dtype} {value.shape} {checksum(value.tobytes())}"
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return None
    if isinstance(value, pandas.DataFrame | pandas.Series | pandas.Index):
        try:
            hashes = pandas.util.hash_pandas_object(value).to_numpy()
        except TypeError:  # objects inside
            return repr(value)
        names = getattr(value, "columns", getattr(value, "name", None))
        return f"{type(value).__name__} {value.shape} {checksum(hashes.tobytes())} {names!r:.1000}"
    times = pandas.Timestamp | pandas.Timedelta | pandas.Period
    return repr(value) if isinstance(value, times) else None


def parts_of(value: Any) -> dict[str, Any]:
    """What a function holds that may change: the object of a method, variables around it."""
    if isinstance(value, partial):
        given = {str(i): part for i, part in enumerate(value.args)}
        return {
            "func": value.func,
            **given,
            **{f"{n}=": part for n, part in value.keywords.items()},
        }
    if isinstance(value, types.FunctionType):
        return {n: cell.cell_contents for n, cell in cells_of(value).items()}
    owner = getattr(value, "__self__", None) if isinstance(value, _METHODS) else None
    return {} if owner is None or isinstance(owner, types.ModuleType) else {"self": owner}


def cells_of(value: Any) -> dict[str, Any]:
    """Where a function keeps the variables around it."""
    if not isinstance(value, types.FunctionType):
        return {}
    around = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    return {name: cell for name, cell in around if cell != types.CellType()}  # not an empty one


def fields(value: Any) -> dict[str, Any]:
    """The attributes of an object that are part of its state."""
    found: dict[str, Any] = {}
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    found |= getattr(value, "__dict__", {})
    left_out = {n for kind, names in _NOT_STATE if isinstance(value, kind) for n in names}
    if isinstance(value, torch.nn.Module):
        left_out |= _TORCH_OWN - {"training"}
    return {
        name: field
        for name, field in found.items()
        if name not in left_out and not name.startswith("_mvpi")
    }


def has_fields(value: Any) -> bool:
    return hasattr(value, "__dict__") or bool(fields(value))


def random_state(value: Any) -> Any:
    """The state of something that draws random numbers, as JSON; None if it is nothing such."""
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return generator_state(value)
    if isinstance(value, random.Random):
        version, numbers, gauss = value.getstate()
        return [version, list(numbers), gauss]
    if isinstance(value, gym.Space):
        parts = getattr(value, "spaces", {})
        inside = parts.values() if isinstance(parts, dict) else parts
        own = getattr(value, "_np_random", None)
        return {
            "own": None if own is None else generator_state(own),
            "inside": [random_state(space) for space in inside],
        }
    return None


def generator_of(state: Any) -> np.random.Generator | np.random.RandomState | None:
    """A new generator of numpy with a state that `random_state` gave; None if it is of no such."""
    name = state.get("bit_generator") if isinstance(state, dict) else None
    if name not in _GENERATORS:
        return None
    made = np.random.RandomState() if "gauss" in state else np.random.Generator(_GENERATORS[name]())
    set_generator_state(made, state)
    return made


def set_random_state(value: Any, state: Any) -> None:
    """Put back what `random_state` gave."""
    if isinstance(value, np.random.Generator | np.random.RandomState):
        set_generator_state(value, state)
    elif isinstance(value, random.Random):
        version, numbers, gauss = state
        value.setstate((version, tuple(numbers), gauss))
    else:
        parts = getattr(value, "spaces", {})
        inside = parts.values() if isinstance(parts, dict) else parts
        for space, there in zip(inside, state["inside"], strict=True):
            set_random_state(space, there)
        if state["own"] is None:
            value._np_random = None
        else:
            set_generator_state(value.np_random, state["own"])
