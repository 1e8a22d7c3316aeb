"""DQN learns means of augmented rewards only where they are less than about 1 apart.

Its loss is Huber's: squared below 1, absolute beyond. docs/sb3.md says what to do about it, and so
does a warning.
"""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN

from mvpi import MeanVariance
from mvpi.errors import RiskWarning
from mvpi.sb3 import attach, augmenter_of, risk_averse
from mvpi.sb3._hooks import plug_in

SURE, STAKE, CHANCE, LAM = 0.5, 3.0, 0.7, 0.2


class OneBet(gym.Env[Any, Any]):
    """A sure reward, or a bet that is won with probability `CHANCE`; one step, in units."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, unit: float) -> None:
        self.unit = unit

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        bet = STAKE if self.np_random.random() < CHANCE else -STAKE
        return np.ones(1, np.float32), (bet if action else SURE) / self.unit, True, False, {}


def test_the_sure_reward_is_the_best() -> None:
    bet = MeanVariance(LAM).value([STAKE, -STAKE], [CHANCE, 1.0 - CHANCE])
    assert bet < 0.0 < SURE


def located(unit: float, y: float, chance: float = CHANCE) -> tuple[float, float]:
    """What the loss makes of a bet's augmented rewards, found on a grid; and their mean."""
    won, lost = MeanVariance(LAM * unit).augment(np.array([STAKE, -STAKE]) / unit, y)
    grid = np.linspace(lost, won, 20_001)

    def loss(error: Any) -> Any:
        return np.where(np.abs(error) < 1.0, error**2 / 2.0, np.abs(error) - 0.5)

    total = chance * loss(won - grid) + (1.0 - chance) * loss(grid - lost)
    return float(grid[np.argmin(total)]), float(chance * won + (1.0 - chance) * lost)


@pytest.mark.parametrize(("unit", "bets"), [(1.0, True), (10.0, False)])
def test_dqn_takes_the_sure_reward_in_large_units_alone(unit: float, bets: bool) -> None:
    model = risk_averse(
        DQN,
        "MlpPolicy",
        OneBet(unit),
        risk=LAM * unit,
        seed=0,
        learning_starts=100,
        learning_rate=lambda left: 1e-2 * left,
        batch_size=256,
        exploration_final_eps=0.3,
        exploration_fraction=0.5,
        target_update_interval=100,
        policy_kwargs={"net_arch": [16]},
    )
    warned = r"deviation of 3\.\d: Huber's loss, .*; divide rewards by (9\.\d|1\d) and multiply"
    with pytest.warns(RiskWarning, match=warned) if bets else nullcontext():
        model.learn(2_000)
    assert bool(model.predict(np.ones(1, np.float32), deterministic=True)[0]) is bets
    kept = model.replay_buffer
    tossed = kept.rewards[: kept.pos][kept.actions[: kept.pos, :, 0] == 1]
    location, mean = located(unit, plug_in(model).augmenter.y, float((tossed > 0.0).mean()))
    with torch.no_grad():
        value = float(model.q_net(torch.ones(1, 1))[0, 1])
    assert value == pytest.approx(location, abs=0.15 / unit)
    assert (value > mean + 1.0) is bets


def test_in_large_units_the_loss_is_squared() -> None:
    """It finds the mean there. In small ones it finds a value 3/7 below the better outcome: 0.7 of
    errors of 3/7, in the squared part, balance 0.3 of errors beyond it."""
    location, mean = located(10.0, SURE / 10.0)
    assert location == pytest.approx(mean, abs=1e-4)
    won = MeanVariance(LAM).augment(STAKE, SURE)
    assert located(1.0, SURE)[0] == pytest.approx(float(won) - 3.0 / 7.0, abs=1e-3)


@pytest.mark.parametrize(
    ("algorithm", "huber"),
    [
        ("stable_baselines3.DQN", True),
        ("sbx.DQN", True),
        ("sb3_contrib.QRDQN", False),
        ("stable_baselines3.PPO", False),
    ],
)
def test_losses_that_are_warned_of(algorithm: str, huber: bool) -> None:
    library, name = algorithm.split(".")
    model = risk_averse(getattr(import_module(library), name), "MlpPolicy", OneBet(1.0), risk=LAM)
    attach(model, risk=0.02)
    rewards = np.tile([10.0, -10.0], 500)  # augmented: 8 and -12
    with pytest.warns(RiskWarning, match="Huber") if huber else nullcontext():
        augmenter_of(model).observe(rewards)


@pytest.mark.parametrize("unit", [1.0, 0.1])
def test_the_mean_of_quantiles_is_nearly_the_mean_where_the_loss_of_dqn_is_not(unit: float) -> None:
    """So QR-DQN and TQC need no other unit: far beyond 1 Huber's loss of a quantile is the usual
    one, whose minimum is that quantile, and their mean is that of the rewards."""
    won, lost = MeanVariance(LAM * unit).augment(np.array([STAKE, -STAKE]) / unit, SURE / unit)
    grid = np.linspace(lost, won, 8_001)
    error = np.array([won, lost])[:, None] - grid
    huber = np.where(np.abs(error) < 1.0, error**2 / 2.0, np.abs(error) - 0.5)
    chances = np.array([[CHANCE], [1.0 - CHANCE]])
    levels = (np.arange(200) + 0.5) / 200
    totals = [(chances * np.abs(level - (error < 0.0)) * huber).sum(0) for level in levels]
    mean = float(CHANCE * won + (1.0 - CHANCE) * lost)
    deviation = float(won - lost) * np.sqrt(CHANCE * (1.0 - CHANCE))
    assert deviation > 3.0
    assert abs(np.mean([grid[np.argmin(total)] for total in totals]) - mean) < 0.03 * deviation
    assert located(unit, SURE / unit)[0] - mean > 0.5 * deviation
