"""What axes of several figures have in common."""

from __future__ import annotations


def thousands(steps: float, _: object) -> str:
    """Numbers of steps, short; as matplotlib calls it.

    >>> thousands(0, None), thousands(20_000, None), thousands(1.5e6, None)
    ('0', '20k', '1.5M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:g}{letter}"
    return f"{steps:g}"
