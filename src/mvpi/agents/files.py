"""Files of arrays, rows and plain facts: safetensors with a JSON record, written atomically.

Reading such a file parses numbers and JSON, nothing else: no code in it can run, and nothing is
written anywhere. Whatever is wrong with a file is one `InputError`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy

from mvpi.errors import InputError

Arrays = dict[str, npt.NDArray[Any]]
Row = dict[str, float | int | None]
"""An evaluation in training, as metrics.csv holds it."""

FORMAT = 1
"""Raised when files change in a way older programs cannot read."""
_KEY = "mvpi"
_DTYPES = {
    np.dtype(t)
    for t in (np.float16, np.float32, np.float64, np.int32, np.int64, np.uint32, np.uint64)
}


def write_file(path: Path, data: bytes) -> None:
    """All of `data`, or what was there before: a kill or a full disk leaves no half a file."""
    partial = path.with_name(f".{path.name}.part")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """A JSON object a person can read."""
    write_file(path, (json.dumps(record, indent=2, allow_nan=False) + "\n").encode())


def read_text(path: Path) -> str:
    """The text in a file, or an `InputError`."""
    try:
        return _bytes_of(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: {_short(error)}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or an `InputError`."""
    try:
        record = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged: {_short(error)}") from None
    if not isinstance(record, dict):
        raise InputError(f"{path} is damaged: it does not hold a JSON object")
    return record


def read_metrics(directory: Path) -> list[Row]:
    """The rows of a run's metrics.csv, an evaluation each; an empty cell is None.

    A last row that was not written to its end is left out; anything else that is no number is an
    `InputError`.
    """
    path = directory / "metrics.csv"
    lines = read_text(path).splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    try:
        return [
            {name: float(text) if text else None for name, text in line.items()}
            for line in csv.DictReader(lines, strict=True)
        ]
    except (ValueError, TypeError, csv.Error) as error:
        raise InputError(f"{path} is damaged: {error}") from None


def write_arrays(path: Path, kind: str, arrays: Arrays, record: Mapping[str, Any]) -> None:
    """Arrays and a record in one file; `kind` says what they are."""
    contiguous = {name: np.asarray(a, order="C") for name, a in arrays.items()}
    facts = {"format": FORMAT, "kind": kind, "checksum": _checksum(contiguous), **record}
    metadata = {_KEY: json.dumps(facts, allow_nan=False)}
    write_file(path, safetensors.numpy.save(contiguous, metadata=metadata))


def read_arrays(path: Path, kind: str) -> tuple[Arrays, dict[str, Any]]:
    """What `write_arrays` wrote, or an `InputError` that says what the file is instead."""
    data = _bytes_of(path)
    try:
        record = _record(data)
    except (UnicodeDecodeError, ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{path} is not a file of mvpi: it holds no safetensors record") from None
    found, version = record.get("kind"), record.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InputError(f"{path} is not a file of mvpi: its format is {_short(repr(version))}")
    if version > FORMAT:
        raise InputError(
            f"{path} is of the newer format {_short(version)}, this program reads up to "
            f"{FORMAT}; update mvpi"
        )
    if found != kind:
        raise InputError(f"{path} holds a {_short(repr(found))}, not a {kind}")
    try:
        arrays = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged: {_short(error)}") from None
    for name, array in arrays.items():
        if array.dtype not in _DTYPES:
            raise InputError(f"{path} is damaged: {_short(name)!r} is of type {array.dtype}")
    if record.get("checksum") != _checksum(arrays):
        raise InputError(f"{path} is damaged: its numbers do not match its checksum")
    return arrays, record


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


def _checksum(arrays: Arrays) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _bytes_of(path: Path) -> bytes:
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if not path.is_file():
        raise InputError(f"{path} is not a file")
    return path.read_bytes()


def _record(data: bytes) -> dict[str, Any]:
    """The record in the header: 8 bytes of length, then JSON with our own JSON inside."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length].decode())
    record = json.loads(header["__metadata__"][_KEY])
    if not isinstance(record, dict):
        raise TypeError("not a record")
    return record


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _short(what: object, limit: int = 120) -> str:
    text = " ".join(str(what).split())
    return text if len(text) <= limit else f"{text[:limit]} ..."
