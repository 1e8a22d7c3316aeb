"""A few attacks of every kind in every run of the tests; `make attack` makes them all."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("kind", "count"),
    [("calls", 40), ("commands", 40), ("damaged", 24), ("files", 100), ("interrupts", 4)],
)
def test_a_few_attacks_are_withstood(
    kind: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(HERE), *sys.path])
    before = import_module("run").project()
    tally = import_module(kind).run(count, seed=0)
    assert tally.examples == []
    assert tally.attacks == count
    assert import_module("run").project() == before
