"""The list of agents: everything that names them agrees with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.own_agent import Reinforce

import mvpi
from mvpi.agents.loading import agent_type
from mvpi.agents.registry import AGENTS, SETTINGS, Entry
from mvpi.agents.settings import MVPSettings
from mvpi.cli.report import runs_to_show
from mvpi.experiments.experiment import Experiment
from mvpi.report.grouping import agent_name, sections
from mvpi.report.page import render


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_is_what_its_entry_says(name: str) -> None:
    found, entry = agent_type(name), AGENTS[name]
    assert found.name == name
    assert found.__name__ == entry.class_name
    assert found.settings_type is entry.settings
    assert getattr(mvpi, entry.class_name) is found
    assert entry.class_name in mvpi.__all__


def test_a_new_agent_is_a_module_and_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is trained, resumed, loaded, evaluated, an experiment, and on the page of a report."""
    entry = Entry("helpers.own_agent", "Reinforce", MVPSettings, "REINFORCE.")
    monkeypatch.setitem(AGENTS, "reinforce", entry)
    monkeypatch.setitem(SETTINGS, "reinforce", entry.settings)
    short = {"hidden": (), "evaluation_every": 320, "evaluation_episodes": 2}
    for steps in (320, 640):
        agent = Reinforce("mvpi/FourState-v0", **short).learn(steps, tmp_path / "run")
    loaded = mvpi.load(tmp_path / "run")
    assert type(loaded) is Reinforce
    assert loaded.steps == 640
    for there, here in zip(loaded.policy.parameters, agent.policy.parameters, strict=True):
        np.testing.assert_array_equal(there, here)
    found = Experiment("reinforce", "mvpi/FourState-v0", 0.0, 0, 320, 0.0, 2, short).run(tmp_path)
    runs, notes = runs_to_show([tmp_path], episodes=2)
    assert notes == []
    assert found in [run.outcome for run in runs]
    labels = {agent.label for section in sections(runs) for agent in section.agents}
    assert agent_name("reinforce", "0.0") == "Reinforce, λ = 0"
    assert all(label.startswith("Reinforce, λ = 0") for label in labels)
    assert "Reinforce" in render(runs, notes, [], live=False)
