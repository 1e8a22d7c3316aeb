"""Files of arrays and plain facts: safetensors with a JSON record, written atomically.

Reading such a file parses numbers and JSON, nothing else: no code in it can run, and nothing is
written anywhere. Whatever is wrong with a file is one `InputError`. A checksum covers the arrays
and the record; in format 1 it covered the arrays only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from mvpi._storage.files import checksum, read_bytes, record_checksum, short, write_file
from mvpi.errors import InputError

Arrays = dict[str, npt.NDArray[Any]]

FORMAT = 2
"""Raised when files change in a way older programs cannot read."""
UNVERIFIED = 1
"""The format in which not all that a resume relies on was under a checksum."""
_KEY = "mvpi"
_DTYPES = {
    np.dtype(t)
    for t in (
        *(np.float16, np.float32, np.float64),
        *(np.int32, np.int64, np.uint8, np.uint32, np.uint64),
    )
}


def write_arrays(path: Path, kind: str, arrays: Arrays, record: Mapping[str, Any]) -> str:
    """Arrays and a record in one file; `kind` says what they are. Returns the file's checksum."""
    data = pack_arrays(kind, arrays, record)
    write_file(path, data)
    return checksum(data)


def pack_arrays(kind: str, arrays: Arrays, record: Mapping[str, Any]) -> bytes:
    """What `write_arrays` writes, for file systems of others."""
    contiguous = {name: np.asarray(a, order="C") for name, a in arrays.items()}
    facts = {"format": FORMAT, "kind": kind, **record}
    facts["checksum"] = _checksum(contiguous, facts)
    metadata = {_KEY: json.dumps(facts, allow_nan=False)}
    return safetensors.numpy.save(contiguous, metadata=metadata)


def read_arrays(path: Path, kind: str) -> tuple[Arrays, dict[str, Any]]:
    """What `write_arrays` wrote, or an `InputError` that says what the file is instead."""
    return unpack_arrays(read_bytes(path), kind, path)


def unpack_arrays(data: bytes, kind: str, path: Path) -> tuple[Arrays, dict[str, Any]]:
    """What `pack_arrays` packed; `path` is where `data` was found, for messages."""
    try:
        record = _record(data)
    except (UnicodeDecodeError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{path} is not a file of mvpi: it holds no safetensors record") from None
    found, version = record.get("kind"), record.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(f"{path} is not a file of mvpi: its format is {short(repr(version))}")
    if version > FORMAT:
        raise InputError(
            f"{path} is of the newer format {short(version)}, this program reads up to "
            f"{FORMAT}; update mvpi"
        )
    if found != kind:
        raise InputError(f"{path} holds a {short(repr(found))}, not a {kind}")
    try:
        arrays = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {short(error)}") from None
    for name, array in arrays.items():
        if array.dtype not in _DTYPES:
            raise InputError(f"{path} is damaged: {short(name)!r} is of type {array.dtype}")
    try:
        intact = record.get("checksum") == _checksum(arrays, record)
    except RecursionError:  # lists in lists
        intact = False
    if not intact:
        raise InputError(f"{path} is damaged: it does not match its checksum")
    return arrays, record


@contextmanager
def refusing_damage(path: Path) -> Iterator[None]:
    """What is raised where a record or its arrays are not as expected becomes an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {type(error).__name__} {short(error)}") from None


def take(arrays: Arrays, name: str, shape: tuple[int, ...], path: Path) -> npt.NDArray[Any]:
    """The finite array `name` of that shape, or an `InputError`."""
    array = arrays.get(name)
    if array is None:
        raise InputError(f"{path} is damaged: {name} is missing")
    if array.shape != shape:
        raise InputError(f"{path} is damaged: {name} has the shape {array.shape}, not {shape}")
    if not np.isfinite(array).all():
        raise InputError(f"{path} is damaged: {name} is not finite")
    return array


def _checksum(arrays: Arrays, record: Mapping[str, Any]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        digest.update(arrays[name].tobytes())
    if record["format"] == UNVERIFIED:
        return digest.hexdigest()
    return record_checksum(record, digest.digest())


def _record(data: bytes) -> dict[str, Any]:
    """The record in the header: 8 bytes of length, then JSON with our own JSON inside."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length].decode())
    record = json.loads(header["__metadata__"][_KEY])
    if not isinstance(record, dict):
        raise TypeError("not a record")
    return record
