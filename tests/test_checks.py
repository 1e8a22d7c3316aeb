"""What is a number, a count, a flag, an array, a path: in one place for the whole package."""

from __future__ import annotations

import datetime
import math
import os
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mvpi
from mvpi import InputError
from mvpi._checks import (
    check_count,
    check_flag,
    check_number,
    check_output,
    check_path,
    finite_array,
    real_array,
    shown,
)

NO_NUMBERS: list[Any] = [
    None,
    True,
    np.True_,
    np.array(True),
    "1.0",
    np.str_("1.0"),
    b"1",
    np.bytes_(b"1"),
    1 + 0j,
    np.complex64(1),
    np.array(1 + 0j),
    np.timedelta64(1),
    np.timedelta64(1, "s"),
    np.array(1, "m8[s]"),
    datetime.timedelta(1),
    np.datetime64("2020-01-01"),
    np.ma.masked,
    np.ma.array(1.0, mask=True),
    np.array([1.0]),
    [1.0],
    {},
    float,
    object(),
]
NOT_FINITE: list[Any] = [math.nan, math.inf, np.float32("nan"), Decimal("NaN"), Decimal("sNaN")]
TOO_LARGE: list[Any] = [10**400, -(10**5000), Fraction(10**400, 3)]


@pytest.mark.parametrize(
    "value", NO_NUMBERS + NOT_FINITE + TOO_LARGE, ids=lambda value: type(value).__name__
)
def test_what_is_no_number_is_refused_in_one_line(value: Any) -> None:
    for check in (check_number, check_count):
        with pytest.raises(InputError, match=r"^x must be ") as caught:
            check(value, "x")
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "value", [1, 1.0, np.int8(1), np.float16(1), np.array(1), Fraction(1), Decimal(1), np.uint64(1)]
)
def test_real_numbers_of_all_types_are_numbers(value: Any) -> None:
    number = check_number(value, "x", above=0.0, at_most=1.0)
    assert (number, type(number)) == (1.0, float)


@pytest.mark.parametrize("value", [3, np.int16(3), np.array(3), np.uint64(3)])
def test_whole_numbers_of_all_types_are_counts(value: Any) -> None:
    assert (check_count(value, "x"), type(check_count(value, "x"))) == (3, int)


@pytest.mark.parametrize("value", [1.0, np.float64(3), Fraction(3), Decimal(3), 0, -1, 10**13])
def test_what_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="x must be a whole number >= 1"):
        check_count(value, "x")


@pytest.mark.parametrize("value", ["no", "", "False", 0, 1, None, [], np.array([True]), 0.0])
def test_only_true_and_false_are_flags(value: Any) -> None:
    with pytest.raises(InputError, match="x must be True or False, got"):
        check_flag(value, "x")
    assert [check_flag(v, "x") for v in (True, np.False_, np.array(True))] == [True, False, True]


NO_ARRAYS: list[Any] = [
    np.ma.array([1.0, 2.0], mask=[False, True]),
    [np.ma.array([1.0, 2.0], mask=[False, True])],
    [[1.0, np.ma.masked]],
    ["1", "2"],
    np.array([b"1"]),
    [1 + 0j],
    [True, False],
    np.array([1], "m8[s]"),
    np.array(["2020"], "M8[Y]"),
    [1.0, None],
    np.array([{}], object),
    [[1, 2], [3]],
    np.zeros(1, [("a", float)]),
    [10**400],
    (x for x in [1]),
    {1},
]


@pytest.mark.parametrize("values", NO_ARRAYS, ids=lambda value: type(value).__name__)
def test_arrays_of_other_things_are_refused(values: Any) -> None:
    with pytest.raises(InputError, match=r"^x must ") as caught:
        real_array(values, "x")
    assert "\n" not in str(caught.value)


def test_real_arrays_come_as_they_are() -> None:
    given = np.ones(3)
    assert real_array(given, "x") is given
    whole = np.ma.array([1, 2], mask=[False, False])
    objects = np.array([1, Fraction(1, 2), Decimal(2), np.float32(3)], object)
    assert real_array(whole, "x").tolist() == [1.0, 2.0]
    assert real_array(objects, "x").tolist() == [1.0, 0.5, 2.0, 3.0]
    assert real_array([10**30, 1], "x").tolist() == [1e30, 1.0]
    with pytest.raises(InputError, match=r"x\[1, 0\] is nan"):
        finite_array([[1.0, 2.0], [math.nan, 3.0]], "x")


@pytest.mark.parametrize("path", [None, "", 3, b"x", "a\0b", "\ud800", "x" * 5000, Path, ["x"]])
def test_what_no_file_is_called_is_refused(path: Any) -> None:
    for check in (check_path, check_output):
        with pytest.raises(InputError, match=r"^path must be the path of a file or directory, got"):
            check(path)


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    """A file is written beside its place and moved there: what was there would be gone."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    mdp = mvpi.examples.four_state()
    before = sorted(tmp_path.iterdir())
    for name, kind in (("pipe", "pipe"), ("link", "pipe"), ("", "directory")):
        with pytest.raises(InputError, match=f"path must be a file, .* is a .*{kind}"):
            mdp.save(tmp_path / name)
    with pytest.raises(InputError, match="in a directory that exists"):
        mdp.save(tmp_path / "missing" / "m.npz")
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "pipe").is_fifo()


def test_messages_are_one_printable_line() -> None:
    assert str(InputError("a\nb\x1b[31m")) == "a\\nb\\x1b[31m"
    assert shown("x" * 1000) == "'" + "x" * 76 + "..."
    assert shown(np.ones((3, 3))).count("\n") == 0


CALLS: dict[str, Any] = {
    "optimize": lambda: mvpi.optimize(None, 1.0),
    "frontier": lambda: mvpi.frontier(None),
    "policy_iteration": lambda: mvpi.policy_iteration(None, 1.0),
    "learn": lambda: mvpi.offline.learn(None, 1.0, 0.9),
    "MDP.load": lambda: mvpi.MDP.load(None),
    "load": lambda: mvpi.load(None),
    "a NUL": lambda: mvpi.MDP.load("a\0b"),
    "plot": lambda: mvpi.frontier(mvpi.examples.four_state()).plot("x.txt"),
    "y": lambda: mvpi.augment([1.0, 2.0], 1.0, y=math.nan),
    "risk.augment": lambda: mvpi.MeanVariance(1.0).augment([1.0], math.nan),
    "complex": lambda: mvpi.MeanVariance(np.complex128(1)),
    "boolean": lambda: mvpi.CVaR(np.True_),
    "duration": lambda: mvpi.examples.four_state(np.timedelta64(1)),
    "masked rewards": lambda: mvpi.stats.mean(np.ma.array([1.0, 9.0], mask=[False, True])),
    "texts": lambda: mvpi.MDP(np.array([[["1"]]]), [["0"]]),
    "flag": lambda: mvpi.PPO("mvpi/Markowitz-v0", normalize_advantage="no"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_reported_nonsense_is_refused(call: Any) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)
