"""A config that is risk-averse from here on."""

from __future__ import annotations

from typing import Any, TypeVar

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.utils import force_list

from mvpi._checks import check_kind, check_number
from mvpi.augmenter import Augmenter
from mvpi.augmenter.occupancy import Occupancy
from mvpi.errors import InputError
from mvpi.risk import Risk
from mvpi.rllib._connector import LearnerConnectors
from mvpi.rllib._driver import Attach
from mvpi.rllib._environment import extend
from mvpi.rllib._refusals import ON_POLICY, refuse
from mvpi.rllib._runner import ReportRewards, refuse_changing_rewards
from mvpi.rllib._settings import Settings

Config = TypeVar("Config", bound=AlgorithmConfig)


def risk_averse(
    config: Config,
    *,
    risk: Risk | float,
    window: int | None = None,
    occupancy: Occupancy = "undiscounted",
    return_scale: float = 1.0,
) -> Config:
    """A copy of `config` whose algorithm maximises a risk measure of the per-step reward.

    `risk` is a risk aversion (mean-variance) or any `Risk`. `window` is how many of the most recent
    rewards `y` is measured on: 10,000 if left out, on-policy the current batch but at least 1,000.
    `occupancy="discounted"` weighs them by the discounted occupancy, with 0 after the end: for
    tasks that terminate and cost something per step. Callbacks and learner connectors of `config`
    are kept: set them first, and call this last. Results also have `mvpi/y`, `mvpi/risk_aversion`
    (if the measure has one), `mvpi/reward_mean` and `mvpi/reward_variance`.

    With `RiskRange` and `OfReturn` the environment is extended: the policy sees the risk aversion
    and the return so far beside the observation. `return_scale` is the size of a return, below
    which it is seen in proportion, and beyond which by its logarithm. `policy_of(algorithm)` acts
    afterwards.
    """
    check_kind(config, AlgorithmConfig, "config", "an AlgorithmConfig of RLlib")
    if isinstance(config._learner_connector, LearnerConnectors):
        raise InputError("this config is risk-averse already: call risk_averse on the plain one")
    refuse(config)
    # Checks them all; the algorithm makes its own.
    known = Augmenter(
        risk,
        1 if window is None else window,
        occupancy=occupancy,
        gamma=config.gamma if occupancy == "discounted" else None,
    )
    settings = Settings(
        known.risk,
        None if window is None else known.window,
        known.occupancy,
        isinstance(config, ON_POLICY),
        check_number(return_scale, "return_scale", above=0.0),
    )
    averse: Any = config.copy(copy_frozen=False)
    columns = settings.columns
    if columns.size:
        extend(averse, columns, settings.risk)
    own: Any = config._learner_connector
    averse.learners(learner_connector=LearnerConnectors(own, settings))
    averse.callbacks(
        on_algorithm_init=[*force_list(config.callbacks_on_algorithm_init), Attach(settings)],
        on_environment_created=[
            *force_list(config.callbacks_on_environment_created),
            refuse_changing_rewards,
        ],
        on_sample_end=[*force_list(config.callbacks_on_sample_end), ReportRewards(columns.size)],
    )
    made: Config = averse
    return made
