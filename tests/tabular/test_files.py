"""MDPs on disk: what is written is read back, and what is damaged is refused in one line."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import random_problem

from mvpi import MDP, InputError


def equal(a: MDP, b: MDP) -> bool:
    return (
        (a.n_states, a.n_actions, a.discount) == (b.n_states, b.n_actions, b.discount)
        and np.array_equal(a.transitions.indptr, b.transitions.indptr)
        and np.array_equal(a.transitions.indices, b.transitions.indices)
        and np.allclose(a.transitions.data, b.transitions.data, rtol=1e-15, atol=0)
        and np.array_equal(a.rewards, b.rewards)
        and np.allclose(a.start, b.start, rtol=1e-15, atol=0)
    )


def example() -> MDP:
    return random_problem(0, 3, 2, 0.9, next_state=True, zeros=0.3).mdp()


@pytest.mark.parametrize("discount", [0.5, 1.0])
@pytest.mark.parametrize("next_state", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_round_trip(tmp_path: Path, discount: float, next_state: bool, sparse: bool) -> None:
    problem = random_problem(1, 4, 3, discount, next_state=next_state, zeros=0.4)
    mdp = problem.mdp(sparse)
    mdp.save(tmp_path / "m.npz")
    loaded = MDP.load(tmp_path / "m.npz")
    assert equal(mdp, loaded)
    assert loaded.transitions.indices.dtype == mdp.transitions.indices.dtype
    assert [file.name for file in tmp_path.iterdir()] == ["m.npz"]


def test_round_trip_of_a_gymnasium_environment(tmp_path: Path) -> None:
    mdp = MDP.from_gymnasium("FrozenLake-v1")
    path = str(tmp_path / "lake.npz")
    mdp.save(path)
    assert equal(mdp, MDP.load(path))


def test_saving_replaces_a_file_and_can_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    path.write_text("something old")
    mdp = example()
    mdp.save(path)
    first = path.read_bytes()
    MDP.load(path).save(path)
    assert equal(mdp, MDP.load(path))
    assert len(path.read_bytes()) == len(first)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "m.npz"
    example().save(path)
    before = path.read_bytes()

    def fail(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        example().save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["m.npz"]


@pytest.mark.parametrize("next_state", [False, True])
@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_plain_arrays(tmp_path: Path, next_state: bool, write: Callable[..., None]) -> None:
    problem = random_problem(2, 3, 2, 0.99, next_state=next_state)
    path = tmp_path / "plain.npz"
    write(path, transitions=problem.p, rewards=problem.r)
    assert equal(MDP.load(path), MDP(problem.p, problem.r, 0.99))
    write(path, transitions=problem.p, rewards=problem.r, discount=0.5, start=problem.start)
    assert equal(MDP.load(path), MDP(problem.p, problem.r, 0.5, problem.start))
    write(path, transitions=problem.p, rewards=problem.r, start=1)
    assert equal(MDP.load(path), MDP(problem.p, problem.r, start=1))


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def arrays(**changes: Any) -> dict[str, Any]:
    """What `MDP.save` writes, with some arrays replaced, or left out when None."""
    mdp = example()
    stored = {
        "format": np.array("mvpi-mdp 1"),
        "indptr": mdp.transitions.indptr,
        "indices": mdp.transitions.indices,
        "probabilities": mdp.transitions.data,
        "rewards": mdp.rewards,
        "discount": np.array(mdp.discount),
        "start": mdp.start,
    }
    return {name: array for name, array in (stored | changes).items() if array is not None}


def write(**changes: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays(**changes))


def changed(name: str, index: int, value: Any, dtype: Any = None) -> Callable[[Path], None]:
    array = arrays()[name].astype(dtype or arrays()[name].dtype)
    array[index] = value
    return write(**{name: array})


def plain(**changes: Any) -> Callable[[Path], None]:
    """A file with a dense table."""
    p = np.full((2, 2, 2), 0.5)
    return lambda path: np.savez(path, **({"transitions": p, "rewards": np.eye(2)} | changes))


def truncated(share: float) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        example().save(path)
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])

    return make


def flipped(share: float) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        np.savez(path, **arrays(rewards=np.ones(5000)))
        content = bytearray(path.read_bytes())
        at = int(share * len(content))
        content[at : at + 4] = bytes(255 - byte for byte in content[at : at + 4])
        path.write_bytes(bytes(content))

    return make


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Trap(path.with_name("trap"))))


def npy(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.eye(3))


def object_array(name: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        trap = np.array([Trap(path.with_name("trap"))], dtype=object)
        np.savez(path, **arrays(**{name: trap}))

    return make


def raw_member(name: str) -> Callable[[Path], None]:
    """A zip member that is not an array."""

    def make(path: Path) -> None:
        np.savez(path, **arrays(**{name: None}))
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(f"{name}.npy", "0.9")

    return make


MALFORMED: dict[str, Callable[[Path], Any]] = {
    "missing": Path.exists,
    "directory": Path.mkdir,
    "text": lambda path: path.write_text("states: 3\n"),
    "empty": Path.touch,
    "an .npy": npy,
    "empty archive": np.savez,
    "pickle": pickled,
    "object array": object_array("rewards"),
    "object format": object_array("format"),
    "no rewards": write(rewards=None),
    "no indptr": write(indptr=None),
    "no indices": write(indices=None),
    "no probabilities": write(probabilities=None),
    "no start for rewards per transition": write(start=None),
    "unknown array": write(reward=np.eye(2)),
    "text rewards": write(rewards=np.array(["a", "b"])),
    "complex rewards": write(rewards=example().rewards.astype(complex) * 1j),
    "rewards of a wrong shape": write(rewards=np.ones(5)),
    "rewards of three dimensions": write(rewards=np.ones((3, 2, 3))),
    "nan reward": changed("rewards", 0, np.nan),
    "float indptr": write(indptr=arrays()["indptr"].astype(float)),
    "two-dimensional indices": write(indices=arrays()["indices"][None]),
    "whole probabilities": write(probabilities=np.ones(len(arrays()["indices"]), int)),
    "too few probabilities": write(probabilities=np.ones(3)),
    "empty indptr": write(indptr=np.zeros(0, int)),
    "indptr of one row": write(indptr=np.array([0])),
    "indptr too short": write(indptr=arrays()["indptr"][:-1]),
    "indptr not from 0": changed("indptr", 0, 1),
    "indptr falls": changed("indptr", 1, 100),
    "unsigned indptr falls": changed("indptr", 1, 7, np.uint64),
    "index too large": changed("indices", 0, 3),
    "index huge": changed("indices", 0, 2**40, np.int64),
    "negative index": changed("indices", 0, -1),
    "negative probability": changed("probabilities", 0, -0.1),
    "probabilities of a sum of 2": changed("probabilities", 0, 2.0),
    "future version": write(format=np.array("mvpi-mdp 3")),
    "foreign format": write(format=np.array("other-mdp 1")),
    "format without version": write(format=np.array("mvpi-mdp")),
    "format of a superscript version": write(format=np.array("mvpi-mdp \u00b2")),
    "format of numbers": write(format=np.arange(3)),
    "discount array": write(discount=np.array([0.9, 0.9])),
    "discount text": write(discount=np.array("high")),
    "discount too large": write(discount=np.array(1.5)),
    "discount nan": write(discount=np.array(np.nan)),
    "start of a wrong shape": write(start=np.ones(7) / 7, rewards=np.ones((3, 2))),
    "start not a distribution": write(start=np.ones(3)),
    "discount not an array": raw_member("discount"),
    "indptr not an array": raw_member("indptr"),
    "rewards not an array": raw_member("rewards"),
    "format not an array": raw_member("format"),
    "allowed of another shape": write(allowed=np.ones((2, 3), bool)),
    "allowed of numbers": write(allowed=np.ones((3, 2))),
    "state without an action": write(allowed=np.zeros((3, 2), bool)),
    "too few labels": write(state_labels=np.array(["a", "b"])),
    "labels twice": write(state_labels=np.array(["a", "b", "a"])),
    "labels of objects": write(action_labels=np.array([1j, 2j])),
    "labels that are no JSON": write(action_labels=np.array("['a', 'b']")),
    "labels that are no list": write(action_labels=np.array('{"a": "b"}')),
    "labels that are lists of dicts": write(action_labels=np.array('[{"a": 1}, {"b": 2}]')),
    "labels nested without end": write(action_labels=np.array("[" * 100_000)),
    "labels not finite": write(state_labels=np.array("[NaN, 1, 2]")),
    "labels of bytes": write(action_labels=np.array(b"\xff")),
    "dense of two dimensions": plain(transitions=np.eye(2)),
    "dense of the wrong order": plain(transitions=np.full((3, 2, 2), 0.5)),
    "dense without states": plain(transitions=np.zeros((0, 0, 0))),
    "dense rows that do not sum to 1": plain(transitions=np.ones((2, 2, 2))),
    "dense of complex numbers": plain(transitions=np.full((2, 2, 2), 0.5 + 1j)),
    **{f"truncated at {share}": truncated(share) for share in (0.01, 0.3, 0.6, 0.9, 0.99, 0.999)},
    **{f"flipped at {share}": flipped(share) for share in (0.3, 0.5, 0.7)},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.npz"
    MALFORMED[name](path)
    with pytest.raises(InputError) as caught:
        MDP.load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message
    assert not (tmp_path / "trap").exists()


def test_the_trap_of_these_tests_works(tmp_path: Path) -> None:
    object_array("rewards")(tmp_path / "model.npz")
    with np.load(tmp_path / "model.npz", allow_pickle=True) as archive:
        archive["rewards"]
    assert (tmp_path / "trap").exists()


def test_a_negative_index_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    changed("indices", 0, -1)(path)
    with pytest.raises(InputError, match="got -1"):
        MDP.load(path)


def test_any_damaged_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    mdp = example()
    mdp.save(path)
    content = path.read_bytes()
    for at in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[at] ^= 0xFF
        path.write_bytes(bytes(damaged))
        loaded, message = attempt(path)
        if loaded is None:
            assert "\n" not in message, f"byte {at}: {message!r}"
            assert str(path) in message, f"byte {at}: {message!r}"
        else:
            assert equal(loaded, mdp), f"byte {at}"


def attempt(path: Path) -> tuple[MDP | None, str]:
    try:
        return MDP.load(path), ""
    except InputError as error:
        return None, str(error)


def test_files_by_hand_may_have_labels_and_a_mask(tmp_path: Path) -> None:
    p = np.full((2, 2, 2), 0.5)
    p[0, 1] = 0.0
    allowed = np.array([[True, False], [True, True]])
    labels = {"state_labels": np.array(["shop", "home"]), "action_labels": np.array([5, 7])}
    np.savez(tmp_path / "m.npz", transitions=p, rewards=np.eye(2), allowed=allowed, **labels)
    mdp = MDP.load(tmp_path / "m.npz")
    assert mdp.state_labels == ("shop", "home")
    assert mdp.action_labels == (5, 7)
    np.testing.assert_array_equal(mdp.allowed, allowed)


def test_files_without_labels_and_masks_are_of_version_1(tmp_path: Path) -> None:
    """So that earlier versions read them."""
    path = tmp_path / "m.npz"
    example().save(path)
    with np.load(path) as file:
        assert str(file["format"]) == "mvpi-mdp 1"
        assert set(file) == set(arrays())
    MDP.from_rows(example().transitions, example().rewards, state_labels=list("abc")).save(path)
    with np.load(path) as file:
        assert str(file["format"]) == "mvpi-mdp 2"
        assert file["state_labels"].item() == b'["a","b","c"]'
