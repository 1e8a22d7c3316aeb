"""How many examples Hypothesis tries: all of them with the slow tests, a third in every run."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

_share = [3]


def try_all() -> None:
    """From here on: before the modules of the tests are imported."""
    _share[0] = 1


def examples(number: int) -> Any:
    """Settings of a test that is to have so many examples when the slow tests run, too."""
    return settings(max_examples=max(20, number // _share[0]))
