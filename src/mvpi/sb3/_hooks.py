"""Methods of a model that are replaced: saved as plain JSON with the model, never as a pickle.

SB3's `save` keeps what is in a model's `__dict__`: JSON where it can, a pickle elsewhere. A `Hook`
is callable and a dictionary, so it is written as the record of its plug. A loader that knows
nothing of this package puts that record where `collect_rollouts` and `train` were. It cannot be
called, so such a model acts but never learns from raw rewards.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from mvpi.errors import InputError
from mvpi.sb3._extension import seen_by_model
from mvpi.sb3._record import MARK

COLLECT, TRAIN = "collect_rollouts", "train"
_ELSEWHERE = {"see": COLLECT}


class Hook(dict[str, Any]):
    """`collect_rollouts` or `train` of a risk-averse model."""

    def __init__(self, plug: Any, name: str, model: Any = None) -> None:
        super().__init__({MARK: name})  # not empty, so that JSON asks for its items
        self.plug, self.name, self.model = plug, name, model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.name == COLLECT:
            return self.plug(*args, **kwargs)
        if self.model is None:
            raise InputError(
                "this model was loaded and not attached yet: call learn before train, or load it "
                "by mvpi.sb3.load(algorithm, path, env=...)"
            )
        return self.plug.train(self.model, *args, **kwargs)

    def items(self) -> Any:
        """What is saved."""
        record = self.plug.record() if self.name == COLLECT else _ELSEWHERE
        return {MARK: record}.items()

    def env_to_evaluate(self, env: gym.Env[Any, Any]) -> Any:
        """The environment as the model sees it."""
        return seen_by_model(env, self.plug.augmenter.risk, self.plug.columns.return_scale)


class Detached(dict[str, Any]):
    """What is left of a hook when a model was loaded without it: it cannot learn."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise InputError(
            "this model was saved as a risk-averse one and loaded without its risk: load it by "
            "mvpi.sb3.load(algorithm, path, env=...), or give it a risk by "
            "mvpi.sb3.attach(model, risk=...)"
        )


def install(model: Any, plug: Any) -> None:
    """Put a plug in place of the model's methods."""
    for name in (COLLECT, TRAIN):
        hook = vars(model).get(name)
        if not (isinstance(hook, Hook) and hook.plug is plug and hook.model is model):
            setattr(model, name, Hook(plug, name, model))


def plug_in(model: Any) -> Any:
    """The plug of a model, None if it has none."""
    hook = vars(model).get(COLLECT)
    if isinstance(hook, Hook):
        return hook.plug
    return hook if hasattr(hook, "augmenter") else None  # a model file of version 0.1


def record_in(model: Any) -> Any:
    """The record that a loader left in a model, None if there is none."""
    left = vars(model).get(COLLECT)
    return left.get(MARK) if type(left) is dict else None


def was_risk_averse(model: Any) -> bool:
    """Whether a model is, or was before it was saved."""
    entries = (vars(model).get(name) for name in (COLLECT, TRAIN))
    return any(isinstance(e, dict) and MARK in e for e in entries) or plug_in(model) is not None
