"""Experiments on a Ray cluster of several nodes, which lose their lives one after the other."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.experiments import (
    PATIENCE,
    Gate,
    InBackground,
    at_the_gate,
    kill,
    parent,
    ppo,
    processes,
    reason,
    results,
    stamps,
    start_runner,
    td3,
    told,
    wait_for,
    workers,
)

from mvpi import InputError
from mvpi._storage.locks import lock
from mvpi.experiments import cluster as cluster_module
from mvpi.experiments.cluster import _DRIVER, LOCAL, RayRunner
from mvpi.experiments.local import LocalRunner
from mvpi.experiments.runner import LOCKED

# Ray's test cluster forks; other tests may have loaded JAX into this process by then.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork\\(\\) was called:RuntimeWarning")

MARK = "MVPI_TEST_CLUSTER"
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


class Nodes:
    """A head that runs nothing, and nodes with one CPU each."""

    def __init__(self, scratch: str, number: int, **head: Any) -> None:
        from ray.cluster_utils import Cluster

        head = {**NODE, "num_cpus": 0, "include_dashboard": False, "temp_dir": scratch, **head}
        head["_system_config"] = {"health_check_period_ms": 500}  # a lost node is noticed sooner
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        for _ in range(number):
            self._cluster.add_node(wait=False, **NODE)  # they start at the same time
        self._cluster.wait_for_nodes(PATIENCE)

    def add(self) -> None:
        self._cluster.add_node(**NODE)

    def lose(self, process: int) -> None:
        """Kill the node that this process of an experiment is on."""
        raylet = parent(parent(process))
        (node,) = (n for n in self._cluster.worker_nodes if _raylet(n) == raylet)
        self._cluster.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


def _raylet(node: Any) -> int:
    (process,) = node.all_processes["raylet"]
    return int(process.process.pid)


@contextmanager
def running(number: int, **head: Any) -> Iterator[Nodes]:
    """A cluster; in the end no process of it is left."""
    mark = uuid.uuid4().hex
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(MARK, mark)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        Path("/tmp/ray").mkdir(exist_ok=True)  # Ray writes there too, and does not make it
        nodes = Nodes(name, number, **head)
        yield nodes
        nodes.shutdown()
        wait_for(lambda: not processes(mark, "environ"), "all processes of the cluster to end")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several clusters may start at once on a slow machine."""
    monkeypatch.setattr(cluster_module, "_CONNECT", PATIENCE)


@pytest.fixture(scope="module")
def nodes(gate_directory: Path) -> Iterator[Nodes]:
    with running(2) as nodes:
        yield nodes


def boards(root: Path) -> list[Path]:
    """What drivers at work have put into the root."""
    return list(root.glob(".ray-*"))


# ---- a cluster ------------------------------------------------------------------------------


def test_the_outcomes_are_those_of_the_local_runner_bit_for_bit(
    tmp_path: Path, nodes: Nodes, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiments, broken = [td3(), ppo()], td3(environment="helpers.experiments:Broken-v0")
    runner = RayRunner(nodes.address)
    events = list(runner([*experiments, broken, td3()], tmp_path))
    assert told(events) == {
        **{e.name: ["running", "done"] for e in experiments},
        broken.name: ["running", "failed"],
    }
    assert "a wheel came off" in reason(events, broken, "failed")
    for experiment in experiments:
        assert results(tmp_path, experiment) == results(undisturbed, experiment)
    assert not boards(tmp_path)

    before = stamps(tmp_path)
    monkeypatch.setattr(cluster_module, "_driver", lambda _: pytest.fail("a driver was started"))
    assert told(list(runner(experiments, tmp_path))) == {e.name: ["done"] for e in experiments}
    assert stamps(tmp_path) == before


def check_all_is_done(
    work: InBackground, experiments: list[Any], runs: Path, undisturbed: Path
) -> None:
    """Each with the results of a run that nothing disturbed; no process is left."""
    assert told(work.end()) == {e.name: ["running", "done"] for e in experiments}
    for experiment in experiments:
        assert results(runs, experiment) == results(undisturbed, experiment)
    assert not workers(runs)


def test_a_lost_worker_and_a_lost_node_are_made_up_for(
    tmp_path: Path, nodes: Nodes, gate: Gate, undisturbed: Path
) -> None:
    """The task on that node is lost with it."""
    experiments = [td3(), ppo()]
    gate.close()
    work = InBackground(RayRunner(nodes.address), experiments, tmp_path)
    first, second = at_the_gate(gate, tmp_path, *experiments)
    kill(first)
    nodes.lose(second)
    nodes.add()
    at_the_gate(gate, tmp_path, *experiments, but=(first, second))
    gate.open()
    check_all_is_done(work, experiments, tmp_path, undisturbed)


@pytest.mark.slow
def test_lost_workers_tasks_and_nodes_are_made_up_for(
    tmp_path: Path, nodes: Nodes, gate: Gate, undisturbed: Path
) -> None:
    experiments = [td3(), ppo()]
    gate.close()
    work = InBackground(RayRunner(nodes.address), experiments, tmp_path)
    first, second = at_the_gate(gate, tmp_path, *experiments)
    kill(first)
    kill(parent(second))
    first, second = at_the_gate(gate, tmp_path, *experiments, but=(first, second))
    nodes.lose(first)
    nodes.add()
    at_the_gate(gate, tmp_path, *experiments, but=(first,))
    gate.open()
    check_all_is_done(work, experiments, tmp_path, undisturbed)


@pytest.mark.slow
def test_a_killed_runner_takes_its_tasks_along_and_the_next_goes_on(
    finished: Path, nodes: Nodes, gate: Gate, undisturbed: Path
) -> None:
    shutil.rmtree(finished / td3().name)
    before = stamps(finished / ppo().name)
    experiments = [ppo(), td3()]
    gate.close()
    runner = start_runner(nodes.address, finished, experiments)
    at_the_gate(gate, finished, td3())
    runner.kill()
    runner.wait()
    ends_with_its_runner(finished)
    gate.open()
    events = RayRunner(nodes.address)(experiments, finished)
    assert told(list(events)) == {ppo().name: ["done"], td3().name: ["running", "done"]}
    assert results(finished, td3()) == results(undisturbed, td3())
    assert stamps(finished / ppo().name) == before


def ends_with_its_runner(root: Path) -> None:
    wait_for(lambda: not td3().busy(root), "the training process to end")
    assert not workers(root)
    wait_for(lambda: not boards(root), "the driver to tidy up")
    assert td3().outcome(root) is None


def test_a_node_that_does_not_see_the_root_says_so(tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "elsewhere")
    state, words = cluster_module._run(td3().record(), elsewhere, f"{elsewhere}/.ray-1", 0)
    assert state == "failed"
    assert words.startswith(f"the node {os.uname().nodename} does not see {elsewhere};")
    assert not (tmp_path / "elsewhere").exists()


def test_a_task_starts_nothing_while_another_process_is_at_it(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: Any) -> None:
        raise PermissionError(13, "Permission denied", "here")

    monkeypatch.setattr(cluster_module.worker, "start", start)
    order = (td3().record(), str(finished), str(finished), 7)
    (finished / td3().name / "replay.rows").touch()  # something is left to do
    with (finished / td3().name / ".experiment").open("w") as file:
        assert lock(file)
        assert cluster_module._run(*order) == ("waiting", LOCKED)
    state, words = cluster_module._run(*order)
    assert state == "failed"
    assert words == "its process cannot be started: [Errno 13] Permission denied: 'here'"
    (finished / td3().name / "replay.rows").unlink()
    assert cluster_module._run(*order) == ("done", "")
    assert not (finished / "7").exists()  # it never began


def test_the_driver_submits_again_what_has_to_wait_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a Ray whose tasks are over at once."""
    answers = iter([("waiting", LOCKED), ("waiting", LOCKED), ("done", "")])
    tasks = iter(range(3))
    ray = SimpleNamespace(
        remote=lambda **_: lambda _: SimpleNamespace(remote=lambda *_: next(tasks)),
        wait=lambda tasks, **_: (tasks, []),
        get=lambda _: next(answers),
        exceptions=SimpleNamespace(RayError=RuntimeError),
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(cluster_module, "BUSY_WAIT", 0.1)
    monkeypatch.setattr(cluster_module, "_POLL", 0.05)
    news = io.StringIO()
    order = cluster_module._Order("", str(tmp_path), str(tmp_path), [td3().record()])
    cluster_module._watch(order, news)
    assert [json.loads(line) for line in news.getvalue().splitlines()] == [
        [0, "waiting", LOCKED],
        [0, "done", ""],
    ]


# ---- no cluster -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "seconds", "words"),
    [
        ("127.0.0.1:1", 3.0, "no answer within 3 seconds"),
        ("nonsense", PATIENCE, "Invalid address format: nonsense"),
    ],
)
def test_no_cluster_at_the_address(
    tmp_path: Path,
    address: str,
    seconds: float,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cluster_module, "_CONNECT", seconds)
    with pytest.raises(InputError) as caught:
        list(RayRunner(address)([td3()], tmp_path))
    assert str(caught.value).startswith(f"cannot connect to Ray at {address!r}: {words}; ")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")


def test_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"ray: pip install -c constraints.txt '\.\[ray\]'"):
        RayRunner()


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write to the directory .*/file: File exists"):
        list(RayRunner(LOCAL)([td3()], tmp_path / "file"))


# ---- takes longer ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_ray_of_our_own(
    tmp_path: Path,
    undisturbed: Path,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It is gone when the experiments are finished, and when its runner is killed."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    gate.close()
    runner = start_runner(LOCAL, tmp_path, [td3()])
    at_the_gate(gate, tmp_path, td3())
    runner.kill()
    runner.wait()
    wait_for(lambda: not processes(mark, "environ"), "all processes to end")
    gate.open()
    events = list(RayRunner(LOCAL)([td3(), ppo()], tmp_path))
    assert told(events) == {e.name: ["running", "done"] for e in (td3(), ppo())}
    for experiment in (td3(), ppo()):
        assert results(tmp_path, experiment) == results(undisturbed, experiment)
    wait_for(lambda: not processes(mark, "environ"), "all processes to end")
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file .*ray_client_server:ResourceWarning")  # Ray's own
def test_a_cluster_seen_from_outside(tmp_path: Path, undisturbed: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with running(1, ray_client_server_port=port):
        events = list(RayRunner(f"ray://127.0.0.1:{port}")([td3()], tmp_path))
    assert told(events) == {td3().name: ["running", "done"]}
    assert results(tmp_path, td3()) == results(undisturbed, td3())


@pytest.mark.slow
def test_closing_cancels_the_tasks(tmp_path: Path, nodes: Nodes, gate: Gate) -> None:
    gate.close()
    events = RayRunner(nodes.address)([td3()], tmp_path)
    assert next(events).state == "running"
    at_the_gate(gate, tmp_path, td3())
    events.close()  # type: ignore[attr-defined]
    ends_with_its_runner(tmp_path)


@pytest.mark.slow
def test_what_another_process_is_at_is_waited_for(tmp_path: Path, nodes: Nodes, gate: Gate) -> None:
    gate.close()
    first = InBackground(LocalRunner(1), [td3()], tmp_path)
    (process,) = at_the_gate(gate, tmp_path, td3())
    second = InBackground(RayRunner(nodes.address), [td3()], tmp_path)
    wait_for(lambda: second.events, "the second to wait")
    gate.open()
    assert told(first.end()) == {td3().name: ["running", "done"]}
    assert told(second.end()) == {td3().name: ["waiting", "done"]}
    assert gate.reached == {process}


@pytest.mark.slow
def test_a_killed_driver(tmp_path: Path, nodes: Nodes, gate: Gate, undisturbed: Path) -> None:
    gate.close()
    work = InBackground(RayRunner(nodes.address), [td3()], tmp_path)
    at_the_gate(gate, tmp_path, td3())
    (driver,) = (p for p in processes(_DRIVER, "cmdline") if parent(p) == os.getpid())
    kill(driver)
    with pytest.raises(InputError, match=r"lost the Ray cluster at .*; the same command goes on"):
        work.end()
    ends_with_its_runner(tmp_path)
    gate.open()
    assert told(list(RayRunner(nodes.address)([td3()], tmp_path))) == {
        td3().name: ["running", "done"]
    }
    assert results(tmp_path, td3()) == results(undisturbed, td3())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_everything_killed_at_random_times(tmp_path: Path, nodes: Nodes, seed: int) -> None:
    rng = random.Random(seed)
    experiments = [td3(i, steps=6_000) for i in range(4)]
    list(LocalRunner(2)(experiments, tmp_path / "undisturbed"))
    root = tmp_path / "killed"
    for _ in range(4):
        runner = start_runner(nodes.address, root, experiments)
        for _ in range(3):
            time.sleep(rng.uniform(0.0, 12.0))
            for process in workers(root).values():
                match rng.randrange(4):
                    case 0:
                        kill(process)
                    case 1:
                        kill(parent(process))
                    case 2:
                        nodes.lose(process)
                        nodes.add()
        runner.kill()
        runner.wait()
    done = told(list(RayRunner(nodes.address)(experiments, root)))
    assert {states[-1] for states in done.values()} == {"done"}
    for experiment in experiments:
        assert results(root, experiment) == results(tmp_path / "undisturbed", experiment)
