"""Run directories in or below the directories that a user names.

The search is bounded, so that a mistaken `mvpi report /` ends with a message: directories deeper
than `DEPTH` are not entered, after `ENTRIES` files and directories it stops with an error, and
symbolic links are never followed. A link that the user names is resolved.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from mvpi._storage.names import CONFIG
from mvpi._text import reason
from mvpi.errors import InputError

DEPTH = 8
"""Levels below a given directory that are searched."""
ENTRIES = 100_000
"""Files and directories that are looked at below a given directory; a run has about ten."""


def find_runs(directories: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The run directories in or below the given ones, each once, and notes on what is left out."""
    if not directories:
        raise InputError("give at least one run directory of `mvpi train`")
    found: dict[Path, Path] = {}
    notes: list[str] = []
    for given in directories:
        if not given.is_dir():
            what = "is not a directory" if given.exists() else "does not exist"
            raise InputError(f"{given} {what}; give run directories of `mvpi train`")
        search = _Search(given)
        below = list(search.runs(given, DEPTH))
        if not below and not search.notes:
            raise InputError(f"{given} holds no run: there is no {CONFIG} in it or below it")
        notes += search.notes
        for path in below:
            found.setdefault(path.resolve(), path)
    return list(found.values()), notes


class _Search:
    """A search below one directory; `notes` says what could not be searched."""

    def __init__(self, given: Path) -> None:
        self._given = given
        self._left = ENTRIES
        self._too_deep = 0
        self._unreadable: list[str] = []

    @property
    def notes(self) -> list[str]:
        """A line for each directory that cannot be read, and one for those that are too deep."""
        if not self._too_deep:
            return self._unreadable
        many = f"{self._too_deep} director{'y' if self._too_deep == 1 else 'ies'}"
        deep = (
            f"{many} more than {DEPTH} levels below {self._given} not searched; "
            "name those that hold runs"
        )
        return [*self._unreadable, deep]

    def runs(self, directory: Path, levels: int) -> Iterator[Path]:
        """Those in or below the directory, by name; what is inside a run belongs to it."""
        try:
            folders, is_run = self._list(directory)
        except OSError as error:
            self._unreadable.append(f"{directory} cannot be read: {reason(error)}")
            return
        if is_run:
            yield directory
            return
        if levels == 0:
            self._too_deep += len(folders)
            return
        for folder in sorted(folders):
            yield from self.runs(directory / folder, levels - 1)

    def _list(self, directory: Path) -> tuple[list[str], bool]:
        """The names of its directories, and whether it holds a run."""
        folders, is_run = [], False
        with os.scandir(directory) as entries:
            for entry in entries:
                self._left -= 1
                if self._left < 0:
                    raise InputError(
                        f"there are more than {ENTRIES:,} files and directories below "
                        f"{self._given}; name the run directories, or one that holds little else"
                    )
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.name == CONFIG:
                    is_run = True
        return folders, is_run
