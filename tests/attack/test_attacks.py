"""A few attacks of every kind in every run of the tests; `make attack` makes them all."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest


@pytest.mark.parametrize("kind", ["calls", "commands"])
def test_a_few_attacks_are_withstood(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    tally = import_module(kind).run(60, seed=0)
    assert tally.examples == []
    assert tally.attacks == 60
