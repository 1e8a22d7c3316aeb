"""Data sets: what is refused, what is kept as it is, and where they come from."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.minari_data import collected

import mvpi
import mvpi.envs
from mvpi import InputError
from mvpi._storage.arrays import read_arrays
from mvpi._storage.locks import lock
from mvpi.offline import Dataset, density_ratio, learn_finite
from mvpi.offline.td3_bc import TD3BC

Array = np.ndarray


def finite(**changes: Any) -> dict[str, Any]:
    return {
        "observations": np.array([0, 1, 2, 0]),
        "actions": np.array([0, 1, 0, 1]),
        "rewards": np.array([0.0, 1.0, -1.0, 0.5]),
        "next_observations": np.array([1, 2, 0, 0]),
        "terminations": np.array([False, False, False, True]),
        "starts": np.array([0, 0]),
        **changes,
    }


def vectors(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "observations": rng.normal(size=(4, 3)).astype(np.float32),
        "actions": rng.normal(size=(4, 2)),
        "rewards": np.arange(4),
        "next_observations": rng.normal(size=(4, 3)).astype(np.float32),
        "terminations": np.zeros(4, bool),
        "starts": np.zeros((1, 3), np.float32),
        **changes,
    }


def with_value(kind: Callable[..., dict[str, Any]], name: str, at: Any, value: Any) -> Any:
    arrays = kind()
    arrays[name] = arrays[name].astype(type(value)) if np.isnan(value) else arrays[name].copy()
    arrays[name][at] = value
    return arrays


MALFORMED: list[tuple[str, dict[str, Any]]] = [
    ("4 observations, 3 actions", finite(actions=np.zeros(3, int))),
    ("4 observations, 5 rewards", finite(rewards=np.zeros(5))),
    ("4 observations, 3 next_observations", finite(next_observations=np.zeros(3, int))),
    ("4 observations, 1 terminations", finite(terminations=np.array([True]))),
    ("4 observations, 2 actions", vectors(actions=np.zeros((2, 2)))),
    ("observations must not be empty", finite(observations=np.zeros(0, int))),
    ("observations must not be empty", finite(observations=[])),
    (
        r"floats with d >= 1, got float32 of shape \(4, 0\)",
        vectors(observations=np.zeros((4, 0), "f")),
    ),
    ("use observations.* whole numbers", finite(observations=np.array([0.0, 1.0, 2.0, 0.0]))),
    ("use observations.astype", finite(observations=np.zeros((4, 2), int))),
    ("use observations.reshape", vectors(observations=np.zeros((4, 3, 2)))),
    ("got bool of shape", finite(observations=np.zeros(4, bool))),
    ("got object of shape", finite(observations=np.array([None] * 4))),
    ("got <U1 of shape", finite(observations=np.array(list("abcd")))),
    ("got complex128 of shape", vectors(observations=np.zeros((4, 3), complex))),
    ("observations must be an array with a row per", finite(observations=7)),
    ("observations must be an array", finite(observations=[[1.0], [1.0, 2.0]])),
    ("must not be masked", finite(rewards=np.ma.masked_invalid([1.0, np.nan, 0.0, 0.0]))),
    ("actions must be whole numbers when observations are", finite(actions=np.zeros((4, 1)))),
    ("actions must be whole numbers when observations are", finite(actions=np.zeros(4))),
    ("use actions", vectors(actions=np.zeros(4))),
    ("use actions.astype", vectors(actions=np.zeros((4, 1), int))),
    ("actions must be .* got bool", finite(actions=np.zeros(4, bool))),
    ("rewards must be .* numbers, got bool", finite(rewards=np.zeros(4, bool))),
    (r"rewards must be .* shape \(4, 1\)", finite(rewards=np.zeros((4, 1)))),
    ("rewards must be .* numbers, got <U4", finite(rewards=["good"] * 4)),
    (r"use terminations.astype\(bool\)", finite(terminations=np.zeros(4, int))),
    ("terminations must be .* booleans", finite(terminations=np.zeros((4, 1), bool))),
    ("starts must not be empty", finite(starts=np.zeros(0, int))),
    ("starts must not be empty", vectors(starts=np.zeros((0, 3)))),
    ("starts must be an array of the observations at which", finite(starts=None)),
    ("starts must be like observations", finite(starts=np.zeros((1, 3)))),
    ("starts must be like observations", vectors(starts=np.zeros((1, 2)))),
    ("starts must be .* got float64 of shape", vectors(starts=np.zeros(3))),
    ("next_observations must be like", vectors(next_observations=np.zeros((4, 2)))),
    ("next_observations must be like", finite(next_observations=np.zeros((4, 1)))),
    (r"observations\[2\] is -1", with_value(finite, "observations", 2, -1)),
    (r"next_observations\[0\] is -5", with_value(finite, "next_observations", 0, -5)),
    (r"starts\[1\] is -2", with_value(finite, "starts", 1, -2)),
    (r"actions\[3\] is -1", with_value(finite, "actions", 3, -1)),
    ("number them from 0 without gaps", with_value(finite, "observations", 1, 10**9)),
    ("number them from 0 without gaps", finite(starts=np.array([2**64 - 1], np.uint64))),
    (r"rewards\[1\] is nan", with_value(finite, "rewards", 1, np.nan)),
    (r"rewards\[0\] is -inf", with_value(finite, "rewards", 0, -np.inf)),
    (r"observations\[3, 1\] is nan", with_value(vectors, "observations", (3, 1), np.nan)),
    (r"next_observations\[0, 0\] is inf", with_value(vectors, "next_observations", (0, 0), np.inf)),
    (r"actions\[2, 1\] is nan", with_value(vectors, "actions", (2, 1), np.nan)),
    (r"starts\[0, 2\] is nan", with_value(vectors, "starts", (0, 2), np.nan)),
    (
        r"rewards must be from -1e\+150 to 1e\+150: rewards\[2\] is -1e\+155; scale them down",
        with_value(finite, "rewards", 2, -1e155),
    ),
    ("n_states must be a whole number >= 3, got 2", finite(n_states=2)),
    ("n_actions must be a whole number >= 2, got 1", finite(n_actions=1)),
    ("n_actions must be a whole number >= 2, got 2.5", finite(n_actions=2.5)),
    ("number them from 0 without gaps", finite(n_states=10**8)),
    ("n_states is for whole numbers", vectors(n_states=9)),
    ("n_actions is for whole numbers", vectors(n_actions=9)),
    ("first_state must be a whole number", finite(first_state=0.5)),
    ("low is for vectors", finite(low=-1.0)),
    ("high must be a finite number, or one for each of 2", vectors(high=[1.0, 2.0, 3.0])),
    ("low must be a finite number, or one for each of 2", vectors(low=-np.inf)),
]


@pytest.mark.parametrize(("message", "arrays"), MALFORMED)
def test_malformed_data_are_refused(message: str, arrays: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Dataset(**arrays)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_bad_numbers_are_found_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place in data of many pieces."""
    monkeypatch.setattr("mvpi.offline.dataset._PIECE", 7)
    for row in range(20):
        rewards, states = np.zeros(20), np.zeros(20, int)
        rewards[row] = np.nan
        with pytest.raises(InputError, match=rf"rewards\[{row}\] is nan"):
            Dataset(states, states, rewards, states, np.zeros(20, bool), [0])
        bad = states.copy()
        bad[row] = -1
        with pytest.raises(InputError, match=rf"next_observations\[{row}\] is -1"):
            Dataset(states, states, np.zeros(20), bad, np.zeros(20, bool), [0])
        zeros, wide = np.zeros((20, 3)), np.zeros((20, 3))
        wide[row, 2] = np.inf
        with pytest.raises(InputError, match=rf"observations\[{row}, 2\] is inf"):
            Dataset(wide, zeros, np.zeros(20), zeros, np.zeros(20, bool), zeros[:1])


def test_what_comes_after_a_termination_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither checked nor counted, and nowhere to be seen in what is read."""
    monkeypatch.setattr("mvpi.offline.dataset._PIECE", 3)
    over = np.array([False, True, True, False])
    for garbage in (-1, 10**12, np.iinfo(np.int64).min):
        data = Dataset(**finite(next_observations=[1, garbage, garbage, 0], terminations=over))
        assert data.n_states == 3
        np.testing.assert_array_equal(
            data.batch([[3, 2], [1, 0]]).next_observations, [[0, 2], [1, 1]]
        )
        np.testing.assert_array_equal(data.following(slice(1, 3)), [1, 2])
        with pytest.raises(InputError, match=r"next_observations\[0\] is -7"):
            Dataset(**finite(next_observations=[-7, garbage, garbage, 0], terminations=over))
    following = vectors()["next_observations"]
    following[over] = np.nan
    data = Dataset(**vectors(next_observations=following, terminations=over))
    seen = data.batch([2, 3]).next_observations
    np.testing.assert_array_equal(seen, [data.observations[2], following[3]])
    assert np.isnan(data.next_observations[over]).all()  # the file, if it is one, is as it was


def test_ratios_do_not_depend_on_what_comes_after_a_termination() -> None:
    over = np.array([True, False, False, True])
    columns = [finite(terminations=over, next_observations=[x, 2, 0, x]) for x in (0, -1)]
    ratios = [density_ratio(Dataset(**x), np.full((3, 2), 0.5), 0.9, "exact") for x in columns]
    np.testing.assert_array_equal(*ratios)


def test_the_environment_may_have_more_than_the_data() -> None:
    columns = {name: np.tile(column, 10) for name, column in finite().items()}
    data = Dataset(**columns, n_states=5, n_actions=4, first_state=-1, first_action=7)
    assert (data.n_states, data.n_actions) == (5, 4)
    assert (data.first_state, data.first_action) == (-1, 7)
    assert learn_finite(data, 0.0, 0.9).shape == (5, 4)
    bounded = Dataset(**vectors(low=-9, high=[8, 9]))
    np.testing.assert_array_equal([bounded.low, bounded.high], [[-9, -9], [8, 9]])


def test_what_is_read_is_what_was_given() -> None:
    data = Dataset(**finite())
    assert (len(data), data.n_states, data.n_actions) == (4, 3, 2)
    batch = data.batch([3, 1])
    np.testing.assert_array_equal(batch.rewards, [0.5, 1.0])
    np.testing.assert_array_equal(batch.terminations, [True, False])
    continuous = Dataset(**vectors())
    assert (continuous.n_states, continuous.n_actions) == (None, None)
    assert continuous.batch(np.zeros((5, 2), int)).observations.shape == (5, 2, 3)
    choices = Dataset(**vectors(actions=np.array([0, 1, 2, 0])))
    assert (choices.n_states, choices.n_actions) == (None, 3)
    assert repr(choices) == "Dataset(4 transitions, observations of size 3, 3 actions, 1 start)"
    for indices in ([-1], [4], [0.0], [True]):
        with pytest.raises(InputError, match="indices must be"):
            data.batch(indices)


def test_arrays_are_neither_copied_nor_written_to() -> None:
    arrays = vectors()
    data = Dataset(**arrays)
    for name, array in arrays.items():
        kept = getattr(data, name)
        assert np.shares_memory(kept, array)
        with pytest.raises(ValueError, match="read-only"):
            kept[0] = 0
        array[0] = 0  # the user's own stays writeable


def test_rows_are_drawn_evenly_and_repeatably() -> None:
    data = Dataset(**finite(rewards=np.arange(4)))
    drawn = data.sample(np.random.default_rng(0), 40_000).rewards
    np.testing.assert_allclose(np.bincount(drawn) / 10_000, 1.0, atol=0.05)
    np.testing.assert_array_equal(drawn, data.sample(np.random.default_rng(0), 40_000).rewards)
    with pytest.raises(InputError, match="size must be a whole number >= 1"):
        data.sample(np.random.default_rng(0), 0)


def test_mapped_files_stay_files(tmp_path: Path) -> None:
    rows = 400_000
    mapped = {}
    for name, width in (("observations", 10), ("actions", 3), ("next_observations", 10)):
        shape = (rows, width)
        mapped[name] = np.memmap(tmp_path / name, np.float32, "w+", shape=shape)
    rewards = np.memmap(tmp_path / "rewards", np.float32, "w+", shape=(rows,))
    over = np.memmap(tmp_path / "terminations", np.bool_, "w+", shape=(rows,))
    tracemalloc.start()
    try:
        data = Dataset(**mapped, rewards=rewards, terminations=over, starts=np.zeros((1, 10)))
        data.sample(np.random.default_rng(0), 1_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4e6  # the files have 38 million bytes
    assert isinstance(data.observations, np.memmap)
    assert type(data.batch([0]).observations) is np.ndarray


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def agree(data: Dataset, seen: list[Any], starts: list[Any]) -> None:
    columns = [np.array(column) for column in zip(*seen, strict=True)]
    names = ("observations", "actions", "rewards", "next_observations", "terminations")
    for name, column in zip(names, columns, strict=True):
        np.testing.assert_array_equal(getattr(data, name), column, err_msg=name)
    np.testing.assert_array_equal(data.starts, np.array(starts))


@pytest.mark.parametrize(
    ("task", "options", "steps"),
    [
        ("mvpi/FourState-v0", {"horizon": 30}, 100),
        ("mvpi/Markowitz-v0", {"horizon": 25}, 100),
        ("mvpi/Liquidity-v0", {"horizon": 7}, 50),
        ("Hopper-v5", {}, 150),
    ],
)
def test_minari_data_are_what_happened(here: Path, task: str, options: Any, steps: int) -> None:
    dataset, seen, starts = collected(gym.make(task, **options), "test/data-v0", steps)
    data = Dataset.from_minari(dataset)
    agree(data, seen, starts)
    assert data.terminations.any() == (task in ("mvpi/Liquidity-v0", "Hopper-v5"))
    agree(Dataset.from_minari("test/data-v0"), seen, starts)
    some = dataset.filter_episodes(lambda episode: episode.id == 1)
    assert len(Dataset.from_minari(some)) == some.total_steps < steps


class Odd(gym.Env[Any, Any]):
    """Random observations from any space."""

    def __init__(self, seen: gym.Space[Any], done: gym.Space[Any]) -> None:
        self.observation_space, self.action_space = seen, done
        self.spec = gym.spec("mvpi/FourState-v0")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 1.0, False, False, {}


def test_numbers_of_states_and_actions_begin_at_0(here: Path) -> None:
    spaces = gym.spaces.Discrete(3, start=-1), gym.spaces.Discrete(2, start=5)
    dataset, seen, _ = collected(Odd(*spaces), "odd-v0", 50)
    data = Dataset.from_minari(dataset)
    np.testing.assert_array_equal(data.observations, [s + 1 for s, *_ in seen])
    np.testing.assert_array_equal(data.actions, [a - 5 for _, a, *_ in seen])
    assert (data.n_states, data.n_actions) == (3, 2)
    assert (data.first_state, data.first_action) == (-1, 5)


def test_sizes_and_bounds_are_those_of_the_spaces(here: Path) -> None:
    spaces = gym.spaces.Discrete(90), gym.spaces.Discrete(60)
    data = Dataset.from_minari(collected(Odd(*spaces), "odd-v0", 20)[0])
    assert (data.n_states, data.n_actions) == (90, 60)
    for high in (3.0, np.inf):
        low = np.array([-2.0, -1.0], np.float32)
        box = gym.spaces.Box(low, np.array([2.0, high], np.float32))
        dataset, *_ = collected(Odd(BOX, box), f"box-{high:g}-v0", 20)
        data = Dataset.from_minari(dataset)
        learner = TD3BC(data, 1.0, 0.9)
        if high == 3.0:
            np.testing.assert_array_equal(learner.box.low, [-2.0, -1.0])
            np.testing.assert_array_equal(learner.box.high, [2.0, 3.0])
            other = TD3BC(data, 1.0, 0.9, low=-5.0)
            np.testing.assert_array_equal([other.box.low, other.box.high], [[-5, -5], [2, 3]])
        else:
            assert (data.low, data.high) == (None, None)
            np.testing.assert_array_equal(learner.box.high, data.actions.max(axis=0))


BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


@pytest.mark.parametrize(
    ("seen", "done", "message"),
    [
        (gym.spaces.Dict({"x": BOX}), BOX, "Dict.*gymnasium.wrappers.FlattenObservation"),
        (gym.spaces.Box(0.0, 1.0, (2, 2)), BOX, "observations must be a flat Box or Discrete"),
        (BOX, gym.spaces.MultiDiscrete([2, 2]), "actions must be a flat Box or Discrete"),
        (gym.spaces.Discrete(2), BOX, "give the states as one-hot vectors"),
    ],
)
def test_spaces_that_do_not_fit_are_told(here: Path, seen: Any, done: Any, message: str) -> None:
    dataset, *_ = collected(Odd(seen, done), "odd-v0", 5)
    with pytest.raises(InputError, match=message):
        Dataset.from_minari(dataset)


@pytest.mark.parametrize("wrong", ["none/such-v0", "no version", "", 7])
def test_missing_minari_data_are_told(here: Path, wrong: Any) -> None:
    with pytest.raises(InputError, match=r"Minari") as caught:
        Dataset.from_minari(wrong)
    assert "\n" not in str(caught.value)


class Watched(gym.Wrapper[Any, Any, Any, Any]):
    """Remembers the transitions of one environment, as TD3 stores them."""

    seen: list[Any]
    starts: list[Any]

    def reset(self, **options: Any) -> Any:
        s, info = self.env.reset(**options)
        self.now = s
        self.starts.append((len(self.seen), s))
        return s, info

    def step(self, action: Any) -> Any:
        following, r, terminated, *rest = self.env.step(action)
        self.seen.append((self.now, action, r, following, terminated))
        self.now = following
        return following, r, terminated, *rest


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., tuple[Path, type[Watched]]]]:
    def train(steps: int, buffer_size: int, checkpoint_every: int) -> tuple[Path, type[Watched]]:
        made: list[type[Watched]] = []

        def make() -> gym.Env[Any, Any]:
            class Mine(Watched):
                seen: list[Any] = []
                starts: list[Any] = []

            made.append(Mine)
            return Mine(gym.make("InvertedPendulum-v5", max_episode_steps=8))

        settings = {"hidden": (8,), "learning_starts": 10_000, "evaluation_episodes": 1}
        agent = mvpi.TD3(
            make, buffer_size=buffer_size, checkpoint_every=checkpoint_every, **settings
        )
        agent.learn(steps, out=tmp_path / "run")
        return tmp_path / "run", next(kind for kind in made if len(kind.seen) == steps)

    return train


@pytest.mark.parametrize("buffer_size", [400, 97])
def test_the_replay_of_a_run_is_what_happened(run: Any, buffer_size: int) -> None:
    """At the last checkpoint; rows of a full ring that were overwritten later are put back."""
    directory, happened = run(200, buffer_size, 60)
    files = {path: path.read_bytes() for path in directory.iterdir()}
    data = Dataset.from_run(directory)
    assert {path: path.read_bytes() for path in directory.iterdir()} == files
    _, record = read_arrays(directory / "checkpoint.safetensors", "checkpoint")
    count = record["steps"]
    journals = [path.name for path in directory.glob("replaced-*")]
    replaced = buffer_size < len(happened.seen) != count
    assert journals == [f"replaced-{count}.journal"] * replaced
    place = np.arange(count)[-buffer_size:]
    place = place[np.argsort(place % buffer_size)]
    assert len(data) == len(place) >= min(buffer_size, 120)
    columns = zip(*(happened.seen[i] for i in place), strict=True)
    for name, column in zip(vectors(), columns, strict=False):
        np.testing.assert_allclose(getattr(data, name), np.array(column), rtol=1e-6, err_msg=name)
    oldest = place.min()
    known = {n: s for n, s in happened.starts if n > oldest or (n == oldest == 0)}
    expected = [known[i] for i in place if i in known]
    np.testing.assert_allclose(data.starts, expected, rtol=1e-6)


def test_nobody_trains_while_the_replay_is_in_use(run: Any) -> None:
    directory, _ = run(100, 200, 50)
    data, other = Dataset.from_run(directory), Dataset.from_run(directory)
    np.testing.assert_array_equal([data.low, data.high], [[-3.0], [3.0]])
    seen = other.observations
    with (directory / ".lock").open() as file:
        assert not lock(file)
        del data
        assert not lock(file)
        del other
        assert not lock(file)
        del seen
        assert lock(file)


def test_directories_without_a_replay_are_told(run: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a directory"):
        Dataset.from_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match="does not exist"):
        Dataset.from_run(tmp_path)
    directory, _ = run(100, 200, 50)
    replay = (directory / "replay.rows").read_bytes()
    (directory / "replay.rows").write_bytes(replay[:-4])
    with pytest.raises(InputError, match=r"replay\.rows is missing or has another size"):
        Dataset.from_run(directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"algorithm": "ppo"}))
    with pytest.raises(InputError, match="a run of 'ppo', which keeps no replay"):
        Dataset.from_run(directory)
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "checkpoint.safetensors").unlink()
    with pytest.raises(InputError, match="has no checkpoint yet"):
        Dataset.from_run(directory)


# Files.


FACTS = {"n_states": 7, "n_actions": 3, "first_state": -2, "first_action": 1}


@pytest.mark.parametrize(
    "columns", [finite(), vectors(), finite(**FACTS), vectors(low=-9.0, high=[8.0, 9.0])]
)
def test_files_hold_everything(tmp_path: Path, columns: dict[str, Any]) -> None:
    data = Dataset(**columns)
    data.save(tmp_path / "data.npz")
    again = Dataset.load(tmp_path / "data.npz")
    assert again.fingerprint() == data.fingerprint()
    for name in (*finite(), *FACTS, "low", "high"):
        ours, theirs = getattr(again, name), getattr(data, name)
        np.testing.assert_array_equal(ours, theirs)
        assert type(ours) is type(theirs)
        assert getattr(ours, "dtype", None) == getattr(theirs, "dtype", None)


def test_fingerprints_tell_data_apart() -> None:
    changes = [{}, {"rewards": np.array([0.0, 1.0, -1.0, 0.6])}, {"starts": np.array([0])}]
    assert len({Dataset(**finite(**change)).fingerprint() for change in changes}) == 3


def test_files_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    with pytest.raises(InputError, match="does not exist"):
        Dataset.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"not an \.npz file; write one with Dataset\.save"):
        Dataset.load(path)
    np.savez(path, **{k: v for k, v in finite().items() if k != "starts"})
    with pytest.raises(InputError, match="the array 'starts' is missing"):
        Dataset.load(path)
    np.savez(path, **finite(), more=np.zeros(1))
    with pytest.raises(InputError, match="unknown array 'more'"):
        Dataset.load(path)
    np.savez(path, **finite(rewards=np.array([0.0, np.nan, 0.0, 0.0])))
    with pytest.raises(InputError, match=r"data\.npz: rewards must be finite"):
        Dataset.load(path)
