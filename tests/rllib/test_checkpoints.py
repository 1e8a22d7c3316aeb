"""`y` and recent rewards survive; what is ours in a checkpoint is numbers and JSON."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.rllib_problems import assert_same_bits, dqn, ppo, weights
from ray.rllib.algorithms.algorithm import Algorithm

import mvpi
from mvpi._storage.arrays import pack_arrays
from mvpi.rllib import augmenter_of, risk_averse
from mvpi.rllib._connector import AugmentRewards
from mvpi.rllib._driver import COMPONENT

pytestmark = pytest.mark.usefixtures("ray_session")
FILE = "augmenter.safetensors"


def same(one: mvpi.Augmenter, other: mvpi.Augmenter) -> bool:
    (a, n), (b, m) = one.state(), other.state()
    same_arrays = all(a[k].tobytes() == b[k].tobytes() for k in a)
    return same_arrays and n == m and one.y == other.y and one.risk == other.risk


def learner_told(algorithm: Any) -> tuple[Any, float]:
    (piece,) = (
        p
        for p in algorithm.learner_group._learner._learner_connector.connectors
        if isinstance(p, AugmentRewards)
    )
    return piece.risk, float(piece.y)


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(
            risk_averse(ppo(train_batch_size=1100), risk=mvpi.VarianceBudget(0.3)), id="PPO"
        ),
        pytest.param(risk_averse(dqn(), risk=0.3, window=150), id="DQN"),
    ],
)
def test_round_trip(build: Any, config: Any, tmp_path: Path) -> None:
    algorithm = build(config)
    algorithm.train()
    path = algorithm.save_to_path(str(tmp_path))
    before = augmenter_of(algorithm)
    assert [p.name for p in (tmp_path / COMPONENT).iterdir()] == [FILE]
    again = Algorithm.from_checkpoint(path)
    assert type(again) is type(algorithm)
    after = augmenter_of(again)
    assert after is not before
    assert same(after, before)
    assert learner_told(again) == (before.risk, before.y)  # already before the next sample
    for augmenter in (before, after):
        augmenter.observe([1.0, 5.0], [0, 1], [False, True])
    assert same(after, before)
    assert "y" in again.train()["mvpi"]


def test_state_dictionaries_and_damage(build: Any, tmp_path: Path) -> None:
    """One algorithm for all of it: building one takes seconds."""
    algorithm = build(risk_averse(ppo(), risk=0.3))
    algorithm.train()
    before = augmenter_of(algorithm).y
    state = algorithm.get_state()
    assert COMPONENT not in algorithm.get_state(not_components=COMPONENT)
    algorithm.train()
    assert augmenter_of(algorithm).y != before
    algorithm.set_state(state)
    assert augmenter_of(algorithm).y == before

    place = tmp_path / COMPONENT
    algorithm._mvpi.save_to_path(place)
    good = (place / FILE).read_bytes()
    (place / "state.pkl").write_bytes(pickle.dumps(Bomb(tmp_path)))
    (place / "class_and_ctor_args.pkl").write_bytes(pickle.dumps(Bomb(tmp_path)))
    algorithm._mvpi.restore_from_path(place)
    arrays, numbers = augmenter_of(algorithm).state()
    huge = {**numbers, "window": 10**12}
    for bad in (
        pickle.dumps(Bomb(tmp_path)),
        good[:-1],
        b"",
        pack_arrays("policy", arrays, numbers),
        pack_arrays("rllib augmenter", arrays, huge),
        pack_arrays("rllib augmenter", arrays, {**numbers, "count": "many"}),
        pack_arrays("rllib augmenter", arrays, {**numbers, "budget": 3}),
        pack_arrays("rllib augmenter", {"steps": arrays["steps"]}, numbers),
        pack_arrays("rllib augmenter", {**arrays, "steps": -1 - arrays["steps"]}, numbers),
        pack_arrays("rllib augmenter", {**arrays, "rewards": np.full(200, np.nan)}, numbers),
    ):
        (place / FILE).write_bytes(bad)
        with pytest.raises(mvpi.InputError):
            algorithm._mvpi.restore_from_path(place)
        assert augmenter_of(algorithm).y == before
    (place / FILE).unlink()
    with pytest.raises(mvpi.InputError, match=r"cannot be read.*save the checkpoint again"):
        algorithm._mvpi.restore_from_path(place)
    assert not (tmp_path / "executed").exists()


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return Path.touch, (self.place / "executed",)


def test_a_window_of_another_length_is_kept(build: Any, tmp_path: Path) -> None:
    """The one that was asked for holds, with the recent rewards of the checkpoint."""
    algorithm = build(risk_averse(dqn(), risk=0.3, window=60))
    algorithm.train()
    state = algorithm.get_state(COMPONENT)
    other = build(risk_averse(dqn(), risk=0.3, window=20))
    other._mvpi.set_state(state[COMPONENT])
    assert augmenter_of(other).window == 20
    assert augmenter_of(other).rewards.size == 20


def test_another_risk_aversion_on_restore(build: Any, tmp_path: Path) -> None:
    """Weights and recent rewards are those of the checkpoint, the risk is the new one."""
    algorithm = build(risk_averse(ppo(), risk=0.3))
    algorithm.train()
    other = build(risk_averse(ppo(), risk=5.0))
    other.restore_from_path(algorithm.save_to_path(str(tmp_path)))
    assert_same_bits(weights(other)["module"], weights(algorithm)["module"])
    before, after = augmenter_of(algorithm), augmenter_of(other)
    assert after.rewards.tobytes() == before.rewards.tobytes()
    assert after.risk == mvpi.MeanVariance(5.0)
    assert learner_told(other) == (after.risk, before.y)


def test_other_columns_on_restore(build: Any, tmp_path: Path) -> None:
    """Networks of one size that see something else, or in another unit."""
    algorithm = build(risk_averse(ppo(), risk=mvpi.OfReturn(0.5)))
    algorithm.train()
    path = algorithm.save_to_path(str(tmp_path))
    others = [
        (risk_averse(ppo(), risk=mvpi.RiskRange(0.5, 2.0)), r"columns = \['return_so_far'\]"),
        (risk_averse(ppo(), risk=mvpi.OfReturn(0.5), return_scale=9.0), "return_scale = 1"),
    ]
    for config, words in others:
        other = build(config)
        with pytest.raises(mvpi.InputError, match=words) as caught:
            other.restore_from_path(path)
        assert "\n" not in str(caught.value)
        assert not augmenter_of(other).ready
    other = build(risk_averse(ppo(), risk=mvpi.OfReturn(mvpi.CVaR(0.3))))
    other.restore_from_path(path)
    assert augmenter_of(other).ready
