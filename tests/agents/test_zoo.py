"""The trained agents of the package: each is there, and earns what its row says."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mvpi
from mvpi.agents import zoo
from mvpi.cli import main


def test_every_row_has_its_policy_and_every_policy_its_row() -> None:
    files = {path.name for path in zoo.DIRECTORY.glob("*.safetensors")}
    assert {one.path.name for one in zoo.agents()} == files
    assert len({one.name for one in zoo.agents()}) == len(files) > 0
    for one in zoo.agents():
        agent = mvpi.load(one.name)
        assert agent.steps == one.steps
        assert agent.risk == mvpi.MeanVariance(one.risk_aversion)


@pytest.mark.slow
@pytest.mark.parametrize("name", [one.name for one in zoo.agents()])
def test_it_earns_what_its_row_says(name: str) -> None:
    one = next(one for one in zoo.agents() if one.name == name)
    found = mvpi.evaluate(mvpi.load(name), episodes=100, seed=1)  # other episodes than the row's
    error = math.hypot(one.deviation, math.sqrt(found.variance)) / math.sqrt(100)
    assert abs(found.mean - one.mean) <= 4.0 * error + 1e-6 * abs(one.mean)


def test_an_agent_acts() -> None:
    agent = mvpi.load("zoo:InvertedPendulum-v4:1.0")
    assert np.asarray(agent.predict(np.zeros(4))).shape == (1,)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("zoo:Hoper-v4:1", "did you mean Hopper-v4?"),
        ("zoo:Hopper-v4:7", "for Hopper-v4 it has zoo:Hopper-v4:"),
        ("zoo:Hopper-v4", "for Hopper-v4 it has zoo:Hopper-v4:"),
        ("zoo:Hopper-v4:one", "for Hopper-v4 it has zoo:Hopper-v4:"),
        ("zoo:Hopper-v4:1:sac", "for Hopper-v4 it has zoo:Hopper-v4:"),
        ("zoo:", "the zoo has no agent for ''"),
        ("zoo:../../etc/passwd:1", "the zoo has no agent for '../../etc/passwd'"),
    ],
)
def test_an_unknown_name_is_refused_in_one_line(
    name: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["evaluate", name])
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    main(["zoo"])
    out = capsys.readouterr().out
    assert all(one.name in out for one in zoo.agents())
