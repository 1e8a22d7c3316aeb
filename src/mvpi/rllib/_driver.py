"""On the driver: one `Augmenter` for the whole algorithm, and its part in checkpoints.

RLlib passes the metrics of env runners to `algorithm.metrics.aggregate` before it learns from what
they sampled. There their rewards are taken out and observed, and `y` is sent on to all learners and
aggregators, which get it before the next batch: Ray keeps the order of calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.fs
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.utils import force_list
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import ENV_RUNNER_RESULTS

from mvpi._checks import check_kind, shown
from mvpi._storage.arrays import pack_arrays, unpack_arrays
from mvpi._types import Array
from mvpi.augmenter import Augmenter
from mvpi.augmenter.augmenter import check_rewards
from mvpi.errors import InputError
from mvpi.risk import RETURN_SO_FAR, range_of
from mvpi.rllib._connector import Dual, LearnerConnectors, use_everywhere
from mvpi.rllib._environment import ExtendedEnvironment, refuse_other_environment
from mvpi.rllib._refusals import refuse
from mvpi.rllib._replay import attach_steps, draws_new_episodes, refuse_other_buffers
from mvpi.rllib._runner import REWARDS, ReportRewards, Sampled, nothing
from mvpi.rllib._settings import Settings

COMPONENT = "mvpi"
"""The name in checkpoints, in `get_state` and in metrics."""
SHORTEST_WINDOW = 1_000
"""On-policy. Measured on a few steps, `y` would fit the very rewards that it is compared with."""
PLACES = 201
"""Learners get `y(lam)` of a range at this many risk aversions, and interpolate."""
_FAULT = 1e-3
"""Columns are kept in single precision, some of it lost where returns are large."""
_FILE = "augmenter.safetensors"


@dataclass(frozen=True)
class Attach:
    """RLlib's `on_algorithm_init`."""

    settings: Settings

    def __call__(self, *, algorithm: Any, **_: Any) -> None:
        refuse(algorithm.config)
        if not isinstance(algorithm.config._learner_connector, LearnerConnectors):
            raise InputError(
                "config.learners(learner_connector=...) after risk_averse replaces what it needs: "
                "set your own connectors first and call risk_averse last"
            )
        reports = force_list(algorithm.config.callbacks_on_sample_end)
        if not any(isinstance(report, ReportRewards) for report in reports):
            raise InputError(
                "config.callbacks(on_sample_end=...) after risk_averse replaces what it needs: set "
                "callbacks first and call risk_averse last"
            )
        if self.settings.columns.size:
            if algorithm.config.env is not ExtendedEnvironment:
                raise InputError(
                    "config.environment(...) after risk_averse replaces what it needs: set the "
                    "environment first and call risk_averse last"
                )
            refuse_other_environment(algorithm.config)
        algorithm._mvpi = Plug(self.settings, algorithm)


class Plug(Checkpointable):
    """The augmenter of an algorithm, a component of its checkpoints."""

    def __init__(self, settings: Settings, algorithm: Any) -> None:
        config = algorithm.config
        self._settings = settings
        self.columns = settings.columns
        self._algorithm = algorithm
        self._least = SHORTEST_WINDOW
        if settings.on_policy:
            self._least = max(SHORTEST_WINDOW, config.total_train_batch_size)
        self.augmenter = self._new_augmenter()
        self._so_far = 0.0
        buffer = getattr(algorithm, "local_replay_buffer", None)
        self._drawn_anew = draws_new_episodes(buffer)
        if buffer is not None and config.n_step != 1:
            refuse_other_buffers(buffer)
            attach_steps(buffer, config.gamma)
        self._extend(algorithm)

    def _new_augmenter(self) -> Augmenter:
        weighs = self._settings.occupancy == "discounted"
        return Augmenter(
            self._settings.risk,
            self._fixed_window or self._least,
            occupancy=self._settings.occupancy,
            gamma=self._algorithm.config.gamma if weighs else None,
        )

    @property
    def _fixed_window(self) -> int | None:
        return self._settings.window or (None if self._settings.on_policy else 10_000)

    def _extend(self, algorithm: Any) -> None:
        """Add this to what the algorithm does; its class stays what it is, in checkpoints too."""
        aggregate, get_state = algorithm.metrics.aggregate, algorithm.get_state
        set_state, components = algorithm.set_state, algorithm.get_checkpointable_components

        def aggregate_and_observe(stats_dicts: Any, *, key: Any = None) -> None:
            path = key if isinstance(key, tuple) else (key,)
            if path[-1] == ENV_RUNNER_RESULTS:
                taken = _taken(stats_dicts, self.columns.size)
                if len(path) == 1:  # else of an evaluation, on the env runner that trains
                    self.observe(taken)
            aggregate(stats_dicts, key=key)

        def state_with_ours(
            components: Any = None, *, not_components: Any = None, **kwargs: Any
        ) -> Any:
            state = get_state(components, not_components=not_components, **kwargs)
            if algorithm._check_component(COMPONENT, components, not_components):
                state[COMPONENT] = self.get_state()
            return state

        def set_state_with_ours(state: Any) -> None:
            set_state(state)
            if COMPONENT in state:
                self.set_state(state[COMPONENT])

        algorithm.metrics.aggregate = aggregate_and_observe
        algorithm.get_state = state_with_ours
        algorithm.set_state = set_state_with_ours
        algorithm.get_checkpointable_components = lambda: [*components(), (COMPONENT, self)]

    def observe(self, samples: list[Sampled]) -> None:
        """Take note of what env runners have sampled, and tell all learners."""
        rewards, times, terminated, truncated, seen = map(
            np.concatenate, zip(*samples, strict=True)
        )
        if rewards.size == 0:
            return
        size = max(rewards.size, self._least)
        if self._fixed_window is None and self.augmenter.window != size:
            self.augmenter.resize(size)
        if self.columns.size:
            check_rewards(rewards)
            columns = self._columns(seen, rewards)
            ends = {"terminated": terminated, "truncated": truncated}
            self.augmenter.observe(rewards, times, **ends, columns=columns)
            self._so_far = self._mean_so_far(columns, rewards, times)
        else:
            self.augmenter.observe(rewards, times, terminated)
        for name, value in self.augmenter.metrics().items() if self.augmenter.ready else ():
            self._algorithm.metrics.log_value((COMPONENT, name), value, window=1)
        self._tell()

    def _columns(self, seen: Any, rewards: Array) -> Array:
        """The columns that rewards were earned with, if the next ones follow from them."""
        columns = self.columns
        before, after = (columns.decode(part) for part in (seen[:, 0], seen[:, 1]))
        fault = np.abs(columns.step(before, rewards) - after)
        size = columns.return_scale + np.abs(before) + np.abs(after) + np.abs(rewards)[:, None]
        if not (fault <= _FAULT * size).all():
            raise InputError(
                f"observations do not hold {' and '.join(columns.names)} as they were written: "
                "leave out connectors that change observations, such as MeanStdFilter and "
                "FlattenObservations, and put NormalizeObservation or FlattenObservation of "
                "gymnasium.wrappers on the environment instead"
            )
        return before

    def _mean_so_far(self, columns: Array, rewards: Array, times: Any) -> float:
        """The mean of what episodes have earned where their samples end."""
        if RETURN_SO_FAR not in self.columns:
            return 0.0
        last = np.append(np.diff(times) != 1, True)
        earned = self.columns.named(columns)[RETURN_SO_FAR] + rewards
        return float(earned[last].mean())

    def _dual(self) -> Dual:
        """`y`, along a range if there is one; before any episode has ended, of returns so far."""
        if not self.augmenter.ready:
            return self._so_far
        known = range_of(self.augmenter.risk)
        return self.augmenter.y if known is None else self.augmenter.y_at(known.grid(PLACES))

    def _tell(self) -> None:
        """Send risk and `y` to all who augment, without waiting for them."""
        use = partial(
            use_everywhere,
            risk=self.augmenter.risk,
            y=self._dual(),
            drawn_anew=self._drawn_anew,
        )
        self._algorithm.learner_group.foreach_learner(use, timeout_seconds=0.0)
        aggregators = self._algorithm._aggregator_actor_manager
        if aggregators is not None:
            aggregators.foreach_actor(use, timeout_seconds=0.0)

    # ---- what RLlib calls of a component ----------------------------------------------------

    def get_state(self, components: Any = None, **_: Any) -> dict[str, Any]:
        """Arrays and plain numbers."""
        arrays, numbers = self.augmenter.state()
        return {"arrays": arrays, "numbers": {**numbers, **self._seen_by_policy()}}

    def _seen_by_policy(self) -> dict[str, Any]:
        """What the networks of a checkpoint are for."""
        scale = self.columns.return_scale if RETURN_SO_FAR in self.columns else None
        return {"columns": list(self.columns.names), "return_scale": scale}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on with the rewards of a checkpoint, and the risk aversion found for a budget."""
        restored = self._new_augmenter()
        try:
            self._refuse_other_columns(state["numbers"])
            restored.restore(state["arrays"], state["numbers"])
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise InputError(f"this is no state of mvpi.rllib: {error!r}") from None
        self.augmenter = restored
        if self._fixed_window not in {None, self.augmenter.window}:
            self.augmenter.resize(self._fixed_window)
        if self.augmenter.ready:
            self._tell()

    def _refuse_other_columns(self, numbers: Mapping[str, Any]) -> None:
        """Checkpoints from before these were recorded are taken as they are."""
        for name, ours in self._seen_by_policy().items():
            theirs = numbers.get(name, ours)
            if theirs != ours:
                raise InputError(
                    f"the policy of this checkpoint has {name} = {shown(theirs)}, and that of this "
                    f"config {ours}: restore it with the risk and return_scale it was trained with"
                )

    def save_to_path(
        self, path: Any = None, *, state: Any = None, filesystem: Any = None, **_: Any
    ) -> str:
        """Write one file of safetensors and JSON; nothing of it is pickled."""
        found, place = _place(path, filesystem)
        state = state or self.get_state()
        found.create_dir(place, recursive=True)
        with found.open_output_stream(f"{place}/{_FILE}") as file:
            file.write(pack_arrays("rllib augmenter", state["arrays"], state["numbers"]))
        return place

    def restore_from_path(self, path: Any, *, filesystem: Any = None, **_: Any) -> None:
        """Read what `save_to_path` wrote; whatever else is there is not looked at."""
        found, place = _place(path, filesystem)
        try:
            with found.open_input_stream(f"{place}/{_FILE}") as file:
                data = file.read()
        except OSError as error:
            raise InputError(
                f"{place}/{_FILE} cannot be read ({type(error).__name__}): save the checkpoint "
                "again"
            ) from None
        arrays, record = unpack_arrays(data, "rllib augmenter", Path(place) / _FILE)
        self.set_state({"arrays": arrays, "numbers": record})

    def get_ctor_args_and_kwargs(self) -> Any:
        """Not made from a checkpoint: `risk_averse` makes it, and a checkpoint restores it."""
        raise NotImplementedError


def plug_of(algorithm: Algorithm) -> Plug:
    """The plug of a risk-averse algorithm."""
    check_kind(algorithm, Algorithm, "algorithm", "an algorithm of RLlib")
    plug = vars(algorithm).get("_mvpi")
    if not isinstance(plug, Plug):
        raise InputError(
            f"this {type(algorithm).__name__} was not built from a config of mvpi.rllib.risk_averse"
        )
    return plug


def augmenter_of(algorithm: Algorithm) -> Augmenter:
    """What a risk-averse algorithm augments with: its `risk`, `y` and recent raw `rewards`."""
    return plug_of(algorithm).augmenter


def _taken(stats_dicts: Iterable[Any], columns: int) -> list[Sampled]:
    """The rewards in metrics of env runners, in order; they are no longer in there afterwards."""
    series = [stats.pop(REWARDS, None) for stats in stats_dicts]
    reported = [item for one in series if one is not None for item in one.peek(compile=False)]
    return [nothing(columns), *reported]


def _place(path: Any, filesystem: Any) -> tuple[Any, str]:
    """A file system and a path in it."""
    text = path if isinstance(path, str) else path.as_posix()
    return (filesystem, text) if filesystem else pyarrow.fs.FileSystem.from_uri(text)
