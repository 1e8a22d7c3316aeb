"""Experiments on a Ray cluster: one task each, on any node that has a free CPU.

A task starts the same worker process as `LocalRunner`, so outcomes are the same bit for bit on
processors of the same kind. A lost node, a killed task or a killed worker is replaced by another,
which resumes from the last checkpoint: the run directories are on storage that all nodes share.

Ray runs in a process of its own, the driver, so that its output, its signal handlers and its exit
when the cluster is lost do not affect the calling process. As with a worker, the order comes on
standard input; when that is closed the driver ends, and Ray ends its tasks.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any, TextIO, cast

from mvpi._checks import check_kind
from mvpi._text import reason
from mvpi.errors import InputError, MissingPackage
from mvpi.experiments import worker
from mvpi.experiments.experiment import Experiment
from mvpi.experiments.runner import BUSY_WAIT, Event, begin, ended, parted

LOCAL = "local"
"""The address of a Ray cluster that is started on this machine for the purpose."""
_LOSSES = 100
"""How often an experiment is restarted when its node or its task is lost."""
_CONNECT = 20.0
"""Seconds within which a cluster has to answer; Ray itself tries for minutes."""
_START = 120.0
"""Seconds for a local Ray to start."""
_POLL = 0.5
"""Seconds between two polls of the tasks."""
_STOP_TIMEOUT = 20.0
"""Seconds that the driver has to disconnect from the cluster before it is killed."""
_DRIVER = "from mvpi.experiments.cluster import drive; drive()"
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # unset, Ray warns of a coming change
}
_MINIMAL: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 100 * 2**20}
"""Options of a local Ray; tasks return a line of text, so a small object store suffices."""


@dataclass(frozen=True)
class _Order:
    """The input of the driver."""

    address: str
    root: str
    board: str
    """A directory under `root` in which a task makes a file when it starts."""
    records: list[dict[str, Any]]


class RayRunner:
    """Runs experiments on the Ray cluster at `address`, which is as in `ray.init`.

    That is "auto" for the cluster this machine is part of, "host:port", or "ray://host:port" from a
    machine outside; "local" starts a Ray on this machine until the end. The directory of the runs
    has to be on storage that all nodes share, under the same path.
    """

    def __init__(self, address: str = "auto") -> None:
        if find_spec("ray") is None:
            raise MissingPackage("the Ray runner", "ray", "ray")
        self.address = check_kind(address, str, "address", 'a text such as "auto"')

    def __call__(self, experiments: Sequence[Experiment], root: Path) -> Iterator[Event]:
        """Run them; an event when each begins and ends."""
        done, others = parted(experiments, root)
        yield from (Event(e, "done") for e in done)
        if not others:
            return
        root = root.absolute()
        with _board(root) as board:
            records = [e.record() for e in others]
            order = _Order(self.address, str(root), str(board), records)
            with _driver(order) as lines:
                for line in lines:
                    index, state, why = json.loads(line)
                    yield Event(others[index], state, why)


@contextmanager
def _board(root: Path) -> Iterator[Path]:
    try:
        root.mkdir(parents=True, exist_ok=True)
        board = TemporaryDirectory(prefix=".ray-", dir=root, ignore_cleanup_errors=True)
    except OSError as error:
        raise InputError(f"cannot write to the directory {root}: {error.strerror}") from None
    with board as name:
        yield Path(name)


@contextmanager
def _driver(order: _Order) -> Iterator[Iterator[bytes]]:
    """A driver process, and the lines it writes; raises if it ended early."""
    with (
        TemporaryFile() as errors,
        subprocess.Popen(
            [sys.executable, "-c", _DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            env={**os.environ, **_QUIET},
            start_new_session=True,
        ) as process,
    ):
        try:
            with suppress(BrokenPipeError):
                cast(IO[bytes], process.stdin).write((json.dumps(asdict(order)) + "\n").encode())
            yield _lines(process, order.address, errors)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_TIMEOUT)
            process.kill()


def _lines(process: subprocess.Popen[bytes], address: str, errors: IO[bytes]) -> Iterator[bytes]:
    limit = _START if address == LOCAL else _CONNECT
    timer = threading.Timer(limit, process.kill)
    timer.start()
    output = cast(IO[bytes], process.stdout)
    try:
        connected = output.readline()
    finally:
        timer.cancel()
    yield from output
    status = process.wait()
    if status == 0:
        return
    why = _last_line(errors) if status > 0 else ""
    if connected:
        why = why or f"the driver ended with status {status}"
        raise InputError(f"lost the Ray cluster at {address!r}: {why}; the same command goes on")
    why = why or f"no answer within {limit:g} seconds"
    raise InputError(
        f"cannot connect to Ray at {address!r}: {why}; is it running there? `ray start --head` "
        f"starts one, the address {LOCAL!r} is this machine"
    )


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    return errors.read().decode(errors="replace").strip().rpartition("\n")[2]


def drive() -> None:
    """The driver: hands the experiments to Ray and writes a line of JSON for every event."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Ray prints to standard output too
    order = _Order(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_the_runner, args=(order.board,), daemon=True).start()
    import ray

    try:
        more = _MINIMAL if order.address == LOCAL else {}
        ray.init(order.address, logging_level=logging.ERROR, log_to_driver=False, **more)
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(reason(error).rstrip("."))
    try:
        output.write("connected\n")
        _watch(order, output)
    finally:
        ray.shutdown()


def _end_with_the_runner(board: str) -> None:
    sys.stdin.read()
    shutil.rmtree(board, ignore_errors=True)
    os._exit(1)


def _watch(order: _Order, output: TextIO) -> None:
    import ray

    def tell(index: int, state: str, why: str = "") -> None:
        output.write(json.dumps([index, state, why]) + "\n")

    run = ray.remote(num_cpus=1, max_retries=_LOSSES, scheduling_strategy="SPREAD")(_run)
    tasks: dict[Any, int] = {}
    not_before = dict.fromkeys(range(len(order.records)), 0.0)
    begun: set[int] = set()
    reported_waiting: set[int] = set()
    while tasks or not_before:
        for index in [i for i, moment in not_before.items() if time.monotonic() >= moment]:
            del not_before[index]
            tasks[run.remote(order.records[index], order.root, order.board, index)] = index
        if not tasks:
            time.sleep(_POLL)
            continue
        over, _ = ray.wait(list(tasks), timeout=_POLL)
        for index in {int(path.name) for path in Path(order.board).iterdir()} - begun:
            begun.add(index)
            tell(index, "running")
        for task in over:
            index = tasks.pop(task)
            try:
                state, why = ray.get(task)
            except ray.exceptions.RayError as error:
                state, why = "failed", str(error).strip().rpartition("\n")[2]
            if state == "waiting":
                not_before[index] = time.monotonic() + BUSY_WAIT
                if index in begun | reported_waiting:  # the former wait for the lock of a lost node
                    continue
                reported_waiting.add(index)
            tell(index, state, why)


def _run(record: dict[str, Any], root: str, board: str, index: int) -> tuple[str, str]:
    """The task: an experiment in a worker process, restarted if that is killed; how it ended.

    "waiting" is to be submitted again: no CPU is held while another process has the lock.
    """
    if not Path(board).is_dir():
        node = os.uname().nodename
        return "failed", f"the node {node} does not see {root}; use storage that all nodes share"
    experiment = Experiment.of_record(record)
    kills: Counter[str] = Counter()
    while True:
        process = begin(experiment, Path(root))
        if isinstance(process, Event):
            return process.state, process.reason
        try:
            (Path(board) / str(index)).touch()
            status = process.wait()
        finally:
            worker.release(process)
        event = ended(experiment, status, Path(root), kills)
        if event.state != "waiting" or status == worker.BUSY:
            return event.state, event.reason
