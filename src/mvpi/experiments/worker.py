"""A worker: one experiment in a process of its own.

The experiment is a line of JSON on standard input, which stays open as long as the runner waits for
the outcome: when the other end is closed, also by a kill, this process ends at once. The run
directory survives any kill. All runners start the same process with one thread, so that outcomes
are the same bit for bit on processors of the same kind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from mvpi._storage import files
from mvpi.errors import Divergence, EnvironmentFailure, InputError
from mvpi.experiments.experiment import LOG, Busy, Experiment

BUSY = 75
"""Exit status if the experiment is locked by another process."""
STOPPED = 128 + signal.SIGINT
"""Exit status after it stopped at a checkpoint on request."""
_WORK = "from mvpi.experiments.worker import main; raise SystemExit(main())"
_SAME_BITS = {
    **dict.fromkeys(("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "NUMBA_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
}
"""One thread and no graphics card: a matrix product on two threads, or on a GPU, has other bits.
NPROC is read by XLA, which JAX runs on."""


def start(experiment: Experiment, root: Path, core: int | None = None) -> subprocess.Popen[bytes]:
    """Start a process that runs the experiment on one core; its output goes to the log."""
    directory = root / experiment.name
    directory.mkdir(parents=True, exist_ok=True)
    with files.open_file(directory / LOG, "a") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _WORK, str(root)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            bufsize=0,
            env={**os.environ, **_SAME_BITS},
            start_new_session=True,  # Ctrl-C is for the runner, which stops its workers
        )
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(process.pid, {core})
    if process.stdin is not None:
        with suppress(BrokenPipeError):  # killed already: its exit status says so
            process.stdin.write((json.dumps(experiment.record()) + "\n").encode())
    return process


def release(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe to a worker; one that is still running ends."""
    if process.stdin is not None:
        process.stdin.close()


def main() -> int:
    """Run the experiment on standard input; the exit status says how it went."""
    experiment = Experiment.of_record(json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_the_runner, daemon=True).start()
    try:
        experiment.run(Path(sys.argv[1]))
    except Busy:
        return BUSY
    except KeyboardInterrupt:
        return STOPPED
    except (InputError, EnvironmentFailure, Divergence) as error:
        sys.exit(str(error))  # one line in the log, and status 1
    return 0


def _end_with_the_runner() -> None:
    sys.stdin.read()
    os._exit(128 + signal.SIGKILL)
