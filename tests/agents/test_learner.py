"""A learner: when its state can be written to a checkpoint, and what evaluations leave alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.victims import TINY_OF, risk_of

import mvpi
from mvpi._storage.run_directory import RunDirectory
from mvpi.agents.learner import Learner
from mvpi.agents.loading import agent_type
from mvpi.agents.registry import AGENTS
from mvpi.agents.training import train
from mvpi.risk import parse_risk


def learner(algorithm: str, env: str = "mvpi/Markowitz-v0", **settings: Any) -> Learner[Any]:
    risk = parse_risk(risk_of(algorithm))
    agent = agent_type(algorithm)(env, risk, 3, **(TINY_OF[algorithm] | settings))
    found: Learner[Any] = agent._new_learner()
    return found


def steps_of_checkpoints(algorithm: str, until: int, **settings: Any) -> list[int]:
    """Steps at which the learner asked whether a checkpoint was due."""
    asked: list[int] = []
    learning = learner(algorithm, **settings)

    def due() -> bool:
        assert learning.can_checkpoint
        asked.append(learning.steps)
        return False

    learning.advance(until, due)
    learning.close()
    return asked


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("td3", [100, 200]),  # episodes of 100 steps
        ("ppo", [48, 96, 144, 192, 240]),  # rollouts
        ("mvp", list(range(16, 241, 16))),  # common steps of all actors
        ("tamar", list(range(16, 241, 16))),
        ("prashanth", list(range(48, 241, 48))),  # rounds of 3 common steps
        ("mean-gini", list(range(16, 241, 16))),
        ("cvar-pg", list(range(16, 241, 16))),
    ],
)
def test_where_a_checkpoint_is_possible(algorithm: str, expected: list[int]) -> None:
    assert steps_of_checkpoints(algorithm, 240) == expected


@pytest.mark.parametrize("algorithm", AGENTS)
def test_elsewhere_it_is_not(algorithm: str) -> None:
    learning = learner(algorithm)
    assert learning.can_checkpoint
    learning.advance(7, lambda: False)
    assert learning.steps == 7
    assert not learning.can_checkpoint
    learning.close()


@pytest.mark.parametrize("algorithm", AGENTS)
def test_an_evaluation_is_repeatable_and_draws_nothing_from_the_training(algorithm: str) -> None:
    learning = learner(algorithm)
    learning.advance(48, lambda: False)
    before, observation = learning.rng.bit_generator.state, learning.env.observation
    first, second = learning.evaluate(), learning.evaluate()
    np.testing.assert_array_equal(first.rewards, second.rewards)
    assert learning.rng.bit_generator.state == before
    np.testing.assert_array_equal(learning.env.observation, observation)
    learning.close()


def test_what_a_checkpoint_refers_to_is_flushed_before_and_pruned_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    agent = mvpi.TD3("mvpi/Markowitz-v0", 1.0, 3, **TINY_OF["td3"])
    directory = RunDirectory(tmp_path, agent.config())
    learning = agent._new_learner(tmp_path)
    written = directory.write_state
    flush, prune = learning.flush, learning.prune
    for owner, name, work in (
        (learning, "flush", flush),
        (directory, "write_state", written),
        (learning, "prune", prune),
    ):

        def recorded(*given: Any, name: str = name, work: Any = work) -> None:
            events.append(name)
            work(*given)

        monkeypatch.setattr(owner, name, recorded)
    train(learning, 200, directory, lambda path: learning.policy.save(path, {}))
    assert events == ["flush", "write_state", "prune"] * 2
    learning.close()
    directory.close()
