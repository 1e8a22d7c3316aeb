"""Model files: plain JSON of ours, nothing that runs, and no risk-averse model turns plain."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.sb3_algorithms import ALGORITHMS, SBX, Algorithm, Echo, each_kind
from helpers.sb3_checks import equal, weights
from sb3_contrib import TQC, TRPO
from stable_baselines3 import A2C, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import mvpi
import mvpi.envs
from mvpi import CVaR, InputError, MeanVariance, OfReturn, RiskRange, VarianceBudget
from mvpi.sb3 import at, attach, augmenter_of, load
from mvpi.sb3._loading import algorithms_of, saved_data

RISK = MeanVariance(1.0)
RANGE = RiskRange(0.5, 2.0)
BY_NAME = {str(a): a for a in ALGORITHMS}
SAC_, PPO_ = BY_NAME["stable_baselines3.SAC"], BY_NAME["stable_baselines3.PPO"]
both = pytest.mark.parametrize("algorithm", [SAC_, PPO_], ids=str)
OLD = Path(__file__).parent / "pickled_plug"
every_algorithm = each_kind(ALGORITHMS)
NO_PICKLE = "no pickle of ours in a model file"
OTHER_RISK = "`load(risk=)`"
ATTACH = "`attach`"


def data_of(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        data: dict[str, Any] = json.loads(archive.read("data"))
    return data


def write_data(path: Path, data: dict[str, Any]) -> None:
    """The file with other data, and all else as it was."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["data"] = json.dumps(data).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)


def pickles(path: Path) -> dict[str, bytes]:
    return {
        name: base64.b64decode(entry[":serialized:"])
        for name, entry in data_of(path).items()
        if isinstance(entry, dict) and ":serialized:" in entry
    }


def saved(tmp_path: Path, algorithm: Algorithm, risk: Any = RISK, **more: Any) -> tuple[Any, Path]:
    model = algorithm.plugged(risk, **more)
    model.learn(64)
    path = tmp_path / "model.zip"
    model.save(path)
    return model, path


@every_algorithm
@pytest.mark.supports(NO_PICKLE)
def test_what_is_saved_of_us_is_json(algorithm: Algorithm, tmp_path: Path) -> None:
    model, path = saved(tmp_path, algorithm, OfReturn(RANGE))
    assert [name for name, data in pickles(path).items() if b"mvpi" in data] == []
    record = data_of(path)["collect_rollouts"]["mvpi"]
    assert record["risk"] == "return:range:0.5:2.0"
    again = load(algorithm.cls, path, env=algorithm.env(), trusted=algorithm.library == SBX)
    assert type(again) is algorithm.cls
    assert equal(weights(again), weights(model))
    lam = np.linspace(0.5, 2.0, 5)
    np.testing.assert_array_equal(*(augmenter_of(m).y_at(lam) for m in (model, again)))
    again.save(tmp_path / "again.zip")
    kept = data_of(tmp_path / "again.zip")["collect_rollouts"]["mvpi"]
    assert kept == {**record, "clock": []}  # its environment is a new one
    again.learn(64)


@every_algorithm
@pytest.mark.supports(OTHER_RISK)
def test_another_risk(algorithm: Algorithm, tmp_path: Path) -> None:
    model, path = saved(tmp_path, algorithm)
    env = algorithm.env()
    again = load(algorithm.cls, path, env=env, risk=5.0, trusted=algorithm.library == SBX)
    assert augmenter_of(again).risk == MeanVariance(5.0)
    assert augmenter_of(again).y == augmenter_of(model).y
    np.testing.assert_array_equal(augmenter_of(again).rewards, augmenter_of(model).rewards)
    again.learn(64)
    assert augmenter_of(again).risk == MeanVariance(5.0)


@every_algorithm
@pytest.mark.supports(ATTACH)
def test_a_plain_model_made_risk_averse(algorithm: Algorithm) -> None:
    made = algorithm.plugged(RISK)
    made.learn(128)
    attached = attach(algorithm.plain(), risk=1.0)
    assert type(attached) is algorithm.cls
    attached.learn(128)
    assert equal(weights(attached), weights(made))


def test_a_plain_model_with_its_replay_buffer() -> None:
    plain = SAC_.plain(learning_starts=100).learn(100)
    attach(plain, risk=RISK)
    rewards = plain.replay_buffer.rewards[:100, 0]
    assert augmenter_of(plain).y == pytest.approx(rewards.mean())
    drawn = plain.replay_buffer.sample(200).rewards.numpy()[:, 0]
    assert np.isin(drawn, RISK.augment(rewards, augmenter_of(plain).y).astype(np.float32)).all()


@pytest.mark.parametrize(
    ("risk", "more"),
    [
        (VarianceBudget(0.4), {"window": 30}),
        (CVaR(0.2), {"occupancy": "discounted"}),
        (OfReturn(VarianceBudget(2.0)), {"return_scale": 3.0}),
    ],
    ids=str,
)
@both
def test_a_loaded_model_goes_on_as_if_it_had_not_been_saved(
    algorithm: Algorithm, risk: Any, more: dict[str, Any], tmp_path: Path
) -> None:
    model, path = saved(tmp_path, algorithm, risk, **more)
    again = load(algorithm.cls, path, env=algorithm.env())
    ours, theirs = augmenter_of(again), augmenter_of(model)
    assert ours.risk == theirs.risk
    assert ours.metrics() == theirs.metrics()
    rng = np.random.default_rng(0)
    for _ in range(40):  # the same rewards leave both windows, the same prices follow
        rewards, done = rng.normal(size=50), rng.random(50) < 0.2
        told = {"times": np.zeros(50, int), "terminated": done}
        if risk.columns:
            told |= {"truncated": ~done & False, "columns": rng.normal(size=(50, 1))}
        ours.observe(rewards, **told)
        theirs.observe(rewards, **told)
    assert ours.risk == theirs.risk
    assert ours.metrics() == theirs.metrics()


def test_a_policy_of_a_range_is_saved(tmp_path: Path) -> None:
    model = SAC_.plugged(RANGE).learn(64)
    at(model, 1.5).save(tmp_path / "policy.zip")
    policy = at(load(SAC, tmp_path / "policy.zip"))
    assert policy.risk == MeanVariance(1.5)
    seen = np.ones(2, np.float32)
    ours, theirs = (p.predict(seen, deterministic=True)[0] for p in (policy, at(model, 1.5)))
    np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(InputError, match="risk_aversion must be given"):
        at(model)


@both
def test_what_becomes_plain_does_not_learn(algorithm: Algorithm, tmp_path: Path) -> None:
    _, path = saved(tmp_path, algorithm)
    without = algorithm.cls.load(
        path, env=algorithm.env(), custom_objects={"collect_rollouts": None}
    )
    sentence = r"loaded without its risk: load it by mvpi.sb3.load\(.*mvpi.sb3.attach\(model, risk="
    with pytest.raises(InputError, match=sentence):
        without.learn(64)
    with pytest.raises(InputError, match=sentence):
        without.train()
    without.save(tmp_path / "without.zip")
    still = algorithm.cls.load(tmp_path / "without.zip", env=algorithm.env())
    with pytest.raises(InputError, match=sentence):
        still.learn(64)
    with pytest.raises(InputError, match="has no risk: give it one"):
        attach(still)
    assert augmenter_of(attach(still, risk=2.0).learn(64)).risk == MeanVariance(2.0)


@both
def test_a_reader_that_knows_nothing_of_us(
    algorithm: Algorithm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stable_baselines3.common import save_util

    model, path = saved(tmp_path, algorithm)
    taught = save_util.json_to_data
    monkeypatch.setattr(save_util, "json_to_data", taught.__wrapped__)  # type: ignore[attr-defined]
    without = algorithm.cls.load(path, env=algorithm.env())
    for learn in (lambda: without.learn(64), without.train):
        with pytest.raises(TypeError, match="'dict' object is not callable"):
            learn()
    with pytest.raises(InputError, match="was not made by"):
        augmenter_of(without)
    assert augmenter_of(attach(without)).y == augmenter_of(model).y
    without.learn(64)


def test_train_after_loading_a_replay_buffer(tmp_path: Path) -> None:
    plain = SAC_.plain(learning_starts=100).learn(100)
    plain.save_replay_buffer(tmp_path / "plain.pkl")
    averse, by_hand = SAC_.plugged(RISK), SAC_.plain()
    for model in (averse, by_hand):
        model.learn(0)  # makes the logger
        model.load_replay_buffer(tmp_path / "plain.pkl")
    stored = by_hand.replay_buffer.rewards
    stored[:] = RISK.augment(stored, float(stored[:100].mean(dtype=np.float64)))
    for model in (averse, by_hand):
        model.set_random_seed(5)
        model.train(gradient_steps=3, batch_size=16)
    for ours, theirs in zip(weights(averse), weights(by_hand), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert augmenter_of(averse).rewards.size == 100

    model, path = saved(tmp_path, SAC_)
    loaded = SAC.load(path, env=Echo())
    loaded.load_replay_buffer(tmp_path / "plain.pkl")
    with pytest.raises(InputError, match=r"call learn before train, or load it by mvpi.sb3.load"):
        loaded.train(1, 16)


def test_a_risk_averse_buffer_in_a_plain_model(tmp_path: Path) -> None:
    model = SAC_.plugged(RISK).learn(60)
    model.save_replay_buffer(tmp_path / "averse.pkl")
    plain = SAC_.plain()
    plain.load_replay_buffer(tmp_path / "averse.pkl")
    with pytest.raises(InputError, match=r"of a risk-averse model .*attach\(model, risk=1\.0\)"):
        plain.learn(10)
    with pytest.raises(InputError, match="that of a risk-averse model"):
        plain.train(1, 16)
    attach(plain, risk=RISK).learn(10)


def test_a_buffer_of_risk_0_is_a_plain_one(tmp_path: Path) -> None:
    model = SAC_.plugged(0.0).learn(60)
    model.save_replay_buffer(tmp_path / "neutral.pkl")
    plain = SAC_.plain()
    plain.load_replay_buffer(tmp_path / "neutral.pkl")
    rewards = plain.replay_buffer.rewards
    assert np.isin(plain.replay_buffer.sample(50).rewards, rewards[:60]).all()
    plain.learn(10)


@pytest.mark.parametrize(("ours", "theirs"), [(RANGE, None), (RISK, RANGE)], ids=str)
def test_a_buffer_of_other_observations(ours: Any, theirs: Any, tmp_path: Path) -> None:
    donor = SAC_.plain() if theirs is None else SAC_.plugged(theirs)
    donor.learn(40).save_replay_buffer(tmp_path / "buffer.pkl")
    model = SAC_.plugged(ours).learn(40)
    model.load_replay_buffer(tmp_path / "buffer.pkl")
    for learn in (lambda: model.learn(10), lambda: model.train(1, 16)):
        with pytest.raises(
            InputError, match=r"the buffer keeps observations of shape \(.,\), this"
        ):
            learn()


def test_the_remedy_for_a_buffer_of_a_range_works(tmp_path: Path) -> None:
    SAC_.plugged(RANGE).learn(40).save_replay_buffer(tmp_path / "range.pkl")
    plain = SAC_.plain()
    plain.load_replay_buffer(tmp_path / "range.pkl")
    with pytest.raises(InputError, match=r"make the model by mvpi\.sb3\.risk_averse"):
        plain.learn(10)
    model = SAC_.plugged(RANGE)
    model.load_replay_buffer(tmp_path / "range.pkl")
    model.learn(10)


@both
def test_a_risk_that_is_refused_changes_nothing(algorithm: Algorithm) -> None:
    twins = [algorithm.plugged(0.0, VecNormalize(DummyVecEnv([Echo]))) for _ in range(2)]
    for model in twins:
        model.set_random_seed(1)
        model.learn(64)
    with pytest.raises(InputError, match="norm_reward=False"):
        attach(twins[0], risk=1.0)
    assert augmenter_of(twins[0]).risk == MeanVariance(0.0)
    for model in twins:
        model.set_random_seed(1)
        model.learn(64)
    assert equal(*map(weights, twins))


def test_keywords_are_spelt_right(tmp_path: Path) -> None:
    _, path = saved(tmp_path, SAC_)
    with pytest.raises(InputError, match="SAC has no argument 'riks'"):
        load(SAC, path, riks=5.0)
    assert load(SAC, path, env=Echo(), gamma=0.5).gamma == 0.5
    with pytest.raises(InputError, match="environment 'Nowhere-v0' cannot be made: "):
        load(SAC, path, env="Nowhere-v0")
    with pytest.raises(InputError, match="are those that the model was saved with"):
        attach(load(SAC, path), window=5)
    plain = SAC_.plain()
    plain.save(path)
    with pytest.raises(InputError, match="is a plain SAC: give it a risk="):
        load(SAC, path)
    assert augmenter_of(load(SAC, path, env=Echo(), risk=2.0)).risk == MeanVariance(2.0)
    with pytest.raises(InputError, match="needs a policy that sees return_so_far"):
        attach(plain, risk=OfReturn(1.0))


def test_a_range_is_not_changed_for_another(tmp_path: Path) -> None:
    _, path = saved(tmp_path, SAC_, RANGE)
    for risk in (RiskRange(0.1, 2.0), 1.0, OfReturn(RANGE)):
        with pytest.raises(InputError, match="cannot go on with"):
            load(SAC, path, env=Echo(), risk=risk)
    _, path = saved(tmp_path, SAC_, OfReturn(1.0))
    again = load(SAC, path, env=Echo(), risk=OfReturn(CVaR(0.5)))
    assert augmenter_of(again.learn(20)).risk == OfReturn(CVaR(0.5))


def test_a_measure_without_a_text_is_refused() -> None:
    class Own(MeanVariance):
        name = ""

        @property
        def text(self) -> str:
            return repr(self)

    with pytest.raises(InputError, match="has no text form, so a model file cannot name it"):
        SAC_.plugged(Own(1.0))
    with pytest.raises(InputError, match="has no text form"):
        attach(SAC_.plain(), risk=OfReturn(Own(1.0)))


@pytest.mark.parametrize(
    ("algorithm", "name", "risk"), [(SAC, "sac", RISK), (PPO, "ppo", CVaR(0.1))]
)
def test_files_of_version_0_1(algorithm: Any, name: str, risk: Any, tmp_path: Path) -> None:
    model = load(algorithm, OLD / f"{name}.zip", env=mvpi.envs.Markowitz())
    assert augmenter_of(model).risk == risk
    model.save(tmp_path / "new.zip")
    assert not any(b"mvpi" in data for data in pickles(tmp_path / "new.zip").values())
    again = load(algorithm, tmp_path / "new.zip", env=mvpi.envs.Markowitz(), risk=3.0)
    assert augmenter_of(again).y == augmenter_of(attach(model, risk=3.0)).y
    again.learn(64)


@pytest.mark.parametrize("algorithm", [SAC_, PPO_, BY_NAME["stable_baselines3.DQN"]], ids=str)
def test_scaled_rewards_are_welcome_at_risk_0(algorithm: Algorithm) -> None:
    def scaled() -> Any:
        return VecNormalize(DummyVecEnv([algorithm.env]))

    plain = algorithm.plain(scaled())
    plain.learn(150)
    neutral = algorithm.plugged(0.0, scaled())
    neutral.learn(150)
    assert equal(weights(neutral), weights(plain))
    with pytest.raises(InputError, match="norm_reward=False"):
        attach(neutral, risk=1.0)


# Hostile files.


class Bomb:
    """Runs when it is unpickled."""

    def __init__(self, fuse: Path) -> None:
        self.fuse = fuse

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.fuse}",)


@pytest.mark.parametrize("entry", ["collect_rollouts", "train", "policy_class", "lr_schedule"])
def test_nothing_in_a_file_runs(entry: str, tmp_path: Path) -> None:
    _, path = saved(tmp_path, SAC_)
    data, fuse = data_of(path), tmp_path / "fuse"
    bomb = base64.b64encode(pickle.dumps(Bomb(fuse))).decode()
    write_data(path, {**data, entry: {":type:": "x", ":serialized:": bomb}})
    with pytest.raises(InputError, match=r"would use posix.system, which can run code: .*trusted"):
        load(SAC, path, env=Echo())
    assert not fuse.exists()
    write_data(path, {**data, entry: {":type:": "x", ":serialized:": "AAAA"}})
    with pytest.raises(InputError, match="is damaged"):
        load(SAC, path, env=Echo())


@pytest.mark.parametrize(
    ("member", "content", "reason"),
    [
        ("data", b"[" * 100_000, "is no model file of Stable-Baselines3: maximum recursion"),
        ("policy.pth", pickle.dumps(print, 2), "cannot be loaded as SAC: UnpicklingError"),
        ("policy.pth", b"", "cannot be loaded as SAC: EOFError"),
    ],
    ids=["deep", "pickle", "empty"],
)
def test_damage_is_one_line(member: str, content: bytes, reason: str, tmp_path: Path) -> None:
    _, path = saved(tmp_path, SAC_)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {**parts, member: content}.items():
            archive.writestr(name, data)
    with pytest.raises(InputError, match=reason) as told:
        load(SAC, path, env=Echo())
    assert "\n" not in str(told.value)


def test_encrypted_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", "{}")
    bits = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        bits[bits.index(mark) + flags] |= 1
    path.write_bytes(bits)
    with pytest.raises(InputError, match=r"is no model file .*encrypted"):
        load(SAC, path, env=Echo())


@every_algorithm
def test_a_file_says_which_algorithm_it_is_of(algorithm: Algorithm, tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    algorithm.plugged(RISK).save(path)
    told = algorithms_of(saved_data(path))
    assert {cls.__name__ for cls in told} == (
        {"TD3", "DDPG"} if algorithm.name in ("TD3", "DDPG") else {algorithm.name}
    )
    assert algorithm.cls in told


@pytest.mark.parametrize("risk", [None, 2.0])
@pytest.mark.parametrize(
    ("algorithm", "others"), [(SAC_, (TD3, TQC, PPO)), (PPO_, (A2C, TRPO, SAC))], ids=str
)
def test_a_file_of_another_algorithm_is_refused(
    algorithm: Algorithm, others: Any, risk: Any, tmp_path: Path
) -> None:
    """Also where SB3 would load it: A2C takes the file of PPO."""
    path = tmp_path / "model.zip"
    (algorithm.plain() if risk else algorithm.plugged(RISK)).save(path)
    name = algorithm.name
    for other in others:
        sentence = (
            rf"is the file of a {name} model \(stable_baselines3\), not of {other.__name__} \(.*"
            rf"load it by mvpi.sb3.load\({name}, path, env=\.\.\.\)$"
        )
        with pytest.raises(InputError, match=sentence):
            load(other, path, env=Echo(), risk=risk)


def test_files_of_related_algorithms_load(tmp_path: Path) -> None:
    """Those of a class of the user's own, and the other way round; DDPG is a TD3."""

    class Own(SAC):
        pass

    _, path = saved(tmp_path, SAC_)
    assert augmenter_of(load(Own, path, env=Echo()).learn(20)).risk == RISK
    Own("MlpPolicy", Echo(), buffer_size=10).save(path)
    load(SAC, path, env=Echo(), risk=1.0)
    BY_NAME["stable_baselines3.DDPG"].plugged(RISK).save(path)
    load(TD3, path, env=Echo())


def test_records_that_are_nonsense(tmp_path: Path) -> None:
    _, path = saved(tmp_path, SAC_, OfReturn(RANGE))
    data = data_of(path)
    record, rng = data["collect_rollouts"]["mvpi"], random.Random(0)
    odd = [None, "x", -1, 1e400, [], {}, [1, 2], "range:0:1", True, "os.system", 10**30, 0.5]

    def changed(value: Any) -> Any:
        """A copy in which one thing is something else."""
        if isinstance(value, dict) and value and rng.random() < 0.9:
            name = rng.choice(sorted(value))
            return {**value, name: changed(value[name])}
        if isinstance(value, list) and value and rng.random() < 0.7:
            i = rng.randrange(len(value))
            return [*value[:i], changed(value[i]), *value[i + 1 :]]
        return rng.choice(odd)

    for module in (None, 5, [], {}, "os"):  # of the policy, by which files are told apart
        write_data(path, {**data, "policy_class": {**data["policy_class"], "__module__": module}})
        load(SAC, path)
    refused = 0
    for _ in range(150):
        write_data(path, {**data, "collect_rollouts": {"mvpi": changed(record)}})
        with contextlib.suppress(InputError):
            load(SAC, path)
            refused -= 1
        refused += 1
    assert refused > 100
    for bad in (b"", b"no zip"):
        (tmp_path / "bad.zip").write_bytes(bad)
        with pytest.raises(InputError, match="is no model file"):
            load(SAC, tmp_path / "bad.zip")
    with pytest.raises(InputError, match="is no model file"):
        load(SAC, tmp_path / "nowhere")
