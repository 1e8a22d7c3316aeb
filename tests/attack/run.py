"""All attacks, or some: python tests/attack/run.py interrupts damaged files --count 100 --seed 1

A kind of attack is a module beside this one with `COUNT`, how many attacks make a full run, and
`run(count, seed) -> Tally`. The exit status is 1 if anything was seen that must not be: bytes that
differ without a refusal, tracebacks, hangs, writes outside, files left in the project.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from tally import Tally  # noqa: E402 - the path comes first

KINDS = ("interrupts", "damaged", "files", "commands", "calls")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the attacks, print the table; the number of kinds that failed."""
    known = [kind for kind in KINDS if find_spec(kind) is not None]
    parser = argparse.ArgumentParser(description="Attack the program and count what happens.")
    parser.add_argument("kinds", nargs="*", help=f"some of {', '.join(known)}; default: all")
    parser.add_argument("--count", type=int, help="attacks of each kind; default: a full run")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.kinds) - set(known))
    if unknown:
        parser.error(f"unknown kind {unknown[0]!r}; there are {', '.join(known)}")
    tallies, before = [], project()
    for kind in given.kinds or known:
        module = import_module(kind)
        began = time.monotonic()
        tally: Tally = module.run(given.count or module.COUNT, given.seed)
        tally.seconds = time.monotonic() - began
        tallies.append(tally)
        print(table([tally]), flush=True)
    if len(tallies) > 1:
        print(f"\n{table(tallies)}")
    for line in (line for tally in tallies for line in tally.examples):
        print(line)
    gained = sorted(project() - before)
    if gained:
        print(f"left in the project: {', '.join(gained)}")
    return int(bool(gained) or any(tally.failed for tally in tallies))


def project() -> set[str]:
    """What is in the root of the project, but for what tools keep there."""
    root = Path(__file__).parents[2]
    return {path.name for path in root.iterdir() if not path.name.endswith("_cache")}


def table(tallies: Sequence[Tally]) -> str:
    """A line a kind: attacks, failures, seconds, and all outcomes with their counts."""
    lines = []
    for tally in tallies:
        seen = {**tally.outcomes, **{f"FAILED {kind}": n for kind, n in tally.failures.items()}}
        told = ", ".join(f"{kind} {n}" for kind, n in sorted(seen.items()))
        lines.append(
            f"{tally.name:<24} {tally.attacks:>6} attacks {tally.failed:>4} failures "
            f"{tally.seconds:>7.0f} s   {told}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
