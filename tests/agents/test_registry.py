"""The list of agents: everything that names them agrees with it."""

from __future__ import annotations

import pytest

import mvpi
from mvpi.agents.loading import agent_type
from mvpi.agents.registry import AGENTS


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_is_what_its_entry_says(name: str) -> None:
    found, entry = agent_type(name), AGENTS[name]
    assert found.name == name
    assert found.__name__ == entry.class_name
    assert found.settings_type is entry.settings
    assert getattr(mvpi, entry.class_name) is found
    assert entry.class_name in mvpi.__all__
