"""One browser for all tests here, and pages that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from helpers.browser import Opened, launched


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture
def page(opened: Opened) -> Iterator[Any]:
    """The page that the module has opened; what the browser complained about is an error."""
    yield opened.page
    opened.restore()
    opened.check()
