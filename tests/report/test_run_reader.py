"""Run directories that are damaged, unreadable, or not where they seem to be."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path
from typing import Any

import pytest
from helpers.page import shown_runs
from helpers.run_directories import write_run

from mvpi._storage import files
from mvpi.errors import InputError
from mvpi.report.agent_statistics import Comparison
from mvpi.report.grouping import sections
from mvpi.report.summary import summary


def usable(directory: Path) -> bool:
    """Whether the runs are shown; if not, the reason is one line."""
    reason = ""
    try:
        for section in sections(shown_runs([directory])[0]):
            summary(Comparison.of(section))
    except InputError as error:
        reason = str(error)
    assert "\n" not in reason
    assert not reason or str(directory) in reason
    return not reason


def hostile(good: bytes) -> list[bytes]:
    rng = random.Random(0)
    cut = [good[: rng.randrange(len(good))] for _ in range(25)]
    noise = [rng.randbytes(rng.randrange(200)) for _ in range(10)]
    changed = []
    for _ in range(40):
        data = bytearray(good)
        for _ in range(rng.choice((1, 3, 20))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        changed.append(bytes(data))
    return [b"", b"\0", b"[]", b"null", b"[" * 5000, *cut, *noise, *changed]


@pytest.mark.parametrize("name", ["config.json", "metrics.csv", "evaluation.json"])
def test_damaged_files_are_told_in_one_line(name: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    good = (run / name).read_bytes()
    verdicts = []
    for data in hostile(good):
        (run / name).write_bytes(data)
        verdicts.append(usable(run))
    assert verdicts.count(False) > 25
    (run / name).write_bytes(good)
    assert usable(run)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("returns", []),
        ("returns", [1.0]),
        ("returns", [1.0, math.nan]),
        ("returns", [1.0, math.inf]),
        ("returns", [1.0, 1e200]),
        ("returns", [1, 10**400]),
        ("returns", [[1.0, 2.0], [3.0, 4.0]]),
        ("returns", 5.0),
        ("returns", "12"),
        ("returns", {"0": 1}),
        ("reward_quantiles", [2.0, 1.0]),
        ("reward_quantiles", [None, 1.0]),
        ("reward_mean", "1"),
        ("reward_mean", None),
        ("reward_variance", -1.0),
        ("steps", 1.5),
        ("steps", -1),
        ("steps", True),
        ("format", 3),
        ("format", "1"),
        ("more", 1),
    ],
)
def test_evaluations_nobody_would_write(name: str, value: object, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    path = run / "evaluation.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    assert not usable(run)


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "dqn"},
        {"algorithm": ["td3"]},
        {"environment": {}},
        {"environment": None},
        {"environment": ["id"]},
        {"environment": {"id": "a\nb"}},
        {"environment": {"id": "\ud800"}},
        {"environment": {"id": "Hopper-v4", "action_noise": -1}},
        {"environment": {"id": "Hopper-v4", "action_noise": 10**400}},
        {"risk": 1.0},
        {"risk": None},
        {"seed": -1},
        {"seed": "0"},
        {"seed": 10**40},
        {"settings": None},
        {"settings": [1]},
        {"format": 99},
    ],
)
def test_configurations_nobody_would_write(change: dict[str, Any], tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    path = run / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert not usable(run)


@pytest.mark.parametrize(
    ("rows", "good"),
    [
        ("10,1,5.0,0\n20,2,6.0,0\n", True),
        ("10,1,5.0,0\n20,2,6", True),  # being written now
        ("", True),
        ("10,1,nan,0\n", False),
        ("20,1,5.0,0\n10,1,5.0,0\n", False),
        ("x,1,5.0,0\n", False),
        ("10,1\n", False),
        ('"10,1,5.0,0\n', False),
    ],
)
def test_rows_of_metrics(rows: str, good: bool, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", curve=())
    with (run / "metrics.csv").open("a") as file:
        file.write(rows)
    assert usable(run) == good


def test_a_run_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = write_run(tmp_path / "good"), write_run(tmp_path / "bad", seed=1)
    open_file = files.open_file

    def refuse(path: Path, mode: Any) -> Any:
        if path.parent == bad:
            raise PermissionError(13, "Permission denied", str(path))
        return open_file(path, mode)

    monkeypatch.setattr(files, "open_file", refuse)
    ((run,), (note,)) = shown_runs([tmp_path])
    assert run.directory == good
    assert note == f"{bad} cannot be read: Permission denied"
    with pytest.raises(InputError, match="bad cannot be read: Permission denied"):
        shown_runs([bad])


def test_a_directory_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "good")
    (tmp_path / "locked").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> Any:
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    runs, notes = shown_runs([tmp_path])
    assert len(runs) == 1
    assert notes == [f"{tmp_path / 'locked'} cannot be read: Permission denied"]
    with pytest.raises(InputError, match="locked cannot be read: Permission denied"):
        shown_runs([tmp_path / "locked"])
