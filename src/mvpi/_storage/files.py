"""Regular files only: read without hanging, written atomically, never through a symbolic link.

Anyone with write access to a directory could leave a link, a FIFO or a device under the name of a
file that a program is going to open. Every file is therefore opened without blocking, and its kind
is read from the open descriptor; for writing, links are not followed, and temporary files have
random names.
Whatever is wrong with a file that is read is one `InputError`.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from mvpi.errors import InputError

_PARTIAL = re.compile(r"\..+\.[0-9a-f]{16}\.part")
"""Names of files that are being written, and were left over if their process was killed."""
_NOT_REGULAR = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV)
"""What the system says of a link, a FIFO nobody reads, a directory, a device without a driver."""


def open_file(path: Path, mode: Literal["r", "r+", "a", "a+", "x", "x+"]) -> io.FileIO:
    """Open a regular file, unbuffered; an `InputError` if it is something else.

    For reading a link is followed. For writing it is not.
    """

    def opener(name: str, flags: int) -> int:
        links = 0 if mode == "r" else os.O_NOFOLLOW
        descriptor = os.open(name, flags | links | os.O_NONBLOCK | os.O_NOCTTY, 0o666)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), name)
        return descriptor

    try:
        return io.FileIO(str(path), mode, opener=opener)
    except FileNotFoundError:
        if mode != "r":
            raise
        raise InputError(f"{path} does not exist") from None
    except OSError as error:
        if error.errno in _NOT_REGULAR:
            raise InputError(f"{path} is not a regular file; remove it, or use another") from None
        raise


def read_bytes(path: Path) -> bytes:
    """All of a file, or an `InputError`."""
    with open_file(path, "r") as file:
        return file.read()


def read_text(path: Path) -> str:
    """The text in a file, or an `InputError`."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: {short(error)}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or an `InputError`."""
    text = read_text(path)
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {short(error)}") from None
    if not isinstance(record, dict):
        raise InputError(f"{path} is damaged: it does not hold a JSON object")
    return record


@contextmanager
def replacing(path: Path) -> Iterator[io.FileIO]:
    """A new file that takes the place of `path` once it is complete and durable.

    A kill or a full disk leaves what was there before. A link there is replaced, not followed; a
    device, a FIFO or a directory is never replaced.
    """
    if not path.is_symlink() and path.exists() and not path.is_file():
        raise InputError(f"{path} is not a regular file; use another")
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with open_file(partial, "x+") as file:
            yield file
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_file(path: Path, data: bytes) -> None:
    """All of `data`, or what was there before."""
    with replacing(path) as file:
        write_all(file, data)


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """A JSON object a person can read."""
    write_file(path, (json.dumps(record, indent=2, allow_nan=False) + "\n").encode())


def write_all(file: io.FileIO, data: bytes) -> None:
    """Write all of `data`, in several calls where the system writes less than it was asked to."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def remove_partial_files(directory: Path) -> None:
    """Remove the temporary files of killed processes; no other process may be writing there."""
    for path in directory.iterdir():
        if _PARTIAL.fullmatch(path.name):
            path.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(*parts: bytes | memoryview) -> str:
    """A hash of byte strings; the same bytes, split at other places, have another hash."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def record_checksum(record: Mapping[str, Any], *parts: bytes | memoryview) -> str:
    """That of a JSON object, without the checksum in it, and of some bytes."""
    facts = {name: value for name, value in record.items() if name != "checksum"}
    return checksum(json.dumps(facts, sort_keys=True).encode(), *parts)


def short(what: object, limit: int = 120) -> str:
    """One line of what may be many."""
    text = " ".join(str(what).split())
    return text if len(text) <= limit else f"{text[:limit]} ..."
