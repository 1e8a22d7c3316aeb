"""frontier.json: what it holds, and what is not taken for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.run_directories import write_range_run

import mvpi
from mvpi.errors import InputError
from mvpi.experiments.range_outcome import FRONTIER, RangeOutcome, judge_range


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = write_range_run(tmp_path / "run")
    found = RangeOutcome.read(run)
    assert found is not None
    assert found.risk_aversions == (0.0, 0.5, 1.0, 1.5, 2.0)
    assert [round(o.mean, 6) for o in found.outcomes] == [100.0, 98.0, 90.0, 60.0, 20.0]
    before = (run / FRONTIER).read_bytes()
    found.write(run)
    assert (run / FRONTIER).read_bytes() == before
    (run / FRONTIER).unlink()
    assert RangeOutcome.read(run) is None


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a changed return": lambda r: r["outcomes"][0]["returns"].__setitem__(0, 5.0),
    "another run": lambda r: r.update(run="of another"),
    "no checksum": lambda r: r.pop("checksum"),
    "no outcomes": lambda r: r.pop("outcomes"),
    "fewer outcomes": lambda r: r["outcomes"].pop(),
    "no places": lambda r: r.update(outcomes=[], risk_aversions=[]),
    "outcomes that are none": lambda r: r.update(outcomes=[1, 2, 3, 4, 5]),
    "a text": lambda r: r["risk_aversions"].__setitem__(0, "low"),
    "not increasing": lambda r: r["risk_aversions"].reverse(),
    "below 0": lambda r: r["risk_aversions"].__setitem__(0, -1.0),
    "not a number": lambda r: r["risk_aversions"].__setitem__(1, float("nan")),
    "other steps": lambda r: r["outcomes"][0].update(steps=7),
    "infinite": lambda r: r["outcomes"][0]["returns"].__setitem__(0, 1e300),
    "newer": lambda r: r.update(format=10**6),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_one_line(tmp_path: Path, name: str) -> None:
    path = write_range_run(tmp_path / "run") / FRONTIER
    record = json.loads(path.read_text())
    DAMAGE[name](record)
    path.write_text(json.dumps(record))
    with pytest.raises(InputError) as caught:
        RangeOutcome.read(tmp_path / "run")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_is_judged_at_both_ends_and_between(tmp_path: Path) -> None:
    small = {"n_steps": 32, "batch_size": 16, "hidden": (4,), "evaluation_episodes": 2}
    risk = mvpi.RiskRange(0.0, 1.0)
    agent = mvpi.PPO("mvpi/FourState-v0", risk, evaluation_every=64, **small)
    agent.learn(64, tmp_path / "run")
    found = judge_range(tmp_path / "run", points=3, episodes=3)
    assert found.risk_aversions == (0.0, 0.5, 1.0)
    assert found.steps == 64
    for lam, outcome in zip(found.risk_aversions, found.outcomes, strict=True):
        seen = mvpi.evaluate(agent.at(lam), episodes=3)
        assert outcome.returns == tuple(seen.returns.tolist())
    assert not (tmp_path / "run" / FRONTIER).exists()


def test_a_single_risk_aversion_is_no_range(tmp_path: Path) -> None:
    small = {"n_steps": 32, "batch_size": 16, "hidden": (4,), "evaluation_episodes": 2}
    mvpi.PPO("mvpi/FourState-v0", 1.0, evaluation_every=32, **small).learn(32, tmp_path / "run")
    with pytest.raises(InputError, match="alone"):
        judge_range(tmp_path / "run", points=3, episodes=3)
