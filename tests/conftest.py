"""Settings of the whole test suite."""

import atexit
import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("helpers")

# The same examples in every run: a failure is about the change at hand. To look for new ones:
# make test ARGS=--hypothesis-profile=explore
_ALWAYS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", _ALWAYS, derandomize=True)
settings.register_profile("explore", _ALWAYS, max_examples=1000)
settings.register_profile("quick", settings.get_profile("repeatable"), max_examples=50)
settings.load_profile("quick")


def pytest_configure(config: pytest.Config) -> None:
    """With the slow tests, all examples. A profile that is asked for is loaded after this."""
    if config.option.markexpr != "not slow":
        settings.load_profile("repeatable")


# Compilers make many objects that live long: to search them for garbage rarely is enough.
gc.set_threshold(20_000, 20, 20)

# Tests run side by side. The threads of torch and numba wait for each other by spinning: two
# processes with two threads each on two cores take many times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Dozens of processes import the package and the tests: compiled once, as everywhere else.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Ray would join the cluster that a test of the other process has started, and lose it with that.
os.environ.setdefault("RAY_ADDRESS", "local")

# Compiled updates are kept on disk: many tests need the same few, in many processes.
_CACHE = {
    "jax_compilation_cache_dir": f"{tempfile.gettempdir()}/mvpi-tests-{os.getuid()}",
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}

# Processes that tests kill leave half an entry there, which others then warn of.
os.environ.setdefault(
    "PYTHONWARNINGS", "ignore:Error reading persistent compilation cache entry:UserWarning"
)

for _name, _value in _CACHE.items():
    os.environ.setdefault(_name.upper(), str(_value))
    if "jax" in sys.modules:
        sys.modules["jax"].config.update(_name, _value)


@pytest.fixture(scope="session", autouse=True)
def _working_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests run in a directory of their own: what they write by mistake is not in the project."""
    with chdir(tmp_path_factory.mktemp("working")):
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files, not single tests, unless another distribution is asked for."""
    if config.getvalue("dist") != "load":
        return None
    from helpers.scheduling import GroupScheduling

    return GroupScheduling(config, log)


_LAST = pytest.StashKey[Path]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """What earlier files have left, compiled functions above all, is not searched for garbage.

    With all that the tests import and compile, a search took seconds, again and again.
    """
    if item.session.stash.get(_LAST, None) != item.path:
        item.session.stash[_LAST] = item.path
        gc.collect()
        gc.freeze()
    return (yield)


_BEFORE = pytest.StashKey[set[str]]()
_CACHES = {".coverage", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".venv"}


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[_BEFORE] = {path.name for path in session.config.rootpath.iterdir()}


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A session that leaves files in the root of the project has failed."""
    now = {path.name for path in session.config.rootpath.iterdir()}
    gained = sorted(now - session.config.stash[_BEFORE] - _CACHES)
    if gained and not hasattr(session.config, "workerinput"):
        report = session.config.pluginmanager.get_plugin("terminalreporter")
        report.write_line(f"\nERROR: left in {session.config.rootpath}: {', '.join(gained)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure() -> None:
    """On its way out JAX would spend more than a minute forgetting all that it has compiled."""
    if "jax" in sys.modules:
        atexit.unregister(sys.modules["jax"]._src.api.clean_up)
