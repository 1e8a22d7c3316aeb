"""The columns that a risk measure adds to observations: the risk aversion and the return so far.

They are kept as they are, `lam` and `G_t`, and networks see them scaled:

    risk aversion    its coordinate in the range, from -1 to 1, and a little beyond
    return so far    asinh(G_t / scale): linear where |G_t| is below the scale, logarithmic beyond
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi._checks import check_number, finite_array
from mvpi._types import Array, Vector
from mvpi.errors import InputError
from mvpi.risk import RETURN_SO_FAR, RISK_AVERSION, MeanVariance, Risk, parse_risk
from mvpi.risk.extended import RiskRange, at, range_of


class Columns:
    """What is written into the columns while acting, and read from them when drawn.

    Raw values are arrays whose last axis has one entry per column, in the order of `names`.
    """

    def __init__(self, risk: Risk, return_scale: float = 1.0) -> None:
        self._risk = risk
        self.names = risk.columns
        self.size = len(self.names)
        """How many columns there are."""
        self.return_scale = check_number(return_scale, "return_scale", above=0.0)
        self._range = range_of(risk)

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def begin(self, rng: np.random.Generator, episodes: int | None = None) -> Array:
        """Raw values at the beginning of one episode, or of several: (episodes, columns)."""
        shape = () if episodes is None else (episodes,)
        values = {
            name: self._drawn(rng, shape) if name == RISK_AVERSION else np.zeros(shape)
            for name in self.names
        }
        return self.raw(values, shape)

    def step(self, raw: Array, rewards: npt.ArrayLike) -> Array:
        """Raw values after the rewards: the return so far grows by them."""
        if RETURN_SO_FAR not in self.names:
            return raw
        following = raw.copy()
        following[..., self.names.index(RETURN_SO_FAR)] += np.asarray(rewards, np.float64)
        return following

    def redraw(self, rng: np.random.Generator, *raw: npt.NDArray[Any], every: int = 2) -> None:
        """Write the same fresh risk aversions into all of `raw`, such as states and next ones.

        Every second transition of a batch gets one. The others keep the risk aversion that they
        were acted with: they are what its policy does, where its critics have to be right.
        """
        if RISK_AVERSION in self.names:
            place = self.names.index(RISK_AVERSION)
            fresh = self._drawn(rng, raw[0][..., ::every, place].shape)
            for values in raw:
                values[..., ::every, place] = fresh

    def balance(self, raw: npt.NDArray[Any]) -> Array | float:
        """What augmented rewards are multiplied by, see `RiskRange.balance`; 1 without a range."""
        if self._range is None:
            return 1.0
        return self._range.balance(raw[..., self.names.index(RISK_AVERSION)])

    def of(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A view of the raw values at the end of extended observations."""
        return rows[..., rows.shape[-1] - self.size :]

    def extend(self, observation: Vector, raw: npt.NDArray[Any]) -> Vector:
        """An observation with raw values behind it; without columns, the observation itself."""
        if not self.size:
            return observation
        place = observation.size
        extended = np.empty(place + self.size, np.float32)
        extended[:place], extended[place:] = observation, raw
        return extended

    def seen(self, extended: Vector) -> Vector:
        """Extended observations as networks see them."""
        if not self.size:
            return extended
        visible = extended.copy()
        self.of(visible)[...] = self.encode(self.of(extended))
        return visible

    def encode(self, raw: npt.NDArray[Any]) -> Vector:
        """What networks see of raw values."""
        seen = np.empty(raw.shape, np.float32)
        for place, name in enumerate(self.names):
            seen[..., place] = self._encoded(name, raw[..., place])
        return seen

    def decode(self, seen: npt.NDArray[Any]) -> Array:
        """The raw values of what networks saw; the inverse of `encode`."""
        raw = np.empty(seen.shape)
        for place, name in enumerate(self.names):
            raw[..., place] = self._decoded(name, np.asarray(seen[..., place], np.float64))
        return raw

    def values(self, shape: tuple[int, ...], **given: npt.ArrayLike | None) -> Array:
        """Raw values of observations, from what a caller says of them; `InputError` if it lacks."""
        for name, value in given.items():
            if value is None and name in self.names:
                raise InputError(self._lacking(name))
            if value is not None and name not in self.names:
                raise InputError(f"this policy does not look at {name}: leave it out")
        chosen = {name: finite_array(given[name], name) for name in self.names}
        for name, value in chosen.items():
            if value.shape not in ((), shape):
                raise InputError(
                    f"{name} must be a number, or one per observation {shape}, got {value.shape}"
                )
        if RISK_AVERSION in chosen:
            for lam in np.ravel(chosen[RISK_AVERSION]).tolist():
                self._known_range().at(lam)
        return self.raw(chosen, shape)

    def _lacking(self, name: str) -> str:
        if name == RETURN_SO_FAR:
            return (
                "this agent was trained with mvpi.OfReturn and looks at the return so far: "
                "predict(observation, return_so_far=g), with 0 at the beginning of an episode"
            )
        known = self._known_range()
        return (
            f"this agent was trained for every risk aversion from {known.low:g} to {known.high:g}: "
            "choose one with agent.at(risk_aversion)"
        )

    def record(self) -> dict[str, Any]:
        """What a file says of them."""
        return {"risk": self._risk.text, "return_scale": self.return_scale} if self.size else {}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Columns:
        """The columns that a file names; `InputError` if it names none that could be."""
        if not record:
            return cls(MeanVariance(0.0))
        return cls(parse_risk(record["risk"]), record["return_scale"])

    def at(self, risk_aversion: float) -> Columns:
        """The columns that are left when the risk aversion is chosen."""
        return Columns(at(self._risk, risk_aversion), self.return_scale)

    def raw(self, values: Mapping[str, npt.ArrayLike], shape: tuple[int, ...]) -> Array:
        """Raw values from one array per column."""
        given = [
            np.broadcast_to(np.asarray(values[name], np.float64), shape) for name in self.names
        ]
        return np.stack(given, axis=-1) if given else np.empty((*shape, 0))

    def named(self, raw: npt.NDArray[Any]) -> dict[str, Array]:
        """One array per column from raw values."""
        return {
            name: np.asarray(raw[..., place], np.float64) for place, name in enumerate(self.names)
        }

    def _drawn(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return self._known_range().draw(rng, shape)

    def _encoded(self, name: str, raw: npt.NDArray[Any]) -> Array:
        if name == RETURN_SO_FAR:
            return np.asarray(np.arcsinh(raw / self.return_scale))
        return self._known_range().coordinate(raw)

    def _decoded(self, name: str, seen: Array) -> Array:
        if name == RETURN_SO_FAR:
            return np.asarray(self.return_scale * np.sinh(seen))
        return self._known_range().from_coordinate(seen)

    def _known_range(self) -> RiskRange:
        assert self._range is not None  # a column of risk aversions is that of a range
        return self._range


NO_COLUMNS = Columns(MeanVariance(0.0))
"""Observations as they are."""
