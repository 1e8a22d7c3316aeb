"""Progress of training: on a terminal a bar and a line per evaluation; elsewhere the lines.

All of it goes to standard error. The bar shows the count, the speed and the time left within 80
columns; the lines of evaluations are printed above it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

COMPILING = "compiling (once per machine) ..."
Tell = Callable[[str], None]

_LOOK = 0.5
"""Seconds between two updates of the bar; shorter work has none."""
_RECENT = 60.0
"""Seconds over which the speed is measured."""


class Pace:
    """The speed over the last minute, and the time left at that speed.

    While the count does not change, as in an evaluation, the last speed is kept.

    >>> pace = Pace(total=100)
    >>> for now, count in ((0.0, 20), (10.0, 40), (15.0, 40)):
    ...     pace.update(now, count)
    >>> str(pace)
    '40/100, 2 steps/s, 0:00:30 left'
    """

    def __init__(self, total: int, unit: str = "steps") -> None:
        self._total, self._unit = total, unit
        self._counts: deque[tuple[float, int]] = deque()
        self._speed = 0.0

    def update(self, now: float, count: int) -> None:
        """Account for the count at the time `now`, in seconds."""
        if self._counts and count == self._counts[-1][1]:
            return
        self._counts.append((now, count))
        while len(self._counts) > 2 and now - self._counts[1][0] >= _RECENT:
            self._counts.popleft()
        (start, first), (end, last) = self._counts[0], self._counts[-1]
        if end > start:
            self._speed = (last - first) / (end - start)

    def begin_again(self, now: float) -> None:
        """Measure the speed anew from `now`: the time before was spent on compilation."""
        count = self.count
        self._counts.clear()
        self._speed = 0.0
        self.update(now, count)

    @property
    def count(self) -> int:
        """The count at the last update."""
        return self._counts[-1][1] if self._counts else 0

    def __str__(self) -> str:
        parts = [f"{self.count:,}/{self._total:,}"]
        if self._speed > 0.0:
            left = (self._total - self.count) / self._speed
            digits = 0 if self._speed >= 1.0 else 2
            parts.append(f"{self._speed:,.{digits}f} {self._unit}/s")
            parts.append(f"{timedelta(seconds=round(left))} left")
        return ", ".join(parts)


@contextmanager
def watched(total: int, count: Callable[[], int], unit: str = "steps") -> Iterator[Tell]:
    """Show progress, asking `count` for it; yields a function that prints a line above the bar."""
    console = Console(stderr=True, highlight=False)
    pace = Pace(total, unit)
    from mvpi._compiled import while_compiling  # numba takes a moment to import

    bar = Progress(
        BarColumn(bar_width=None),
        TextColumn("{task.description}"),
        console=console,
        expand=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task("", total=total)
    compiling = threading.Event()
    done = threading.Event()

    def look() -> None:
        pace.update(time.monotonic(), count())
        text = COMPILING if compiling.is_set() else str(pace)
        bar.update(task, completed=pace.count, description=text)

    def follow() -> None:
        pace.update(time.monotonic(), count())
        while not done.wait(_LOOK):
            look()
            bar.start()

    def tell(line: str) -> None:
        pace.update(time.monotonic(), count())
        facts = f"{line} ({pace})" if bar.disable else line
        console.print(facts, markup=False, soft_wrap=True)

    def compile_told(begins: bool) -> None:
        if begins and not compiling.is_set() and bar.disable:
            console.print(COMPILING, markup=False)
        if begins:
            compiling.set()
        else:
            compiling.clear()
            pace.begin_again(time.monotonic())

    follower = threading.Thread(target=follow, daemon=True)
    with while_compiling(compile_told):
        follower.start()
        try:
            yield tell
        finally:
            done.set()
            follower.join()
            if not bar.disable and bar.live.is_started:
                look()
            bar.stop()
