"""Settings of the whole test suite."""

import atexit
import os
import sys
import tempfile

from hypothesis import HealthCheck, settings

# The same examples in every run: a failure is about the change at hand. To look for new ones:
# make test ARGS=--hypothesis-profile=explore
_ALWAYS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", _ALWAYS, derandomize=True)
settings.register_profile("explore", _ALWAYS, max_examples=1000)
settings.load_profile("repeatable")

# Tests run side by side. The threads of torch and numba wait for each other by spinning: two
# processes with two threads each on two cores take many times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

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


def pytest_unconfigure() -> None:
    """On its way out JAX would spend more than a minute forgetting all that it has compiled."""
    if "jax" in sys.modules:
        atexit.unregister(sys.modules["jax"]._src.api.clean_up)
