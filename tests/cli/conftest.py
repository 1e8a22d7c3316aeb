"""Fixtures of the tests of commands."""

import os
from collections.abc import Iterator

import pytest
from helpers.experiments import TESTS


@pytest.fixture(autouse=True, scope="module")
def importable_helpers() -> Iterator[None]:
    """Worker processes that a command starts can import the environments of the helpers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", TESTS, prepend=os.pathsep)
        yield
