"""The search for runs ends: links are not followed, depth and size are bounded."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from helpers.commands import mistaken
from helpers.run_directories import write_run

from mvpi.errors import InputError
from mvpi.report import run_search
from mvpi.report.run_search import find_runs


def test_links_are_never_followed(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / "store" / str(seed), seed=seed)
    links = tmp_path / "links"
    links.mkdir()
    (links / "a").symlink_to(tmp_path / "store" / "0")
    (links / "store").symlink_to(tmp_path / "store")
    (links / "round").symlink_to(links)  # without an end if one went in
    (links / "nowhere").symlink_to(tmp_path / "missing")
    with pytest.raises(InputError, match="holds no run"):
        find_runs([links])
    runs, notes = find_runs([tmp_path])
    assert runs == [tmp_path / "store" / "0", tmp_path / "store" / "1"]
    assert notes == []


def test_a_link_that_is_named_is_resolved_and_a_run_counts_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "store" / "0")
    (tmp_path / "link").symlink_to(tmp_path / "store")
    assert find_runs([tmp_path / "link"]) == ([tmp_path / "link" / "0"], [])
    assert find_runs([run, tmp_path / "link", tmp_path]) == ([run], [])


def nested(root: Path, levels: int) -> Path:
    """A path so many levels below."""
    return root.joinpath(*map(str, range(levels)))


def test_runs_are_found_down_to_the_last_level_and_deeper_directories_are_told(
    tmp_path: Path,
) -> None:
    last = write_run(nested(tmp_path, run_search.DEPTH))
    assert find_runs([tmp_path]) == ([last], [])
    deeper = write_run(tmp_path / "x" / nested(Path(), run_search.DEPTH), seed=1)
    found, (note,) = find_runs([tmp_path])
    assert found == [last]
    assert note == (
        f"1 directory more than 8 levels below {tmp_path} not searched; name those that hold runs"
    )
    assert find_runs([deeper]) == ([deeper], [])


def test_too_many_entries_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "runs" / "run")
    entries = sum(len(folders) + len(files) for _, folders, files in os.walk(tmp_path))
    monkeypatch.setattr(run_search, "ENTRIES", entries)
    assert find_runs([tmp_path]) == ([run], [])
    (tmp_path / "one-more").touch()
    message = mistaken(capsys, "report", tmp_path, "--out", tmp_path / "page.html")
    assert message == (
        f"mvpi: there are more than {entries} files and directories below {tmp_path}; name the "
        "run directories, or one that holds little else"
    )


def test_the_root_of_the_file_system_is_refused_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_search, "ENTRIES", 5_000)  # fewer than any system has
    start = time.monotonic()
    message = mistaken(capsys, "report", "/", "--out", tmp_path / "page.html")
    assert "more than 5,000 files and directories below /; name" in message
    assert time.monotonic() - start < 30.0
