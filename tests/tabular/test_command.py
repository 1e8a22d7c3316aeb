"""What `mvpi solve` prints about policies that are the same, or nearly, and about small numbers."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from problems import random_problem

import mvpi
from mvpi import cli
from mvpi.commands import solve

SAME = "The risk-neutral policy is also the best at this risk aversion."


def printed(capsys: pytest.CaptureFixture[str], path: Path, mdp: mvpi.MDP, *options: str) -> str:
    mdp.save(path)
    cli.main(["solve", str(path), *options])
    return capsys.readouterr().out


@pytest.mark.parametrize("options", [["--risk", "1", "--local"], ["--risk", "cvar:1"]])
def test_rounding_makes_no_other_policy(capsys, tmp_path, options) -> None:
    """The mean of the gamble is 0, of which rounding noise is any percentage."""
    assert SAME in printed(capsys, tmp_path / "m.npz", mvpi.examples.four_state(), *options)


def test_a_calmer_policy_is_compared_in_percent(capsys, tmp_path) -> None:
    text = printed(capsys, tmp_path / "m.npz", mvpi.examples.four_state(), "--risk", "4")
    assert "Against the risk-neutral policy: variance -41%, mean -0.412." in text


@pytest.mark.parametrize(("text", "risk"), [("cvar:0.3", mvpi.CVaR(0.3)), ("1", 1.0)])
def test_the_risk_neutral_policy_has_a_value_too(capsys, tmp_path, text, risk) -> None:
    problem = random_problem(3, 4, 3, 0.9)
    mdp = problem.mdp()
    best = int(np.argmax(problem.moments[0]))
    value = mvpi.risk.as_risk(risk).value(*(part[best] for part in problem.laws))
    row = next(
        line
        for line in printed(capsys, tmp_path / "m.npz", mdp, "--risk", text).splitlines()
        if "risk-neutral" in line
    )
    assert f"{value:.5g}" in row


def test_small_rewards_have_digits(capsys, tmp_path) -> None:
    problem = random_problem(3, 4, 3, 0.9, scale=1e-8)
    variance = problem.moments[1][int(np.argmax(problem.moments[0]))]
    assert f"{variance:.5g}" in printed(capsys, tmp_path / "m.npz", problem.mdp(), "--risk", "0")


def test_the_progress_line_is_gone_when_it_starts_late(monkeypatch) -> None:
    """The timer fires while the display ends: nothing may be left running."""
    before = set(threading.enumerate())
    monkeypatch.setattr(solve, "_SHOWN_AFTER", 0.0)
    for _ in range(20):
        with solve.progress_display("working") as progress:
            progress(1, 0.0, 1.0)
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=60.0)
        assert not thread.is_alive()
