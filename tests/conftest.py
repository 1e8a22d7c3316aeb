"""Settings of the whole test suite."""

from hypothesis import HealthCheck, settings

# The same examples in every run: a failure is about the change at hand. To look for new ones:
# make test ARGS=--hypothesis-profile=explore
_ALWAYS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", _ALWAYS, derandomize=True)
settings.register_profile("explore", _ALWAYS, max_examples=1000)
settings.load_profile("repeatable")
