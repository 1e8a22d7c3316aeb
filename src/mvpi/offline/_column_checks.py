"""The columns of a data set: of which type and shape they must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi._checks import finite_array, has_masked, shown
from mvpi.errors import InputError

Anything = npt.NDArray[Any]


def as_column(values: npt.ArrayLike, name: str) -> Anything:
    """A view of an array that cannot be written to; anything else becomes an array first."""
    if isinstance(values, np.ma.MaskedArray) or has_masked(values):
        raise InputError(f"{name} must not be masked: leave the rows out instead")
    try:
        view = np.asanyarray(values)[...]
    except Exception as error:  # noqa: BLE001 - a user's `__array__` may raise anything
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{name} must be an array: {reason}") from None
    if view.ndim == 0:
        rows = "of the observations at which episodes start"
        rows = rows if name == "starts" else "with a row per transition"
        raise InputError(f"{name} must be an array {rows}, got {shown(values)}")
    view.flags.writeable = False
    return view


def check_observations(x: Anything, name: str) -> None:
    """Whole numbers, or vectors of floats."""
    if not (is_numbers(x) or is_vectors(x)):
        raise InputError(
            f"{name} must be (N,) whole numbers or (N, d) floats with d >= 1, got "
            f"{form(x)}{vector_hint(x, name)}"
        )


def is_numbers(x: Anything) -> bool:
    """Whether there is a whole number per row."""
    return x.ndim == 1 and x.dtype.kind in "iu"


def is_vectors(x: Anything) -> bool:
    """Whether there is a vector of floats per row."""
    return x.ndim == 2 and x.shape[1] > 0 and x.dtype.kind == "f"


def vector_hint(x: Anything, name: str) -> str:
    """How to make rows of something that is nearly that."""
    if x.ndim == 1 and x.dtype.kind == "f":
        return f"; use {name}[:, None], or whole numbers for the states of a finite problem"
    if x.ndim == 2 and x.dtype.kind in "iu":
        return f"; use {name}.astype(float), or a single number per row"
    if x.ndim > 2 and x.dtype.kind == "f":
        return f"; use {name}.reshape(len({name}), -1)"
    if x.ndim == 1 and x.dtype.kind in "UTSO":
        return f"; numpy.unique({name}, return_inverse=True) numbers texts"
    return ""


def form(x: Anything) -> str:
    """Type and shape, for a message."""
    return f"{x.dtype} of shape {x.shape}"


def bound(given: npt.ArrayLike, like: Anything, name: str) -> Anything:
    """A finite number for every dimension of the action `like`, in its type."""
    rule = f"{name} must be a finite number, or one for each of {like.size} dimensions"
    try:
        numbers = np.array(np.broadcast_to(finite_array(given, name), like.shape), like.dtype)
    except ValueError:
        raise InputError(f"{rule}, got {shown(given)}") from None
    return numbers
