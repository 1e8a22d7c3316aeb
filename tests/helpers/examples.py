"""How many examples Hypothesis tries: all of them with the slow tests, a third in every run."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(number: int) -> Any:
    """Settings of a test that is to have so many examples when the slow tests run, too.

    The profile of every run has fewer than 100, see `tests/conftest.py`.
    """
    quick = settings().max_examples < 100
    return settings(max_examples=max(20, number // 3) if quick else number)
