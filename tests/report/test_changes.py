"""Changes against a baseline, at their limits too, and how they are written."""

from __future__ import annotations

import math

import pytest

from mvpi import _text
from mvpi._text import percent
from mvpi.report import formatting
from mvpi.stats import relative_change

MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("x", "base", "expected"),
    [
        (3.0, 2.0, 0.5),
        (1.0, -2.0, 1.5),
        (0.0, 0.0, 0.0),
        (math.inf, math.inf, 0.0),
        (5.0, math.inf, -1.0),
        (5.0, -math.inf, 1.0),
        (5.0, 0.0, math.inf),
        (-5.0, 0.0, -math.inf),
        (math.inf, 5.0, math.inf),
        (math.inf, -math.inf, math.nan),
        (math.nan, 1.0, math.nan),
    ],
)
def test_changes_from_nothing_and_from_infinity(x: float, base: float, expected: float) -> None:
    assert float(relative_change(x, base)) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.5, "+50%"),
        (0.04, "+4%"),
        (-0.004, "-0.4%"),
        (-0.0004, "0%"),
        (0.0, "0%"),
        (0.0994, "+9.9%"),
        (0.0996, "+10%"),
        (-0.997, "-99.7%"),
        (-1, "-100%"),
        (12.345, "+1,234%"),
        (3e5, "+3e7%"),
        (math.inf, "+inf"),
        (math.nan, "?"),
    ],
)
def test_percentages(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (20.0, 15.0, f"{MINUS}25%"),
        (1_000.0, 999.9, "0%"),
        (0.0, 0.0, "0%"),
        (0.0, 1.0, ""),
        (5.0, math.inf, ""),
        (math.inf, 5.0, f"{MINUS}100%"),
        (math.nan, 5.0, ""),
    ],
)
def test_changes_on_the_page(before: float, after: float, text: str) -> None:
    assert formatting.change(before, after) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [(-8.0, -9.2, "-15%"), (4.0, 4.0, "0%"), (0.0, 0.25, "+0.25"), (0.0, 0.0, "0%")],
)
def test_changes_in_a_sentence_of_a_command(before: float, after: float, text: str) -> None:
    assert _text.change(before, after) == text
