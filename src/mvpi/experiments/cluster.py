"""Experiments on a Ray cluster: one task each, on any node that has a free CPU.

A task starts the very same worker process as `LocalRunner`, so outcomes are the same bit for bit on
processors of the same kind. A lost node, a killed task or a killed worker is made up for by
another, which goes on from the last checkpoint: the directory of the runs is on storage that all
nodes share.

Ray lives in a process of its own, the driver: what it prints, the handlers it sets and the way it
ends when the cluster is gone do not concern the process that asked. As with a worker, orders come
on standard input, and when that is closed the driver ends, and with it, by Ray, all of its tasks.
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
from mvpi.errors import InputError, missing
from mvpi.experiments import worker
from mvpi.experiments.experiment import Experiment
from mvpi.experiments.runner import BUSY_WAIT, Event, begin, ended, parted

LOCAL = "local"
"""The address that stands for a Ray of our own on this machine."""
_LOSSES = 100
"""How often an experiment is begun again on another node when its own, or its task, is lost."""
_CONNECT = 20.0
"""Seconds until a cluster has to answer; Ray itself tries for minutes."""
_START = 120.0
"""Seconds for a Ray of our own to start."""
_LOOK = 0.5
"""Seconds between two looks at the tasks."""
_PATIENCE = 20.0
"""Seconds the driver has to let go of the cluster before it is killed."""
_DRIVER = "from mvpi.experiments.cluster import drive; drive()"
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # unset, Ray announces that it will change
}
_MINIMAL: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 100 * 2**20}
"""A Ray of our own: tasks hand over a line of text."""


@dataclass(frozen=True)
class _Order:
    """What the driver is told."""

    address: str
    root: str
    board: str
    """A directory under `root`, in which a task leaves a file when it begins."""
    records: list[dict[str, Any]]


class RayRunner:
    """Runs experiments on the Ray cluster at `address`, which is as in `ray.init`.

    That is "auto" for the cluster this machine is part of, "host:port", or "ray://host:port" from a
    machine outside; "local" starts a Ray on this machine for as long as it takes. The directory of
    the runs has to be on storage that all nodes share, under the same path.
    """

    def __init__(self, address: str = "auto") -> None:
        if find_spec("ray") is None:
            raise InputError(missing("the Ray runner", "ray", "ray"))
        self.address = check_kind(address, str, "address", 'a text such as "auto"')

    def __call__(self, experiments: Sequence[Experiment], root: Path) -> Iterator[Event]:
        """Run them; tells when each begins and ends."""
        done, others = parted(experiments, root)
        yield from (Event(e, "done") for e in done)
        if not others:
            return
        root = root.absolute()
        with _board(root) as board:
            records = [e.record() for e in others]
            order = _Order(self.address, str(root), str(board), records)
            with _driver(order) as news:
                for line in news:
                    index, state, reason = json.loads(line)
                    yield Event(others[index], state, reason)


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
    """A driver at work, and the lines it writes; raises if it ended before its work was done."""
    with (
        TemporaryFile() as words,
        subprocess.Popen(
            [sys.executable, "-c", _DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=words,
            bufsize=0,
            env={**os.environ, **_QUIET},
            start_new_session=True,
        ) as process,
    ):
        try:
            with suppress(BrokenPipeError):
                cast(IO[bytes], process.stdin).write((json.dumps(asdict(order)) + "\n").encode())
            yield _lines(process, order.address, words)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
            process.kill()


def _lines(process: subprocess.Popen[bytes], address: str, words: IO[bytes]) -> Iterator[bytes]:
    limit = _START if address == LOCAL else _CONNECT
    timer = threading.Timer(limit, process.kill)
    timer.start()
    news = cast(IO[bytes], process.stdout)
    try:
        connected = news.readline()
    finally:
        timer.cancel()
    yield from news
    status = process.wait()
    if status == 0:
        return
    reason = _last_line(words) if status > 0 else ""
    if connected:
        reason = reason or f"the driver ended with status {status}"
        raise InputError(f"lost the Ray cluster at {address!r}: {reason}; the same command goes on")
    reason = reason or f"no answer within {limit:g} seconds"
    raise InputError(
        f"cannot connect to Ray at {address!r}: {reason}; is it running there? `ray start --head` "
        f"starts one, the address {LOCAL!r} is this machine"
    )


def _last_line(words: IO[bytes]) -> str:
    words.seek(0)
    return words.read().decode(errors="replace").strip().rpartition("\n")[2]


def drive() -> None:
    """The driver: hands the experiments to Ray and writes a line of JSON for every event."""
    news = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what Ray prints is no news
    order = _Order(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_the_runner, args=(order.board,), daemon=True).start()
    import ray

    try:
        more = _MINIMAL if order.address == LOCAL else {}
        ray.init(order.address, logging_level=logging.ERROR, log_to_driver=False, **more)
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(" ".join(str(error).split()).rstrip("."))
    try:
        news.write("connected\n")
        _watch(order, news)
    finally:
        ray.shutdown()


def _end_with_the_runner(board: str) -> None:
    sys.stdin.read()
    shutil.rmtree(board, ignore_errors=True)
    os._exit(1)


def _watch(order: _Order, news: TextIO) -> None:
    import ray

    def tell(index: int, state: str, reason: str = "") -> None:
        news.write(json.dumps([index, state, reason]) + "\n")

    run = ray.remote(num_cpus=1, max_retries=_LOSSES, scheduling_strategy="SPREAD")(_run)
    tasks: dict[Any, int] = {}
    not_before = dict.fromkeys(range(len(order.records)), 0.0)
    begun: set[int] = set()
    kept_waiting: set[int] = set()
    while tasks or not_before:
        for index in [i for i, moment in not_before.items() if time.monotonic() >= moment]:
            del not_before[index]
            tasks[run.remote(order.records[index], order.root, order.board, index)] = index
        if not tasks:
            time.sleep(_LOOK)
            continue
        over, _ = ray.wait(list(tasks), timeout=_LOOK)
        for index in {int(path.name) for path in Path(order.board).iterdir()} - begun:
            begun.add(index)
            tell(index, "running")
        for task in over:
            index = tasks.pop(task)
            try:
                state, reason = ray.get(task)
            except ray.exceptions.RayError as error:
                state, reason = "failed", str(error).strip().rpartition("\n")[2]
            if state == "waiting":
                not_before[index] = time.monotonic() + BUSY_WAIT
                if index in begun | kept_waiting:  # the former wait for what a lost node left
                    continue
                kept_waiting.add(index)
            tell(index, state, reason)


def _run(record: dict[str, Any], root: str, board: str, index: int) -> tuple[str, str]:
    """The task: an experiment in a worker process, again if that is killed; how it ended.

    "waiting" is to be submitted again: while another process is at it, no CPU is held.
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
