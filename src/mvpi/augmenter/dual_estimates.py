"""`y` of a measure that sees columns: measured on returns, or as a function of the risk aversion.

OfReturn(risk)             y is the dual of the returns of recent episodes
RiskRange(low, high)       y(lam) is a regression of recent rewards on the lam of their episodes
OfReturn(RiskRange(...))   y(lam) is a regression of the returns of recent episodes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mvpi._storage.row_layout import RowLayout
from mvpi._types import Array, Vector
from mvpi.augmenter.columns import Columns
from mvpi.augmenter.monotone_regression import (
    BINS,
    bin_of,
    bin_sums,
    fit_of_sums,
    monotone_fit,
    standard_errors,
)
from mvpi.augmenter.policy_choice import best_of_range
from mvpi.errors import InputError
from mvpi.risk import RETURN_SO_FAR, RISK_AVERSION, Risk, RiskRange, range_of

RANGE_WINDOW = 10
"""A range is measured on up to this many times the rewards of one risk aversion,"""
RANGE_SHARE = 4
"""but on no more than the last quarter of all, so that `y` follows a policy that still improves."""
FEWEST_EPISODES = 100
"""Returns that `y` is measured on at the least, however long ago these episodes ended."""


class ExtendedDual:
    """Recent samples of what the risk is of, and `y` for any values of the columns.

    A sample is a reward, or the return of an episode that ended. With a range it has the risk
    aversion that it was acted with.
    """

    def __init__(self, risk: Risk, window: int) -> None:
        self._columns = Columns(risk)
        self.risk, self._range, self._of_return = risk, range_of(risk), risk.of_return
        self._shortest = window
        self.window = window * (1 if self._range is None else RANGE_WINDOW)
        size = max(self.window, FEWEST_EPISODES)
        self._values, self._coordinates = np.zeros(size), np.zeros(size)
        self._bins = np.zeros(size, np.int64)
        self._steps = np.zeros(size, np.int64)
        self._sums = np.zeros((3, BINS))  # of the samples in use, by bin; not of returns
        self._count = self._observed = 0
        self._first = 0  # the oldest sample in the sums, counted from the beginning
        self._pending: list[tuple[float, npt.NDArray[Any], bool]] = []

    def add(self, reward: float, extended: npt.NDArray[Any], done: bool) -> None:
        """One step from an extended observation: cheap, taken in when `y` is asked for."""
        self._pending.append((reward, extended, done))

    def _take_in(self) -> None:
        if self._pending:
            rewards, extended, done = zip(*self._pending, strict=True)
            self._pending = []
            self.observe(rewards, self._columns.of(np.array(extended)), done)

    def observe(
        self, rewards: npt.ArrayLike, columns: npt.NDArray[Any], done: npt.ArrayLike
    ) -> None:
        """Rewards, the columns they were earned with, and whether their episodes ended."""
        self._take_in()
        rewards, done = np.ravel(np.asarray(rewards, np.float64)), np.ravel(np.asarray(done))
        seen = self._columns.named(np.reshape(columns, (rewards.size, -1)))
        steps = self._observed + 1 + np.arange(rewards.size)
        self._observed += rewards.size
        if self._of_return:
            chosen = np.flatnonzero(done)
            values = rewards[chosen] + seen[RETURN_SO_FAR][chosen]
        else:
            chosen, values = np.arange(rewards.size), rewards
        if self._range is not None and not self._of_return:
            first = self._count + values.size - self._length(self._count + values.size)
            self._sums -= self._sums_at(self._places(self._first, min(first, self._count)))
        last = chosen.size - min(chosen.size, self._values.size)
        chosen, values = chosen[last:], values[last:]
        places = self._places(self._count + last, self._count + last + chosen.size)
        before = self._count
        self._count += last + chosen.size
        self._values[places], self._steps[places] = values, steps[chosen]
        if self._range is None:
            return
        coordinates = self._range.coordinate(seen[RISK_AVERSION][chosen])
        self._coordinates[places], self._bins[places] = coordinates, bin_of(coordinates)
        if not self._of_return:
            self._sums += self._sums_at(self._places(max(first, before), self._count))
            self._first = first

    def _length(self, count: int) -> int:
        """How many of so many steps `y` is measured on: the most recent."""
        share = self.window if self._range is None else count // RANGE_SHARE
        return min(count, self.window, max(share, self._shortest))

    def _places(self, first: int, end: int) -> npt.NDArray[np.int64]:
        """Where the samples with these numbers are, counted from the beginning."""
        return np.arange(first, max(first, end)) % self._values.size

    def _sums_at(self, places: npt.NDArray[np.int64]) -> Array:
        return bin_sums(self._coordinates[places], self._values[places], self._bins[places])

    @property
    def ready(self) -> bool:
        """Whether there is a sample to measure `y` on."""
        self._take_in()
        return self._count > 0

    def samples(self) -> tuple[Array, Array]:
        """Recent samples and the coordinates of their risk aversions, in no particular order."""
        self._take_in()
        recent = self._recent()
        return self._values[recent], self._coordinates[recent]

    def y(self, columns: Array) -> Array:
        """`y` for raw values of the columns, (..., columns)."""
        if not self.ready:
            what = "episodes, and none has ended" if self._of_return else "rewards, and there is no"
            raise InputError(f"y is measured on {what} yet")
        if self._range is None:
            return np.full(columns.shape[:-1], self.risk.dual(self._values[self._recent()]))
        fit = fit_of_sums(self._sums_at(self._recent()) if self._of_return else self._sums)
        return fit(self._range.coordinate(self._columns.named(columns)[RISK_AVERSION]))

    def y_at(self, risk_aversion: npt.ArrayLike) -> Array:
        """`y(lam)` of a range."""
        lam = np.asarray(risk_aversion, np.float64)
        zeros = {RETURN_SO_FAR: np.zeros(lam.shape), RISK_AVERSION: lam}
        return self.y(self._columns.raw(zeros, lam.shape))

    def errors(self) -> tuple[Array, Array, Array]:
        """Risk aversions at which `y(lam)` is known, its values there, and their standard errors.

        All steps with one risk aversion count as one episode.
        """
        if self._range is None:
            raise InputError("standard errors along a range need a RiskRange")
        values, coordinates = self.samples()
        fit = monotone_fit(coordinates, values)
        episodes = np.arange(values.size) if self._of_return else coordinates
        errors = standard_errors(fit, coordinates, values, episodes)
        return self._range.from_coordinate(fit.knots), fit.values, errors

    def best_of_range(self, known: RiskRange, risk_aversion: float) -> float:
        """The risk aversion of a range whose policy did best at `risk_aversion` recently."""
        return best_of_range(known, risk_aversion, self._episodes(known))

    def _episodes(self, known: RiskRange) -> Array:
        """Rows for `best_of_range`. All steps with one risk aversion count as one episode."""
        values, x = self.samples()
        inside = np.abs(x) <= 1.0
        values, x = values[inside], x[inside]
        places, episode = np.unique(x, return_inverse=True)
        if self._of_return:
            places, episode = x, np.arange(x.size)
        sums = [np.bincount(episode, w, places.size) for w in (None, values, np.square(values))]
        return np.stack([known.from_coordinate(places), *sums], axis=1)

    def arrays(self) -> dict[str, npt.NDArray[np.float64]]:
        """All that `restore` needs."""
        self._take_in()
        held = min(self._count, self._values.size)
        counts = np.array([self._count, self._observed], np.float64)
        rows = np.stack([self._values[:held], self._coordinates[:held], self._steps[:held]])
        sums = {} if self._range is None else {"recent_sums": self._sums}
        return {"samples": rows, "samples_counts": counts, **sums}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """The state that `arrays` described; `ValueError` if it cannot be one."""
        rows, counts = arrays["samples"], arrays["samples_counts"]
        self._count, self._observed = (int(count) for count in counts)
        held = min(self._count, self._values.size)
        if rows.shape != (3, held) or not np.isfinite(rows).all():
            raise ValueError(f"{rows.shape} samples of {self._count}")
        self._values[:held], self._coordinates[:held] = rows[0], rows[1]
        self._steps[:held], self._bins[:held] = rows[2], bin_of(rows[1])
        if self._range is not None:  # as they were summed, step by step: to the last bit
            sums = arrays["recent_sums"]
            if sums.shape != self._sums.shape or not np.isfinite(sums).all():
                raise ValueError(f"{sums.shape} sums of samples")
            self._sums = np.array(sums, np.float64)
            self._first = self._count - self._length(self._count)

    def _recent(self) -> npt.NDArray[np.int64]:
        """Places of the samples in use: those of the most recent steps, or a few at least."""
        if not self._of_return:
            return self._places(self._count - self._length(self._count), self._count)
        held = min(self._count, self._values.size)
        places = (self._count - 1 - np.arange(held)) % self._values.size  # the newest first
        recent = self._steps[places] > self._observed - self._length(self._observed)
        return np.sort(places[: max(int(recent.sum()), FEWEST_EPISODES)])


def augment_rows(
    rows: Vector,
    layout: RowLayout,
    columns: Columns,
    dual: ExtendedDual,
    rng: np.random.Generator,
    share: float = 1.0,
) -> float:
    """Augment drawn transitions in place, and write what networks see into their columns.

    Risk aversions are drawn anew, the same for `s` and `next_s`. `share` is that of the risk, see
    `phased_in`. Returns the mean `y`.
    """
    s, next_s = columns.of(rows[..., layout.s]), columns.of(rows[..., layout.next_s])
    columns.redraw(rng, s, next_s)
    raw = s.astype(np.float64)
    y = dual.y(raw)
    r = rows[..., layout.r].astype(np.float64)
    augmented = phased_in(r, dual.risk.augment_extended(r, y, columns.named(raw)), share)
    rows[..., layout.r] = augmented * columns.balance(raw)
    s[...], next_s[...] = columns.encode(s), columns.encode(next_s)
    return float(y.mean())


def phased_in(rewards: npt.ArrayLike, augmented: Array, share: float) -> Array:
    """`(1 - w) r + w augment(r, y)`: rewards of a risk of which only the share `w` counts.

    It is a measure of the same family, with the utility `(1 - w) t + w u(t)` and the same best `y`;
    for mean-variance, the risk aversion `w lam`.
    """
    if share == 1.0:
        return augmented
    return np.asarray((1.0 - share) * np.asarray(rewards, np.float64) + share * augmented)
