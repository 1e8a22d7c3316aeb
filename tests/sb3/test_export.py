"""Policies by themselves: what `export` writes acts as the model does, and no file runs code."""

from __future__ import annotations

import contextlib
import json
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from helpers.sb3_algorithms import ALGORITHMS, SBX, Algorithm, Echo
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn

import mvpi
import mvpi.envs
from mvpi import InputError, MeanVariance, OfReturn, RiskRange
from mvpi._storage.arrays import read_arrays, write_arrays
from mvpi.cli.app import main
from mvpi.sb3 import at, export, risk_averse

BY_NAME = {str(a): a for a in ALGORITHMS}
SAC_, PPO_ = BY_NAME["stable_baselines3.SAC"], BY_NAME["stable_baselines3.PPO"]
WITHOUT = ("RecurrentPPO", "MaskablePPO")
EXPORT = "`export`"
RANGE = RiskRange(0.5, 2.0)
# Rounding of single precision, after two or three layers.
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 5e-6}


def small(**policy: Any) -> dict[str, Any]:
    """Arguments of a small model, new ones: a model writes into them."""
    return {"policy_kwargs": {"net_arch": [8, 8], **policy}, "seed": 0, "device": "cpu"}


def exported(model: Any, tmp_path: Path) -> Any:
    export(model, tmp_path / "policy.safetensors")
    return mvpi.load(tmp_path / "policy.safetensors")


def vectors(size: int, scale: float = 2.0) -> Any:
    return np.random.default_rng(1).normal(scale=scale, size=(300, size)).astype(np.float32)


def check_alike(policy: Any, model: Any, observations: Any) -> None:
    """The same actions for a batch and for one observation."""
    theirs = model.predict(observations, deterministic=True)[0]
    np.testing.assert_allclose(policy.predict(observations), theirs, **CLOSE)
    np.testing.assert_allclose(policy.predict(observations[0]), theirs[0], **CLOSE)
    assert policy.predict(observations).dtype.kind == theirs.dtype.kind  # JAX counts in 32 bits
    assert len(np.unique(theirs, axis=0)) > 1


@pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(a, marks=[pytest.mark.slow] if a.library == SBX else [])
        for a in ALGORITHMS
        if a.name not in WITHOUT
    ],
    ids=str,
)
@pytest.mark.supports(EXPORT)
def test_actions_are_those_of_the_model(algorithm: Algorithm, tmp_path: Path) -> None:
    model = algorithm.plugged(1.0)
    model.learn(128)
    agent = exported(model, tmp_path)
    check_alike(agent, model, vectors(2))
    assert agent.risk == MeanVariance(1.0)
    assert (agent.steps, agent.settings.source) == (model.num_timesteps, str(algorithm))
    agent.save(tmp_path / "again.safetensors")
    check_alike(mvpi.load(tmp_path / "again.safetensors"), model, vectors(2))


@pytest.mark.parametrize("name", WITHOUT)
def test_memory_and_masks_are_refused(name: str, tmp_path: Path) -> None:
    model = BY_NAME[f"sb3_contrib.{name}"].plain()
    with pytest.raises(InputError, match=r"a policy file has no(ne| memory): keep the model file"):
        export(model, tmp_path / "policy.safetensors")
    assert list(tmp_path.iterdir()) == []


# Fresh networks: what is learned does not matter here.

ACTIVATIONS = [
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SiLU, nn.GELU),
    *(nn.Sigmoid, nn.Tanh),
]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: Any, tmp_path: Path) -> None:
    model = TD3("MlpPolicy", Echo(), policy_kwargs={"activation_fn": activation, "net_arch": [9]})
    check_alike(exported(model, tmp_path), model, vectors(2, 20.0))


def no_hidden_layer() -> Any:
    return PPO("MlpPolicy", Echo(), policy_kwargs={"net_arch": []}, seed=0)


def state_dependent_noise() -> Any:
    model = SAC("MlpPolicy", Echo(), use_sde=True, **small())
    with torch.no_grad():
        model.policy.actor.mu[0].weight *= 30.0  # some means are clipped
    return model


def squashed() -> Any:
    return A2C("MlpPolicy", Echo(), use_sde=True, **small(squash_output=True))


class Lopsided(Echo):
    def __init__(self) -> None:
        super().__init__()
        low, high = np.array([[-1.0, 0.0], [3.0, 0.01]], np.float32)
        self.action_space = gym.spaces.Box(low, high)


MODELS = {
    "no hidden layer": no_hidden_layer,
    "gSDE": state_dependent_noise,
    "gSDE squashed": squashed,
    "lopsided actions": lambda: SAC("MlpPolicy", Lopsided(), **small()),
    "clipped to lopsided actions": lambda: PPO("MlpPolicy", Lopsided(), **small()),
}


@pytest.mark.parametrize("name", MODELS)
def test_kinds_of_outputs(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    check_alike(exported(model, tmp_path), model, vectors(2, 20.0))


def test_states_of_a_finite_set(tmp_path: Path) -> None:
    model = DQN("MlpPolicy", "FrozenLake-v1", **small())
    agent = exported(model, tmp_path)
    states = np.arange(16)
    np.testing.assert_array_equal(
        agent.predict(states), model.predict(states, deterministic=True)[0]
    )
    assert agent.env_factory.record["id"] == "FrozenLake-v1"
    other = gym.make("FrozenLake-v1", is_slippery=False)
    assert exported(DQN("MlpPolicy", other, **small()), tmp_path).env_factory is None


def test_the_scaling_of_observations_is_part_of_it(tmp_path: Path) -> None:
    envs = VecNormalize(DummyVecEnv([Echo, Echo]), norm_reward=False, clip_obs=1.5)
    model = risk_averse(PPO, "MlpPolicy", envs, risk=1.0, n_steps=32, batch_size=64, **small())
    model.learn(200)
    seen = vectors(2, 5.0)
    theirs = model.predict(envs.normalize_obs(seen), deterministic=True)[0]
    np.testing.assert_allclose(exported(model, tmp_path).predict(seen), theirs, **CLOSE)
    assert np.mean(np.abs(envs.normalize_obs(seen)) == 1.5) > 0.1  # some are clipped


# Measures that see columns.


@pytest.mark.parametrize("algorithm", [SAC_, PPO_], ids=str)
def test_a_range_and_the_return_so_far(algorithm: Algorithm, tmp_path: Path) -> None:
    model = algorithm.plugged(OfReturn(RANGE), return_scale=3.0)
    model.learn(70)
    agent = exported(model, tmp_path)
    seen, earned = vectors(2), np.random.default_rng(2).normal(scale=5.0, size=300)
    with_return = np.column_stack([seen, np.arcsinh(earned / 3.0)]).astype(np.float32)
    for lam in (0.5, 0.9, 2.0):
        theirs = at(model, lam).predict(with_return, deterministic=True)[0]
        np.testing.assert_allclose(agent.at(lam).predict(seen, earned), theirs, **CLOSE)
        alone = exported(at(model, lam), tmp_path)
        assert alone.risk == OfReturn(MeanVariance(lam))
        np.testing.assert_allclose(alone.predict(seen, earned), theirs, **CLOSE)
    with pytest.raises(InputError, match=r"choose one with agent\.at"):
        agent.predict(seen, earned)


@pytest.mark.parametrize("vector", [False, True])
def test_a_range_over_a_finite_set(vector: bool, tmp_path: Path) -> None:
    def make() -> Any:
        return gym.make("FrozenLake-v1")

    env = DummyVecEnv([make]) if vector else make()
    model = risk_averse(DQN, "MlpPolicy", env, risk=RANGE, **small())
    policy, states = exported(model, tmp_path).at(1.0), np.arange(6, 16)
    theirs = at(model, 1.0).predict(states, deterministic=True)[0]
    np.testing.assert_array_equal(policy.predict(states), theirs)


# Evaluation.


def test_it_is_evaluated_as_the_model_is(tmp_path: Path, capsys: Any) -> None:
    model = risk_averse(SAC, "MlpPolicy", "Pendulum-v1", risk=1.0, **small())
    agent = exported(model, tmp_path)
    expected = mvpi.evaluate(model, "Pendulum-v1", episodes=2).returns
    np.testing.assert_allclose(mvpi.evaluate(agent, episodes=2).returns, expected, rtol=1e-3)
    path = str(tmp_path / "policy.safetensors")
    main(["evaluate", path, "--episodes", "2", "--json"])
    told = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(told["returns"], expected, rtol=1e-3)
    assert told["risk"] == "1.0"
    with pytest.raises(InputError, match=r"exported from '.*\.SAC' and cannot learn"):
        agent.learn(10)


def test_the_return_so_far_is_counted(tmp_path: Path) -> None:
    model = SAC_.plugged(OfReturn(1.0))
    agent = exported(model, tmp_path)
    expected = mvpi.evaluate(model, Echo(), episodes=3).returns
    np.testing.assert_allclose(mvpi.evaluate(agent, Echo(), 3).returns, expected, rtol=1e-4)
    with pytest.raises(InputError, match="env must be given"):
        mvpi.evaluate(agent)


# What is refused.


class Seen(Echo):
    """Other observations or actions."""

    def __init__(self, seen: gym.Space[Any] | None = None, done: gym.Space[Any] | None = None):
        super().__init__()
        self.observation_space = self.observation_space if seen is None else seen
        self.action_space = self.action_space if done is None else done


class Doubled(ActorCriticPolicy):
    def _predict(self, observation: Any, deterministic: bool = False) -> Any:
        return 2.0 * super()._predict(observation, deterministic)


IMAGE = gym.spaces.Box(0, 255, (36, 36, 3), np.uint8)
SEVERAL = gym.spaces.Dict({"a": gym.spaces.Box(0.0, 1.0, (2,)), "b": gym.spaces.Discrete(3)})
LEAKY = {"activation_fn": lambda: nn.LeakyReLU(0.2)}
REFUSED: dict[str, tuple[Any, str]] = {
    "image": (lambda: PPO("CnnPolicy", Seen(IMAGE)), "Box observations of shape"),
    "dictionary": (lambda: PPO("MultiInputPolicy", Seen(SEVERAL)), "Dict observations"),
    "matrix": (lambda: PPO("MlpPolicy", Seen(gym.spaces.Box(0, 1, (2, 2)))), "flat boxes"),
    "several choices": (
        lambda: PPO("MlpPolicy", Seen(done=gym.spaces.MultiDiscrete([2, 3]))),
        "acts by a MultiCategoricalDistribution",
    ),
    "softplus": (
        lambda: TD3("MlpPolicy", Echo(), policy_kwargs={"activation_fn": nn.Softplus}),
        "has a Softplus",
    ),
    "other slope": (
        lambda: TD3("MlpPolicy", Echo(), policy_kwargs=LEAKY),
        "LeakyReLU.* with negative_slope=0.01 alone",
    ),
    "own policy": (lambda: PPO(Doubled, Echo()), "Doubled does more than its layers say"),
    "no model": (lambda: nn.Linear(1, 1), "model must be a model of Stable-Baselines3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as told:
        export(make(), tmp_path / "policy.safetensors")
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


def test_models_of_sbx(tmp_path: Path) -> None:
    from flax import linen

    algorithm = BY_NAME["sbx.PPO"]
    fresh = algorithm.plain()
    check_alike(exported(fresh, tmp_path), fresh, vectors(2))
    model = algorithm.plain(policy_kwargs={"net_arch": [4], "activation_fn": linen.softplus})
    with pytest.raises(InputError, match="knows no softplus units: use one of"):
        export(model, tmp_path / "policy.safetensors")


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be in a directory that exists"):
        export(SAC_.plain(), tmp_path / "nowhere" / "policy.safetensors")


# Hostile files.


class Bomb:
    def __init__(self, fuse: Path) -> None:
        self.fuse = fuse

    def __reduce__(self) -> Any:
        return Path.touch, (self.fuse,)


ODD: dict[str, list[Any]] = {
    "activation": [None, "softplus", "os.system", ["relu"], 1, "__class__"],
    "output": [None, "exec", ["tanh"], "largest"],
    "limit": [0, -1.0, "2", True, [1.0], 10**400],
    "head": ["gaussian", "categorical", None],
    "sizes": [[3, 2], [2, 8, 8, 3], [], "2"],
    "algorithm": ["Exported", "os", None, ["exported"]],
    "settings": [{"gamma": 2.0}, {"source": 1}, {"occupancy": "x"}, {"unknown": 1}, [], None],
    "environment": [None, "x", []],
    "steps": [-1, "x", None],
    "risk": ["x", [], {"a": 1}],
    "columns": [{"risk": "range:0.5:2"}, {"risk": "os", "return_scale": 1.0}, 5],
}


def test_hostile_files(tmp_path: Path) -> None:
    """Nothing runs; whatever is wrong is one line."""
    path, fuse = tmp_path / "policy.safetensors", tmp_path / "fuse"
    export(SAC("MlpPolicy", Echo(), **small()), path)
    whole = path.read_bytes()
    arrays, record = read_arrays(path, "policy")
    facts = {n: v for n, v in record.items() if n not in ("format", "kind", "checksum")}

    def refused() -> bool:
        with contextlib.suppress(InputError):
            mvpi.load(path)
            return False
        return True

    for data in (b"", pickle.dumps(Bomb(fuse)), whole[:-7], whole[100:]):
        path.write_bytes(data)
        assert refused()
    rng = np.random.default_rng(0)
    for place in rng.integers(len(whole), size=50).tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        assert refused()
    for name, values in ODD.items():
        for value in values:
            write_arrays(path, "policy", arrays, {**facts, name: value})
            assert refused(), (name, value)
    for name, array in arrays.items():
        for wrong in (array[:-1], array * np.nan, array.astype(np.int32)):
            write_arrays(path, "policy", {**arrays, name: wrong}, facts)
            assert refused(), name
    # An id that would import a module of its choice is not looked at.
    write_arrays(path, "policy", arrays, {**facts, "environment": {"id": "os:x-v0"}})
    assert mvpi.load(path).env_factory is None
    assert not fuse.exists()
