"""Attacks in a process of their own, which may end or hang without ending the others.

The process of an attack module gets the numbers of the attacks to make and writes a line for each,
before and after. When it ends too early or takes too long, the attack that was under way is the
reason, and another process goes on with the next. Files that are opened for writing outside its
scratch directory are a failure of the attack that opened them.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds that an attack may take; the first of a process also imports and compiles."""

_CACHES = ("__pycache__", "mvpi-tests-", "numba", "matplotlib", "fontconfig", "torch", "minari")
"""Directories that libraries write to on their own account."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.symlink")

Outcome = tuple[str, str]


def survived(module: str, count: int, seed: int) -> Iterator[tuple[str, Outcome]]:
    """Every attack of a module, and what it led to: also those it did not survive."""
    done = 0
    while done < count:
        with tempfile.TemporaryDirectory() as scratch:
            arguments = [sys.executable, module, str(count), str(seed), str(done)]
            with subprocess.Popen(
                arguments,
                cwd=scratch,
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
            ) as process:
                under_way = ""
                for message in _messages(process):
                    if message is None:
                        yield under_way, ("hang", f"no answer in {PATIENCE:.0f} s")
                        done += 1
                        break
                    if "outcome" in message:
                        yield under_way, tuple(message["outcome"])
                        under_way = ""
                        done += 1
                    else:
                        under_way = message["attack"]
                else:
                    status = process.wait()
                    if done < count:
                        yield under_way, ("crash", f"the process ended with status {status}")
                        done += 1
                process.kill()


def _messages(process: subprocess.Popen[str]) -> Iterator[dict[str, Any] | None]:
    """What the process writes; None if it takes too long."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=PATIENCE)
        except queue.Empty:
            yield None
            return
        if not line:
            return
        yield json.loads(line)


def serve(attacks: Callable[[int, int], list[str]], attack: Callable[[str], Outcome]) -> None:
    """Make attacks, from the one that the arguments say."""
    count, seed, first = map(int, sys.argv[1:])
    with os.fdopen(os.dup(1), "w", buffering=1) as news:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is attacked may print
        outside: list[str] = []
        scratch = Path.cwd()
        sys.addaudithook(lambda event, arguments: _watch(event, arguments, scratch, outside))
        for line in attacks(count, seed)[first:]:
            news.write(json.dumps({"attack": line}) + "\n")
            outside.clear()
            outcome = attack(line)
            if outside:
                outcome = "write outside", f"{outside[0]} ({outcome[0]})"
            news.write(json.dumps({"outcome": outcome}) + "\n")
    os._exit(0)  # JAX would take a while to forget what it has compiled


def _watch(event: str, arguments: tuple[Any, ...], scratch: Path, outside: list[str]) -> None:
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, int) or not isinstance(flags, int) or not flags & _WRITING:
            return
    elif event in _CHANGES:
        path = arguments[1] if event in ("os.rename", "os.symlink") else arguments[0]
    else:
        return
    name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - a Path may refuse the name
    inside = name.startswith((f"{scratch}/", "/dev/", "/proc/"))
    if not inside and not any(cache in name for cache in _CACHES):
        outside.append(f"{event} {name!r:.200}")
