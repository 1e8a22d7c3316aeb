"""Models saved before modules were renamed; `pickled_plug` was written by version 0.1."""

from __future__ import annotations

from pathlib import Path

import pytest
from stable_baselines3 import PPO, SAC

import mvpi
import mvpi.envs
from mvpi.sb3 import augmenter_of

SAVED = Path(__file__).parent / "pickled_plug"


@pytest.mark.parametrize(
    ("algorithm", "name", "risk"),
    [(SAC, "sac", mvpi.MeanVariance(1.0)), (PPO, "ppo", mvpi.CVaR(0.1))],
)
def test_a_model_of_version_0_1_loads_and_goes_on(
    algorithm: type, name: str, risk: mvpi.Risk
) -> None:
    model = algorithm.load(SAVED / f"{name}.zip", env=mvpi.envs.Markowitz())
    augmenter = augmenter_of(model)
    assert augmenter.risk == risk
    assert augmenter.rewards.size > 0
    seen = augmenter.rewards.copy()
    model.learn(64, reset_num_timesteps=False)
    assert augmenter.rewards.tolist() != seen.tolist()


def test_a_replay_buffer_of_version_0_1_loads() -> None:
    model = SAC.load(SAVED / "sac.zip", env=mvpi.envs.Markowitz())
    model.load_replay_buffer(SAVED / "sac-replay.pkl")
    assert model.replay_buffer.size() == 60
