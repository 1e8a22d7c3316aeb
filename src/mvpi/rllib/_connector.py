"""On learners: rewards augmented at the front of the learner connector pipeline.

`y` is the driver's, the same on all learners and aggregators. Episodes are replaced by copies with
other rewards, because env runners and buffers may still hold them: what they hold stays raw. What
RLlib's own replay buffers draw are new episodes of a step each, hundreds of them: those are given
other rewards without being copied again.

With columns, the first observation of a chunk has the return so far and the risk aversion, from
which those of its later steps follow. What was drawn from a buffer gets a fresh risk aversion,
written into all its observations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer

from mvpi._types import Array
from mvpi.augmenter.columns import NO_COLUMNS, Columns
from mvpi.errors import InputError
from mvpi.risk import RISK_AVERSION, Risk, range_of
from mvpi.rllib._environment import seen_columns, with_column
from mvpi.rllib._replay import STEPS, Steps, discounted
from mvpi.rllib._settings import Settings

HAS_ARTIFICIAL_STEP = "_added_loss_mask_for_valid_episode_ts"
"""RLlib's sign that it has appended a step with reward 0 to every chunk of an episode."""
_LARGEST = float(np.finfo(np.float32).max)

Dual = float | Array
"""`y`, or for a range its values at equal distances of the coordinate, from -1 to 1."""


class AugmentRewards(ConnectorV2):
    """Rewards `r` of all episodes become `risk.augment(r, y)`, those of artificial steps stay 0.

    With `redraws`, every episode gets a fresh risk aversion of a range, as one that was drawn.
    """

    def __init__(
        self,
        *args: Any,
        columns: Columns = NO_COLUMNS,
        redraws: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.risk: Risk | None = None
        self.y: Dual = 0.0
        self._drawn_anew = False
        self._columns, self._redraws = columns, redraws
        self._rng: np.random.Generator | None = None

    def use(
        self,
        risk: Risk,
        y: Dual,
        learner: int = 0,
        *,
        seed: int | None = None,
        drawn_anew: bool = False,
    ) -> None:
        """Augment with these from now on. Learners draw different risk aversions, by one `seed`.

        `drawn_anew` says that nobody else holds the episodes that are passed in.
        """
        self.risk, self.y, self._drawn_anew = risk, y, drawn_anew
        if self._rng is None:
            entropy = None if seed is None else [seed, learner]
            self._rng = np.random.default_rng(entropy)

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: dict[str, Any],
        episodes: list[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        artificial = int(bool((shared_data or {}).get(HAS_ARTIFICIAL_STEP)))
        if not episodes:
            return batch
        if self._drawn_anew and not artificial and self._augment_single_steps(episodes):
            return batch
        steps: Sequence[Steps] = [_rewards(episode, artificial) for episode in episodes]
        sums = STEPS in episodes[0].custom_data
        if sums:
            parts, gammas = zip(*(e.custom_data[STEPS] for e in episodes), strict=True)
            steps = parts
        columns = self._columns_of(episodes)
        augmented = self._augmented_steps(steps, columns)
        new = discounted(augmented, gammas[0])[:, None] if sums else augmented
        copies = list(map(_with_rewards, episodes, new))
        if self._redraws:
            self._relabel(copies, columns)
        episodes[:] = copies
        return batch

    def _augment_single_steps(self, episodes: list[Any]) -> bool:
        """Augment episodes of one step each, which nobody else holds; False if some are others."""
        if set(map(type, episodes)) != {SingleAgentEpisode}:
            return False
        kept = [episode.rewards for episode in episodes]
        if any(len(own.data) != 1 or own.lookback for own in kept):
            return False
        if STEPS in episodes[0].custom_data:
            return False
        columns = self._columns_of(episodes)
        rewards = np.fromiter(chain.from_iterable(own.data for own in kept), np.float64, len(kept))
        augmented = self._augmented(rewards, np.ones(len(kept), np.intp), columns)
        for own, row, value in zip(kept, augmented[:, None], augmented.tolist(), strict=True):
            own.data = [value] if type(own.data) is list else row
        if self._redraws:
            self._relabel(episodes, columns)
        return True

    def _columns_of(self, episodes: list[Any]) -> Array:
        """Raw values of the columns at the first step of every episode, risk aversions drawn."""
        size = self._columns.size
        if not size:
            return np.empty((len(episodes), 0))
        kept = [episode.observations for episode in episodes]
        seen = [seen_columns(o.data, slice(o.lookback, o.lookback + 1), size) for o in kept]
        raw = self._columns.decode(np.concatenate(seen))
        if self._redraws and self._rng is not None:
            self._columns.redraw(self._rng, raw)
        return raw

    def _relabel(self, episodes: list[Any], raw: Array) -> None:
        place = self._columns.names.index(RISK_AVERSION)
        seen = self._columns.encode(raw)[:, place]
        kept = [episode.observations for episode in episodes]
        new = with_column([o.data for o in kept], place - self._columns.size, seen)
        for episode, own, data in zip(episodes, kept, new, strict=True):
            episode.observations = _with_data(own, data)

    def _augmented_steps(self, steps: Sequence[Steps], columns: Array) -> list[Array]:
        """Augmented rewards of steps that follow each other, the first of which has `columns`."""
        lengths = np.array(list(map(len, steps)), np.intp)
        rewards = np.fromiter(chain.from_iterable(steps), np.float64, int(lengths.sum()))
        return np.split(self._augmented(rewards, lengths, columns), np.cumsum(lengths)[:-1])

    def _augmented(self, rewards: Array, lengths: npt.NDArray[np.intp], columns: Array) -> Array:
        """The same of one array, in which `lengths` of them follow each other."""
        if self.risk is None:
            raise InputError(
                "this learner was told no y: config.callbacks(...) after risk_averse replaces what "
                "it needs; set callbacks first and call risk_averse last"
            )
        if self._columns.size:
            ends = np.cumsum(lengths)
            earned = np.cumsum(rewards) - rewards
            before = earned - np.repeat(np.append(earned, 0.0)[ends - lengths], lengths)
            raw = self._columns.step(np.repeat(columns, lengths, axis=0), before)
            seen = self._columns.named(raw)
            augmented = self.risk.augment_extended(rewards, self._y_of(seen), seen)
        else:
            augmented = self.risk.augment(rewards, float(self.y))
        if not (np.abs(augmented) <= _LARGEST).all():
            raise InputError(
                f"{self.risk} with y = {np.mean(self.y):g} and rewards up to "
                f"{np.abs(rewards).max():g} goes beyond what float32 can hold: lower the risk "
                "aversion or scale rewards down"
            )
        return augmented

    def _y_of(self, seen: dict[str, Array]) -> Dual:
        known = None if self.risk is None else range_of(self.risk)
        if known is None or isinstance(self.y, float):
            return self.y
        places = np.linspace(-1.0, 1.0, len(self.y))
        return np.asarray(np.interp(known.coordinate(seen[RISK_AVERSION]), places, self.y))


def _rewards(episode: Any, artificial: int) -> Steps:
    """The rewards of an episode without those before it and without an artificial step."""
    if not isinstance(episode, SingleAgentEpisode):
        raise InputError(
            f"{type(episode).__name__} has several agents: risk_averse needs an environment of one"
        )
    own = episode.rewards
    steps: Steps = own.data[own.lookback : len(own.data) - artificial]
    return steps


def _with_rewards(episode: Any, rewards: Array) -> Any:
    """A copy of an episode, with these in place of what `_rewards` gave."""
    own = episode.rewards
    data: Any = np.array(own.data, np.float64)
    data[own.lookback : own.lookback + len(rewards)] = rewards
    changed = _copy(episode)
    changed.rewards = _with_data(own, data.tolist() if isinstance(own.data, list) else data)
    return changed


def _with_data(buffer: Any, data: Any) -> Any:
    """A copy of a buffer with other data; its constructor looks at the space again, for long."""
    new = InfiniteLookbackBuffer.__new__(type(buffer))
    vars(new).update(vars(buffer))
    new.data = data
    return new


def _copy(episode: Any) -> Any:
    """`copy(episode)`, three times as fast: a batch from a replay buffer is hundreds of them."""
    if type(episode) is not SingleAgentEpisode:
        return copy(episode)
    new = SingleAgentEpisode.__new__(SingleAgentEpisode)
    for name in SingleAgentEpisode.__slots__:
        setattr(new, name, getattr(episode, name))
    return new


@dataclass(frozen=True)
class LearnerConnectors:
    """RLlib's `learner_connector`: ours, then those that the user's own function makes."""

    own: Callable[..., Any] | None
    settings: Settings

    def __call__(self, *spaces: Any) -> list[Any]:
        pieces = [] if self.own is None else self.own(*spaces)
        if isinstance(pieces, ConnectorV2):
            pieces = [pieces]
        if not isinstance(pieces, list | tuple):
            raise InputError(
                "the function given as learner_connector must return a ConnectorV2 or a list of "
                f"them, got {pieces!r}"
            )
        columns, redraws = self.settings.columns, self.settings.redraws
        return [AugmentRewards(columns=columns, redraws=redraws), *pieces]


def use_everywhere(worker: Any, risk: Risk, y: Dual, *, drawn_anew: bool = False) -> None:
    """Have the pipeline of a learner or an aggregator augment with these."""
    pipeline = worker._learner_connector
    for piece in [] if pipeline is None else pipeline.connectors:
        if isinstance(piece, AugmentRewards):
            learner = getattr(worker, "_learner_index", 0)
            piece.use(risk, y, learner, seed=worker.config.seed, drawn_anew=drawn_anew)
