"""Functions that numba compiles twice, without and with threads."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from numba import njit


def without_and_with_threads(
    function: Callable[..., Any], **options: Any
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`function` compiled for one thread, and with its `prange` loops on several; both are cached.

    numba's cache knows a function by its name, its place and its code, not by the options it was
    compiled with: the second one needs a name of its own, or it is given the code of the first.
    """
    threaded = FunctionType(function.__code__, function.__globals__)
    threaded.__qualname__ = f"{function.__qualname__}_with_threads"
    compiled = njit(cache=True, **options)(function)
    return compiled, njit(cache=True, parallel=True, **options)(threaded)
