"""The layout of rows: one definition for the replay, JAX, the compiled loops and data sets."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from mvpi._storage.row_layout import RowLayout
from mvpi.agents.replay import Replay


@pytest.mark.parametrize(("o", "a"), [(1, 1), (3, 2), (17, 6)])
def test_the_parts_are_all_of_a_row_in_their_order(o: int, a: int) -> None:
    layout = RowLayout(o, a)
    row = np.arange(layout.width)
    parts = layout.split(row)
    np.testing.assert_array_equal(np.hstack(parts), row)
    assert [np.size(part) for part in parts] == [o, a, 1, 1, o]
    assert RowLayout.of_width(layout.width, a) == layout
    first = {name: np.ravel(getattr(parts, name))[0] for name in ("a", "r", "continues", "next_s")}
    assert first == layout.columns._asdict()


def test_a_batch_is_split_along_its_last_axis_into_views() -> None:
    layout = RowLayout(3, 2)
    rows = np.arange(60.0).reshape(2, 3, 10)
    parts = layout.split(rows)
    vectors = [(2, 3, size) for size in (3, 2, 3)]
    assert [parts.s.shape, parts.a.shape, parts.next_s.shape] == vectors
    assert parts.r.shape == parts.continues.shape == (2, 3)
    for ours, theirs in zip(parts, layout.split(jnp.asarray(rows)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    parts.s[..., -1] = parts.next_s[..., -1] = -1.0  # a column that extends observations
    assert (rows[..., [2, 9]] == -1.0).all()


def test_the_replay_stores_by_the_layout() -> None:
    replay = Replay(4, 3, 2)
    replay.add(np.array([1, 2, 3]), np.array([4, 5]), 6.0, True, np.array([7, 8, 9]))
    replay.add(np.array([1, 2, 3]), np.array([4, 5]), 6.0, False, np.array([7, 8, 9]))
    s, a, r, continues, next_s = replay.layout.split(replay.rows[:2])
    assert s.tolist() == [[1, 2, 3]] * 2
    assert a.tolist() == [[4, 5]] * 2
    assert r.tolist() == [6, 6]
    assert continues.tolist() == [0, 1]
    assert next_s.tolist() == [[7, 8, 9]] * 2
