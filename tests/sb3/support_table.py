"""Writes the table of supported algorithms, docs/algorithms.md, from the tests that passed.

    python tests/sb3/support_table.py             all of it: long
    python tests/sb3/support_table.py -k sbx      some, with options of pytest

runs the tests in `FILES`. A cell is `yes` when all tests of its column passed for the
algorithm, `-` when there is none, `no` otherwise. Cells whose tests were not run stay as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = (
    "test_every_algorithm.py",
    "test_extended_risks.py",
    "test_model_files.py",
    "test_training.py",
    "test_export.py",
)
PAGE = HERE.parents[1] / "docs/algorithms.md"
BEGIN, END = "<!-- made by tests/sb3/support_table.py -->\n", "<!-- end of the table -->"
Outcomes = Mapping[tuple[str, str], bool]
"""Whether all tests of an algorithm and a column passed."""


class Watcher:
    """Takes note of the outcome of every test with the mark `supports`."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str, str]] = {}
        self.outcomes: dict[tuple[str, str], bool] = {}

    @pytest.hookimpl(tryfirst=True)  # before `-k` and `-m` leave some out
    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        for item in items:
            mark = item.get_closest_marker("supports")
            if mark is not None:
                self.keys[item.nodeid] = (str(item.callspec.params["algorithm"]), mark.args[0])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid in self.keys:
            key = self.keys[report.nodeid]
            self.outcomes[key] = self.outcomes.get(key, True) and report.passed


def table(outcomes: Outcomes) -> str:
    """The outcomes in Markdown, an algorithm a row."""
    algorithms = list(dict.fromkeys(algorithm for algorithm, _ in outcomes))
    columns = list(dict.fromkeys(column for _, column in outcomes))
    lines = ["| algorithm | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    words = {True: "yes", False: "no", None: "-"}
    for algorithm in algorithms:
        cells = [words[outcomes.get((algorithm, column))] for column in columns]
        lines.append(f"| {algorithm} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def merged(ran: Outcomes, known: Collection[tuple[str, str]], page: str) -> Outcomes:
    """What ran, and for all else that is known what the table on the page says."""
    header, _, *rows = (line.strip("| ").split(" | ") for line in page.splitlines())
    there = {
        (row[0], column): cell == "yes"
        for row in rows
        for column, cell in zip(header[1:], row[1:], strict=True)
        if cell != "-"
    }
    both = {**there, **ran}
    return {key: both[key] for key in known if key in both}


def on_page() -> str:
    """The table that the page has now."""
    return _around()[1]


def _around() -> tuple[str, str, str]:
    """The page before the table, the table, and the rest."""
    before, _, after = PAGE.read_text().partition(BEGIN)
    there, _, rest = after.partition(END)
    return before + BEGIN, there, END + rest


def main(options: Sequence[str]) -> int:
    watcher = Watcher()
    code = pytest.main(
        [*(str(HERE / name) for name in FILES), "-q", "-p", "no:randomly", "-m", "", *options],
        [watcher],
    )
    before, there, after = _around()
    known = dict.fromkeys(watcher.keys.values())
    PAGE.write_text(before + table(merged(watcher.outcomes, known, there)) + after)
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
