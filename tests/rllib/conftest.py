"""One Ray session for all tests here, in a directory of its own."""

import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("ray") is None or find_spec("lz4") is None:
    pytest.skip("needs the extra rllib", allow_module_level=True)

HERE = str(Path(__file__).parent)

# What RLlib itself warns of: old names, its environments registered once more, files left open.
IGNORED = (
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore::ResourceWarning",
    "ignore:.*Overriding environment:UserWarning",
    "ignore:os.fork\\(\\) was called:RuntimeWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for warning in IGNORED:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="package", autouse=True)
def ray_session() -> Iterator[None]:
    """Ray on this machine; its workers find the helpers of the tests."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.shutdown()  # an example in the documents may have left one behind
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as name:
        ray.init(
            num_cpus=6,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=150 * 2**20,
            _temp_dir=name,
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
        )
        yield
        gc.collect()  # learner groups call their actors when they are deleted
        ray.shutdown()


@pytest.fixture
def build(ray_session: None) -> Iterator[Callable[[Any], Any]]:
    """Builds algorithms and stops them in the end."""
    algorithms: list[Any] = []

    def built(config: Any) -> Any:
        algorithms.append(config.build_algo())
        return algorithms[-1]

    yield built
    for algorithm in algorithms:
        algorithm.stop()
