"""What a model file says of the plug: plain JSON, with arrays as base64 of their bytes.

`y` is in it for people to read; what counts is the window that it was measured on.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi._checks import shown
from mvpi.augmenter import Augmenter
from mvpi.errors import InputError
from mvpi.risk import Risk, learnable, parse_risk
from mvpi.risk.extended import range_of

MARK = "mvpi"
"""The key of our entries in the data of a model file."""
FORMAT = 1
_TYPES = ("<f8", "<i8")
_LARGEST = 100_000_000
"""Rewards in a window at most: a file must not make us ask for all memory."""


def check_named(risk: Risk) -> None:
    """`InputError` if no text names the measure: a model file could not say which it is."""
    try:
        known = parse_risk(risk.text).text == risk.text
    except InputError:
        known = False
    if not known:
        raise InputError(
            f"{shown(risk)} has no text form, so a model file cannot name it: give its class a "
            'name, such as name = "own"'
        )


def augmenter_record(augmenter: Augmenter) -> dict[str, Any]:
    """An augmenter as plain JSON."""
    window, advice = augmenter._window, augmenter._advice
    arrays, numbers = augmenter.state()
    has_y = augmenter.ready and range_of(augmenter.risk) is None
    return {
        "risk": augmenter.risk.text,
        "price": augmenter.risk.price,
        "y": augmenter.y if has_y else None,
        "window": augmenter.window,
        "gamma": window.gamma,
        "budget_every": augmenter.budget_every,
        "budget_rate": augmenter.budget_rate,
        "numbers": numbers,
        "advice": [advice.due, advice.terminates, *sorted(advice._told)],
        "arrays": {name: encoded(values) for name, values in arrays.items()},
    }


def augmenter_from(record: Mapping[str, Any], risk: Risk | float | None = None) -> Augmenter:
    """The augmenter of a record, or one with another risk on the same recent rewards."""
    try:
        return _augmenter_from(record, risk)
    except InputError:
        raise
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise InputError(f"the risk in the model file is damaged: {error!r}") from error


def _augmenter_from(record: Mapping[str, Any], risk: Risk | float | None) -> Augmenter:
    saved = learnable(parse_risk(record["risk"]))
    if saved.price is not None:
        saved = saved.with_price(_number(record["price"]))
    measure = saved if risk is None else _instead_of(saved, learnable(risk))
    gamma, size = record["gamma"], _whole(record["window"], 1)
    augmenter = Augmenter(
        measure,
        size,
        _whole(record["budget_every"], 1),
        _number(record["budget_rate"]),
        "undiscounted" if gamma is None else "discounted",
        gamma,
    )
    arrays = {name: decoded(entry) for name, entry in record["arrays"].items()}
    augmenter.restore(arrays, record["numbers"])
    if risk is not None:  # a budget goes on from the price it was given
        augmenter.risk = measure
    soonest, terminates, *told = record["advice"]
    augmenter._advice.due = _whole(soonest, 0)
    augmenter._advice.terminates = bool(terminates)
    augmenter._advice._told = {str(name) for name in told}
    return augmenter


def _instead_of(saved: Risk, risk: Risk) -> Risk:
    """Another risk for a trained model: it must look at the same columns, in the same way."""
    if saved.columns != risk.columns or range_of(saved) != range_of(risk):
        raise InputError(
            f"a model trained with {saved} cannot go on with {risk}: its policy sees "
            f"{', '.join(saved.columns) or 'no columns'} of {saved}; make a new one by risk_averse"
        )
    return risk


def encoded(values: npt.NDArray[Any]) -> list[Any]:
    """An array as JSON: its type, its shape, and its bytes in base64."""
    kind = "<f8" if values.dtype.kind == "f" else "<i8"
    data = base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode("ascii")
    return [kind, list(values.shape), data]


def decoded(entry: Any) -> npt.NDArray[Any]:
    """The array of an entry; `ValueError` if it is none."""
    kind, shape, data = entry
    if kind not in _TYPES or not isinstance(data, str):
        raise ValueError(f"an array of type {shown(kind)}")
    lengths = [_whole(n, 0) for n in shape]
    values = np.frombuffer(base64.b64decode(data, validate=True), kind)
    return values.reshape(lengths).copy()


def _whole(value: Any, at_least: int) -> int:
    if type(value) is not int or not at_least <= value <= _LARGEST * 1_000:
        raise ValueError(f"{shown(value)} is no count")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{shown(value)} is no number")
    return float(value)
