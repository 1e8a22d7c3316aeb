"""Risk aversion for algorithms of Stable-Baselines3, sb3-contrib and SBX, in one line.

    model = risk_averse(SAC, "MlpPolicy", env, risk=1.0)    an ordinary SAC from here on
    at(model, 0.5)                     one policy of a model trained with a RiskRange
    load(SAC, path, env=env)           a saved model; SAC.load does as well
    attach(model, risk=1.0)            a plain model made risk-averse
    save_training(model, directory)    all of a training, to go on exactly in another process
    load_training(SAC, directory, env=env)
    export(model, path)                the policy alone, for `mvpi.load` and `mvpi evaluate`

For all of them but ARS, which compares whole episodes. TRPO with this plug is the original TRVO.

How it is plugged in: hooks take the place of the model's `collect_rollouts` and `train`, and the
model's buffer gets a subclass of its own class. What is saved of them is plain JSON. No class of
SB3 is changed; its reader of model files is extended to read the JSON (`mvpi.sb3._loading`).
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from mvpi import augmenter
from mvpi._checks import check_count, check_flag, check_kind, shown
from mvpi._storage.files import short
from mvpi.augmenter import Augmenter, risk_warnings
from mvpi.augmenter.occupancy import Occupancy, check_occupancy
from mvpi.errors import InputError, MissingPackage
from mvpi.risk import Risk, learnable

try:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

    from mvpi.sb3._buffers import EpisodeClock as EpisodeClock
    from mvpi.sb3._buffers import _unpickled as _unpickled
    from mvpi.sb3._buffers import drawing_augmented as drawing_augmented
    from mvpi.sb3._buffers import learning_augmented as learning_augmented
    from mvpi.sb3._environments import made
    from mvpi.sb3._export import export as export
    from mvpi.sb3._extension import extended
    from mvpi.sb3._hooks import plug_in, record_in, was_risk_averse
    from mvpi.sb3._loading import (
        check_algorithm,
        check_settings,
        install_reader,
        plug_from,
        record_of,
        saved_data,
    )
    from mvpi.sb3._one_policy import PolicyAt as PolicyAt
    from mvpi.sb3._pickle_check import check_pickles
    from mvpi.sb3._plug import OffPolicyPlug as OffPolicyPlug
    from mvpi.sb3._plug import OnPolicyPlug as OnPolicyPlug
    from mvpi.sb3._plug import Plug as Plug
    from mvpi.sb3._record import check_named
    from mvpi.sb3._relies_on import RELIES_ON as RELIES_ON
    from mvpi.sb3._relies_on import RELIES_ON_ATTRIBUTES as RELIES_ON_ATTRIBUTES
    from mvpi.sb3._training import load_training as load_training
    from mvpi.sb3._training import save_training as save_training
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("stable_baselines3", "torch"):
        raise
    raise MissingPackage("mvpi.sb3", "stable-baselines3", "sb3") from error

__all__ = [
    "PolicyAt",
    "at",
    "attach",
    "augmenter_of",
    "export",
    "load",
    "load_training",
    "risk_averse",
    "save_training",
]

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)

# Models saved by version 0.1 name these modules.
sys.modules.setdefault("mvpi.running", augmenter)
sys.modules.setdefault("mvpi.advice", risk_warnings)
install_reader()


def risk_averse(
    algorithm: type[Algorithm],
    policy: Any,
    env: Any,
    *,
    risk: Risk | float,
    window: int | None = None,
    occupancy: Occupancy = "undiscounted",
    return_scale: float = 1.0,
    **arguments: Any,
) -> Algorithm:
    """`algorithm(policy, env, **arguments)` that maximises a risk measure of the per-step reward.

    `risk` is a risk aversion (mean-variance) or any `Risk`. `window` is how many of the most recent
    rewards `y` is measured on: 10,000 if left out, on-policy the rollout but at least 1,000.
    `occupancy="discounted"` weighs them by the discounted occupancy, with 0 after the end: for
    tasks that terminate and cost something per step. The model is an instance of `algorithm`;
    `learn`, `save`, `load` and callbacks are its own. The logger also gets `mvpi/y`,
    `mvpi/risk_aversion` (if the measure has one), `mvpi/reward_mean` and `mvpi/reward_variance`.

    With `RiskRange` and `OfReturn` the environment is extended: the policy sees the risk aversion
    and the return so far beside the observation. `return_scale` is the size of a return, below
    which it is seen in proportion, and beyond which by its logarithm.
    """
    kind, measure = _plug_for(algorithm), learnable(risk)
    check_named(measure)
    if window is not None:
        check_count(window, "window")
    discounted = check_occupancy(occupancy) == "discounted"
    _refuse_no_buffer(arguments)
    _refuse_ignored_n_steps(arguments)
    seen = extended(env, measure, return_scale)
    model: Any = algorithm(policy, seen, **arguments)
    plug = _new_plug(kind, model, measure, window, discounted, return_scale)
    plug.attach(model)
    risky: Algorithm = model
    return risky


def augmenter_of(model: BaseAlgorithm) -> Augmenter:
    """What a risk-averse model augments rewards with: its `risk`, `y` and recent raw `rewards`."""
    return _known_plug(model).augmenter


def at(model: BaseAlgorithm, risk_aversion: float | None = None) -> PolicyAt:
    """The policy of a model trained with a `RiskRange` at one risk aversion of the range.

    It predicts, is evaluated by `mvpi.evaluate` and is saved like a model. Left out, the risk
    aversion is the one that the policy was saved with.
    """
    plug = _known_plug(model)
    chosen = plug.chosen if risk_aversion is None else risk_aversion
    if chosen is None:
        raise InputError("risk_aversion must be given: the model was saved for all of its range")
    return PolicyAt(model, chosen)


def load(
    algorithm: type[Algorithm],
    path: Any,
    env: Any = None,
    *,
    risk: Risk | float | None = None,
    device: Any = "auto",
    custom_objects: dict[str, Any] | None = None,
    force_reset: bool = True,
    trusted: bool = False,
    **settings: Any,
) -> Algorithm:
    """A saved risk-averse model, ready to act and to learn; `risk` is another one to go on with.

    `env` is extended if the model needs it. `settings` are arguments of the algorithm that change.
    The other arguments are those of `algorithm.load`. A file whose pickles could run code when SB3
    reads them is refused unless it is `trusted`; models of SBX and functions as schedules are such.
    """
    _plug_for(algorithm)
    check_settings(algorithm, settings)
    data = saved_data(path)
    if not check_flag(trusted, "trusted"):
        check_pickles(data, custom_objects or ())
    check_algorithm(algorithm, data, path)
    record, env = record_of(data), made(env)
    if record is not None:
        plug = plug_from(record, risk)
        env = extended(env, plug.augmenter.risk, plug.columns.return_scale)
    try:
        model = algorithm.load(
            path,
            env=env,
            device=device,
            custom_objects=custom_objects,
            force_reset=force_reset,
            **settings,
        )
    except (InputError, Warning):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {short(error, 200)}"
        raise InputError(
            f"{shown(str(path))} cannot be loaded as {algorithm.__name__}: {reason}"
        ) from error
    if record is None and not was_risk_averse(model) and risk is None:
        raise InputError(
            f"{shown(str(path))} is a plain {algorithm.__name__}: give it a risk=..., or load it "
            f"by {algorithm.__name__}.load"
        )
    return attach(model, risk=risk)


def attach(
    model: Algorithm,
    *,
    risk: Risk | float | None = None,
    window: int | None = None,
    occupancy: Occupancy = "undiscounted",
) -> Algorithm:
    """Make a model risk-averse: a plain one, with its replay buffer, or one that was loaded.

    Left out, `risk` is the one it was saved with. The model itself is changed and returned.
    """
    check_kind(model, BaseAlgorithm, "model", "a model of Stable-Baselines3")
    if risk is not None:
        check_named(learnable(risk))
    plug = _plug_left_in(model)
    if plug is None:
        if risk is None:
            raise InputError(f"this {type(model).__name__} has no risk: give it one, risk=...")
        discounted = check_occupancy(occupancy) == "discounted"
        measure = learnable(risk)
        if measure.columns:
            raise InputError(
                f"{measure} needs a policy that sees {' and '.join(measure.columns)}, which this "
                f"{type(model).__name__} does not: make a new one by mvpi.sb3.risk_averse"
            )
        plug = _new_plug(_plug_for(type(model)), model, measure, window, discounted, 1.0)
    elif window is not None or occupancy != "undiscounted":
        raise InputError("window and occupancy are those that the model was saved with")
    elif risk is not None:
        plug.change_risk(model, risk)
        return model
    plug.attach(model)
    return model


def _plug_left_in(model: Any) -> Plug | None:
    plug: Plug | None = plug_in(model)
    record = record_in(model)
    return plug if record is None else plug_from(record)


def _known_plug(model: Any) -> Plug:
    check_kind(model, BaseAlgorithm, "model", "a model of mvpi.sb3.risk_averse")
    plug: Plug | None = plug_in(model)
    if plug is None:
        raise InputError(f"this {type(model).__name__} was not made by mvpi.sb3.risk_averse")
    return plug


def _new_plug(
    kind: type[Plug],
    model: Any,
    risk: Risk,
    window: int | None,
    discounted: bool,
    return_scale: float,
) -> Plug:
    size = kind.WINDOW if window is None else check_count(window, "window")
    if kind is OnPolicyPlug and window is None and risk.columns:
        size = max(model.n_steps * model.n_envs, size)
    plug = kind(risk, size, model.gamma if discounted else None, return_scale, model.seed)
    if isinstance(plug, OnPolicyPlug):
        plug.grows_with_rollout = window is None
    return plug


def _plug_for(algorithm: Any) -> type[OffPolicyPlug] | type[OnPolicyPlug]:
    if not (isinstance(algorithm, type) and issubclass(algorithm, BaseAlgorithm)):
        instance = isinstance(algorithm, BaseAlgorithm)
        hint = "; a model that is there already: mvpi.sb3.attach(model, risk=...)" * instance
        raise InputError(
            f"algorithm must be a class of Stable-Baselines3, got {shown(algorithm)}{hint}"
        )
    if issubclass(algorithm, OffPolicyAlgorithm):
        return OffPolicyPlug
    if issubclass(algorithm, OnPolicyAlgorithm):
        return OnPolicyPlug
    raise InputError(
        f"{algorithm.__name__} has no rewards per step to augment: it compares whole episodes. "
        "Give it Monitor(mvpi.envs.AugmentedReward(env, risk)) as its environment instead, with no "
        "Monitor inside"
    )


def _refuse_no_buffer(arguments: dict[str, Any]) -> None:
    if not arguments.get("_init_setup_model", True):
        raise InputError("_init_setup_model must be True: the plug needs the buffer of the model")


def _refuse_ignored_n_steps(arguments: dict[str, Any]) -> None:
    own = arguments.get("replay_buffer_class")
    if own is None:
        return
    n_steps = check_count(arguments.get("n_steps", 1), "n_steps")
    told = (arguments.get("replay_buffer_kwargs") or {}).get("n_steps") == n_steps
    if n_steps > 1 and not told:
        raise InputError(
            f"SB3 ignores n_steps={n_steps} beside a replay_buffer_class ({own.__name__}): leave "
            "the class out, or have it take n_steps and gamma from replay_buffer_kwargs"
        )
