"""Finite data and a policy as one Markov chain: the pairs in the data follow each other.

Every transition is as likely as it is counted. After some there is weight missing, for either of
two reasons:

    the data lack what the policy does there      the policy starts anew
    the episode was over                          so it does here, or it stays in a last place, the
                                                  end, if asked to

Density ratios, fitted values and Algorithm 2 are all computed on this chain.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order

from mvpi.errors import InputError
from mvpi.offline.pairs import PairBatch
from mvpi.tabular.chain import Chain, NotUnichain, Values

Array = npt.NDArray[np.float64]

_ROUNDING = 1e-12
"""Missing weight below this is none."""
_ACCURACY = 1e-12


class PairChain:
    """The chain of all pairs in the data, and of the end of episodes as the last place.

    `over` says of every transition in the batch whether the episode stays over after it; left out,
    none does.
    """

    share: Array
    """How often every pair is in the data."""

    def __init__(
        self, batch: PairBatch, discount: float, over: npt.NDArray[np.bool_] | None = None
    ) -> None:
        pairs = 1 + int(batch.x.max())
        self.share = np.bincount(batch.x, batch.weight, pairs).astype(np.float64)
        matrix, start = _moves(batch, self.share, over)
        # What the policy never comes to does not count, and may not even mix.
        found = breadth_first_order(matrix, len(start) - 1, return_predecessors=False)
        self._reached = np.sort(found[1:])
        inside = csr_array(matrix[self._reached][:, self._reached])
        inside.data /= np.repeat(np.asarray(inside.sum(axis=1)).ravel(), np.diff(inside.indptr))
        first = start[self._reached]
        try:
            self._chain = Chain(inside, discount, first / first.sum())
        except NotUnichain:
            raise InputError(
                "at discount 1 the policy must end up in one part of the states whatever happens, "
                "but from the starts of the data it can in several; use a discount below 1"
            ) from None

    def occupancy(self) -> Array:
        """The share of steps in every pair, and last that of steps after the end."""
        return self._everywhere(self._chain.occupancy(), 0.0)

    def values(self, rewards: Array) -> Array:
        """Of every pair, for a reward per pair and 0 after the end; NaN if it is not reached.

        At discount 1 but for a constant.
        """
        return self._everywhere(self._evaluated(rewards).values, np.nan)[:-1]

    def mean(self, rewards: Array) -> float:
        """The mean reward of a step."""
        return self._evaluated(rewards).gain

    def _evaluated(self, rewards: Array) -> Values:
        inside = np.append(rewards, 0.0)[self._reached]
        return self._chain.evaluate(inside, _ACCURACY * float(np.abs(inside).max()))

    def _everywhere(self, values: Array, elsewhere: float) -> Array:
        whole = np.full(len(self.share) + 1, elsewhere)
        whole[self._reached] = values
        return whole


def _moves(
    batch: PairBatch, share: Array, over: npt.NDArray[np.bool_] | None
) -> tuple[csr_array, Array]:
    """How likely every place follows every other, and how likely it is the first.

    One more place, after the end, is where everything begins: nothing follows but a start.
    """
    end = len(share)
    ends = np.flatnonzero(over) if over is not None else np.empty(0, np.int64)
    likely = batch.weight / share[batch.x]
    onward = batch.following_weight * likely[:, None]
    sources = np.repeat(batch.x, batch.following.shape[1])
    rows = np.concatenate([sources, batch.x[ends], [end]])
    columns = np.concatenate([batch.following.ravel(), np.full(len(ends) + 1, end)])
    entries = np.concatenate([onward.ravel(), likely[ends], [1.0]])
    start: Array = np.zeros(end + 2)
    np.add.at(start, batch.starts.ravel(), batch.start_weight.ravel())

    missing = 1.0 - np.bincount(rows, entries, minlength=end + 2)
    anew, first = np.flatnonzero(missing > _ROUNDING), np.flatnonzero(start)
    rows = np.concatenate([rows, np.repeat(anew, len(first))])
    columns = np.concatenate([columns, np.tile(first, len(anew))])
    entries = np.concatenate([entries, np.outer(missing[anew], start[first]).ravel()])
    possible = entries > 0.0
    places = (rows[possible], columns[possible])
    return csr_array((entries[possible], places), (end + 2, end + 2)), start
