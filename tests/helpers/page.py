"""The page of a report, as tests look at it."""

from __future__ import annotations

from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

from mvpi.report.agent_statistics import Comparison
from mvpi.report.grouping import sections
from mvpi.report.page import render
from mvpi.report.run_reader import Run, distinct, read_runs


class Page(HTMLParser):
    """Tags, attributes and visible text, read by a parser that knows nothing of the template."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def attributes(self, *names: str) -> list[str]:
        return [a[name] for _, a in self.tags for name in names if name in a]


def shown_runs(directories: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The runs in the directories, without copies, and all notes."""
    runs, notes = read_runs(directories)
    kept, more = distinct(runs)
    return kept, [*notes, *more]


def page_of(*directories: Path, live: bool = False) -> str:
    return render(*shown_runs(directories), ["runs"], live=live)


def only_section(*directories: Path) -> Comparison:
    (section,) = sections(shown_runs(directories)[0])
    return Comparison.of(section)
