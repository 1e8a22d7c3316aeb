"""`mvpi report`: mistakes, and runs whose final policy was not evaluated yet."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.commands import mistaken
from helpers.page import Page
from helpers.run_directories import write_run

import mvpi
from mvpi._storage.arrays import read_arrays, write_arrays
from mvpi.cli import main
from mvpi.cli.report import runs_to_show
from mvpi.errors import InputError, MissingPackage
from mvpi.experiments import outcome
from mvpi.experiments.outcome import Outcome
from mvpi.report.formatting import number


def test_one_damaged_run_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "good")
    bad = write_run(tmp_path / "bad", seed=1) / "evaluation.json"
    bad.write_bytes(bad.read_bytes()[:50])
    out = tmp_path / "report.html"
    main(["report", str(tmp_path), "--out", str(out)])
    assert capsys.readouterr().out == f"Wrote {out}: 1 run, 1 note at its end.\n"
    assert f"{bad} is damaged" in Page(out.read_text()).text


def test_mistakes_are_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    assert "at least one run directory" in mistaken(capsys, "report")
    assert "does not exist" in mistaken(capsys, "report", tmp_path / "nowhere")
    assert "no config.json" in mistaken(capsys, "report", run, tmp_path / "empty")
    assert "is not a directory" in mistaken(capsys, "report", run / "config.json")
    assert "episodes must be" in mistaken(capsys, "report", run, "--episodes", "1")
    (tmp_path / "off-line").mkdir()
    (tmp_path / "off-line" / "config.json").write_text('{"format": 1, "algorithm": "td3-bc"}')
    assert "mvpi offline evaluate" in mistaken(capsys, "report", tmp_path / "off-line")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert str(MissingPackage("the report", "jinja2", "report")) in mistaken(capsys, "report", run)
    assert not (Path.cwd() / "report.html").exists()


def test_the_page_of_a_report_is_no_directory(capsys, tmp_path: Path) -> None:
    message = mistaken(capsys, "report", str(tmp_path), "--out", str(tmp_path))
    assert message.endswith("is a directory")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    sizes = {"n_steps": 32, "batch_size": 16, "hidden": (4,), "evaluation_episodes": 2}
    mvpi.PPO("mvpi/FourState-v0", risk=0.1, evaluation_every=32, **sizes).learn(64, out)
    return out


@pytest.fixture
def fresh(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_a_trained_run_is_evaluated_once(
    fresh: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = fresh.parent / "report.html"
    main(["report", str(fresh), "--out", str(out), "--episodes", "3"])
    captured = capsys.readouterr()
    assert captured.out == f"Wrote {out}: 1 run.\n"
    assert "evaluating" in captured.err
    kept = Outcome.read(fresh)
    assert kept is not None
    seen = mvpi.evaluate(mvpi.load(fresh), episodes=3)
    assert kept.returns == tuple(seen.returns.tolist())
    text = Page(out.read_text()).text
    assert "TRVO (MVPI-PPO), λ = 0.1" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert number(seen.mean) in text
    monkeypatch.setattr(outcome, "judge", lambda *_: pytest.fail("evaluated again"))
    ((again,), notes) = runs_to_show([fresh], episodes=3)
    assert again.outcome == kept
    assert notes == []


def test_an_evaluation_of_an_older_policy_is_repeated(fresh: Path) -> None:
    runs_to_show([fresh], episodes=2)
    kept = Outcome.read(fresh)
    assert kept is not None
    replace(kept, steps=32, returns=(1e6, 1e6)).write(fresh)
    ((run,), notes) = runs_to_show([fresh], episodes=2)
    assert run.outcome == kept == Outcome.read(fresh)
    assert not notes


def test_an_evaluation_that_cannot_be_written_is_used_all_the_same(
    fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    ((run,), (note,)) = runs_to_show([fresh], episodes=2)
    assert run.outcome is not None
    assert run.outcome.returns == tuple(mvpi.evaluate(mvpi.load(fresh), episodes=2).returns)
    assert note.startswith(f"the evaluation of {fresh} is not kept: ")
    assert not (fresh / "evaluation.json").exists()


def test_a_run_of_an_experiment_is_left_to_it(fresh: Path) -> None:
    # An evaluation.json would tell the experiment that its training is over.
    (fresh / ".experiment").touch()
    ((run,), (note,)) = runs_to_show([fresh], episodes=2)
    assert run.outcome is None
    assert "still in training" in note
    assert not (fresh / "evaluation.json").exists()


def test_policies_that_cannot_be_evaluated(fresh: Path) -> None:
    policy = fresh / "policy.safetensors"
    data = policy.read_bytes()
    arrays, record = read_arrays(policy, "policy")
    record["environment"]["id"] = "mvpi/NoSuchOne-v0"
    write_arrays(policy, "policy", arrays, record)
    ((run,), (note,)) = runs_to_show([fresh], episodes=2)
    assert run.outcome is None
    assert "cannot be evaluated" in note
    policy.write_bytes(data[:-7])
    with pytest.raises(InputError, match=r"policy\.safetensors is damaged"):
        runs_to_show([fresh], episodes=2)
