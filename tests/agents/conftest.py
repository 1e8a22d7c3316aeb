"""Makes the helpers importable from the tests beside them, whatever pytest's import mode.

Compiled updates are kept on disk: most of these tests need the same few, in many processes. The
runs themselves are kept in memory, where it costs nothing to make a file durable.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("victims")

_CACHE = {
    "jax_compilation_cache_dir": f"{tempfile.gettempdir()}/mvpi-tests-{os.getuid()}",
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}

for _name, _value in _CACHE.items():
    os.environ.setdefault(_name.upper(), str(_value))
    if "jax" in sys.modules:
        sys.modules["jax"].config.update(_name, _value)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory of the test's own, in memory where there is such a disk."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="mvpi-", dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Starts training processes."""
    from victims import serving

    yield from serving(tmp_path_factory.mktemp("server"))
