"""Plain arrays in an `.npz` file: nothing in it is ever executed, and none is left half-written."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Collection, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi._storage.files import open_file, replacing, short
from mvpi.errors import InputError

Anything = npt.NDArray[Any]

_HARMLESS = 1 << 28
"""Bytes that any file may unpack to."""
_LARGEST_RATIO = 20
"""How many times its own size a file may unpack to beyond that: numbers seldom compress better."""
_LONGEST_HEADER = 1 << 16


def write_npz(path: str | PathLike[str], arrays: Mapping[str, npt.ArrayLike]) -> None:
    """Write arrays; an existing file is replaced only once the new one is complete."""
    with replacing(Path(path)) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_npz(
    path: str | PathLike[str], known: Collection[str], *, written_by: str
) -> dict[str, Anything]:
    """The arrays of a file, all of which must be `known`; anything else is an `InputError`.

    What the file says of its sizes is checked before anything is unpacked: a small file that
    unpacks to gigabytes costs neither time nor memory.
    """
    with open_file(Path(path), "r") as file:
        if not zipfile.is_zipfile(file):
            raise InputError(
                f"{path} is not an .npz file; write one with {written_by} or numpy.savez"
            )
        try:
            with zipfile.ZipFile(file) as archive:
                _check_sizes(archive, known, os.fstat(file.fileno()).st_size)
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except InputError as error:
            raise InputError(f"{path} {error}") from None
        except Exception as error:  # noqa: BLE001 - numpy and zipfile raise half a dozen kinds for a damaged file
            reason = short(error) or type(error).__name__
            raise InputError(f"{path} cannot be read: {reason}") from None


def _check_sizes(archive: zipfile.ZipFile, known: Collection[str], size: int) -> None:
    """That the names are known, and that headers and sizes agree and are not absurd."""
    members = archive.infolist()
    names = [member.filename.removesuffix(".npy") for member in members]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise InputError(
            f"holds an unknown array {unknown[0]!r}; known ones are {', '.join(sorted(known))}"
        )
    if len(set(names)) < len(names):
        raise InputError("cannot be read: it holds an array twice")
    unpacked = sum(member.file_size for member in members)
    if unpacked > max(_HARMLESS, _LARGEST_RATIO * size):
        raise InputError(
            f"has {size:,} bytes and would unpack to {unpacked:,}; write it uncompressed, with "
            "numpy.savez, or save a sparse table with MDP.save"
        )
    for name, member in zip(names, members, strict=True):
        if not member.filename.endswith(".npy"):
            raise InputError(f"cannot be read: {name!r} is not an array")
        with archive.open(member) as file:
            head = io.BytesIO(file.read(_LONGEST_HEADER))
        version = np.lib.format.read_magic(head)
        if version not in ((1, 0), (2, 0)):
            raise InputError(f"cannot be read: {name!r} is of an unknown version {version}")
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read_header(head)
        if dtype.hasobject:
            raise InputError(f"cannot be read: {name!r} holds objects, not numbers")
        if head.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
            raise InputError(f"cannot be read: {name!r} has another size than its shape says")
