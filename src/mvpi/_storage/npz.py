"""Plain arrays in an `.npz` file: nothing in it is ever executed, and none is left half-written.

A file says in its headers how large its arrays are. They are looked at first: a small file that
unpacks to more than memory holds is refused before anything is unpacked.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Collection, Mapping
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from mvpi._checks import check_output, check_path
from mvpi._storage.files import open_file, replacing, short
from mvpi.errors import InputError

Anything = npt.NDArray[Any]

_ALWAYS_UNPACKED = 2**30
"""Bytes that any file may unpack to; more must be in the file as they are."""


def write_npz(path: str | PathLike[str], arrays: Mapping[str, npt.ArrayLike]) -> None:
    """Write arrays; an existing file is replaced only once the new one is complete."""
    with replacing(check_output(path)) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_npz(
    path: str | PathLike[str], known: Collection[str], *, written_by: str
) -> dict[str, Anything]:
    """The arrays of a file, all of which must be `known`; anything else is an `InputError`."""
    with _opened(path) as file:
        try:
            if not zipfile.is_zipfile(file):
                raise InputError(
                    f"{path} is not an .npz file; write one with {written_by} or numpy.savez"
                )
            with zipfile.ZipFile(file) as archive:
                _check_members(archive, known, path)
                members = archive.infolist()
                return {member.filename[:-4]: _read(archive, member) for member in members}
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001 - numpy and zipfile raise half a dozen kinds for a damaged file
            reason = short(error) or type(error).__name__
            raise InputError(f"{path} cannot be read: {reason}") from None


def _check_members(
    archive: zipfile.ZipFile, known: Collection[str], path: str | PathLike[str]
) -> None:
    """Names and sizes, before anything is unpacked."""
    members = archive.infolist()
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name not in known:
            raise InputError(
                f"{path} holds an unknown array {name[:80]!r}; known ones are "
                f"{', '.join(sorted(known))}"
            )
        if name == member.filename:
            raise InputError(f"{path} cannot be read: {name!r} is not an array")
    if len({member.filename for member in members}) < len(members):
        raise InputError(f"{path} cannot be read: it holds two arrays of one name")
    packed = sum(member.compress_size for member in members)
    unpacked = sum(max(member.file_size, _announced(archive, member)) for member in members)
    if unpacked > max(_ALWAYS_UNPACKED, 2 * packed):
        raise InputError(
            f"{path} unpacks from {packed:,} to {unpacked:,} bytes, more than {_ALWAYS_UNPACKED:,} "
            "are not unpacked; write it with numpy.savez, which does not compress"
        )


def _announced(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """The bytes of an array, as its own header says."""
    with archive.open(member) as stream:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(stream)
    if any(size < 0 for size in shape):
        raise ValueError(f"an array of the shape {shape}")
    return math.prod(shape) * dtype.itemsize


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Anything:
    with archive.open(member) as stream:
        array: Anything = npy.read_array(stream, allow_pickle=False)
    return array


def _opened(path: str | PathLike[str]) -> io.FileIO:
    try:
        return open_file(check_path(path), "r")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
