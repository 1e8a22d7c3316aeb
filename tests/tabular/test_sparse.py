"""Sparse matrices whose index arrays were changed after they were made.

scipy follows them in compiled code without looking: a matrix that is not refused ends the process,
or gives an answer computed from memory that is not its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from mvpi import MDP, InputError, policy_iteration
from mvpi.tabular.sparse import checked_csr

FORMATS = ("csr", "csc", "bsr", "coo", "dia", "lil", "dok")
N = 4


def made(kind: str, *, matrix: bool = False) -> Any:
    """A random permutation, weighted so that all formats hold several entries."""
    dense = 0.5 * (np.eye(N) + np.roll(np.eye(N), 1, axis=1))
    maker = getattr(sparse, f"{kind}_{'matrix' if matrix else 'array'}")
    return maker(dense)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("matrix", [False, True])
def test_every_format_is_the_same_mdp(kind: str, matrix: bool) -> None:
    given = made(kind, matrix=matrix)
    before = given.toarray()
    rewards = np.arange(2.0 * N).reshape(N, 2)
    dense = np.stack([before, before], axis=1)
    mdp, expected = MDP([given] * 2, rewards, 0.9), MDP(dense, rewards, 0.9)
    np.testing.assert_array_equal(mdp.transitions.toarray(), expected.transitions.toarray())
    with_rewards = MDP([given] * 2, [given] * 2, 0.9)
    np.testing.assert_array_equal(with_rewards.rewards, np.full(4 * N, 0.5))
    np.testing.assert_array_equal(given.toarray(), before)


def _set(name: str, value: Any) -> Callable[[Any], None]:
    """Put `value` into the first place of an index array."""

    def change(matrix: Any) -> None:
        array = np.array(getattr(matrix, name), dtype=np.int64)
        array[0] = value
        setattr(matrix, name, array)

    return change


def _replace(name: str, value: Any) -> Callable[[Any], None]:
    return lambda matrix: setattr(matrix, name, value)


def _lists(matrix: Any) -> None:
    matrix.rows[0] = [0, 2**30]


def _short_lists(matrix: Any) -> None:
    matrix.rows[0] = [0]


def _key(matrix: Any) -> None:
    matrix._dict[2**30, 0] = 1.0


def _coords(place: int) -> Callable[[Any], None]:
    def change(matrix: Any) -> None:
        rows, columns = (np.array(x) for x in matrix.coords)
        columns[0] = place
        matrix.coords = (rows, columns)

    return change


COMPRESSED = {
    "index far away": (_set("indices", 2**30), "indices must be from 0 to 3, got 1073741824"),
    "index just outside": (_set("indices", N), "indices must be from 0 to 3, got 4"),
    "negative index": (_set("indices", -1), "indices must be from 0 to 3, got -1"),
    "index beyond int64": (_replace("indices", np.full(8, 2**63 + 1, np.uint64)), "below 2^63"),
    "fractions": (_replace("indices", np.full(8, 0.5)), "indices must be a row of whole numbers"),
    "few indices": (_replace("indices", np.zeros(3, int)), "indptr must increase to 3"),
    "few data": (_replace("data", np.ones(3)), "data of transitions[0] must be"),
    "first pointer": (_set("indptr", -(2**30)), "indptr must be 5 numbers that increase from 0"),
    "short pointers": (_replace("indptr", np.zeros(2, int)), "indptr must be 5 numbers"),
    "far pointers": (
        _replace("indptr", np.array([0, 2**40, 2**40, 2**40, 2**40])),
        "indptr must increase to 8, the number of indices, got 1099511627776",
    ),
    "falling pointers": (_replace("indptr", np.array([0, 8, 2, 2, 8])), "indptr must be 5 numbers"),
}
OTHERS = {
    "coo": (_coords(2**30), "columns of transitions[0] must be from 0 to 3, got 1073741824"),
    "coo negative": (_coords(-1), "columns of transitions[0] must be from 0 to 3, got -1"),
    "dia": (_set("offsets", 2**32), "offsets of transitions[0] must be from -3 to 3"),
    "dia twice": (_replace("offsets", np.array([0, 0, 1])), "each once"),
    "dia few": (_replace("offsets", np.array([0])), "one for each of"),
    "lil": (_lists, "columns of transitions[0] must be from 0 to 3, got 1073741824"),
    "lil short": (_short_lists, "a list of columns and one of values for every row"),
    "dok": (_key, "rows of transitions[0] must be from 0 to 3, got 1073741824"),
}
DAMAGED = {
    f"{kind} {what}": (kind, *case) for kind in ("csr", "csc") for what, case in COMPRESSED.items()
} | {what: (what.split()[0], *case) for what, case in OTHERS.items()}


@pytest.mark.parametrize(("kind", "change", "message"), DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("matrix", [False, True])
def test_a_changed_index_is_refused(
    kind: str, change: Callable[[Any], None], message: str, matrix: bool
) -> None:
    damaged = made(kind, matrix=matrix)
    change(damaged)
    with pytest.raises(InputError) as caught:
        MDP([damaged] * 2, np.zeros((N, 2)), 0.9)
    assert message in str(caught.value)
    whole = made("csr")
    with pytest.raises(InputError, match=r"rewards\[1\]"):
        MDP([whole] * 2, [whole, damaged], 0.9)
    with pytest.raises(InputError, match="transitions"):
        MDP.from_rows(damaged, np.zeros((N, 1)), 0.9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("indices", np.array([5, 0, 0, 0])),
        ("indices", np.array([-1, 0, 0, 0])),
        ("indptr", np.array([0, 1, 9])),
        ("data", np.ones((1, 2, 2))),
        ("data", np.ones((4, 3, 2))),
    ],
)
def test_a_changed_block_is_refused(name: str, value: Any) -> None:
    blocks = sparse.bsr_array(np.full((N, N), 0.25), blocksize=(2, 2))
    setattr(blocks, name, value)
    with pytest.raises(InputError, match=r"transitions\[0\]"):
        MDP([blocks] * 2, np.zeros((N, 2)), 0.9)


def test_flags_that_lie_about_the_order_are_not_believed() -> None:
    indices, indptr = np.array([1, 0, 1, 1]), np.array([0, 2, 4])
    unsorted = sparse.csr_array((np.array([0.5, 0.5, 0.5, 0.5]), indices, indptr), shape=(2, 2))
    unsorted.has_sorted_indices = unsorted.has_canonical_format = True
    mdp = MDP([unsorted], np.zeros((2, 1)), 0.9)
    np.testing.assert_array_equal(mdp.transitions.toarray(), [[0.5, 0.5], [0.0, 1.0]])


@pytest.mark.parametrize("dtype", [bool, complex, object])
def test_entries_must_be_real_numbers(dtype: Any) -> None:
    entries = np.eye(2).astype(dtype)
    if dtype is object:
        entries[0, 0] = "1"
    odd = sparse.csr_array(np.eye(2))
    odd.data = entries.diagonal().copy()
    with pytest.raises(InputError, match="must be an array of numbers"):
        checked_csr(odd, "m")


@pytest.mark.parametrize("states", [4, 3000])
@pytest.mark.parametrize("wrong", [-1, 2, 2**40])
def test_compiled_code_follows_no_policy_outside_the_table(states: int, wrong: int) -> None:
    step = sparse.eye_array(states, format="csr")
    mdp = MDP([step, step], np.zeros((states, 2)), 0.9)
    policy = np.zeros(states, int)
    policy[-1] = wrong
    for follow in (mdp.policy_matrix, mdp.chain, mdp.occupancy, mdp.rewards_paid_by):
        with pytest.raises(InputError, match=r"must be an action from 0 to 1, got"):
            follow(policy)
    with pytest.raises(InputError, match=r"must be an action from 0 to 1, got"):
        policy_iteration(mdp, 1.0, policy)
