"""A cluster of three nodes on this machine, one of which dies while an algorithm trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
NODE = {"num_cpus": 1, "resources": {"runner": 1}, "object_store_memory": 80 * 2**20}
HEAD = {**NODE, "num_cpus": 3, "resources": {}, "include_dashboard": False}
BEFORE, AFTER = 3, 6


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head with the learner, and two nodes with an env runner each."""
    from ray.cluster_utils import Cluster

    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray").mkdir(parents=True, exist_ok=True)
        lost_soon = {"health_check_period_ms": 500, "health_check_failure_threshold": 3}
        head = {**HEAD, "temp_dir": name, "_system_config": lost_soon}
        nodes = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            nodes.add_node(**NODE)
        yield nodes
        nodes.shutdown()


@pytest.mark.parametrize(
    ("name", "risk"), [("ppo", "0.2"), ("impala", "0.2"), ("dqn", "0.2"), ("dqn", "return:0.2")]
)
def test_a_node_dies(name: str, risk: str, cluster: Any) -> None:
    """What RLlib counts as sampled is what `y` was measured on, before and after."""
    command = [str(Path(__file__).with_name("on_cluster.py")), cluster.address, name, risk]
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", *command, str(BEFORE + AFTER)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            places = facts(process, "runners")["runners"]
            assert len(set(places)) == 2
            rows = [facts(process, "y") for _ in range(BEFORE)]
            (node,) = (n for n in cluster.worker_nodes if n.node_id == places[0])
            cluster.remove_node(node, allow_graceful=False)
            rows += [facts(process, "y") for _ in range(AFTER)]
        finally:
            process.kill()
    assert rows[BEFORE - 1]["healthy"] == 2
    assert rows[-1]["healthy"] == 1
    for row in rows:
        assert row["y"] == pytest.approx(row["mean"])
        assert row["observed"] == row["sampled"]
    assert rows[-1]["trained"] > rows[BEFORE]["trained"]
    assert rows[-1]["y"] != rows[BEFORE]["y"]


def facts(process: Any, key: str) -> dict[str, Any]:
    """The next line with this key; RLlib may print others."""
    for line in process.stdout:
        if line.startswith("{") and key in (found := json.loads(line)):
            return dict(found)
    raise AssertionError(process.stderr.read()[-3000:])
