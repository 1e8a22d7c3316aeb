"""Fixtures of the tests of off-line learning."""

import pytest

from mvpi.offline import _lstd_dual


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that do not ask how wide an interval is: most of an estimate is its bootstrap."""
    monkeypatch.setattr(_lstd_dual, "_RESAMPLES", 5)
