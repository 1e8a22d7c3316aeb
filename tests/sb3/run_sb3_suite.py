"""Stable-Baselines3's own tests, with every model made by `mvpi.sb3.risk_averse` at risk 0.

    python tests/sb3/run_sb3_suite.py CHECKOUT                      all of them: long
    python tests/sb3/run_sb3_suite.py CHECKOUT test_run.py -k td3   some, with options of pytest

CHECKOUT is a clone of Stable-Baselines3 near the installed version; its directory `tests` is run
against the installed package. Wherever a test calls `SAC(...)`, or any other algorithm, the call
becomes `risk_averse(SAC, ..., risk=0.0)`. Every test must pass but those in `REFUSED`, which must
fail. `--plain` runs the same tests on plain models, to compare.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from abc import ABCMeta
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stable_baselines3.common.base_class import BaseAlgorithm

from mvpi.sb3 import augmenter_of, risk_averse

REFUSED: dict[str, str] = {}
"""Tests that cannot pass, by a part of their name, and why not."""

made: Counter[str] = Counter()
"""How many models of each class were made by `risk_averse`."""


class MadeRiskAverse(ABCMeta):
    """The metaclass of algorithms whose instances `risk_averse` makes."""

    making = False

    def __call__(cls, *args: Any, **named: Any) -> Any:
        # `load` makes an empty model first, and fills in what the file has, the plug too.
        if MadeRiskAverse.making or not named.get("_init_setup_model", True):
            return super().__call__(*args, **named)
        MadeRiskAverse.making = True
        try:
            model: Any = risk_averse(cls, risk=0.0, **_by_name(cls.__init__, args, named))
        finally:
            MadeRiskAverse.making = False
        assert type(model) is cls
        assert augmenter_of(model).risk.is_neutral
        made[cls.__name__] += 1
        return model


def _by_name(init: Any, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call to a constructor, all of them by name."""
    _, *parameters = inspect.signature(init).parameters
    return dict(zip(parameters, args, strict=False)) | named


def plug_in_everywhere() -> None:
    """Have `risk_averse` make every model, also of classes that tests derive themselves."""
    for algorithm in (BaseAlgorithm, *_below(BaseAlgorithm)):
        algorithm.__class__ = MadeRiskAverse


def _below(cls: type[Any]) -> Iterator[type[Any]]:
    for derived in cls.__subclasses__():
        yield derived
        yield from _below(derived)


class Outcomes:
    """Counts what became of the tests, and keeps the names of those that failed."""

    def __init__(self, refused: dict[str, str]) -> None:
        self.refused = refused
        self.counts: Counter[str] = Counter()
        self.unexpected: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        by_design = any(part in report.nodeid for part in self.refused)
        outcome = "refused" if by_design and report.failed else report.outcome
        self.counts[outcome] += 1
        if report.failed and not by_design:
            self.unexpected.append(report.nodeid)
        if report.passed and by_design:
            self.unexpected.append(f"{report.nodeid} passed, but is in REFUSED")

    def show(self) -> str:
        counts = ", ".join(f"{n} {name}" for name, n in self.counts.most_common())
        models = ", ".join(f"{n} {name}" for name, n in sorted(made.items()))
        lines = [counts, f"models made by risk_averse: {made.total()} ({models})"]
        lines += [f"refused by design: {part}: {why}" for part, why in self.refused.items()]
        return "\n".join([*lines, *(f"UNEXPECTED {name}" for name in self.unexpected)])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--plain", action="store_true", help="without the plug")
    options, rest = parser.parse_known_args()
    tests = options.checkout.resolve() / "tests"
    if not (tests / "test_save_load.py").is_file():
        parser.error(f"{options.checkout} has no tests of Stable-Baselines3")
    files = [str(tests / name) for name in rest if name.endswith(".py")] or [str(tests)]
    own = [option for option in rest if not option.endswith(".py")]
    if not options.plain:
        plug_in_everywhere()
    outcomes = Outcomes({} if options.plain else REFUSED)
    root = ["--rootdir", str(tests.parent), "-p", "no:cacheprovider", "-p", "no:randomly", "-q"]
    pytest.main([*files, *root, *own], [outcomes])
    sys.stdout.write(outcomes.show() + "\n")
    return int(bool(outcomes.unexpected) or not outcomes.counts["passed"])


if __name__ == "__main__":
    sys.exit(main())
