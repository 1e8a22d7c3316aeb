"""Finite data and a policy as one Markov chain over the state-action pairs of the data.

Every transition is as likely as it is counted. After some there is weight missing: the episode was
over, or the data lack what the policy does there. In both cases the next pair is at a start.
Density ratios and fitted values are computed on this chain.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from mvpi._types import Array
from mvpi.errors import InputError
from mvpi.offline._state_action_pairs import PairBatch
from mvpi.tabular._matrices import NotUnichain
from mvpi.tabular.chain import Chain

_ROUNDING = 1e-12
"""Missing weight below this is none."""
_ACCURACY = 1e-12


class PairChain:
    """The chain of the pairs in the data that a policy reaches."""

    share: Array
    """How often every pair is in the data."""

    def __init__(self, batch: PairBatch, discount: float) -> None:
        pairs = 1 + int(batch.x.max())
        self.share = np.bincount(batch.x, batch.weight, pairs).astype(np.float64)
        matrix, start = _moves(batch, self.share)
        # Pairs out of reach carry no weight, and might form closed classes of their own.
        found = breadth_first_order(matrix, len(start) - 1, return_predecessors=False)
        self._reached = np.sort(found[1:])
        inside = csr_array(matrix[self._reached][:, self._reached])
        inside.data /= np.repeat(np.asarray(inside.sum(axis=1)).ravel(), np.diff(inside.indptr))
        first = start[self._reached]
        try:
            self._chain = Chain(inside, discount, first / first.sum())
        except NotUnichain:
            raise several_closed_classes() from None

    def occupancy(self) -> Array:
        """The share of steps in every pair."""
        whole = np.zeros(len(self.share))
        whole[self._reached] = self._chain.occupancy()
        return whole

    def mean(self, rewards: Array) -> float:
        """The mean reward of a step, for a reward per pair."""
        inside = rewards[self._reached]
        return self._chain.evaluate(inside, _ACCURACY * float(np.abs(inside).max())).gain


def several_closed_classes() -> InputError:
    """The error for a problem without discount in which the start decides where a policy ends."""
    return InputError(
        "at discount 1 the policy must end up in one part of the states whatever happens, but from "
        "the starts of the data it can in several; use a discount below 1"
    )


def _moves(batch: PairBatch, share: Array) -> tuple[csr_array, Array]:
    """How likely every pair follows every other, and how likely it is the first.

    One more place, the last, is where everything begins: nothing follows but a start.
    """
    begin = len(share)
    likely = batch.weight / share[batch.x]
    rows = np.repeat(batch.x, batch.following.shape[1])
    columns = batch.following.ravel()
    entries = (batch.following_weight * likely[:, None]).ravel()
    start: Array = np.zeros(begin + 1)
    np.add.at(start, batch.starts.ravel(), batch.start_weight.ravel())

    missing = 1.0 - np.bincount(rows, entries, minlength=begin + 1)
    anew, first = np.flatnonzero(missing > _ROUNDING), np.flatnonzero(start)
    rows = np.concatenate([rows, np.repeat(anew, len(first))])
    columns = np.concatenate([columns, np.tile(first, len(anew))])
    entries = np.concatenate([entries, np.outer(missing[anew], start[first]).ravel()])
    possible = entries > 0.0
    places = (rows[possible], columns[possible])
    return csr_array((entries[possible], places), (begin + 1, begin + 1)), start
