"""Locks on files: they hold until the file is closed, at the latest when the process ends."""

from __future__ import annotations

import fcntl
import io
from pathlib import Path
from typing import IO, Any

from mvpi._storage import files
from mvpi.errors import InputError


def open_lock(path: Path, *, shared: bool = False) -> io.FileIO:
    """The file to lock; what is in it does not matter and is kept.

    It is made if there is none, unless the lock is to be shared: readers write nothing.
    """
    return files.open_file(path, "r" if shared else "a")


def lock(file: IO[Any] | int, *, shared: bool = False) -> bool:
    """Lock an open file for this process alone, or for all that share it.

    False while another process has it.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise InputError(
            f"cannot lock {getattr(file, 'name', 'the directory')}: {error.strerror}; this file "
            "system cannot lock files: use another directory"
        ) from None
    return True
