"""Problems with exact answers, learned by whole algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.rllib_problems import Bets, dqn, ppo

import mvpi
from mvpi.rllib import policy_of, risk_averse

pytestmark = [pytest.mark.usefixtures("ray_session"), pytest.mark.slow]


def bets_by_ppo() -> Any:
    config = ppo(Bets, train_batch_size=600, minibatch_size=200, num_epochs=6, lr=3e-3, gamma=1.0)
    config.training(lambda_=1.0, use_kl_loss=False, entropy_coeff=0.003)
    config.rl_module(model_config={"fcnet_hiddens": [32, 32]})
    return config, 25


def bets_by_dqn() -> Any:
    config = dqn(Bets, train_batch_size=64, lr=2e-3, gamma=1.0, target_network_update_freq=100)
    config.training(num_steps_sampled_before_learning_starts=200, epsilon=[(0, 1.0), (3000, 0.2)])
    config.rl_module(model_config={"fcnet_hiddens": [32, 32]})
    return config, 20


@pytest.mark.parametrize("problem", [bets_by_ppo, bets_by_dqn])
def test_the_return_of_bets(build: Any, problem: Any) -> None:
    """Bet until the first win: the exact optimum, which needs the return so far."""
    risk = mvpi.OfReturn(0.25)
    exact = mvpi.optimize(Bets.mdp(), risk, horizon=Bets.STEPS)
    assert exact.value == pytest.approx(0.828125)
    config, iterations = problem()
    algorithm = build(risk_averse(config, risk=risk, return_scale=3.0))
    for _ in range(iterations):
        algorithm.train()
    returns = Bets.returns(policy_of(algorithm))
    values, weights = np.array(list(returns.items())).T
    assert risk.value(values, weights) == pytest.approx(exact.value)
