"""A run directory: files that survive any kill, each verified by a checksum of its run.

`mvpi._storage.names` lists the files. Of the metrics `steps_per_second` depends on the machine.

The identity of a run is the checksum of its config.json. A checkpoint states that identity and the
checksums of all that it relies on: its own arrays and record, the metrics so far, the replay. So
what was damaged, torn, or brought from another run is refused, and what was made after the last
checkpoint is made again. Directories of format 1, without these checksums, can be resumed; they
are trusted, and the next checkpoint has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mvpi._storage import files
from mvpi._storage.arrays import FORMAT, UNVERIFIED, Arrays, read_arrays, write_arrays
from mvpi._storage.locks import lock, open_lock
from mvpi._storage.metrics import Metrics, Row
from mvpi._storage.names import CHECKPOINT, CONFIG, FINISHED, POLICY, RUN_LOCK, current_names
from mvpi.errors import InputError, ResumeWarning, warn

Checkpoint = tuple[Arrays, dict[str, Any], Path]

CHECKPOINT_KIND = "checkpoint"
"""The record of a checkpoint."""
_REMEDY = "restore the file, remove the directory to begin again, or use another"


class RunDirectory:
    """The files of one run, locked against a second process."""

    def __init__(self, path: Path, config: dict[str, Any], policy: str = POLICY) -> None:
        self.path = path
        self.policy = path / policy
        self._metrics = Metrics(path)
        self._finished = path / FINISHED
        self._mark: dict[str, Any] | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = open_lock(path / RUN_LOCK)
        except OSError as error:
            raise InputError(f"cannot write to the directory {path}: {error.strerror}") from None
        try:
            if not lock(self._lock):
                raise InputError(f"another process is training in {path}, or reads its replay")
            files.remove_partial_files(path)
            self._format = self._check_config(config)
            self._identity = identity(path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._lock.close()

    def checkpoint(self) -> Checkpoint | None:
        """What the last checkpoint holds; None before the first.

        An `InputError` if it is damaged, of another run, or if the metrics are not those it was
        written with.
        """
        path = self.path / CHECKPOINT
        if not path.exists():
            return None
        arrays, record = read_arrays(path, CHECKPOINT_KIND)
        if record["format"] == UNVERIFIED:
            if self._format != UNVERIFIED:
                raise InputError(f"{path} is of another run, of format 1; {_REMEDY}")
            return arrays, record, path
        if record.get("run") != self._identity:
            raise InputError(f"{path} is of another run, or {CONFIG} was changed; {_REMEDY}")
        if not self._metrics.holds(record.get("metrics")):
            raise InputError(
                f"{self._metrics.path} is damaged: it does not begin with the rows that the "
                f"checkpoint was written with; {_REMEDY}"
            )
        self._mark = record["metrics"]
        return arrays, record, path

    def write_state(self, arrays: Arrays, record: dict[str, Any]) -> None:
        """Replace the checkpoint by this one."""
        relied_on = {"run": self._identity, "metrics": self._metrics.mark()}
        write_arrays(self.path / CHECKPOINT, CHECKPOINT_KIND, arrays, {**record, **relied_on})

    def keep_rows(self, done: int, wanted: int, every: int) -> None:
        """Drop rows of `metrics.csv` that a run resumed at step `done` will write again, and the
        last row of a shorter run that ended between two evaluations. It is now unfinished."""
        self._finished.unlink(missing_ok=True)
        kept = self._metrics.keep(
            lambda at: at <= done and (at % every == 0 or at == wanted), self._mark
        )
        lost = done // every - sum(at % every == 0 for at in kept)
        if lost > 0:
            what = f"{self._metrics.path} lacks {lost} rows of before step {done}; they are lost"
            warn(what, ResumeWarning)

    def add_row(self, row: Row) -> None:
        """Append to `metrics.csv`."""
        self._metrics.add(row)

    def has_row(self, steps: int) -> bool:
        """Whether `metrics.csv` has a row of that step."""
        return steps in self._metrics.counts()

    def last_count(self) -> int:
        """The steps or updates that the last row of the metrics is of; 0 before the first."""
        return max(self._metrics.counts(), default=0)

    def check_belongs(self, record: dict[str, Any], config: dict[str, Any]) -> None:
        """An `InputError` if the policy, whose record this is, is of another run."""
        found = next(differences({name: record.get(name) for name in config}, config), None)
        if found is not None:
            raise InputError(f"{self.policy} is of another run: {found}; {_REMEDY}")

    def finish(self, steps: int | None, policy: str | None = None) -> None:
        """Called last: what is there now is the result after `steps` steps, if there are any.

        `policy` is the checksum of the policy's file, where it is known already.
        """
        record = {
            "format": FORMAT,
            "run": self._identity,
            "steps": steps,
            "metrics": self._metrics.mark(),
            "policy": policy or files.checksum(files.read_bytes(self.policy)),
        }
        record["checksum"] = files.record_checksum(record)
        files.write_json(self._finished, record)

    def is_finished(self, steps: int | None, *, can_go_back: bool) -> bool:
        """Whether the directory holds the whole result after `steps` steps.

        A damaged result is a `ResumeWarning`; without a checkpoint to go back to, it is an
        `InputError`.
        """
        if not self._finished.exists():
            return self._format == UNVERIFIED and (steps is None or self.has_row(steps))
        try:
            record = files.read_json(self._finished)
            if record.get("checksum") != files.record_checksum(record):
                raise InputError(f"{self._finished} is damaged: it does not match its checksum")
            if record.get("run") != self._identity:
                raise InputError(f"{self._finished} is of another run, or {CONFIG} was changed")
            if record.get("steps") != steps:
                return False
            if not self._metrics.holds(record.get("metrics"), exactly=True):
                raise InputError(f"{self._metrics.path} is not as it was when the run finished")
            if files.checksum(files.read_bytes(self.policy)) != record.get("policy"):
                raise InputError(f"{self.policy} is not as it was when the run finished")
        except InputError as error:
            if not can_go_back:
                raise InputError(f"{error}; {_REMEDY}") from None
            warn(f"{error}; what was made after the last checkpoint is made again", ResumeWarning)
            return False
        return True

    def _check_config(self, config: dict[str, Any]) -> int:
        """The format of the directory, which is begun if it was empty."""
        path = self.path / CONFIG
        if not path.exists():
            if begun(self.path):
                raise InputError(
                    f"{self.path} holds a run without its config.json, so its settings are not "
                    "known; use another directory"
                )
            files.write_json(path, config)
            return FORMAT
        there = files.read_json(path)
        version = there.get("format")
        if not isinstance(version, int) or version > FORMAT:
            raise InputError(
                f"{path} is of format {files.short(repr(version))}, this program reads {FORMAT}"
            )
        found = list(differences(there, config))
        if found:
            raise InputError(
                f"{self.path} holds a run with other settings: {'; '.join(found)}; use the same "
                "settings to resume it, or another directory"
            )
        return version


def identity(directory: Path) -> str:
    """The identity of the run in a directory; empty if it has no config.json."""
    path = directory / CONFIG
    return files.checksum(files.read_bytes(path)) if path.exists() else ""


def begun(path: Path) -> bool:
    """Whether a directory holds something that was trained."""
    return any((path / name).exists() for name in (CHECKPOINT, POLICY))


def differences(there: dict[str, Any], here: dict[str, Any]) -> Iterator[str]:
    """How two configurations differ, a phrase each."""
    for key in dict.fromkeys([*there, *here]):
        old, new = there.get(key), here.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from differences(old, new)
        elif current_names(old) != current_names(new) and key not in ("format", "mvpi"):
            told = (files.short(repr(c[key])) if key in c else "not given" for c in (there, here))
            yield "{} is {} there and {} here".format(files.short(key, 40), *told)
