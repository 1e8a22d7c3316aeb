"""Agents of a range and of the return on the command line: train, evaluate, frontier."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import mistaken

import mvpi
from mvpi import cli
from mvpi.agents.learned_frontier import learned_frontier

PPO = ("--n-steps", "32", "--batch-size", "16")
TD3 = ("--learning-starts", "50", "--batch-size", "16", "--buffer-size", "500")
SMALL = ("--hidden", "8", "--evaluation-every", "64", "--evaluation-episodes", "4")
TASK = {"ppo": "mvpi/FourState-v0", "td3": "mvpi/Markowitz-v0"}


def train(out: Path, risk: str, algorithm: str = "ppo", steps: int = 128, *more: str) -> list[str]:
    own = PPO if algorithm == "ppo" else TD3
    return [
        "train", algorithm, "--env", TASK[algorithm], "--risk", risk, "--steps", str(steps),
        *own, *SMALL, "--out", str(out), *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def of_range(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("range") / "run"
    cli.main(train(out, "range:0:2"))
    return out


@pytest.fixture(scope="module")
def of_return(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("return") / "run"
    cli.main(train(out, "return:range:0:1"))
    return out


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    cli.main([*map(str, arguments), "--json"])
    return json.loads(capsys.readouterr().out)


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("algorithm", ["ppo", "td3"])
@pytest.mark.parametrize("risk", ["range:0:2", "return:cvar:0.1", "return:range:0:1"])
def test_a_run_resumes_and_finishes(tmp_path: Path, capsys, algorithm: str, risk: str) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    cli.main(train(whole, risk, algorithm))
    captured = capsys.readouterr()
    command = "frontier" if "range" in risk else "evaluate"
    assert f"next: mvpi {command} {whole}" in captured.out
    assert "objective" in captured.out
    cli.main(train(resumed, risk, algorithm, 64))
    cli.main(train(resumed, risk, algorithm))
    timeless = [[{k: v for k, v in row.items() if k != "steps_per_second"} for row in rows(out)]
                for out in (whole, resumed)]  # fmt: skip
    assert timeless[0] == timeless[1]
    assert (whole / "policy.safetensors").read_bytes() == (
        resumed / "policy.safetensors"
    ).read_bytes()
    capsys.readouterr()
    again = told(capsys, *train(whole, risk, algorithm))
    assert again["steps"] == 128
    values = [name for name in again["last"] if name.startswith("value")]
    along = ["value_low", "value_middle", "value_high"]
    assert values == (along if "range" in risk else ["value"])


def test_metrics_of_the_return_hold_the_value_of_the_returns(tmp_path: Path) -> None:
    cli.main(train(tmp_path / "run", "return:0.5"))
    for row in rows(tmp_path / "run"):
        mean, variance = float(row["return_mean"]), float(row["return_variance"])
        assert float(row["value"]) == pytest.approx(mean - 0.5 * variance, rel=1e-9)


def test_metrics_of_a_range_hold_values_of_what_evaluations_saw(of_range: Path) -> None:
    """The frontier in the file is of the final policy; that of the evaluations is in memory."""
    sizes = {"n_steps": 32, "batch_size": 16, "hidden": (8,)}
    seldom = {"evaluation_every": 64, "evaluation_episodes": 4}
    known = mvpi.RiskRange(0.0, 2.0)
    agent = mvpi.PPO("mvpi/FourState-v0", known, **sizes, **seldom).learn(128)
    found = learned_frontier(known, agent._learner.measured, of_return=False)
    values = found.means - found.risk_aversions * found.variances
    last = rows(of_range)[-1]
    assert float(last["value_low"]) == pytest.approx(values[0])
    assert float(last["value_high"]) == pytest.approx(values[-1])


def test_metrics_of_other_risks_are_as_before(tmp_path: Path) -> None:
    cli.main(train(tmp_path / "run", "0.5", "ppo", 64))
    assert not [name for name in rows(tmp_path / "run")[0] if name.startswith("value")]


def test_evaluate_needs_a_risk_aversion_of_the_range(of_range: Path, capsys) -> None:
    message = mistaken(capsys, "evaluate", of_range)
    assert "from 0 to 2" in message
    assert "--risk-aversion" in message
    assert "0 to 2, got 3" in mistaken(capsys, "evaluate", of_range, "--risk-aversion", "3")


def test_a_risk_aversion_is_for_a_range(tmp_path: Path, capsys) -> None:
    cli.main(train(tmp_path / "run", "return:cvar:0.1", "ppo", 64))
    capsys.readouterr()
    message = mistaken(capsys, "evaluate", tmp_path / "run", "--risk-aversion", "1")
    assert "not with a RiskRange" in message


@pytest.mark.parametrize("form", ["{}", "return:{}"])
def test_a_range_of_one_value_is_the_plain_agent(tmp_path: Path, capsys, form: str) -> None:
    """Every command takes such a run for one at that risk aversion."""
    plain, ranged = tmp_path / "plain", tmp_path / "range"
    cli.main(train(plain, form.format("0.5"), "ppo", 64))
    cli.main(train(ranged, form.format("range:0.5:0.5"), "ppo", 64))
    assert f"next: mvpi evaluate {ranged}\n" in capsys.readouterr().out
    expected, *found = (
        told(capsys, "evaluate", *arguments, "--episodes", 5)
        for arguments in ([plain], [ranged], [ranged, "--risk-aversion", 0.5])
    )
    assert found == [expected, expected]
    messages = [mistaken(capsys, "frontier", run) for run in (plain, ranged)]
    assert "λ = 0.5" in messages[0]
    assert messages[1].replace(str(ranged), str(plain)) == messages[0]
    cli.main(["report", str(ranged), "--out", str(tmp_path / "page.html"), "--static"])
    page = (tmp_path / "page.html").read_text()
    assert "λ = 0.5" in page.replace("\N{NO-BREAK SPACE}", " ")
    assert "λ from" not in page


@pytest.mark.parametrize("lam", [0.0, 0.5, 2.0])
def test_evaluate_shows_the_objective_of_a_step(of_range: Path, capsys, lam: float) -> None:
    facts = told(capsys, "evaluate", of_range, "--risk-aversion", lam, "--episodes", 6)
    assert facts["risk"] == str(lam)
    expected = facts["reward_mean"] - lam * facts["reward_variance"]
    assert facts["value"] == pytest.approx(expected, rel=1e-9)
    low, high = facts["intervals"]["value"]
    assert low <= facts["value"] <= high
    seen = mvpi.evaluate(mvpi.load(of_range).at(lam), episodes=6)
    assert facts["returns"] == seen.returns.tolist()


def test_evaluate_shows_the_objective_of_the_return(of_return: Path, capsys) -> None:
    facts = told(capsys, "evaluate", of_return, "--risk-aversion", 0.5, "--episodes", 6)
    assert facts["value"] == pytest.approx(facts["mean"] - 0.5 * facts["variance"], rel=1e-9)
    cli.main(["evaluate", str(of_return), "--risk-aversion", "0.5", "--episodes", "3"])
    assert "of the return" in " ".join(capsys.readouterr().out.split())


def test_the_frontier_is_that_of_single_evaluations(of_range: Path, capsys) -> None:
    facts = told(capsys, "frontier", of_range, "--points", 3, "--episodes", 5, "--seed", 4)
    agent = mvpi.load(of_range)
    assert [point["risk_aversion"] for point in facts["points"]] == [0.0, 1.0, 2.0]
    for point in facts["points"]:
        seen = mvpi.evaluate(agent.at(point["risk_aversion"]), episodes=5, seed=4)
        assert point["returns"] == seen.returns.tolist()
        assert point["mean"] == seen.mean
        assert point["deviation"] == pytest.approx(seen.deviation)
        assert point["reward_deviation"] == pytest.approx(math.sqrt(seen.reward_variance))
        assert point["value"] == seen.reward_value(point["risk_aversion"])
        for name in ("mean", "deviation", "reward_mean", "reward_deviation"):
            low, high = point[f"{name}_interval"]
            assert low <= high
    assert facts["frontier_of"] == "reward of a step"
    assert facts["exact"] is None


def test_the_frontier_of_the_return(of_return: Path, capsys, tmp_path: Path) -> None:
    picture = tmp_path / "frontier.png"
    options = ("--points", "3", "--episodes", "4")
    facts = told(capsys, "frontier", of_return, *options, "--out", picture)
    assert facts["frontier_of"] == "return"
    for point in facts["points"]:
        returns = np.array(point["returns"])
        expected = returns.mean() - point["risk_aversion"] * returns.var()
        assert point["value"] == pytest.approx(expected)
    assert picture.read_bytes().startswith(b"\x89PNG")
    cli.main(["frontier", str(of_return), *options])
    shown = capsys.readouterr().out
    assert "Of the return" in shown
    assert facts["recommendation"] in shown


def test_the_exact_frontier_beside_it(tmp_path: Path, capsys) -> None:
    small = {"hidden": (8,), "n_steps": 64, "batch_size": 32, "evaluation_every": 64}
    risk = mvpi.RiskRange(0.0, 1.0)
    mvpi.PPO("FrozenLake-v1", risk, gamma=0.9, evaluation_episodes=2, **small).learn(
        64, tmp_path / "run"
    )
    facts = told(capsys, "frontier", tmp_path / "run", "--points", 2, "--episodes", 20,
                 "--out", tmp_path / "f.svg")  # fmt: skip
    assert facts["exact"]["discount"] == 0.9
    known = mvpi.frontier(mvpi.MDP.from_gymnasium("FrozenLake-v1", 0.9))
    means, deviations = facts["exact"]["means"], facts["exact"]["deviations"]
    assert max(means) == pytest.approx(known.means[-1])
    assert deviations == sorted(deviations)
    seen = mvpi.evaluate(mvpi.load(tmp_path / "run").at(0.0), episodes=20)
    rewards, weights = seen.occupancy(0.9)
    assert facts["points"][0]["reward_mean"] == pytest.approx(np.average(rewards, weights=weights))


def test_mistakes_of_frontier(of_range: Path, tmp_path: Path, capsys) -> None:
    assert "does not apply to an agent" in mistaken(capsys, "frontier", of_range, "--discount", 0.9)
    lake = ("frontier", "FrozenLake-v1")
    assert "does not apply to an MDP" in mistaken(capsys, *lake, "--points", 3)
    assert "--action-noise does not" in mistaken(capsys, *lake, "--action-noise", 0.1)
    assert "points must be a whole number >= 2" in mistaken(
        capsys, "frontier", of_range, "--points", 1
    )
    assert "episodes must be a whole number >= 2" in mistaken(
        capsys, "frontier", of_range, "--episodes", 1
    )
    assert "must end in" in mistaken(capsys, "frontier", of_range, "--out", "x.gif")
    assert "policy.safetensors" in mistaken(capsys, "frontier", tmp_path)
    cli.main(train(tmp_path / "one", "0.5", "ppo", 64))
    capsys.readouterr()
    message = mistaken(capsys, "frontier", tmp_path / "one")
    assert "range:LOW:HIGH" in message
    assert "mvpi tune" in message


def test_a_policy_file_has_a_frontier_too(of_range: Path, tmp_path: Path, capsys) -> None:
    copied = shutil.copy(of_range / "policy.safetensors", tmp_path / "mine.safetensors")
    facts = told(capsys, "frontier", copied, "--points", 2, "--episodes", 2)
    assert len(facts["points"]) == 2
