"""Attacks in a process of their own, which may end or hang without ending the others.

The process of an attack module gets the numbers of the attacks to make and writes a line for each,
before and after. When it ends too early or takes too long, the attack that was under way is the
reason, and another process goes on with the next. Nothing outside its scratch directory can be
opened for writing, moved or removed from Python: what tries is stopped, and is a failure of the
attack.
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
_CHANGES = (
    "os.chmod",
    "os.chown",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
    "shutil.rmtree",
)
_MOVES = ("os.link", "os.rename", "os.symlink")
"""Of two paths; either may be what is lost."""
_TERMINALS = ("/dev/null", "/dev/tty", "/dev/shm/")
"""May be opened, and no more."""

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
                env={**os.environ, "TMPDIR": scratch, "MINARI_DATASETS_PATH": scratch},
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
            try:
                outcome = attack(line)
            except WriteOutside:
                outcome = "write outside", ""
            if outside:
                outcome = "write outside", f"{outside[0]} ({outcome[0]})"
            news.write(json.dumps({"outcome": outcome}) + "\n")
    os._exit(0)  # JAX would take a while to forget what it has compiled


class WriteOutside(BaseException):
    """Not an `Exception`: nobody is to handle it by writing elsewhere."""


def _watch(event: str, arguments: tuple[Any, ...], scratch: Path, outside: list[str]) -> None:
    """Stop what would change anything outside `scratch`, and take note of it."""
    if event == "open":
        _, _, flags = arguments
        if not isinstance(flags, int) or not flags & _WRITING:
            return
    elif event not in _CHANGES:
        return
    for path in arguments[: 2 if event in _MOVES else 1]:
        if isinstance(path, int):
            continue
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - a Path may refuse the name
        allowed = (f"{scratch}/", *(_TERMINALS if event == "open" else ()))
        inside = name == str(scratch) or name.startswith(allowed)
        if not inside and not any(cache in name for cache in _CACHES):
            outside.append(f"{event} {name!r:.200}")
            raise WriteOutside(name)
