"""Locks on files: they hold until the file is closed, at the latest when the process ends."""

from __future__ import annotations

import fcntl
from typing import IO, Any

from mvpi.errors import InputError


def lock(file: IO[Any]) -> bool:
    """Lock an open file for this process alone; False while another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise InputError(
            f"cannot lock {file.name}: {error.strerror}; this file system cannot lock files: "
            "use another directory"
        ) from None
    return True
