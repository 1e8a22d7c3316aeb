"""Functions that numba compiles twice, without and with threads; and when it compiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any

import numba
from numba import njit
from numba.core import event

_WAITING = "OMP_WAIT_POLICY"


def without_and_with_threads(
    function: Callable[..., Any], **options: Any
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`function` compiled for one thread, and with its `prange` loops on several; both are cached.

    numba's cache knows a function by its name, its place and its code, not by the options it was
    compiled with: the second one needs a name of its own, or it is given the code of the first.
    Call `start_threads` before the second one.
    """
    threaded = FunctionType(function.__code__, function.__globals__)
    threaded.__qualname__ = f"{function.__qualname__}_with_threads"
    return _kept(function, **options), _kept(threaded, parallel=True, **options)


@cache
def start_threads() -> None:
    """Make numba's threads ones that sleep while they wait.

    By default they spin, so that two processes on the same cores slow each other down. The variable
    is read when the library of threads is loaded, so it need not stay set.
    """
    before = os.environ.get(_WAITING)
    os.environ.setdefault(_WAITING, "passive")
    try:
        numba.get_num_threads()
    finally:
        if before is None:
            del os.environ[_WAITING]


def cache_directory() -> str | None:
    """Where numba keeps compiled functions of this module; None if there is no place for them.

    Those of other modules are beside them, or in the same directory of the user.
    """
    directory: str | None = getattr(_kept(_nothing), "stats").cache_path  # noqa: B009 - untyped
    return directory


def _nothing() -> None:
    """A function whose place in the cache is looked up."""


@contextmanager
def while_compiling(tell: Callable[[bool], None]) -> Iterator[None]:
    """Calls `tell(True)` when numba begins to compile, and `tell(False)` when it is done.

    Functions that it finds in its cache on disk are not compiled again: `tell` is not called.
    """
    with event.install_listener("numba:compile", _Compilation(tell)):
        yield


class _Compilation(event.Listener):
    """Counts functions that are being compiled: one may need another."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._depth = 0

    def on_start(self, event: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._tell(True)

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._tell(False)


def _kept(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compiled, and kept on disk if there is a place for it."""
    try:
        compiled: Callable[..., Any] = njit(cache=True, **options)(function)
    except RuntimeError:  # neither beside the file nor in the user's own directory
        compiled = njit(**options)(function)
    return compiled
