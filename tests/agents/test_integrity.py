"""What a resume relies on is verified: damage is refused in one line, or made up for.

Directories of format 1, written before there were checksums, are in `format_1`: they were killed
at step 250 of 300, after a checkpoint, or had finished.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.victims import Case, Death, in_time, options, results, run, snapshot, status_of

import mvpi
from mvpi import InputError
from mvpi._storage.arrays import read_arrays
from mvpi._storage.files import write_file
from mvpi._storage.metrics import read_metrics
from mvpi._storage.rows import read_rows
from mvpi.errors import ResumeWarning
from mvpi.offline import Dataset

CASE = Case(steps=300, settings={"buffer_size": 40})
LONG = Case(steps=300, settings={"buffer_size": 1_000, "evaluation_every": 300})
"""A ring that is never full: no journal could repair it."""
ON_POLICY = Case(steps=300, algorithm="ppo")
Damage = Callable[[Path], Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two cases: `whole`, `killed` at step 250, and `other`, of another risk."""
    top = tmp_path_factory.mktemp("made")
    for case in (CASE, ON_POLICY):
        where = top / case.algorithm
        run(case, where / "whole")
        assert snapshot(case, where / "given up", Death(("step",), 250), where / "killed")
        other = Case(steps=300, algorithm=case.algorithm, settings=case.settings, risk="0.5")
        assert snapshot(other, where / "other up", Death(("step",), 250), where / "other")
    assert snapshot(LONG, top / "given up", Death(("step",), 250), top / "long")
    return top


def copied(made: Path, case: Case, name: str, to: Path) -> Path:
    shutil.copytree(made / case.algorithm / name, to)
    return to


def changed(path: Path, at: int = -3) -> None:
    """Another digit, or another byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def resumed(case: Case, out: Path) -> str:
    """The message of a refusal, in one line; empty if it went on."""
    message = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        try:
            in_time(lambda: case.agent().learn(case.steps, out), 120)
        except InputError as error:
            message = str(error)
    assert "\n" not in message
    return message


# ---- format 1 -------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["td3", "ppo"])
def test_a_directory_of_format_1_resumes_and_is_verified_from_then_on(
    tmp_path: Path, algorithm: str
) -> None:
    out = tmp_path / "run"
    shutil.copytree(Path(__file__).parent / "format_1" / algorithm, out)
    before = [row for row in read_metrics(out) if row["steps"] <= 200]
    # What came later is not in the directory.
    settings = {"buffer_size": 40, "hidden": [4], "window": 30, "saturation_penalty": 0.0}
    case = Case(steps=300, algorithm=algorithm, settings=settings if algorithm == "td3" else {})
    run(case, out)
    rows = read_metrics(out)
    assert rows[: len(before)] == before
    assert rows[-1]["steps"] == mvpi.load(out).steps == 300
    _, record = read_arrays(out / "checkpoint.safetensors", "checkpoint")
    assert record["format"] == 2
    run(case, out)
    assert read_metrics(out) == rows
    changed(out / "metrics.csv", at=70)
    assert "metrics.csv is damaged" in resumed(
        Case(steps=400, algorithm=algorithm, settings=case.settings), out
    )


def test_a_finished_run_of_format_1_is_finished(tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(Path(__file__).parent / "format_1" / "finished", out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    settings = {"buffer_size": 40, "hidden": [4], "window": 30, "saturation_penalty": 0.0}
    run(Case(steps=300, settings=settings), out)
    after = {path.name: path.read_bytes() for path in out.iterdir()}
    assert {name: after[name] for name in before} == before


def test_the_replay_of_a_run_of_format_1_can_be_read() -> None:
    rows = read_rows(Path(__file__).parent / "format_1" / "td3", (40, 6), 200, None)
    journal = np.fromfile(Path(__file__).parent / "format_1" / "td3" / "replaced-200.rows", "f4")
    assert np.array_equal(rows[(200 + np.arange(40)) % 40].ravel(), journal)


# ---- damage ---------------------------------------------------------------------------------


def other_random_state(out: Path) -> None:
    """A digit of the random state, in the record of the checkpoint."""
    path = out / "checkpoint.safetensors"
    data = path.read_bytes()
    at = data.index(b'\\"state\\": {\\"state\\": ') + 24
    path.write_bytes(data[:at] + (b"1" if data[at : at + 1] != b"1" else b"2") + data[at + 1 :])


REFUSED: dict[str, Damage] = {
    "a row of the metrics": lambda out: changed(out / "metrics.csv", at=-30),
    "metrics that end sooner": lambda out: write_file(out / "metrics.csv", b"steps,"),
    "no metrics": lambda out: (out / "metrics.csv").unlink(),
    "a row of the journal": lambda out: changed(out / "replaced-200.journal", at=100),
    "no journal": lambda out: (out / "replaced-200.journal").unlink(),
    "the random state": other_random_state,
    "the version": lambda out: write_file(
        out / "config.json", (out / "config.json").read_bytes().replace(b"0.1.0", b"0.2.0")
    ),
    "a checkpoint of format 1": lambda out: shutil.copyfile(
        Path(__file__).parent / "format_1" / "td3" / "checkpoint.safetensors",
        out / "checkpoint.safetensors",
    ),
}
ON_POLICY_REFUSED = ("metrics that end sooner", "no metrics", "the random state", "the version")


@pytest.mark.parametrize(
    ("case", "what"),
    [(CASE, what) for what in REFUSED] + [(ON_POLICY, what) for what in ON_POLICY_REFUSED],
    ids=lambda value: value if isinstance(value, str) else value.algorithm,
)
def test_damage_is_refused_and_nothing_is_changed(
    tmp_path: Path, made: Path, case: Case, what: str
) -> None:
    out = copied(made, case, "killed", tmp_path / "run")
    REFUSED[what](out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert resumed(case, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("case", [CASE, ON_POLICY], ids=lambda case: case.algorithm)
@pytest.mark.parametrize("file", ["checkpoint.safetensors", "policy.safetensors"])
def test_a_file_of_another_run_is_refused(
    tmp_path: Path, made: Path, case: Case, file: str
) -> None:
    out = copied(made, case, "killed", tmp_path / "run")
    shutil.copyfile(made / case.algorithm / "other" / file, out / file)
    assert f"{file} is of another run" in resumed(case, out)


@pytest.mark.parametrize("file", ["metrics.csv", "policy.safetensors", "finished.json"])
@pytest.mark.parametrize("case", [CASE, ON_POLICY], ids=lambda case: case.algorithm)
def test_a_finished_run_that_is_damaged_goes_back_or_is_refused(
    tmp_path: Path, made: Path, case: Case, file: str
) -> None:
    out = copied(made, case, "whole", tmp_path / "run")
    changed(out / file, at=-10)
    message = resumed(case, out)
    assert bool(message) == (file == "policy.safetensors")
    if not message:
        assert results(out) == results(made / case.algorithm / "whole")


def test_what_is_made_again_is_told(tmp_path: Path, made: Path) -> None:
    out = copied(made, ON_POLICY, "whole", tmp_path / "run")
    changed(out / "metrics.csv", at=-10)
    with pytest.warns(ResumeWarning, match="the last checkpoint is made again"):
        run(ON_POLICY, out)


def test_a_finished_run_without_a_checkpoint_that_is_damaged_is_refused(
    tmp_path: Path, made: Path
) -> None:
    out = copied(made, ON_POLICY, "whole", tmp_path / "run")
    (out / "checkpoint.safetensors").unlink()
    changed(out / "metrics.csv", at=-3)
    assert "metrics.csv is not as it was when the run finished" in resumed(ON_POLICY, out)


def test_the_replay_of_a_damaged_run_is_refused(tmp_path: Path, made: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(made / "long", out)
    assert len(Dataset.from_run(out)) == 200
    changed(out / "replay.rows", at=1_000)
    with pytest.raises(InputError, match="do not match the checkpoint"):
        Dataset.from_run(out)
    assert "do not match the checkpoint" in resumed(LONG, out)


# ---- links and other things that are no files -----------------------------------------------


@pytest.mark.parametrize("file", [".lock", "metrics.csv", "replay.rows", "finished.json"])
def test_nothing_is_written_through_a_link(tmp_path: Path, made: Path, file: str) -> None:
    out = copied(made, CASE, "killed", tmp_path / "run")
    outside = tmp_path / "outside"
    outside.write_bytes((out / file).read_bytes() if file != "finished.json" else b"mine")
    before = outside.read_bytes()
    (out / file).unlink(missing_ok=True)
    (out / file).symlink_to(outside)
    resumed(CASE, out)
    assert outside.read_bytes() == before


@pytest.mark.parametrize("kind", ["link", "fifo"])
@pytest.mark.parametrize("file", [".evaluation.json.part", "evaluation.json", ".report.html.part"])
def test_a_report_neither_hangs_nor_writes_through_a_link(
    tmp_path: Path, made: Path, kind: str, file: str
) -> None:
    good = copied(made, CASE, "whole", tmp_path / "runs" / "good")
    out = tmp_path / "runs" if file == ".report.html.part" else good
    outside = tmp_path / "outside"
    outside.write_text("mine")
    if kind == "link":
        (out / file).symlink_to(outside)
    else:
        os.mkfifo(out / file)
    page = tmp_path / "runs" / "report.html"
    in_time(
        lambda: status_of(["report", str(out), "--episodes", "2", "--out", str(page)]), seconds=120
    )
    assert outside.read_text() == "mine"


def test_event_files_are_not_written_through_a_link(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    out, outside = tmp_path / "run", tmp_path / "outside"
    outside.mkdir()
    out.mkdir()
    (out / "tensorboard").symlink_to(outside)
    assert status_of(["train", "td3", *options(out, CASE), "--json", "--tensorboard"]) == 2
    assert not list(outside.iterdir())


def test_partial_files_of_killed_processes_are_removed(tmp_path: Path, made: Path) -> None:
    out = copied(made, ON_POLICY, "killed", tmp_path / "run")
    left, mine = out / ".metrics.csv.0123456789abcdef.part", out / ".mine.part"
    left.write_bytes(b"x")
    mine.write_bytes(b"x")
    assert resumed(ON_POLICY, out) == ""
    assert not left.exists()
    assert mine.exists()


# ---- numbers in metrics.csv that are none ---------------------------------------------------

STRANGE = ["nan", "inf", "-inf", "1e400", "9" * 5_000, "-1", "0.5", "1e15"]


def with_steps(path: Path, text: str) -> None:
    """The last row says that it is of so many steps."""
    *rows, last = path.read_text().splitlines()
    path.write_text("\n".join([*rows, text + last[last.index(",") :], ""]))


def test_a_damaged_run_does_not_hide_the_others_in_a_report(
    tmp_path: Path, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(made, CASE, "whole", tmp_path / "good")
    for i, steps in enumerate(STRANGE):
        with_steps(copied(made, CASE, "whole", tmp_path / f"{i}") / "metrics.csv", steps)
    page = tmp_path / "page.html"
    arguments = ["report", str(tmp_path), "--episodes", "2", "--out", str(page)]
    assert status_of(arguments) == 0
    text = page.read_text()
    assert all(str(tmp_path / f"{i}" / "metrics.csv") in text for i in range(len(STRANGE)))
    assert f"{len(STRANGE)} notes" in " ".join(capsys.readouterr().out.split())


@pytest.mark.filterwarnings("default::mvpi.errors.ResumeWarning")
@pytest.mark.parametrize("steps", STRANGE)
@pytest.mark.parametrize("which", ["whole", "format 1"])
def test_training_a_damaged_finished_run_again_is_one_line(
    tmp_path: Path, made: Path, which: str, steps: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, case = tmp_path / "run", CASE
    if which == "whole":
        copied(made, CASE, "whole", out)
    else:
        shutil.copytree(Path(__file__).parent / "format_1" / "finished", out)
        more = {"hidden": [4], "window": 30, "saturation_penalty": 0.0}
        case = Case(steps=300, settings=CASE.settings | more)
    with_steps(out / "metrics.csv", steps)
    capsys.readouterr()
    status = in_time(lambda: status_of(["train", "td3", *options(out, case), "--json"]), 120)
    told = capsys.readouterr()
    assert status == 0
    assert told.err.count("\n") == (1 if which == "whole" else 0)  # format 1 has no checksums
    assert json.loads(told.out)["last"]["steps"] == 300
