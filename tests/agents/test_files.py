"""Hostile and damaged files of agents: refused in one line, and nothing in them runs."""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import struct
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.examples import examples
from helpers.victims import (
    Case,
    Death,
    files_left_open,
    in_time,
    options,
    refused_in_one_line,
    results,
    run,
    snapshot,
    status_of,
)
from hypothesis import given
from hypothesis import strategies as st

import mvpi
from mvpi import InputError, cli
from mvpi._storage.arrays import read_arrays, write_arrays
from mvpi.agents.agent import Agent
from mvpi.agents.policy import Deterministic
from mvpi.errors import ResumeWarning
from mvpi.rollout.spaces import BoxActions, FlatObservations, Spaces

Make = Callable[[Path], Any]


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def record(**changes: Any) -> dict[str, Any]:
    """What a policy file says of itself; a change to None leaves an entry out."""
    facts = {
        "format": 1,
        "kind": "policy",
        "sizes": [1, 3, 2],
        "algorithm": "td3",
        "environment": {"id": "mvpi/Markowitz-v0", "action_noise": 0.0},
        "risk": "1.0",
        "seed": 0,
        "settings": {"gamma": 0.9},
        "steps": 10,
    }
    return {name: value for name, value in (facts | changes).items() if value is not None}


def arrays(**changes: Any) -> dict[str, Any]:
    names = {name.replace("_", "."): array for name, array in changes.items()}
    rng = np.random.default_rng(0)
    stored = {
        "low": np.array([-1.0, -0.5], np.float32),
        "high": np.array([1.0, 2.0], np.float32),
        "weight.0": rng.standard_normal((1, 3)).astype(np.float32),
        "bias.0": rng.standard_normal(3).astype(np.float32),
        "weight.1": rng.standard_normal((3, 2)).astype(np.float32),
        "bias.1": rng.standard_normal(2).astype(np.float32),
    }
    return {name: array for name, array in (stored | names).items() if array is not None}


def policy(facts: dict[str, Any] | None = None, **changes: Any) -> Make:
    """A policy file with other facts or arrays."""
    return lambda path: write_arrays(path, "policy", arrays(**changes), facts or record())


def raw(header: Any, body: bytes = b"", length: int | None = None) -> Make:
    """A safetensors file by hand."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    return lambda path: path.write_bytes(struct.pack("<Q", size) + text + body)


def tensor(dtype: str, shape: list[int], *offsets: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


def header(facts: Any = None, **tensors: Any) -> dict[str, Any]:
    text = facts if isinstance(facts, str) else json.dumps(facts or record())
    return {"__metadata__": {"mvpi": text}, **tensors}


def typed(dtype: str, size: int) -> Make:
    """`low` of another type."""
    return raw(header(low=tensor(dtype, [2], 0, size)), bytes(size))


def torch_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Trap(path.with_name("trap"))))
        archive.writestr("archive/version", "3\n")


def npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, a=np.eye(2))


def sparse(size: int) -> Make:
    def make(path: Path) -> None:
        path.touch()
        os.truncate(path, size)

    return make


DEEP = b'{"__metadata__":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
NAN = np.full((1, 3), np.nan, np.float32)

MALFORMED: dict[str, Make] = {
    "missing": Path.exists,
    "empty": Path.touch,
    "directory in place of the policy": lambda path: (path / "policy.safetensors").mkdir(
        parents=True
    ),
    "empty directory": Path.mkdir,
    "text": lambda path: path.write_text("a policy\n"),
    "seven bytes": lambda path: path.write_bytes(b"1234567"),
    "eight zeros": lambda path: path.write_bytes(bytes(8)),
    "pickle": lambda path: path.write_bytes(pickle.dumps(Trap(path.with_name("trap")))),
    "torch": torch_zip,
    "npz": npz,
    "symbolic link to itself": lambda path: path.symlink_to(path),
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "fifo": os.mkfifo,
    "device without end": lambda path: path.symlink_to("/dev/zero"),
    "device without content": lambda path: path.symlink_to("/dev/null"),
    "random device": lambda path: path.symlink_to("/dev/urandom"),
    "huge length": raw(header(), length=2**64 - 1),
    "length past the end": raw(header(), length=10_000),
    "length too short": raw(header(), length=20),
    "length 0": raw(b"", length=0),
    "no header": raw(b""),
    "header of null": raw(b"null"),
    "header of a list": raw(b"[1, 2]"),
    "header of a number": raw(b"1e999"),
    "header of a huge number": raw(b"9" * 5_000),
    "deep header": raw(DEEP),
    "deep record": raw(header(facts="[" * 100_000 + "]" * 100_000)),
    "header not UTF-8": raw(b'{"\xff": 1}'),
    "no metadata": raw({}),
    "metadata of text": raw({"__metadata__": "mvpi"}),
    "metadata of others": raw({"__metadata__": {"format": "pt"}}),
    "record of a number": raw(header(facts="7")),
    "record of a list": raw(header(facts="[]")),
    "record of null": raw(header(facts="null")),
    "record of half JSON": raw(header(facts='{"format": 1')),
    "no format": policy(record(format="one")),
    "format true": policy(record(format=True)),
    "format 0": policy(record(format=0)),
    "format 1.5": policy(record(format=1.5)),
    "future format": policy(record(format=3)),
    "format of 4000 digits": policy(record(format=10**4_000)),
    "other kind": policy(record(kind="checkpoint")),
    "kind of a list": policy(record(kind=["policy"])),
    "long kind": policy(record(kind="x\n" * 10_000)),
    "tensor past the end": raw(header(low=tensor("F32", [2], 0, 8))),
    "tensor of negative offsets": raw(header(low=tensor("F32", [2], -8, 0)), bytes(8)),
    "tensor of reversed offsets": raw(header(low=tensor("F32", [2], 8, 0)), bytes(8)),
    "tensors that overlap": raw(
        header(low=tensor("F32", [2], 0, 8), high=tensor("F32", [2], 4, 12)), bytes(12)
    ),
    "tensors with a hole": raw(
        header(low=tensor("F32", [2], 0, 8), high=tensor("F32", [2], 12, 20)), bytes(20)
    ),
    "offsets of another shape": raw(header(low=tensor("F32", [3], 0, 8)), bytes(8)),
    "shape that overflows": raw(header(low=tensor("F32", [2**62, 4], 0, 8)), bytes(8)),
    "negative shape": raw(header(low=tensor("F32", [-2], 0, 8)), bytes(8)),
    "offsets beyond 64 bits": raw(header(low=tensor("F32", [2], 0, 2**70)), bytes(8)),
    "tensor without a type": raw(header(low={"shape": [2], "data_offsets": [0, 8]}), bytes(8)),
    "tensor of null": raw(header(low=None)),
    "bytes behind the tensors": lambda path: (
        policy()(path),
        path.write_bytes(path.read_bytes() + b"more"),
    ),
    **{
        f"low of {dtype}": typed(dtype, size)
        for dtype, size in {
            "BOOL": 2,
            "U8": 2,
            "I8": 2,
            "F16": 4,
            "BF16": 4,
            "F8_E4M3": 2,
            "F8_E5M2": 2,
            "F8_E8M0": 2,
            "F4": 1,
            "C64": 16,
            "F128": 32,
            "": 8,
            "f32": 8,
        }.items()
    },
    "no low": policy(low=None),
    "no weights": policy(weight_0=None),
    "no biases": policy(bias_1=None),
    "low above high": policy(low=np.array([3.0, 3.0], np.float32)),
    "low of another shape": policy(low=np.zeros(3, np.float32)),
    "nan low": policy(low=np.array([np.nan, 0.0], np.float32)),
    "infinite high": policy(high=np.array([np.inf, 1.0], np.float32)),
    "nan weights": policy(weight_0=NAN),
    "infinite weights": policy(weight_0=NAN * 0 + np.inf),
    "weights of another shape": policy(weight_0=np.zeros((3, 1), np.float32)),
    "weights beyond float32": policy(weight_0=np.full((1, 3), 1e300)),
    "bounds beyond float32": policy(high=np.array([1e300, 1e300])),
    "no sizes": policy(record(sizes=None)),
    "sizes of text": policy(record(sizes="1, 3, 2")),
    "negative sizes": policy(record(sizes=[1, -3, 2])),
    "sizes of 0": policy(record(sizes=[1, 0, 2])),
    "absurd sizes": policy(record(sizes=[1, 10**30, 2])),
    "float sizes": policy(record(sizes=[1.0, 3.0, 2.0])),
    "true sizes": policy(record(sizes=[True, 3, 2])),
    "one size": policy(record(sizes=[2])),
    "a million sizes": policy(record(sizes=[1] * 1_000_000)),
    "unknown algorithm": policy(record(algorithm="td4")),
    "algorithm of a list": policy(record(algorithm=["td3"])),
    "algorithm with a path": policy(record(algorithm="os:system")),
    "no algorithm": policy(record(algorithm=None)),
    "no risk": policy(record(risk=None)),
    "risk of a number": policy(record(risk=1.0)),
    "risk of text": policy(record(risk="bold")),
    "risk nan": policy(record(risk="nan")),
    "risk below 0": policy(record(risk="-1")),
    "risk of code": policy(record(risk="__import__('os').system('true')")),
    "no seed": policy(record(seed=None)),
    "negative seed": policy(record(seed=-1)),
    "seed of text": policy(record(seed="0")),
    "no steps": policy(record(steps=None)),
    "negative steps": policy(record(steps=-1)),
    "steps of a float": policy(record(steps=1.5)),
    "no settings": policy(record(settings=None)),
    "settings of a list": policy(record(settings=["gamma"])),
    "settings of a number": policy(record(settings=3)),
    "unknown setting": policy(record(settings={"gama": 0.9})),
    "setting out of range": policy(record(settings={"gamma": 1.5})),
    "setting of text": policy(record(settings={"gamma": "high"})),
    "setting of a list": policy(record(settings={"gamma": [0.9]})),
    "setting of 400 digits": policy(record(settings={"gamma": 10**400})),
    "settings that contradict": policy(record(settings={"train_freq": 3, "policy_delay": 2})),
    "hidden of text": policy(record(settings={"hidden": "88"})),
    "hidden of nothing": policy(record(settings={"hidden": []})),
    "hidden of lists": policy(record(settings={"hidden": [[8]]})),
    "environment of text": policy(record(environment="mvpi/Markowitz-v0")),
    "environment of a list": policy(record(environment=[1])),
    "no environment": policy(record(environment=None)),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_policies(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The library raises `InputError`, the command prints one line and exits with status 2."""
    path = tmp_path / "policy.safetensors"
    MALFORMED[name](path)
    refused_in_one_line(path)
    with pytest.raises(SystemExit) as exited:
        in_time(lambda: cli.main(["evaluate", str(path)]))
    assert exited.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mvpi: ")
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "trap").exists()


def test_the_file_of_these_tests_loads_when_nothing_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    policy()(path)
    agent = mvpi.load(path)
    assert agent.steps == 10
    assert is_valid(agent)


def test_the_trap_of_these_tests_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "trap")))
    assert (tmp_path / "trap").exists()


def test_a_file_larger_than_memory_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.safetensors"
    sparse(2**42)(path)
    with pytest.raises(SystemExit) as exited:
        cli.main(["evaluate", str(path)])
    assert exited.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def is_valid(agent: Agent[Any]) -> bool:
    """Whether it acts: inside the box of its policy, without NaN."""
    spaces = agent.policy.spaces
    box = spaces.actions
    assert isinstance(box, BoxActions)
    o = np.linspace(-2.0, 2.0, 5 * spaces.observations.size, dtype=np.float32).reshape(5, -1)
    actions = agent.predict(o)
    one = agent.predict(o[0])
    return bool(
        (actions >= box.low).all()
        and (actions <= box.high).all()
        and np.allclose(one, actions[0], rtol=1e-4, atol=1e-6)
    )


def attempt(path: Path) -> Agent[Any] | None:
    """The agent in a file, or None if it is refused, and that is told in one line."""
    message = f"{path}"
    agent = None
    try:
        agent = mvpi.load(path)
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert str(path) in message
    return agent


def test_a_policy_truncated_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    policy()(path)
    content = path.read_bytes()
    for end in range(len(content)):
        path.write_bytes(content[:end])
        assert attempt(path) is None, f"the first {end} bytes of {len(content)} load"


@examples(300)
@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1))
def test_a_policy_with_flipped_bytes(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[float, int]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped.safetensors"
    policy()(path)
    content = bytearray(path.read_bytes())
    for share, bits in flips:
        content[int(share * len(content))] ^= bits
    path.write_bytes(bytes(content))
    agent = attempt(path)
    if agent is not None:
        with warnings.catch_warnings():
            # Weights near the largest float may overflow; actions must stay in the box.
            warnings.simplefilter("ignore", RuntimeWarning)
            assert is_valid(agent)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@examples(200)
@given(st.sampled_from([*record(), "gamma", "hidden", "id", "action_noise"]), JSON)
def test_a_policy_with_any_fact_replaced(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "replaced.safetensors"
    facts: dict[str, Any] = record()
    if name in ("gamma", "hidden"):
        facts["settings"] = {name: value}
    elif name in ("id", "action_noise"):
        facts["environment"] = facts["environment"] | {name: value}
    else:
        facts[name] = value
    raw_policy = header(json.dumps(facts))
    at, body = 0, b""
    for key, array in arrays().items():
        data = array.tobytes()
        raw_policy[key] = tensor("F32", list(array.shape), at, at + len(data))
        at += len(data)
        body += data
    raw(raw_policy, body)(path)
    agent = attempt(path)
    if agent is not None:
        assert is_valid(agent)
        json.dumps(agent.config())


def test_names_that_are_paths_are_only_names(tmp_path: Path) -> None:
    path = tmp_path / "run" / "policy.safetensors"
    path.parent.mkdir()
    odd = {"../up": np.zeros(2), "/tmp/mvpi-absolute": np.zeros(2), "a/b": np.zeros(1)}
    write_arrays(path, "policy", arrays() | odd, record())
    assert is_valid(mvpi.load(path))
    assert [file.name for file in tmp_path.rglob("*")] == ["run", "policy.safetensors"]
    assert not Path("/tmp/mvpi-absolute").exists()


@pytest.mark.parametrize("prefix", ["evil_module_of_mvpi:", "evil_module_of_mvpi:mvpi/", "::", ":"])
@pytest.mark.parametrize("options", [[], ["--action-noise", "0.1"]])
def test_a_policy_cannot_import_a_module(
    tmp_path: Path,
    prefix: str,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "evil_module_of_mvpi.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "policy.safetensors"
    policy(record(environment={"id": f"{prefix}Markowitz-v0", "action_noise": 0.0}))(path)
    agent = mvpi.load(path)
    with pytest.raises(InputError, match="env must be given"):
        mvpi.evaluate(agent)
    with pytest.raises(SystemExit) as exited:
        cli.main(["evaluate", str(path), *options])
    assert exited.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not mark.exists()
    assert "evil_module_of_mvpi" not in sys.modules


@pytest.mark.parametrize(
    "environment",
    [
        {"id": "No/Such-v0"},
        {"id": ""},
        {"id": "x" * 10_000},
        {"id": "\x1b[31mred\n"},
        {"id": "mvpi/Markowitz-v0", "action_noise": "much"},
        {"id": "mvpi/Markowitz-v0", "action_noise": -1},
        {"id": "mvpi/Markowitz-v0", "action_noise": [1]},
        {"id": "mvpi/Markowitz-v0", "action_noise": 10**400},
        {"id": "mvpi/FourState-v0"},
        {"id": "CartPole-v1"},
        {"id": "Pendulum-v1"},
        {"id": 3},
        {"function": "os.system"},
        {},
    ],
)
def test_a_policy_for_an_environment_that_cannot_be(
    tmp_path: Path, environment: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.safetensors"
    policy(record(environment=environment))(path)
    with pytest.raises(SystemExit) as exited:
        cli.main(["evaluate", str(path)])
    assert exited.value.code == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "\x1b" not in captured.err


def test_a_policy_of_the_right_observations_and_other_actions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CartPole sees four numbers like InvertedPendulum, but wants a whole number."""
    path = tmp_path / "policy.safetensors"
    box = BoxActions(-np.ones(1, np.float32), np.ones(1, np.float32))
    plain = Deterministic(
        Spaces(FlatObservations(4), box), (np.ones((4, 1), np.float32),), (np.zeros(1, np.float32),)
    )
    facts = record(environment={"id": "InvertedPendulum-v5", "action_noise": 0.0})
    del facts["sizes"]
    plain.save(path, facts)
    with pytest.raises(SystemExit) as exited:
        cli.main(["evaluate", str(path), "--env", "CartPole-v1"])
    assert exited.value.code == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_other_ids_in_the_file_are_used_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    policy(record(environment={"id": "mvpi/Markowitz-v0", "action_noise": 0.3}))(path)
    result = mvpi.evaluate(mvpi.load(path), episodes=2)
    assert result.lengths.tolist() == [100, 100]


# ---- run directories ------------------------------------------------------------------------

CASE = Case(steps=300)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 300 steps that was killed at step 250, with a checkpoint at 200."""
    top = tmp_path_factory.mktemp("runs")
    assert snapshot(CASE, top / "given up", Death(("step",), 250), top / "killed")
    return top / "killed"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    run(CASE, out)
    return out


def resume(out: Path) -> bool:
    """Whether it resumed; if it did not, that it said so in one line."""
    message = ""
    with files_left_open():  # the subject of the next test
        try:
            in_time(lambda: CASE.agent().learn(CASE.steps, out), 60)
        except InputError as error:
            message = str(error)
    assert "\n" not in message
    assert len(message) < 2_000
    return message == ""


def test_a_checkpoint_that_is_refused_leaves_no_file_open(tmp_path: Path, killed: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(killed, out)
    DAMAGED_CHECKPOINTS["nan weights"](out / "checkpoint.safetensors")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(InputError):
            CASE.agent().learn(CASE.steps, out)
        gc.collect()
    assert [str(w.message) for w in seen if w.category is ResourceWarning] == []


def changed_record(change: Callable[[dict[str, Any]], Any]) -> Make:
    def make(path: Path) -> None:
        stored, facts = read_arrays(path, "checkpoint")
        change(facts)
        write_arrays(path, "checkpoint", stored, facts)

    return make


def fact(name: str, value: Any) -> Make:
    return changed_record(lambda facts: facts.update({name: value}))


def changed_arrays(change: Callable[[dict[str, Any]], Any]) -> Make:
    def make(path: Path) -> None:
        stored, facts = read_arrays(path, "checkpoint")
        change(stored)
        write_arrays(path, "checkpoint", stored, facts)

    return make


def world(**changes: Any) -> Make:
    return changed_record(lambda facts: facts["worlds"][0].update(changes))


def generator(**changes: Any) -> Make:
    return changed_record(lambda facts: facts["random"].update(changes))


WEIGHT = ".actor.weights[0]"

DAMAGED_CHECKPOINTS: dict[str, Make] = {
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a policy": policy(),
    "pickle": lambda path: path.write_bytes(pickle.dumps(Trap(path.with_name("trap")))),
    "directory": lambda path: (path.unlink(), path.mkdir()),
    "fifo": lambda path: (path.unlink(), os.mkfifo(path)),
    "device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "future format": fact("format", 3),
    **{
        f"no {name}": changed_record(lambda facts, name=name: facts.pop(name))
        for name in ("steps", "episodes", "y", "losses", "updates", "random", "worlds")
    },
    "steps of text": fact("steps", "many"),
    "negative steps": fact("steps", -5),
    "steps of null": fact("steps", None),
    "steps of a list": fact("steps", [200]),
    "absurd steps": fact("steps", 10**25),
    "steps of 400 digits": fact("steps", 10**400),
    "steps past the end": fact("steps", 10_000),
    "episodes of text": fact("episodes", "many"),
    "y of text": fact("y", "high"),
    "y of 400 digits": fact("y", 10**400),
    "losses of another length": fact("losses", [0.0] * 7),
    "losses of text": fact("losses", ["a", "b"]),
    "losses of a dictionary": fact("losses", {"a": 1}),
    "updates of text": fact("updates", "x"),
    "random of text": fact("random", "x"),
    "random of another generator": generator(bit_generator="MT19937"),
    "random with a negative state": generator(state={"state": -1, "inc": -1}),
    "random with a huge state": generator(state={"state": 2**200, "inc": 2**200}),
    "random with a state of text": generator(state={"state": "a", "inc": "b"}),
    "random with half a state": generator(state={"state": 3}),
    "worlds of text": fact("worlds", "x"),
    "no world in worlds": fact("worlds", []),
    "world without random": world(random=None),
    "world with random of numbers": world(random=[1, 2]),
    "world with another layer": world(random=[{"layer": 9, "name": "_np_random", "state": {}}]),
    "world with half a state": world(random=[{"layer": 2, "name": "_np_random", "state": {}}]),
    "nan weights": changed_arrays(lambda a: a.update({WEIGHT: a[WEIGHT] * np.nan})),
    "weights beyond float32": changed_arrays(
        lambda a: a.update({WEIGHT: a[WEIGHT] * 0 + np.float64(1e300)})
    ),
    "weights of another shape": changed_arrays(lambda a: a.update({WEIGHT: np.zeros((3, 3))})),
    "no weights": changed_arrays(lambda a: a.pop(WEIGHT)),
    "no window": changed_arrays(lambda a: a.pop("window")),
    "window too long": changed_arrays(lambda a: a.update(window=np.zeros(1_000))),
    "window too short": changed_arrays(lambda a: a.update(window=np.zeros(3))),
    "nan window": changed_arrays(lambda a: a.update(window=np.full(70, np.nan))),
    "window of two dimensions": changed_arrays(lambda a: a.update(window=np.zeros((7, 10)))),
}


@pytest.mark.parametrize("name", DAMAGED_CHECKPOINTS)
def test_damaged_checkpoints(tmp_path: Path, killed: Path, name: str) -> None:
    out = tmp_path / "run"
    shutil.copytree(killed, out)
    DAMAGED_CHECKPOINTS[name](out / "checkpoint.safetensors")
    assert not resume(out)
    assert not (out / "trap").exists()


def test_the_run_of_these_tests_resumes(tmp_path: Path, killed: Path, whole: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(killed, out)
    changed_record(dict)(out / "checkpoint.safetensors")
    assert resume(out)
    assert results(out) == results(whole)


@pytest.mark.slow
def test_a_checkpoint_with_flipped_bytes(tmp_path: Path, killed: Path) -> None:
    content = (killed / "checkpoint.safetensors").read_bytes()
    rng = np.random.default_rng(0)
    for i in range(300):
        out = tmp_path / f"{i}"
        shutil.copytree(killed, out)
        damaged = bytearray(content)
        # Most of the first half is the header.
        damaged[int(rng.integers(len(content) // (1 + i % 2)))] ^= int(rng.integers(1, 256))
        (out / "checkpoint.safetensors").write_bytes(bytes(damaged))
        assert not resume(out), i
        shutil.rmtree(out)


def test_a_checkpoint_truncated(tmp_path: Path, killed: Path) -> None:
    content = (killed / "checkpoint.safetensors").read_bytes()
    out = tmp_path / "run"
    shutil.copytree(killed, out)
    for end in range(0, len(content), 997):
        (out / "checkpoint.safetensors").write_bytes(content[:end])
        assert not resume(out), f"the first {end} bytes of {len(content)} are enough"


TEXT = json.dumps({"format": 1})

DAMAGED_CONFIGS: dict[str, Make] = {
    "empty": lambda path: path.write_text(""),
    "not JSON": lambda path: path.write_text("{"),
    "not UTF-8": lambda path: path.write_bytes(b'{"format": "\xff"}'),
    "a list": lambda path: path.write_text("[]"),
    "deep": lambda path: path.write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}"),
    "a huge number": lambda path: path.write_text('{"format": ' + "9" * 5_000 + "}"),
    "pickle": lambda path: path.write_bytes(pickle.dumps(Trap(path.with_name("trap")))),
    "only the format": lambda path: path.write_text(TEXT),
    "future format": lambda path: path.write_text(TEXT.replace("1", "3")),
    "format of text": lambda path: path.write_text(TEXT.replace("1", '"1"')),
    "directory": lambda path: (path.unlink(), path.mkdir()),
    "fifo": lambda path: (path.unlink(), os.mkfifo(path)),
    "device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "settings of a list": lambda path: path.write_text('{"format": 1, "settings": [1, 2]}'),
}


@pytest.mark.parametrize("name", DAMAGED_CONFIGS)
def test_damaged_configurations(tmp_path: Path, killed: Path, name: str) -> None:
    out = tmp_path / "run"
    shutil.copytree(killed, out)
    DAMAGED_CONFIGS[name](out / "config.json")
    assert not resume(out)
    assert not (out / "trap").exists()


DAMAGED_METRICS: dict[str, Make] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_text(""),
    "only a header": lambda path: path.write_text("steps,episodes\n"),
    "text": lambda path: path.write_text("some notes\nof mine\n"),
    "not UTF-8": lambda path: path.write_bytes(b"steps\n\xff\xfe\n"),
    "zeros": lambda path: path.write_bytes(bytes(1_000)),
    "a step of 5000 digits": lambda path: path.write_text("steps\n" + "9" * 5_000 + "\n"),
    "an odd digit": lambda path: path.write_text("steps\n\u0967\n"),
    "torn": lambda path: path.write_text(path.read_text()[:-5]),
    "more columns": lambda path: path.write_text(path.read_text() + "200,1,2,3" + ",4" * 20 + "\n"),
    "a row of words": lambda path: path.write_text("steps,y\nmany,high\n"),
    "directory": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("name", DAMAGED_METRICS)
def test_damaged_metrics(
    tmp_path: Path,
    killed: Path,
    whole: Path,
    name: str,
    finished: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same command again: it says in one line why not, or what is made again.

    That is possible where the rows that the checkpoint was written with are intact.
    """
    out = tmp_path / "run"
    shutil.copytree(whole if finished else killed, out)
    DAMAGED_METRICS[name](out / "metrics.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("default", ResumeWarning)
        status = status_of(["train", "td3", *options(out, CASE), "--json"])
    captured = capsys.readouterr()
    goes_on = name == "more columns" or (name == "torn" and finished)
    assert status == (0 if goes_on else 2)
    assert captured.err.count("\n") == (0 if goes_on and not finished else 1)
    if goes_on:
        assert json.loads(captured.out)["steps"] == CASE.steps
    before = (whole / "policy.safetensors").read_bytes()
    assert not finished or (out / "policy.safetensors").read_bytes() == before


@pytest.mark.parametrize("file", ["metrics.csv", ".lock"])
def test_a_fifo_among_the_files_of_a_run_does_not_hang(
    tmp_path: Path, killed: Path, file: str
) -> None:
    out = tmp_path / "run"
    shutil.copytree(killed, out)
    (out / file).unlink()
    os.mkfifo(out / file)
    with pytest.raises((InputError, OSError)):
        in_time(lambda: CASE.agent().learn(CASE.steps, out), 60)


def test_saving_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy.safetensors"
    policy()(path)
    before = path.read_bytes()
    agent = mvpi.load(path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        agent.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["policy.safetensors"]


def test_saved_and_loaded_acts_the_same(tmp_path: Path) -> None:
    agent = CASE.agent().learn(120)
    agent.save(tmp_path / "a.safetensors")
    loaded = mvpi.load(tmp_path / "a.safetensors")
    o = np.linspace(-3.0, 3.0, 31)[:, None]
    assert np.array_equal(agent.predict(o), loaded.predict(o))
    assert loaded.config() == agent.config()
    loaded.save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
