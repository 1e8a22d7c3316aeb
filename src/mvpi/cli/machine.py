"""What works on this machine: the processor, threads, the solver, MuJoCo, caches of compiled code.

Nothing here raises: a failure is a line of the answer.
"""

from __future__ import annotations

import math
import os
import platform
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mvpi._text import reason

_LIMITS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_VECTORS = {
    "sse4.2": "SSE4.2",
    "avx": "AVX",
    "avx2": "AVX2",
    "fma": "FMA",
    "avx512f": "AVX-512",
    "neon": "NEON",
    "sve": "SVE",
}
"""LLVM's names of vector instructions, and the usual ones."""


@dataclass(frozen=True)
class Works:
    """Whether something works and, if not, why not."""

    works: bool
    problem: str | None = None


def system() -> str:
    """Python and the operating system."""
    return f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def processor() -> dict[str, Any]:
    """Its name, and the vector instructions that compiled code can use."""
    try:
        from llvmlite import binding

        features = binding.get_host_cpu_features()
        known = [shown for name, shown in _VECTORS.items() if features.get(name)]
    except Exception:  # noqa: BLE001 - whatever is wrong with llvmlite is the solver's line
        known = []
    return {"name": _processor_name(), "vector_instructions": known}


def _processor_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def threads() -> dict[str, Any]:
    """Cores, those that this process may use, numba's threads, and variables that limit them."""
    cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    try:
        from numba import config

        of_numba = int(getattr(config, "NUMBA_NUM_THREADS"))  # noqa: B009 - made at run time
    except Exception:  # noqa: BLE001 - as above
        of_numba = None
    limits = {name: os.environ[name] for name in _LIMITS if name in os.environ}
    return {"cores": cores, "usable": usable, "numba": of_numba, "variables": limits}


def solver_works() -> Works:
    """Whether the exact solver finds the known optimum of the paper's example."""
    try:
        from mvpi.tabular import optimize
        from mvpi.tabular.examples import FOUR_STATE_DISCOUNT, four_state

        found = optimize(four_state(), 1.0)
    except Exception as error:  # noqa: BLE001 - any of them is what is asked for
        return Works(False, f"{type(error).__name__}: {reason(error)}")
    expected = -FOUR_STATE_DISCOUNT / (1.0 + FOUR_STATE_DISCOUNT)
    if not math.isclose(found.value, expected, rel_tol=1e-9):
        return Works(False, f"the paper's example has the value {expected}, found {found.value}")
    return Works(True)


def mujoco_works() -> Works:
    """Whether a task of MuJoCo can be made and stepped."""
    try:
        import gymnasium

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that newer versions of the task exist
            env = gymnasium.make("InvertedPendulum-v4")
            env.reset(seed=0)
            env.step(env.action_space.sample())
            env.close()
    except Exception as error:  # noqa: BLE001 - as above
        absent = find_spec("mujoco") is None  # Gymnasium's advice would leave the pins out
        return Works(
            False, "is not installed; the extra agents has it" if absent else reason(error)
        )
    return Works(True)


def numba_cache() -> dict[str, Any]:
    """Where numba keeps the compiled loops of the solver."""

    def directory() -> str | None:
        from mvpi._compiled import cache_directory

        return cache_directory()

    return _cache(directory, "set NUMBA_CACHE_DIR to a directory that can be written")


def jax_cache() -> dict[str, Any]:
    """Where JAX keeps compiled functions, if it is configured to keep any."""

    def directory() -> str | None:
        import jax

        return getattr(jax.config, "jax_compilation_cache_dir", None)

    return _cache(directory, "set JAX_COMPILATION_CACHE_DIR to a directory to change that")


def _cache(find: Callable[[], str | None], remedy: str) -> dict[str, Any]:
    """The directory that `find` names, and whether it can be written; without one, the remedy."""
    found, problem = None, f"none: every process compiles; {remedy}"
    try:
        found = find()
    except Exception as error:  # noqa: BLE001 - as above
        problem = reason(error)
    if found is None:
        return {"directory": None, "writable": False, "problem": problem}
    place = Path(found)  # or, if it is not there yet, where it would be made
    existing = next(parent for parent in [place, *place.parents] if parent.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    return {"directory": str(place), "writable": writable, "problem": None}
