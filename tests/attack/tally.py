"""What became of the attacks of one kind: how often each outcome was seen, and what must not be.

Every kind of attack is a module with `run(count, seed) -> Tally`: `count` attacks, all of them
determined by `seed`. `run.py` runs the kinds and prints one table.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

_KEPT = 50
"""Failures that are kept word for word; the others are only counted."""


@dataclass
class Tally:
    """Outcomes of attacks by name, such as "refused" or "same bytes", and failures.

    >>> tally = Tally("command lines")
    >>> tally.add("refused")
    >>> tally.fail("traceback", "mvpi train --steps x: KeyError")
    >>> tally.attacks, tally.failed
    (2, 1)
    """

    name: str
    outcomes: Counter[str] = field(default_factory=Counter)
    """Of attacks that the program withstood."""
    failures: Counter[str] = field(default_factory=Counter)
    """Of those it did not: "traceback", "hang", "other bytes", "write outside", ..."""
    examples: list[str] = field(default_factory=list)
    """A line for each of the first failures: what was done, and what was seen."""
    seconds: float = 0.0
    """How long it took; `run.py` fills it in."""

    def add(self, outcome: str) -> None:
        """An attack that ended as it should."""
        self.outcomes[outcome] += 1

    def fail(self, kind: str, what: str) -> None:
        """An attack that did not; `what` has to be enough to repeat it."""
        self.failures[kind] += 1
        if len(self.examples) < _KEPT:
            self.examples.append(f"{self.name}: {kind}: {' '.join(what.split())[:600]}")

    @property
    def attacks(self) -> int:
        return self.outcomes.total() + self.failures.total()

    @property
    def failed(self) -> int:
        return self.failures.total()
