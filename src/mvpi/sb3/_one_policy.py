"""One policy of a model that was trained for a range of risk aversions."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from mvpi.augmenter.columns import Columns
from mvpi.envs.extended import EXTENSION
from mvpi.errors import InputError
from mvpi.risk import RISK_AVERSION, Risk
from mvpi.risk.extended import at, range_of
from mvpi.sb3._extension import seen_by_model, with_column
from mvpi.sb3._hooks import plug_in


class PolicyAt:
    """The policy of a model at one risk aversion. It predicts as models of SB3 do.

    It is the policy that was learned for `risk_aversion`, unless another one of the range has done
    better at it in recent episodes by more than chance. `acted` is the risk aversion that it was
    learned for.

    Observations are those of the plain environment, or extended: by the return so far, if the model
    looks at it (`mvpi.envs.ReturnSoFar`), or by everything that it sees.
    """

    def __init__(self, model: Any, risk_aversion: float) -> None:
        plug = plug_in(model)
        self.model = model
        self.risk: Risk = at(plug.augmenter.risk, risk_aversion)
        self.risk_aversion = float(risk_aversion)
        self.acted = plug.augmenter.best_of_range(self.risk_aversion)
        self._trained: Risk = plug.augmenter.risk
        self._columns: Columns = plug.columns
        self._place = self._columns.names.index(RISK_AVERSION)
        known = range_of(self._trained)
        assert known is not None
        self._seen = np.float32(known.coordinate(self.acted))

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        **more: Any,
    ) -> Any:
        """Actions and the next state of the policy, as `model.predict` returns them."""
        seen = self._extended(observation)
        return self.model.predict(seen, state, episode_start, deterministic, **more)

    def save(self, path: Any) -> None:
        """A model file, of which `mvpi.sb3.at(mvpi.sb3.load(algorithm, path))` is this policy."""
        plug = plug_in(self.model)
        before, plug.chosen = plug.chosen, self.risk_aversion
        try:
            self.model.save(path)
        finally:
            plug.chosen = before

    def env_to_evaluate(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """The environment as the model sees it, at this risk aversion."""
        scale = self._columns.return_scale
        return seen_by_model(env, self._trained, scale, self.acted)

    def _extended(self, observation: Any) -> Any:
        if isinstance(observation, dict):
            inside = observation.get(EXTENSION, np.zeros((*_batch(self.model, observation), 0)))
            return {**observation, EXTENSION: self._complete(np.asarray(inside), 0)}
        size = self.model.observation_space.shape[0] - self._columns.size
        rows = np.asarray(observation)
        if rows.dtype.kind in "iu" and rows.shape[-1:] != (size,):  # states of a finite set
            rows = np.eye(size, dtype=np.float32)[rows]
        return self._complete(rows, size)

    def _complete(self, rows: Any, size: int) -> Any:
        """Rows of `size` numbers and some of the columns, with the risk aversion written in."""
        given, count = rows.shape[-1] - size, self._columns.size
        if given == count - 1:
            rows = np.insert(rows, size + self._place, self._seen, axis=-1)
        elif given != count:
            raise InputError(
                f"observations must have {size + count - 1} entries, without the risk aversion, "
                f"got {rows.shape[-1]}"
                + (": wrap the environment in mvpi.envs.ReturnSoFar" if count > 1 else "")
            )
        return with_column(rows, self._columns, self._place, self._seen)


def _batch(model: Any, observation: dict[str, Any]) -> tuple[int, ...]:
    """The shape of a batch of dictionaries, () for a single one."""
    name, space = next(iter(model.observation_space.spaces.items()))
    shape: tuple[int, ...] = np.shape(observation[name])
    return shape[: len(shape) - len(space.shape)]
