"""`mvpi doctor`: what is installed, what works here, and what to do about what does not."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mvpi._version import __version__
from mvpi.cli.display import print_json
from mvpi.cli.installation import CORE, groups
from mvpi.cli.machine import (
    Works,
    jax_cache,
    mujoco_works,
    numba_cache,
    processor,
    solver_works,
    system,
    threads,
)
from mvpi.errors import install_command

_BROKEN = 1


@dataclass(frozen=True)
class Doctor:
    """Say what is installed, what works on this machine, and which extras are missing.

    The exit status is 1 only if the core does not work: what is needed for finite MDPs.
    """

    json: bool = False
    """Print one JSON object."""

    def run(self, console: Console) -> None:
        found = groups()
        extras = [group for group in found if group.name != CORE]
        problem = next((group.problem() for group in found if group.name == CORE), None)
        works = solver_works() if problem is None else Works(False, problem)
        packages = {name: version for group in found for name, version in group.versions.items()}
        facts = {
            "mvpi": __version__,
            "system": system(),
            "processor": processor(),
            "threads": threads(),
            "core": asdict(works),
            "mujoco": asdict(mujoco_works()),
            "caches": {"numba": numba_cache(), "jax": jax_cache()},
            "packages": packages,
            "extras": {group.name: group.problem() for group in extras},
            "install": install_command([group.name for group in extras if not group.ready]),
        }
        if self.json:
            print_json(facts)
        else:
            _show(console, facts)
        if not works.works:
            sys.exit(_BROKEN)


def _show(console: Console, facts: dict[str, Any]) -> None:
    """The facts as lines: a name, and what is to be said of it."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    rows = [
        ("mvpi", f"{facts['mvpi']}, {facts['system']}"),
        ("processor", _processor_line(facts["processor"])),
        ("threads", _threads_line(facts["threads"])),
        ("core", _works_line(facts["core"], "works: a finite MDP was solved as it should be")),
        ("MuJoCo", _works_line(facts["mujoco"], "works: a step of InvertedPendulum-v4 was made")),
        ("numba's cache", _cache_line(facts["caches"]["numba"])),
        ("JAX's cache", _cache_line(facts["caches"]["jax"])),
        *((f"extra {name}", problem or "ready") for name, problem in facts["extras"].items()),
        ("packages", _packages_line(facts["packages"])),
    ]
    if not facts["extras"]:
        rows.append(("extras", "not known: mvpi itself is not installed as a package"))
    if facts["install"] is not None:
        rows.append(("to install", facts["install"]))
    for name, line in rows:
        table.add_row(Text(name, style="bold"), Text(line))
    console.print(table)


def _processor_line(facts: dict[str, Any]) -> str:
    instructions = ", ".join(facts["vector_instructions"]) or "none known"
    return f"{facts['name']}; vector instructions: {instructions}"


def _threads_line(facts: dict[str, Any]) -> str:
    line = f"{facts['usable']} of {facts['cores']} cores can be used; numba: {facts['numba']}"
    limits = ", ".join(f"{name}={value}" for name, value in facts["variables"].items())
    return f"{line}; {limits}" if limits else line


def _works_line(facts: dict[str, Any], good: str) -> str:
    return good if facts["works"] else f"does not work: {facts['problem']}"


def _cache_line(facts: dict[str, Any]) -> str:
    if facts["directory"] is None:
        return facts["problem"] or "none"
    state = "can be written" if facts["writable"] else "cannot be written: every process compiles"
    return f"{facts['directory']}, {state}"


def _packages_line(versions: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)
