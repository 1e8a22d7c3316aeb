"""Run directories of earlier versions resume, and end with the bytes of a run made at once.

`format_2` was written before modules were moved: the runs were killed at step 200 of 300, or had
finished. Their records name the environments by where they were then.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import mvpi
from mvpi._storage.arrays import read_arrays
from mvpi.agents.agent import Agent
from mvpi.agents.policy import Policy

HERE = Path(__file__).parent / "format_2"
EVALUATION = {"evaluation_every": 100, "evaluation_episodes": 1, "checkpoint_every": 100}


def td3(**changes: Any) -> Agent[Any]:
    env = mvpi.NoisyActions(gym.make("mvpi/RiskyPendulum-v0"), 0.1)
    settings = {"learning_starts": 50, "batch_size": 8, "buffer_size": 40, "window": 30}
    given = {"risk": 1.0, "seed": 3, "hidden": (4,), **settings, **EVALUATION, **changes}
    return mvpi.TD3(env, **given)


def ppo() -> Agent[Any]:
    settings = {"hidden": (4,), "n_steps": 50, "batch_size": 25, "n_epochs": 1, **EVALUATION}
    return mvpi.PPO("mvpi/Liquidity-v0", risk=1.0, seed=3, **settings)


def rows(directory: Path) -> list[dict[str, str]]:
    """The metrics, but for the speed of the machine."""
    with (directory / "metrics.csv").open() as file:
        found = list(csv.DictReader(file))
    for row in found:
        del row["steps_per_second"]
    return found


def weights(directory: Path) -> list[bytes]:
    policy, record = Policy.load(directory / "policy.safetensors")
    assert record["steps"] == 300
    return [array.tobytes() for array in policy.parameters]


@pytest.mark.parametrize("make", [td3, ppo])
def test_a_killed_run_resumes_and_ends_as_one_made_at_once(tmp_path: Path, make: Any) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(HERE / make.__name__, old)
    checkpoint = read_arrays(old / "checkpoint.safetensors", "checkpoint")[1]["steps"]
    assert 0 < checkpoint < 300
    config = (old / "config.json").read_bytes()
    learned_rows: list[int] = []
    make().learn(300, old, on_row=lambda row: learned_rows.append(row["steps"]))
    make().learn(300, new)
    assert learned_rows == [at for at in (100, 200, 300) if at > checkpoint]
    assert rows(old) == rows(new)
    assert len(rows(old)) == 3
    assert weights(old) == weights(new)
    assert (old / "config.json").read_bytes() == config
    steps, again = (
        read_arrays(old / "checkpoint.safetensors", "checkpoint"),
        read_arrays(new / "checkpoint.safetensors", "checkpoint"),
    )
    assert steps[1]["steps"] == again[1]["steps"]
    assert steps[0].keys() == again[0].keys()
    for name, array in steps[0].items():
        np.testing.assert_array_equal(array, again[0][name])


def test_a_finished_run_is_finished_and_can_be_prolonged(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(HERE / "finished", old)
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    agent = td3().learn(300, old)
    assert agent.steps == 300
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before
    td3().learn(300, new)
    assert weights(old) == weights(new)
    td3().learn(400, old)
    td3().learn(400, new)
    assert rows(old) == rows(new)


def test_the_old_records_name_environments_by_where_they_were() -> None:
    """Or the tests above would show nothing."""
    spec = json.loads((HERE / "td3" / "config.json").read_text())["environment"]["spec"]
    assert spec["entry_point"] == "mvpi.risky:risky_pendulum"
    assert spec["additional_wrappers"][0]["entry_point"] == "mvpi.risky:RiskyZone"
    record = td3().config()["environment"]["spec"]
    assert record["entry_point"] == "mvpi.envs.noisy_zone:risky_pendulum"


def test_other_settings_are_still_refused(tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(HERE / "td3", old)
    with pytest.raises(mvpi.InputError, match="window is 30 there and 31 here; use the same"):
        td3(window=31).learn(300, old)
