"""Learning curves averaged over runs, and tick labels: shared by the figures of packages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mvpi._types import Array

Curve = Sequence[tuple[int, float]]
"""Pairs of steps and a value, by growing steps."""


def thousands(steps: float, _: object) -> str:
    """Numbers of steps, short; as matplotlib calls it.

    >>> thousands(0, None), thousands(20_000, None), thousands(1.5e6, None)
    ('0', '20k', '1.5M')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:g}{letter}"
    return f"{steps:g}"


def mean_curve(curves: Sequence[Curve]) -> Array:
    """Columns: steps, mean over the runs that got so far, its standard error (0 with one run).

    Between its evaluations a run is interpolated, so that runs may be evaluated at other steps.
    """
    apart = [np.array(curve, dtype=np.float64).T for curve in curves if curve]
    if not apart:
        return np.empty((0, 3))
    grid = np.unique(np.concatenate([steps for steps, _ in apart]))
    rows = np.array([_inside(grid, *curve) for curve in apart])
    there = ~np.isnan(rows)
    shown = there.any(0)
    grid, rows, there = grid[shown], rows[:, shown], there[:, shown]
    count = there.sum(0)
    mean = np.where(there, rows, 0.0).sum(0) / count
    squares = np.where(there, (rows - mean) ** 2, 0.0).sum(0)
    error = np.sqrt(squares / np.maximum(count - 1, 1) / count)
    return np.column_stack([grid, mean, error])


def _inside(grid: Array, steps: Array, values: Array) -> Array:
    """A curve at the steps of the grid; not a number before it begins and after it ends."""
    return np.interp(grid, steps, values, left=np.nan, right=np.nan)
