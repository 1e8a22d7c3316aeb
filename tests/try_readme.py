"""README's commands, word for word, in a clean clone in an empty directory.

    python tests/try_readme.py             all of them: gigabytes, some twenty minutes
    python tests/try_readme.py make pip    some, by how they begin

Every command that README.md names is tried, or in `ELSEWHERE` with what tries it; a new one that
is neither is an error. The clone is of what is committed. `make run` must print what README shows
and be quick when called again; `pip install` goes into a new environment each; a command that
trains for hours is interrupted after a while and must end in one line. Prints a row for each
command: how it ended, seconds, and for installations the disk space.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ELSEWHERE = {
    "git clone <this repository> && cd mvpi": "the clone that everything here is tried in",
    "mvpi paper table --ray ADDRESS": "tests/experiments/test_cluster.py",
    "make test": ".ci/run",
    "make check": ".ci/run",
    "make test-all": "by hand: hours",
    "make attack": "tests/attack/test_attacks.py",
    "make bench": "by hand: hours",
}
INTERRUPTED = {"mvpi train td3 --env Hopper-v4 --risk 1.0": 30.0}
"""Commands that take hours, and after how many seconds they are interrupted."""
STARTS = ("git", "make", "mvpi", "pip")


def commands() -> list[str]:
    """Every command in README.md, indented or in running text, each once, in its order."""
    found = re.findall(rf"^    ((?:{'|'.join(STARTS)}) .*)$|`([^`\n]+)`", README, re.MULTILINE)
    named = (indented or inline for indented, inline in found)
    return list(dict.fromkeys(one for one in named if one.split()[0] in STARTS and " " in one))


def clone(folder: Path) -> Path:
    subprocess.run(["git", "clone", "-q", ROOT, folder / "mvpi"], check=True)
    return folder / "mvpi"


def environment(bin_of: Path) -> dict[str, str]:
    """The variables of a user whose shell has activated an environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return clean | {"PATH": f"{bin_of}:{clean['PATH']}", "COLUMNS": "80"}


def ended(command: str, where: Path, bin_of: Path) -> tuple[str, str, float]:
    """`ran`, or what went wrong; what it printed; and its seconds."""
    start = time.perf_counter()
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=where,
        env=environment(bin_of),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    limit = INTERRUPTED.get(command)
    try:
        printed, _ = process.communicate(timeout=limit)
        wrong = process.returncode != 0
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate()
        wrong = process.returncode not in {130, -signal.SIGINT}
    if wrong or "Traceback" in printed:
        last = (printed.strip().splitlines() or ["nothing printed"])[-1]
        return f"FAILED ({process.returncode}): {last}", printed, time.perf_counter() - start
    told = f"ran {limit:.0f} s, interrupted" if limit is not None else "ran"
    return told, printed, time.perf_counter() - start


def shown_first() -> str:
    """What README says that `make run` prints first."""
    block = re.search(r"First it prints\n\n((?:(?: {4}.*)?\n)+)", README)
    assert block is not None
    lines = block[1].strip("\n").splitlines()
    return "\n".join(line.removeprefix("    ").rstrip() for line in lines)


def megabytes(folder: Path) -> int:
    files = (path.lstat().st_size for path in folder.rglob("*") if not path.is_symlink())
    return round(sum(files) / 1e6)


def rows(command: str, where: Path, folder: Path) -> list[str]:
    """What became of a command, a line each time that it was tried."""
    if command.startswith("pip"):
        own = folder / f"env-{len(list(folder.iterdir()))}"
        subprocess.run([sys.executable, "-m", "venv", own], check=True)
        told, _, seconds = ended(command, where, own / "bin")
        size = megabytes(own)
        subprocess.run(["rm", "-rf", own], check=True)
        return [f"{told}, {seconds:.0f} s, {size} MB"]
    bin_of = where / ".venv/bin"
    told, printed, seconds = ended(command, where, bin_of)
    found = [f"{told}, {seconds:.0f} s"]
    if command == "make run":
        plain = "\n".join(line.rstrip() for line in printed.splitlines())
        if shown_first() not in plain:
            found[0] += "; FAILED: it does not print what README shows"
        found[0] += f", {megabytes(where / '.venv')} MB with the installation"
        told, _, seconds = ended(command, where, bin_of)
        found.append(f"{told} again, {seconds:.0f} s")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("starts", nargs="*", help="commands that begin so; all if left out")
    starts = tuple(parser.parse_args().starts) or STARTS
    failed = False
    with tempfile.TemporaryDirectory(prefix="readme-") as name:
        folder = Path(name)
        where = clone(folder)
        for command in commands():
            if not command.startswith(starts):
                continue
            if command in ELSEWHERE:
                found = [f"elsewhere: {ELSEWHERE[command]}"]
            else:
                found = rows(command, where, folder)
            failed |= any("FAILED" in row for row in found)
            sys.stdout.write("".join(f"{command}: {row}\n" for row in found))
            sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
