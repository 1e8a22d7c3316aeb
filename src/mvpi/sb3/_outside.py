"""What environments keep outside themselves: in their classes and in the modules of these.

It cannot be put back. So it is compared with what a new process has, and a difference is a warning.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from mvpi._storage.files import checksum
from mvpi.sb3._environments import inside, layers

_LIBRARIES = ("gymnasium", "stable_baselines3", "sb3_contrib", "mvpi", "builtins", "typing", "abc")


def outside_state(env: VecEnv | None) -> dict[str, str]:
    """Every variable outside the environments that their code uses, as text."""
    classes = {cls for one in inside(env) for layer in layers(one) for cls in type(layer).__mro__}
    own = [cls for cls in classes if cls.__module__.partition(".")[0] not in _LIBRARIES]
    found: dict[str, str] = {}
    for cls in own:
        where = f"{cls.__module__}.{cls.__qualname__}"
        found |= {f"{where}.{n}": t for n, t in _shown(vars(cls))}
        module = vars(sys.modules.get(cls.__module__, types.ModuleType("")))
        used = {name for name in _names_in(cls) if name in module}
        found |= {f"{cls.__module__}.{n}": t for n, t in _shown({n: module[n] for n in used})}
    return dict(sorted(found.items()))


def _names_in(cls: type[Any]) -> set[str]:
    code = (f.__code__ for f in vars(cls).values() if isinstance(f, types.FunctionType))
    return {name for part in code for name in part.co_names}


def _shown(variables: Any) -> Iterator[tuple[str, str]]:
    """Numbers and containers of them; counters of itertools."""
    for name, value in variables.items():
        if name.startswith("__") or name == "metadata":
            continue
        if isinstance(value, np.ndarray):
            yield name, checksum(value.tobytes())
        elif isinstance(value, int | float | str | list | dict | set | itertools.count):
            yield name, repr(value)[:1_000]
