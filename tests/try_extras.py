"""The wheel in empty environments, with and without each extra, and README's snippets in them.

    python tests/try_extras.py                   all extras: gigabytes, many minutes
    python tests/try_extras.py core agents       some; `core` is no extra

Builds sdist and wheel as `python -m build` does, the wheel from the sdist. For each extra: a new
virtual environment, the wheel installed with it under constraints.txt, and every Python block of
README.md run by itself. A block runs where its extra, named in the line above it, is installed;
elsewhere it ends with one line that names the extra, or with the name of a package that only the
extra brings. Prints a row for each extra: packages, disk space, seconds of installing, and what the
blocks did.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = ("core", "agents", "sb3", "offline", "ray", "rllib", "report", "tensorboard")
BRINGS = {
    "offline": {"agents"},
    "ray": {"agents"},
}
"""Extras that bring others along."""
FOREIGN = {"sb3": ("stable_baselines3",), "rllib": ("ray", "tree")}
"""What a block imports before anything of ours, and what that needs of the extra."""


def snippets() -> list[tuple[str, str]]:
    """The extra and the text of every Python block of README.md."""
    before, *parts = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")
    found = []
    for part in parts:
        heading = before.rpartition("\n**")[2]
        named = re.findall(r"'\.\[(\w+)\]'", heading)
        code, _, before = part.partition("```")
        found.append(("core" if not named or "(core" in heading else named[0], code))
    return found


def built(folder: Path) -> Path:
    """The wheel, made from the sdist."""
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, capture_output=True
    )
    return next(folder.glob("*.whl"))


def installed(wheel: Path, extra: str, folder: Path) -> tuple[Path, float]:
    """The interpreter of a new environment that has the wheel, and seconds of installing."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    name = f"{wheel}[{extra}]" if extra != "core" else str(wheel)
    start = time.perf_counter()
    pip = [folder / "bin/pip", "install", "-q", "-c", ROOT / "constraints.txt", name]
    subprocess.run(pip, check=True)
    return folder / "bin/python", time.perf_counter() - start


def megabytes(folder: Path) -> int:
    files = (path.lstat().st_size for path in folder.rglob("*") if not path.is_symlink())
    return round(sum(files) / 1e6)


def outcome(python: Path, code: str, needs: str, extra: str) -> str:
    """`runs`, `named` where another extra is missing and said so, or what went wrong."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [python, "-W", "error", "-c", code],
            cwd=folder,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode == 0:
        return "runs"
    last = run.stderr.strip().splitlines()[-1]
    if needs in {"core", extra} | BRINGS.get(extra, set()):
        return f"FAILED: {last}"
    missing = [f"No module named '{name}" for name in FOREIGN.get(needs, ())]
    told = f"[{needs}]'" in last or any(words in last for words in missing)
    return "named" if told else f"FAILED: {last}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("extras", nargs="*", choices=[*EXTRAS, []])
    extras = parser.parse_args().extras or EXTRAS
    failed = False
    with tempfile.TemporaryDirectory(prefix="extras-") as name:
        wheel = built(Path(name) / "dist")
        for extra in extras:
            folder = Path(name) / extra
            python, seconds = installed(wheel, extra, folder)
            listed = subprocess.run([folder / "bin/pip", "list"], capture_output=True, check=True)
            count = len(listed.stdout.splitlines()) - 2
            told = [(needs, outcome(python, code, needs, extra)) for needs, code in snippets()]
            failed |= any(what.startswith("FAILED") for _, what in told)
            row = f"{extra}: {count} packages, {megabytes(folder)} MB, {seconds:.0f} s; "
            sys.stdout.write(row + ", ".join(f"{needs} {what}" for needs, what in told) + "\n")
            sys.stdout.flush()
            subprocess.run(["rm", "-rf", folder], check=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
