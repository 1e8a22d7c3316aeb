"""`mvpi tune`: a ladder of risks through the command line, what it stores, and what goes wrong."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import mistaken
from helpers.experiments import InProcess

import mvpi
from mvpi import cli
from mvpi.experiments import local
from mvpi.experiments.experiment import Experiment
from mvpi.experiments.outcome import Outcome
from mvpi.risk import parse_risk

TASK = "mvpi/FourState-v0"
SMALL = ("--hidden", "8", "--evaluation-every", "64", "--evaluation-episodes", "2")


def tune(out: Path, *more: str, risks: tuple[str, ...] = ("0", "1")) -> list[str]:
    return [
        "tune", "ppo", "--env", TASK, "--risks", *risks, "--steps", "64", "--episodes", "4",
        "--n-steps", "32", "--batch-size", "16", *SMALL, "--out", str(out), *more,
    ]  # fmt: skip


def told(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> Any:
    cli.main([*arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def table(out: Path) -> list[dict[str, str]]:
    with (out / "frontier.csv").open() as file:
        return list(csv.DictReader(file))


def finish(out: Path, risk: str, mean: float, deviation: float, seed: int = 0) -> None:
    """What the run would leave behind, had its returns these moments."""
    settings = {"n_steps": 32, "batch_size": 16, "hidden": (8,), "evaluation_every": 64,
                "evaluation_episodes": 2}  # fmt: skip
    experiment = Experiment("ppo", TASK, risk, seed, 64, 0.0, 4, settings)
    directory = out / "runs" / experiment.name
    directory.mkdir(parents=True)
    returns = tuple(mean + s * deviation for s in (-1.0, -1.0, 1.0, 1.0))
    moments = (mean / 100.0, (deviation / 100.0) ** 2, (0.0, 1.0))
    Outcome(64, returns, *moments).write(directory)


def test_a_ladder_is_run_evaluated_and_stored(tmp_path: Path, capsys) -> None:
    """In worker processes; run again, nothing is trained."""
    facts = told(capsys, tune(tmp_path, "--workers", "2"))
    assert [point["risk"] for point in facts["points"]] == ["0.0", "1.0"]
    runs = sorted((tmp_path / "runs").iterdir())
    assert len(runs) == 2
    for point, run in zip(facts["points"], runs, strict=True):
        agent = mvpi.load(run)
        assert agent.risk == parse_risk(point["risk"])
        assert agent.steps == 64
        seen = mvpi.evaluate(agent, episodes=4)
        assert point["mean"] == pytest.approx(seen.mean)
        assert point["deviation"] == pytest.approx(seen.deviation)
        assert point["reward_deviation"] == pytest.approx(math.sqrt(seen.reward_variance))
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    assert told(capsys, tune(tmp_path)) == facts
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}


def test_the_knee_and_the_recommendation_of_known_runs(tmp_path: Path, capsys) -> None:
    known = {"0.0": (100.0, 10.0), "0.3": (93.3, 4.2), "1.0": (50.0, 3.0), "2.0": (40.0, 5.0)}
    for risk, (mean, deviation) in known.items():
        finish(tmp_path, risk, mean, deviation)
    arguments = tune(tmp_path, risks=("2", "0.3", "0", "1"))  # sorted by the command
    facts = told(capsys, arguments)
    assert facts["knee"] == 1
    assert facts["efficient"] == [2, 1, 0]
    expected = "Risk aversion 0.3: standard deviation -58%, mean -6.7% against risk aversion 0"
    assert facts["recommendation"].startswith(expected)
    assert [row["knee"] for row in table(tmp_path)] == ["False", "True", "False", "False"]
    assert [row["efficient"] for row in table(tmp_path)] == ["True", "True", "True", "False"]
    assert float(table(tmp_path)[1]["deviation"]) == pytest.approx(4.2)
    cli.main(arguments)
    shown = capsys.readouterr().out
    assert expected in shown
    assert "0.3 knee" in shown
    assert "2 dominated" in shown


def test_several_seeds_have_intervals_of_steps(tmp_path: Path, capsys) -> None:
    for seed in (0, 1):
        finish(tmp_path, "0.0", 100.0 + seed, 10.0, seed)
        finish(tmp_path, "1.0", 50.0 + seed, 5.0, seed)
    facts = told(capsys, tune(tmp_path, "--seeds", "2"))
    assert [point["seeds"] for point in facts["points"]] == [2, 2]
    assert facts["points"][0]["reward_mean_interval"] == pytest.approx([1.0, 1.01])
    one = told(capsys, tune(tmp_path))
    assert one["points"][0]["reward_mean_interval"] == [None, None]


def test_risks_of_the_return_are_compared_by_the_return(
    tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LocalRunner", InProcess)
    facts = told(capsys, tune(tmp_path, risks=("return:0", "return:cvar:0.5")))
    assert facts["frontier_of"] == "return"
    assert [point["risk"] for point in facts["points"]] == ["return:0.0", "return:cvar:0.5:1.0"]


def test_what_failed_does_not_hide_the_others(tmp_path: Path, capsys) -> None:
    finish(tmp_path, "0.0", 1.0, 1.0)
    finish(tmp_path, "1.0", 1.0, 1.0)
    bad = next((tmp_path / "runs").glob("*risk-1.0*")) / "evaluation.json"
    bad.write_bytes(bad.read_bytes()[:30])
    with pytest.raises(SystemExit) as stopped:
        cli.main(tune(tmp_path))
    assert stopped.value.code == 1
    captured = capsys.readouterr()
    assert "1 of 2 experiments failed" in captured.err
    assert [row["risk"] for row in table(tmp_path)] == ["0.0"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--risks", "1"], "two or more, each once, got 1"),
        (["--risks"], "two or more, each once, got none"),
        (["--risks", "1", "1.0"], "each once, got 1 1.0"),
        (["--risks", "0", "range:0:1"], "mvpi train td3 --risk range:0.0:1.0"),
        (["--risks", "0", "return:1"], "all of the return, or all of the reward of a step"),
        (["--risks", "0", "-1"], "risk_aversion must be >= 0"),
        (["--risks", "0", "high"], "risk must be a number"),
        (["--risks", "0", "var:0.1"], "VaR"),
        (["--seeds", "0"], "seeds must be a whole number >= 1, got 0"),
        (["--steps", "0"], "steps must be a whole number >= 1, got 0"),
        (["--episodes", "1"], "episodes must be a whole number >= 2, got 1"),
        (["--workers", "2", "--ray", "auto"], "either --workers, for this machine, or --ray"),
        (["--env", "NoSuchTask-v4"], "'NoSuchTask-v4' cannot be made"),
        (["--action-noise", "-1"], "action_noise must be >= 0"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    arguments = ["tune", "td3", "--env", "mvpi/Markowitz-v0", "--out", str(tmp_path / "x")]
    assert message in mistaken(capsys, *arguments, *options)
    assert not (tmp_path / "x").exists()
