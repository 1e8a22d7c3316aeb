"""Which module of the package imports which, read from the source; and a picture of it.

    python tests/import_graph.py docs/import-graph.png

Imports inside functions and under `TYPE_CHECKING` count, and so do names of modules in texts, as in
tables for `import_module`. Only the package's own `__init__` may name everything: it is the list of
public names. Left out, too, is `__main__`, which runs the command line. The picture shows packages
in layers; every arrow points down.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
ROOT = "mvpi"

Graph = Mapping[str, set[str]]

LAYERS: tuple[tuple[str, ...], ...] = (
    ("_types", "_version", "errors"),
    ("_checks", "_compiled", "_figures", "_rounding"),
    ("stats", "_bootstrap"),
    ("_text",),
    ("_storage", "_settings"),
    ("risk",),
    ("augmenter",),
    ("envs",),
    ("rollout",),
    ("tabular", "agents", "rllib"),
    ("offline", "sb3"),
    ("experiments",),
    ("paper", "report"),
    ("cli",),
)
"""Packages from the lowest; one imports only what is in a lower layer (DESIGN.md, section 4)."""


def modules(source: Path = SOURCE) -> dict[str, Path]:
    """Every module of the package by its name."""
    found = {}
    for path in sorted((source / ROOT).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def import_graph(source: Path = SOURCE) -> dict[str, set[str]]:
    """The modules that each module imports."""
    known = modules(source)
    return {
        name: {found for found in _named(path, known) if found != name}
        for name, path in known.items()
        if name not in {ROOT, f"{ROOT}.__main__"}
    }


def _named(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name in known)
            case ast.ImportFrom(module=str(module), names=names) if module in known:
                inside = {f"{module}.{alias.name}" for alias in names}
                yield from inside & known.keys()
                if not inside <= known.keys():
                    yield module
            case ast.Constant(value=str(text)) if text in known and text != ROOT:
                yield text


def package(module: str) -> str:
    """The package a module is in; "mvpi" for the package itself."""
    return [*module.split("."), ROOT][1] if module != ROOT else ROOT


def is_upward(name: str, other: str) -> bool:
    """Whether an import of a package by another does not point to a lower layer."""
    height = {name: level for level, names in enumerate(LAYERS) for name in names}
    return name != other and height.get(other, len(LAYERS)) >= height[name]


def upward(graph: Graph) -> set[tuple[str, str]]:
    """Imports that do not point to a lower layer."""
    return {
        (name, other)
        for name, others in graph.items()
        for other in others
        if is_upward(package(name), package(other))
    }


def on_cycles(graph: Graph) -> set[tuple[str, str]]:
    """Imports between modules that can reach each other."""
    reach = {name: _reachable(graph, name) for name in graph}
    return {
        (name, other)
        for name, others in graph.items()
        for other in others
        if name in reach.get(other, set())
    }


def _reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    todo = list(graph[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += graph.get(name, set())
    return seen


LEFT_OUT = frozenset(
    {"_bootstrap", "_compiled", "_figures", "_rounding", "_settings", "_types", "_version", ROOT}
)
"""Small private modules, and the package itself: not in the picture."""


def between_packages(graph: Graph) -> dict[tuple[str, str], int]:
    """How many modules of a package import one of another, of those in the picture."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for name, others in graph.items():
        for other in {package(other) for other in others} - {package(name)} - LEFT_OUT:
            if package(name) not in LEFT_OUT:
                counts[package(name), other] += 1
    return dict(counts)


def main(target: str) -> None:
    """Draw the graph of packages."""
    from import_picture import draw

    draw(between_packages(import_graph()), Path(target))


if __name__ == "__main__":
    main(sys.argv[1])
