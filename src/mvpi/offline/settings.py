"""The settings of learning from data with networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from mvpi._checks import check_choice, check_count, check_number
from mvpi._settings import recorded
from mvpi.agents.settings import TD3Settings
from mvpi.errors import InputError

RatioMethod = Literal["combined", "gen-dice", "gradient-dice", "dual-dice"]


@dataclass(frozen=True)
class TD3BCSettings:
    """Settings of off-line MVPI with TD3+BC; those of TD3+BC are as Fujimoto and Gu set them."""

    alpha: float = 2.5
    """Weight of the critic against behaviour cloning; 0: behaviour cloning alone."""
    hidden: tuple[int, ...] = (256, 256)
    """Units of the hidden layers, the same for actor and critics."""
    learning_rate: float = 3e-4
    """Step size of Adam, for the actor and both critics."""
    batch_size: int = 256
    """Transitions drawn for an update."""
    tau: float = 0.005
    """Step size of the soft updates of the target networks."""
    policy_delay: int = 2
    """Updates of the critics per update of the actor and of all target networks."""
    saturation_penalty: float = 0.01
    """Frees stuck actors: weight of mean max(|z| - 3, 0)^2, z the output before tanh; 0: none."""
    target_policy_noise: float = 0.2
    """Standard deviation of the noise on the target policy's actions."""
    target_noise_clip: float = 0.5
    """Bound of that noise."""
    ratio_every: int = 2_000
    """Updates between estimates of `y`, and rows of the metrics; a multiple of policy_delay."""
    ratio_steps: int = 1_000
    """Updates of the networks for an estimate; they go on from the one before."""
    ratio_method: RatioMethod = "combined"
    """combined: the median of three density ratios, with an interval; the others: one network."""
    ratio_learning_rate: float = 3e-4
    """Step size of Adam for the networks of the density ratios."""
    budget_rate: float = 0.2
    """With a variance budget: how far an estimate moves the risk aversion."""
    return_scale: float | None = None
    """With OfReturn: the size of a return; left out, the standard deviation in the data."""

    def __post_init__(self) -> None:
        shared = self.td3(discount=0.0)  # has checked what it shares
        checked: dict[str, Any] = {name: getattr(shared, name) for name in _SHARED}
        checked["alpha"] = check_number(self.alpha, "alpha", at_least=0.0)
        rate = check_number(self.ratio_learning_rate, "ratio_learning_rate", above=0.0)
        checked["ratio_learning_rate"] = rate
        for name in ("ratio_every", "ratio_steps"):
            checked[name] = check_count(getattr(self, name), name)
        if self.return_scale is not None:
            checked["return_scale"] = check_number(self.return_scale, "return_scale", above=0.0)
        check_choice(self.ratio_method, "ratio_method", get_args(RatioMethod))
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        check_multiple(self.ratio_every, "ratio_every", self.policy_delay)

    def record(self) -> dict[str, Any]:
        """As plain facts; settings of later versions are in it only where they are used."""
        return recorded(self, {"saturation_penalty": 0.0, "return_scale": None})

    def check_updates(self, updates: int) -> None:
        """Raises `InputError` unless learning can end after so many updates."""
        check_multiple(check_count(updates, "updates"), "updates", self.policy_delay)

    def td3(self, discount: float) -> TD3Settings:
        """The settings of TD3 that its updates use."""
        shared = {name: getattr(self, name) for name in _SHARED}
        rounds = check_count(self.policy_delay, "policy_delay")
        return TD3Settings(gamma=discount, train_freq=rounds, **shared)


_SHARED = (
    "hidden",
    "learning_rate",
    "batch_size",
    "tau",
    "policy_delay",
    "saturation_penalty",
    "target_policy_noise",
    "target_noise_clip",
    "budget_rate",
)
"""Settings that TD3 has as well."""


def check_multiple(value: int, name: str, policy_delay: int) -> None:
    """Updates of critics come in rounds, each with one of the actor."""
    if value % policy_delay:
        raise InputError(
            f"{name} must be a multiple of policy_delay, got {value} and {policy_delay}"
        )
