"""Damaged Minari files: one line that says so, whatever is done with them."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import minari
import pytest
from helpers.minari_data import collected

from mvpi import InputError
from mvpi.offline import Dataset
from mvpi.offline.relabel import relabel

Damage = Callable[[Any], None]


def shorter(name: str) -> Damage:
    """One row less in the episode 1."""

    def cut(file: Any) -> None:
        values = file[f"episode_1/{name}"][:-1]
        del file[f"episode_1/{name}"]
        file[f"episode_1/{name}"] = values

    return cut


def without(name: str) -> Damage:
    def delete(file: Any) -> None:
        del file[name]

    return delete


def without_a_length(file: Any) -> None:
    del file["episode_1/rewards"]
    file["episode_1/rewards"] = 1.0


DAMAGES: list[tuple[str, Damage]] = [
    ("KeyError .*episode_2", without("episode_2")),
    ("KeyError .*rewards", without("episode_1/rewards")),
    ("KeyError .*actions", without("episode_1/actions")),
    ("(Type|Value)Error", without_a_length),
    ("episode 1 has 12 rewards and 11 terminations, not 12", shorter("terminations")),
    ("episode 1 has 12 rewards and 11 truncations, not 12", shorter("truncations")),
    ("episode 1 has 12 rewards and 11 actions, not 12", shorter("actions")),
    ("episode 1 has 12 rewards and 12 observations, not 13", shorter("observations")),
    ("episode 1 has 11 rewards and 13 observations, not 12", shorter("rewards")),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set with five episodes."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("whole")
        patch.setenv("MINARI_DATASETS_PATH", str(path))
        collected(gym.make("mvpi.envs:mvpi/Markowitz-v0", horizon=12), "raw-v0", 60)
    return path


@pytest.fixture
def file(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of a copy."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    return tmp_path / "raw-v0" / "data" / "main_data.hdf5"


def refused(message: str) -> None:
    """By whatever reads the data set; nothing is left behind."""
    for use in (
        lambda: Dataset.from_minari("raw-v0"),
        lambda: relabel("raw-v0", "new-v0", 1.0),
        lambda: relabel("raw-v0", "new-v0", 1.0, y=0.0),
    ):
        with pytest.raises(InputError, match=f"raw-v0 is damaged: {message}") as caught:
            use()
        assert "\n" not in str(caught.value)
    assert list(minari.list_local_datasets()) == ["raw-v0"]


@pytest.mark.parametrize(("message", "damage"), DAMAGES)
def test_what_is_missing_is_told(file: Path, message: str, damage: Damage) -> None:
    with h5py.File(file, "a") as there:
        damage(there)
    refused(message)


def test_half_a_file_is_told(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    refused("OSError")


def test_actions_of_another_size_are_told(file: Path) -> None:
    with h5py.File(file, "a") as there:
        values = there["episode_1/actions"][:, :1]
        del there["episode_1/actions"]
        there["episode_1/actions"] = values
    with pytest.raises(InputError, match=r"damaged: ValueError actions of shape \(1,\), not \(2,"):
        Dataset.from_minari("raw-v0")


def test_parts_of_observations_are_counted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data set that `Dataset` does not take can still be relabelled, if it is whole."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env: Any = gym.make("mvpi.envs:mvpi/Markowitz-v0", horizon=12)
    space = gym.spaces.Dict({"x": env.observation_space})
    collected(gym.wrappers.TransformObservation(env, lambda s: {"x": s}, space), "raw-v0", 24)
    relabel("raw-v0", "whole-v0", 1.0)
    with h5py.File(tmp_path / "raw-v0" / "data" / "main_data.hdf5", "a") as there:
        shorter("observations/x")(there)
    with pytest.raises(InputError, match="12 rewards and 12 observations, not 13"):
        relabel("raw-v0", "new-v0", 1.0)


@pytest.mark.parametrize("content", ["[]", "{}", "null", "3", '"x"', "", "{", "[" * 100_000])
def test_metadata_that_are_none_are_told(file: Path, content: str) -> None:
    (file.parent / "metadata.json").write_text(content)
    for use in (lambda: Dataset.from_minari("raw-v0"), lambda: relabel("raw-v0", "new-v0", 1.0)):
        with pytest.raises(InputError, match="no Minari data set 'raw-v0' can be read") as caught:
            use()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["total_steps", "total_episodes"])
@pytest.mark.parametrize("number", [10**9, 10**12, 10**30, -5, 0, 59, 61, 1.5, "many", None, []])
def test_numbers_in_the_metadata_are_not_believed(file: Path, name: str, number: Any) -> None:
    """Memory is taken for the rows that are read, not for those that are announced."""
    path = file.parent / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: number}))
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            Dataset.from_minari("raw-v0")
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()
    assert "raw-v0" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_memory_grows_with_what_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Dataset.from_minari("raw-v0").fingerprint()
    monkeypatch.setattr("mvpi.offline._sources._ROWS_AT_FIRST", 5)
    assert Dataset.from_minari("raw-v0").fingerprint() == expected
