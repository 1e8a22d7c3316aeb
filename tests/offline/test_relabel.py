"""Relabelled Minari data: exactly the augmented rewards, everything else as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import pytest
from helpers import minari_data
from minari import StepDataCallback
from minari.namespace import list_local_namespaces

import mvpi
import mvpi.envs
from mvpi import InputError
from mvpi.offline import Dataset, density_ratio, weighted_dual
from mvpi.offline.relabel import relabel

TASKS = {
    "mvpi/FourState-v0": {"horizon": 12},
    "mvpi/Markowitz-v0": {"horizon": 12},
    "Hopper-v5": {},
}
RISKS = [0.5, mvpi.CVaR(0.2, 0.7), mvpi.Entropic(0.3)]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


class WithInfo(StepDataCallback):
    """Infos of several forms, for every task."""

    def __call__(self, env: Any, obs: Any, info: Any, **rest: Any) -> Any:
        info = {"size": float(np.sum(obs)), "parts": {"first": np.ravel(obs)[:1] * 2.0}}
        return super().__call__(env, obs, info, **rest)


def collected(task: str = "mvpi/FourState-v0", steps: int = 60, name: str = "raw-v0") -> Any:
    env = gym.make(task, **TASKS[task])
    options = {"step_data_callback": WithInfo, "record_infos": True}
    return minari_data.collected(env, name, steps, seed=7, **options)[0]


def rewards_of(dataset: Any) -> np.ndarray:
    return np.concatenate([episode.rewards for episode in dataset])


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            same(a[key], b[key])
    else:
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)


def files(here: Path) -> list[str]:
    return sorted(str(path.relative_to(here)) for path in here.rglob("*"))


@pytest.mark.parametrize(("task", "risk"), list(zip(TASKS, RISKS, strict=True)))
def test_rewards_are_augmented_and_all_else_is_the_same(task: str, risk: Any) -> None:
    raw = collected(task)
    before = files(raw.storage.data_path), rewards_of(raw)
    given = relabel("raw-v0", "group/steady-v1", risk, y=0.25)
    assert given.id == "group/steady-v1"
    copy = minari.load_dataset("group/steady-v1")
    assert raw.total_episodes == copy.total_episodes > 1
    for old, new in zip(raw, copy, strict=True):
        np.testing.assert_array_equal(
            new.rewards, mvpi.risk.as_risk(risk).augment(old.rewards, 0.25)
        )
        assert old.id == new.id
        for name in ("observations", "actions", "terminations", "truncations", "infos"):
            same(getattr(old, name), getattr(new, name))
    assert raw[0].infos["parts"]["first"].shape == (len(raw[0].rewards) + 1, 1)
    episodes = [list(d.storage.get_episode_metadata(range(d.total_episodes))) for d in (raw, copy)]
    assert episodes[0] == episodes[1]
    assert episodes[0][0]["seed"] == 7

    old_data, new_data = Dataset.from_minari(raw), Dataset.from_minari("group/steady-v1")
    augmented = mvpi.risk.as_risk(risk).augment(old_data.rewards, 0.25)
    np.testing.assert_array_equal(new_data.rewards, augmented)
    np.testing.assert_array_equal(new_data.next_observations, old_data.next_observations)

    assert copy.env_spec == raw.env_spec
    copy.recover_environment().close()
    note, kept = copy.storage.metadata, raw.storage.metadata
    assert note["relabelled"] == {
        "risk": mvpi.risk.risk_text(mvpi.risk.as_risk(risk)),
        "y": 0.25,
        "source": "raw-v0",
    }
    assert note["description"].startswith("Steps.\n\nRewards of raw-v0, augmented")
    changed = ("relabelled", "description", "dataset_id", "dataset_size")
    same(
        {k: v for k, v in note.items() if k not in changed},
        {k: v for k, v in kept.items() if k not in changed},
    )
    assert set(minari.list_local_datasets()) == {"raw-v0", "group/steady-v1"}
    assert list_local_namespaces() == ["group"]
    assert (files(raw.storage.data_path), rewards_of(minari.load_dataset("raw-v0")).tolist()) == (
        before[0],
        before[1].tolist(),
    )


def test_y_is_measured_on_the_data_or_as_a_policy_weighs_them() -> None:
    raw = collected(steps=200)
    r = rewards_of(raw)
    plain = relabel(raw, "plain-v0", 1.0)
    assert plain.storage.metadata["relabelled"]["y"] == pytest.approx(r.mean(), abs=1e-12)
    tail = relabel(raw, "tail-v0", mvpi.CVaR(0.3))
    assert tail.storage.metadata["relabelled"]["y"] == np.quantile(r, 0.3, method="inverted_cdf")

    policy = [0, 0, 0, 0]
    data = Dataset.from_minari(raw)
    y = weighted_dual(data, density_ratio(data, policy, 0.7, "exact"), 1.0).y
    weighed = relabel(raw, "weighed-v0", 1.0, policy=policy, discount=0.7, method="exact")
    assert weighed.storage.metadata["relabelled"]["y"] == y != r.mean()
    np.testing.assert_array_equal(rewards_of(weighed), mvpi.MeanVariance(1.0).augment(r, y))


def test_some_episodes_make_a_smaller_data_set() -> None:
    raw = collected()
    some = raw.filter_episodes(lambda episode: episode.id in (1, 3))
    copy = relabel(some, "some-v0", 1.0)
    r = rewards_of(some)
    assert (copy.total_episodes, copy.total_steps) == (2, len(r))
    assert copy.storage.metadata["relabelled"]["y"] == pytest.approx(r.mean(), abs=1e-12)
    assert [episode.id for episode in copy] == [0, 1]
    assert [m["id"] for m in copy.storage.get_episode_metadata([0, 1])] == [0, 1]
    same(copy[1].observations, raw[3].observations)
    with pytest.raises(InputError, match="raw-v0 holds no episodes"):
        relabel(raw.filter_episodes(lambda episode: episode.id < 0), "none-v0", 1.0)
    again = relabel(copy, "again-v0", 0.0, y=0.0)
    np.testing.assert_array_equal(rewards_of(again), rewards_of(copy))
    assert again.storage.metadata["relabelled"]["source"] == "some-v0"


@pytest.mark.parametrize(
    ("message", "new_id", "arguments"),
    [
        ("a Minari data set raw-v0 already; choose another id", "raw-v0", {"risk": 1.0}),
        ("new_id must be like name-v0", "no version", {"risk": 1.0}),
        ("new_id must be like name-v0", "unversioned", {"risk": 1.0}),
        ("new_id must be like name-v0", "../outside-v0", {"risk": 1.0}),
        ("new_id must be like name-v0", 7, {"risk": 1.0}),
        ("y must be finite, got nan", "new-v0", {"risk": 1.0, "y": np.nan}),
        ("y is given, 1.0, so policy", "new-v0", {"risk": 1.0, "y": 1.0, "policy": [0] * 4}),
        ("y is given, 1.0, so policy", "new-v0", {"risk": 1.0, "y": 1.0, "method": "exact"}),
        ("discount must be given with policy", "new-v0", {"risk": 1.0, "policy": [0] * 4}),
        ("discount, steps is for the ratio", "new-v0", {"risk": 1, "discount": 0.9, "steps": 3}),
        ("risk_aversion must be >= 0", "new-v0", {"risk": -1.0}),
        ("finds its risk aversion while learning", "new-v0", {"risk": mvpi.VarianceBudget(2.0)}),
        ("must be finite, in episode 0", "new-v0", {"risk": mvpi.MeanVariance(1e308), "y": 1e9}),
    ],
)
def test_mistakes_are_told_and_change_nothing(
    here: Path, message: str, new_id: Any, arguments: Any
) -> None:
    collected()
    before = files(here)
    with pytest.raises(InputError, match=message) as caught:
        relabel("raw-v0", new_id, **arguments)
    assert "\n" not in str(caught.value)
    assert files(here) == before
    with pytest.raises(InputError, match=r"no Minari data set 'none-v0' can be read"):
        relabel("none-v0", "new-v0", 1.0)


class Failing(mvpi.MeanVariance):
    """Fails at the third episode."""

    seen = 0

    def augment(self, rewards: Any, y: float) -> Any:
        type(self).seen += 1
        if type(self).seen == 3:
            raise KeyboardInterrupt
        return super().augment(rewards, y)


def test_a_failure_in_the_middle_leaves_nothing(here: Path) -> None:
    collected()
    before = files(here)
    Failing.seen = 0
    with pytest.raises(KeyboardInterrupt):
        relabel("raw-v0", "deep/group/new-v0", Failing(1.0), 0.0)
    assert files(here) == before


KILLED = """
import os, signal
import mvpi
from mvpi.offline.relabel import relabel

class Deadly(mvpi.MeanVariance):
    seen = 0
    def augment(self, rewards, y):
        Deadly.seen += 1
        if Deadly.seen == 3:
            try:
                relabel("raw-v0", "group/new-v0", 1.0)
            except mvpi.InputError as error:
                print(error, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().augment(rewards, y)

relabel("raw-v0", "group/new-v0", Deadly(1.0), 0.0)
"""


def test_a_killed_process_leaves_no_data_set_and_no_trace_after_the_next(here: Path) -> None:
    collected()
    before = files(here)
    run = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, check=False
    )
    assert run.returncode == -9, run.stderr
    assert "another process is writing group/new-v0" in run.stdout
    assert set(minari.list_local_datasets()) == {"raw-v0"}
    left = [path for path in files(here) if path not in before]
    assert left
    assert all(path.startswith(".group--new-v0.part") for path in left)
    copy = relabel("raw-v0", "group/new-v0", 1.0)
    assert len(rewards_of(copy)) == 60
    assert not [path for path in files(here) if ".part" in path]


def test_one_episode_is_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewards are augmented episode by episode, each before the next is read."""
    raw = collected()
    lengths: list[int] = []
    augment = mvpi.MeanVariance.augment

    def watched(self: Any, rewards: Any, y: float) -> Any:
        lengths.append(len(rewards))
        return augment(self, rewards, y)

    monkeypatch.setattr(mvpi.MeanVariance, "augment", watched)
    relabel(raw, "new-v0", 1.0)
    assert lengths == [len(episode.rewards) for episode in raw]


@pytest.mark.slow
def test_torchrl_reads_it() -> None:
    """With the reader that its `MinariExperienceReplay` uses for local data sets."""
    tensordict = pytest.importorskip("tensordict")
    raw = collected("Hopper-v5")
    copy = relabel(raw, "steady-v0", 0.1, 1.5)
    path = copy.storage.data_path / "main_data.hdf5"
    read = tensordict.PersistentTensorDict.from_h5(path).to_tensordict()
    for i, episode in enumerate(raw):
        found = read[f"episode_{i}", "rewards"].numpy()
        np.testing.assert_array_equal(found, mvpi.MeanVariance(0.1).augment(episode.rewards, 1.5))
