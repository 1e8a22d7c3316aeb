"""What callers pass in, checked: numbers, counts, flags, arrays, paths.

Every function returns the value in the one form the package works with, or raises an `InputError`
of one line. A number is real and finite; `True`, texts, dates, complex numbers and masked entries
are not numbers, whatever numpy could make of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from mvpi._types import Array
from mvpi.errors import InputError

T = TypeVar("T")

_LARGEST_COUNT = 10**12
_LONGEST = 80
"""Characters of a value that a message shows."""
_SMALL = 10_000
"""Numbers that are multiplied by one thread."""
_DEEPEST = 64
"""Dimensions that an array can have."""


def shown(value: object) -> str:
    """`value` as a message shows it: on one line, not too long, whatever it is."""
    if isinstance(value, int) and abs(value) > _LARGEST_COUNT:
        return _abridged(value)
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the `repr` of a user's object may raise anything
        text = f"an object of type {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def check_number(
    value: float,
    name: str,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> float:
    """`value` as a finite float inside the bounds, or an `InputError` that states them."""
    scalar = _scalar(value)
    number: float | None = None
    if _is_real(scalar):
        with suppress(TypeError, ValueError, OverflowError):  # of whole numbers beyond 1e308
            number = float(scalar)
            if math.isfinite(number) and number > above and at_least <= number <= at_most:
                return number
    bounds = [f"> {above:g}"] if above > -math.inf else []
    bounds += [f">= {at_least:g}"] if at_least > -math.inf else []
    bounds += [f"<= {at_most:g}"] if at_most < math.inf else []
    rule = " and ".join(bounds) if bounds else "finite"
    raise InputError(f"{name} must be {rule}, got {shown(value if number is None else number)}")


def check_count(value: int, name: str, *, at_least: int = 1, at_most: int = _LARGEST_COUNT) -> int:
    """A whole number from `at_least` to `at_most`, 10^12, as an `int`, or an `InputError`."""
    rule = f"{name} must be a whole number >= {at_least}"
    scalar = _scalar(value)
    if not (isinstance(scalar, Integral) and _is_real(scalar)):
        raise InputError(f"{rule}, got {shown(value)}")
    number = int(scalar)
    if number < at_least:
        raise InputError(f"{rule}, got {shown(number)}")
    if number > at_most:
        raise InputError(f"{rule} and <= {at_most}, got {shown(number)}")
    return number


def check_flag(value: bool, name: str) -> bool:
    """True or False as a `bool`; a text such as "no" is neither."""
    scalar = _scalar(value)
    if not isinstance(scalar, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {shown(value)}")
    return bool(scalar)


def check_choice(value: object, name: str, known: Collection[str]) -> str:
    """One of some names."""
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}, got {shown(value)}")
    return value


def check_kind(value: T, kind: type[Any], name: str, what: str) -> T:
    """An instance of `kind`, which `what` describes."""
    if not isinstance(value, kind):
        raise InputError(f"{name} must be {what}, got {shown(value)}")
    return value


def check_function(value: Any, name: str) -> Callable[..., Any]:
    """Something that can be called, and not a class."""
    if not callable(value) or isinstance(value, type):
        raise InputError(f"{name} must be a function, got {shown(value)}")
    function: Callable[..., Any] = value
    return function


def check_callback(value: T | None, name: str) -> T | None:
    """A function, or None."""
    return None if value is None else cast(T, check_function(value, name))


def real_array(values: Any, name: str) -> Array:
    """`values` as an array of float64, which is `values` itself if it is one already.

    They must be real numbers: no booleans, texts, dates or complex numbers, nothing masked, no
    ragged rows. Whether they are finite is up to the caller, who knows what they mean.
    """
    if type(values) is np.ndarray and values.dtype.char in "df":
        return values.astype(np.float64, copy=False)
    if type(values) is float:  # a reward of a training loop
        return np.asarray(values)
    array = plain_array(values, name)
    if array.dtype.kind not in "iufO":
        hint = "; use .astype(float)" if array.dtype.kind == "b" else ""
        raise InputError(f"{name} must be an array of numbers, got {array.dtype}{hint}")
    if array.dtype.kind == "O":
        for entry in array.flat:
            if not _is_real(_scalar(entry)):
                raise InputError(f"{name} must be an array of numbers, got {shown(entry)}")
    try:
        with np.errstate(over="ignore"):
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must be an array of numbers: {_line(error)}") from None


def plain_array(values: Any, name: str) -> npt.NDArray[Any]:
    """`values` as an array of whatever they are; nothing masked, no ragged rows."""
    if has_masked(values):
        raise InputError(f"{name} must not have masked entries: fill them in, or leave them out")
    try:
        return np.asarray(values)
    except Exception as error:  # noqa: BLE001 - a user's `__array__` may raise anything
        raise InputError(f"{name} must be an array of numbers: {_line(error)}") from None


def all_finite(array: Array) -> bool:
    """`np.isfinite(array).all()`, which takes longer for a batch of rewards."""
    # A finite sum of squares says so in one call. An infinite one may have overflowed.
    if array.size <= _SMALL and math.isfinite(np.vdot(array, array)):
        return True
    return bool(np.logical_and.reduce(np.isfinite(array), None))


def finite_array(values: Any, name: str) -> Array:
    """`real_array` without infinities and NaN."""
    array = real_array(values, name)
    if not all_finite(array):
        at = np.unravel_index(int(np.argmin(np.isfinite(array))), array.shape)
        what = f"{name}[{', '.join(map(str, at))}] is" if at else "got"
        raise InputError(f"{name} must be finite, {what} {array[at]}")
    return array


def finite(values: Any, name: str) -> Array | float:
    """`finite_array`, but a float stays one, with which arithmetic is cheaper."""
    known = type(values) is float and math.isfinite(values)
    return cast("float", values) if known else finite_array(values, name)


def check_path(path: object, name: str = "path") -> Path:
    """A path that a file could have: a text, not empty, that the system can encode."""
    rule = f"{name} must be the path of a file or directory"
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"{rule}, got {shown(path)}")
    try:
        text = os.fspath(path)
        if isinstance(text, str) and text:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.lstat(text)
            return Path(text)
    except OSError as error:  # such as a name that is too long
        raise InputError(f"{rule}, got {shown(text)}: {error.strerror}") from None
    except Exception:  # noqa: BLE001 - a NUL, a character that no file has, a user's `__fspath__`
        raise InputError(f"{rule}, got {shown(path)}") from None
    raise InputError(f"{rule}, got {shown(text)}")


def check_output(path: object, name: str = "path", endings: Collection[str] = ()) -> Path:
    """The path of a file that can be written: in a directory that exists, new or a regular file.

    Files are written beside their place and then moved there: a directory, a device or a pipe of
    that name would be lost. It must have one of the `endings`, if there are any.
    """
    file = check_path(path, name)
    if endings and file.suffix.lower() not in endings:
        raise InputError(f"{name} must end in {_listed(endings)}, got {shown(str(file))}")
    try:
        there, taken = file.parent.is_dir(), file.exists() and not file.is_file()
    except OSError as error:
        raise InputError(f"{name} cannot be written: {_line(error)}") from None
    if not there:
        raise InputError(
            f"{name} must be in a directory that exists, {shown(str(file.parent))} does not"
        )
    if taken:
        kind = "a directory" if file.is_dir() else "a device or a pipe"
        raise InputError(f"{name} must be a file, {shown(str(file))} is {kind}")
    return file


def _scalar(value: Any) -> Any:
    """The number in an array of no dimensions; anything else as it is."""
    if type(value) is float:
        return value
    if isinstance(value, np.ma.MaskedArray):
        return None if value.ndim or np.ma.is_masked(value) else value.data[()]
    if isinstance(value, np.ndarray):
        return value[()] if value.ndim == 0 else None
    if isinstance(value, Real | Decimal | str | bytes | type) or not hasattr(value, "__array__"):
        return value
    try:
        array = np.asarray(value)  # of JAX, of torch
    except Exception:  # noqa: BLE001 - a user's `__array__` may raise anything
        return None
    return array[()] if array.ndim == 0 else None


def _is_real(scalar: Any) -> bool:
    """Whether a scalar is a real number; numpy counts durations as whole numbers."""
    if isinstance(scalar, bool | np.bool_ | np.timedelta64):
        return False
    return isinstance(scalar, Real | Decimal)


def has_masked(values: Any, depth: int = _DEEPEST) -> bool:
    """Whether anything in an array, or in a list of them, is masked."""
    if isinstance(values, np.ma.MaskedArray):
        return bool(np.ma.is_masked(values))
    if isinstance(values, list | tuple) and depth:
        kinds = (np.ma.MaskedArray, list, tuple)
        return any(has_masked(part, depth - 1) for part in values if isinstance(part, kinds))
    return False


def _listed(names: Collection[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def _abridged(number: int) -> str:
    """A whole number of many digits by its first ones and its size.

    Python converts it neither to a float, beyond 1e308, nor to text, beyond 4300 digits.
    """
    size = abs(number)
    exponent = round(math.log10(size))
    exponent -= size < 10**exponent
    digits = str(size // 10 ** (exponent - 3))
    return f"{'-' if number < 0 else ''}{digits[0]}.{digits[1:]}e+{exponent}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:_LONGEST] or type(error).__name__
