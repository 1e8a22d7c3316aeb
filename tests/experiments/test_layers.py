"""Who may import whom among experiments, paper and report."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mvpi


def imported(package: str) -> set[str]:
    """The modules that the files of a package import, inside of functions too."""
    found = set()
    for path in (Path(mvpi.__file__).parent / package).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("experiments", ["mvpi.paper", "mvpi.report", "mvpi.cli"]),
        ("paper", ["mvpi.cli"]),
        # Neither environments nor agents: the report reads rows and does not simulate.
        ("report", ["mvpi.paper", "mvpi.cli", "mvpi.rollout", "mvpi.envs", "mvpi.agents.agent"]),
        ("report", ["mvpi.experiments.outcome.judge", "gymnasium"]),
    ],
)
def test_imports_point_one_way(package: str, forbidden: list[str]) -> None:
    modules = imported(package)
    assert len(modules) > 10
    assert not [name for name in modules if name.startswith(tuple(forbidden))]
