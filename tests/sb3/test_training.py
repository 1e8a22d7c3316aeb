"""Training saved in one process and continued in another: the same bits as without a break."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pandas
import pytest
from gymnasium.envs.registration import EnvSpec
from helpers.sb3_algorithms import ALGORITHMS, Algorithm, Echo
from helpers.sb3_checks import weights
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

from mvpi import CVaR, InputError, OfReturn, RiskRange
from mvpi._storage.arrays import read_arrays, write_arrays
from mvpi.errors import ResumeWarning
from mvpi.sb3 import augmenter_of, load_training, save_training
from mvpi.sb3._training import KIND, TRAINING

STEPS = 90
RISKS: dict[str, Any] = {"plain": None, "range": OfReturn(RiskRange(0.5, 2.0)), "cvar": CVaR(0.3)}
BY_NAME = {str(a): a for a in ALGORITHMS}
SAC_, PPO_ = BY_NAME["stable_baselines3.SAC"], BY_NAME["stable_baselines3.PPO"]
RESUMED = "bits equal after resume in a new process"
QUICK = ("stable_baselines3.SAC", "stable_baselines3.PPO")
"""One of each kind: the others are slow."""


def made(algorithm: Algorithm, risk: str) -> Any:
    return algorithm.plain() if risk == "plain" else algorithm.plugged(RISKS[risk])


def digest(model: Any) -> str:
    """Of all that training changes: networks, the buffer, counters, `y`."""
    seen = hashlib.sha256(b"".join(np.ascontiguousarray(w).tobytes() for w in weights(model)))
    buffer = model.replay_buffer if hasattr(model, "replay_buffer") else model.rollout_buffer
    seen.update(np.ascontiguousarray(buffer.rewards).tobytes())
    returns = [[e["r"], e["l"]] for e in model.ep_info_buffer]
    seen.update(repr([model.num_timesteps, model._n_updates, model._episode_num, returns]).encode())
    seen.update(repr(np.asarray(model._last_obs).tolist()).encode())
    return seen.hexdigest()


def next_number() -> str:
    """Also the global generator, which SB3 draws from, is where it would have been."""
    return repr(float(np.random.random()))  # noqa: NPY002


def go_on(names: list[str], risk: str, directory: Path) -> dict[str, str]:
    """In this process: the digests of models that are loaded and learn on."""
    import torch

    torch.set_num_threads(1)
    found = {}
    for name in names:
        algorithm = BY_NAME[name]
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResumeWarning)
            model = load_training(algorithm.cls, directory / name, env=algorithm.env())
        model.learn(STEPS, reset_num_timesteps=False)
        found[name] = digest(model) + next_number()
    return found


def in_new_process(names: list[str], risk: str, directory: Path) -> dict[str, str]:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "import json, pathlib\nfrom sb3 import test_training\n"
        f"print(json.dumps(test_training.go_on({names}, {risk!r}, "
        f"pathlib.Path({str(directory)!r}))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def uninterrupted(algorithm: Algorithm, risk: str, directory: Path) -> str:
    """Saved in the middle, which changes nothing."""
    model = made(algorithm, risk)
    model.learn(STEPS)
    save_training(model, directory / str(algorithm))
    model.learn(STEPS, reset_num_timesteps=False)
    return digest(model) + next_number()


@pytest.mark.parametrize("risk", [pytest.param("plain", marks=pytest.mark.slow), "range"])
def test_the_same_bits_in_a_new_process(risk: str, tmp_path: Path) -> None:
    expected = {name: uninterrupted(BY_NAME[name], risk, tmp_path) for name in QUICK}
    assert in_new_process(list(QUICK), risk, tmp_path) == expected


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the algorithms of a library come to in a new process, one for all of them."""

    @cache
    def found(library: str) -> dict[str, tuple[str, str]]:
        directory = tmp_path_factory.mktemp(library)
        ours = [a for a in ALGORITHMS if a.library == library]
        expected = {str(a): uninterrupted(a, "cvar", directory) for a in ours}
        again = in_new_process(list(expected), "cvar", directory)
        return {name: (expected[name], again[name]) for name in expected}

    return found


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=str)
@pytest.mark.supports(RESUMED)
def test_every_algorithm_goes_on_exactly(algorithm: Algorithm, resumed: Any) -> None:
    expected, again = resumed(algorithm.library)[str(algorithm)]
    assert again == expected


def test_saving_changes_nothing(tmp_path: Path) -> None:
    expected = uninterrupted(SAC_, "cvar", tmp_path)
    model = made(SAC_, "cvar")
    model.learn(STEPS)
    model.learn(STEPS, reset_num_timesteps=False)
    assert digest(model) + next_number() == expected


class Counting(BaseCallback):
    """Keeps what it has seen, as callbacks do."""

    def __init__(self) -> None:
        super().__init__()
        self.best, self.rewards = float("-inf"), [0.0]

    def _on_step(self) -> bool:
        self.best = max(self.best, float(self.locals["rewards"][0]))
        self.rewards.append(float(self.locals["rewards"][0]))
        return True


def continued(make: Any, cls: Any, make_env: Any, tmp_path: Path, **more: Any) -> tuple[Any, Any]:
    """A model that went on, and one that was loaded in the middle and went on."""
    whole = make(make_env())
    whole.learn(STEPS)
    save_training(whole, tmp_path / "training")
    whole.learn(STEPS, reset_num_timesteps=False)
    loaded = load_training(cls, tmp_path / "training", env=make_env(), **more)
    loaded.learn(STEPS, reset_num_timesteps=False)
    return whole, loaded


@pytest.mark.parametrize("task", ["Pendulum-v1", "Ant-v5"])
def test_environments_are_restored_in_the_middle_of_an_episode(task: str, tmp_path: Path) -> None:
    def make(env: Any) -> Any:
        size = env.action_space.shape
        noise = OrnsteinUhlenbeckActionNoise(np.zeros(size), np.full(size, 0.2))
        small = {"learning_starts": 30, "policy_kwargs": {"net_arch": [8]}, "seed": 1}
        return TD3("MlpPolicy", env, action_noise=noise, buffer_size=500, **small)

    whole, loaded = continued(make, TD3, lambda: gym.make(task), tmp_path)
    assert not whole.env.buf_dones.any()
    assert digest(loaded) == digest(whole)
    np.testing.assert_array_equal(loaded.action_noise.noise_prev, whole.action_noise.noise_prev)


def test_several_normalised_environments_and_schedules(tmp_path: Path) -> None:
    def schedule(left: float) -> float:
        return 1e-3 * left

    def make(env: Any) -> Any:
        return PPO("MlpPolicy", env, n_steps=16, batch_size=16, seed=2, clip_range=schedule)

    def envs() -> Any:
        return VecNormalize(DummyVecEnv([Echo, Echo]))

    with pytest.raises(InputError, match=r"'clip_range' was code, .*pass it to load_training"):
        continued(make, PPO, envs, tmp_path)
    whole, loaded = continued(make, PPO, envs, tmp_path, clip_range=schedule)
    assert digest(loaded) == digest(whole)
    assert loaded.env.ret_rms.mean == whole.env.ret_rms.mean
    with pytest.raises(InputError, match="has its own 'gamma', leave it out"):
        load_training(PPO, tmp_path / "training", envs(), clip_range=schedule, gamma=0.5)
    with pytest.raises(InputError, match="training went on in 2 environments, env has 1"):
        load_training(PPO, tmp_path / "training", Echo(), clip_range=schedule)


def test_callbacks_go_on_counting(tmp_path: Path) -> None:
    callback = Counting()
    model = SAC_.plain()
    model.learn(STEPS, callback=callback)
    save_training(model, tmp_path, callback=callback)
    fresh = Counting()
    load_training(SAC, tmp_path, SAC_.env(), callback=fresh)
    assert (fresh.best, fresh.rewards, fresh.n_calls) == (callback.best, callback.rewards, STEPS)
    with pytest.raises(InputError, match=r"callback must be .*Counting"):
        load_training(SAC, tmp_path, SAC_.env())


class Hidden(Echo):
    """Keeps part of its state where nobody finds it."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = iter(range(10**9))

    def step(self, action: Any) -> Any:
        seen, *rest = super().step(action)
        seen[1] = next(self.stream)
        return seen, *rest


class Shared(Echo):
    """Keeps part of its state in its class."""

    total = 0

    def step(self, action: Any) -> Any:
        Shared.total += 1
        return super().step(action)


@pytest.mark.parametrize("env", [Hidden, Shared])
def test_hidden_state_is_warned_of(env: Any, tmp_path: Path) -> None:
    Shared.total = 0
    model = SAC_.plugged(1.0, env())
    model.learn(STEPS)
    save_training(model, tmp_path)
    Shared.total = 0  # as in a new process
    with pytest.warns(ResumeWarning, match="keeps state outside its random generators"):
        again = load_training(SAC, tmp_path, env())
    again.learn(STEPS, reset_num_timesteps=False)
    assert again.num_timesteps == 2 * STEPS


def test_the_risk_is_part_of_it(tmp_path: Path) -> None:
    model = made(PPO_, "range")
    model.learn(STEPS)
    save_training(model, tmp_path)
    again = load_training(PPO, tmp_path, PPO_.env())
    lam = np.linspace(0.5, 2.0, 5)
    np.testing.assert_array_equal(augmenter_of(again).y_at(lam), augmenter_of(model).y_at(lam))


# Other environments, as far as they tell.


def small_sac(env: Any) -> SAC:
    return SAC("MlpPolicy", env, learning_starts=10, policy_kwargs={"net_arch": [8]}, seed=0)


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A training in Pendulum-v1, in the middle of an episode."""
    gym.register(
        "SamePendulum-v1",
        "gymnasium.envs.classic_control.pendulum:PendulumEnv",
        max_episode_steps=9,
    )
    directory = tmp_path_factory.mktemp("pendulum")
    save_training(small_sac("Pendulum-v1").learn(20), directory)
    yield directory
    del gym.registry["SamePendulum-v1"]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: "SamePendulum-v1", "went on in Pendulum-v1, env is SamePendulum-v1: make env as"),
        (
            lambda: gym.make("Pendulum-v1", g=5.0),
            r"went on in Pendulum-v1 with g=10\.0, env is Pendulum-v1 with g=5\.0: make env as",
        ),
        (
            lambda: gym.make("Pendulum-v1", max_episode_steps=9),
            "with max_episode_steps=200, env is Pendulum-v1 with max_episode_steps=9: make env as",
        ),
        (
            lambda: VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")])),
            "went on in a VecEnv, env is a VecEnv in VecNormalize: make env as",
        ),
    ],
    ids=["id", "keyword", "limit", "VecNormalize"],
)
def test_another_environment_is_refused(make: Any, sentence: str, pendulum: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        load_training(SAC, pendulum, env=make())


@pytest.mark.parametrize(
    "more", [{}, {"g": 10.0}, {"g": np.float64(10)}, {"render_mode": "rgb_array"}], ids=str
)
def test_the_same_environment_made_in_other_words(more: dict[str, Any], pendulum: Path) -> None:
    env = gym.make("Pendulum-v1", **more)
    assert env.spec is not None  # looked up, which gymnasium remembers in the wrapper
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResumeWarning)
        load_training(SAC, pendulum, env=env)


def test_other_wrappers_are_warned_of(pendulum: Path) -> None:
    """No state of one layer is put into another."""
    env = gym.wrappers.TransformReward(gym.make("Pendulum-v1"), float)
    with pytest.warns(ResumeWarning, match=r"\(TimeLimit.*, env is Monitor\(TransformReward\(Time"):
        model = load_training(SAC, pendulum, env=env)
    assert not hasattr(env, "_elapsed_steps")
    assert model.learn(20, reset_num_timesteps=False).num_timesteps == 40


def test_keywords_that_a_file_does_not_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code and places on a disk."""

    class Own(Echo):
        def __init__(self, data: str, table: Any, code: Any = None) -> None:
            super().__init__()

    monkeypatch.setitem(gym.registry, "Own-v0", EnvSpec("Own-v0", Own))
    model = small_sac(gym.make("Own-v0", data="/a/b", table=np.zeros(3), code=len))
    save_training(model, tmp_path)
    load_training(SAC, tmp_path, gym.make("Own-v0", data="/c", table=np.zeros(3), code=max))
    with pytest.raises(
        InputError, match=r"Own-v0 with table=\[0\.0, 0\.0, 0\.0\], env is Own-v0 wi"
    ):
        load_training(SAC, tmp_path, gym.make("Own-v0", data="/c", table=np.ones(3)))


def test_another_class_is_warned_of(tmp_path: Path) -> None:
    class Renamed(Echo):
        pass

    save_training(small_sac(Echo()).learn(20), tmp_path)
    with pytest.warns(
        ResumeWarning, match=r"in Monitor\(Echo\), env is Monitor\(.*Renamed\): it goe"
    ):
        load_training(SAC, tmp_path, Renamed())


# Mistakes and hostile files.


def test_mistakes(tmp_path: Path) -> None:
    save_training(SAC_.plain(), tmp_path)  # before the first step
    with pytest.raises(InputError, match=r"is of .*:SAC, not of .*:PPO"):
        load_training(PPO, tmp_path, SAC_.env())
    with pytest.raises(InputError, match="algorithm must be a class"):
        load_training("SAC", tmp_path, SAC_.env())  # type: ignore[type-var]
    with pytest.raises(InputError, match="env has the actions"):
        load_training(SAC, tmp_path, Wider())
    with pytest.raises(InputError, match="does not exist"):
        load_training(SAC, tmp_path / "nowhere", SAC_.env())
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        save_training(SAC_.plain(), tmp_path / "file")
    for mistake, sentence in (
        ({"gama": 0.9}, "SAC has no argument 'gama'"),
        ({"risk": 2.0}, r"risk is that of the file: change it by mvpi\.sb3\.attach\("),
        ({"env": None}, "env must be the environment to go on in, got None"),
        ({"env": "Nowhere-v0"}, "environment 'Nowhere-v0' cannot be made: "),
        ({"device": "abacus"}, "device 'abacus' is none of torch: "),
    ):
        with pytest.raises(InputError, match=sentence):
            load_training(SAC, tmp_path, **{"env": SAC_.env(), **mistake})
    load_training(SAC, tmp_path, SAC_.env()).learn(30)


class Wider(Echo):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(-2.0, 2.0, (2,), np.float32)


def test_links_are_not_followed(tmp_path: Path) -> None:
    aim = tmp_path / "aim"
    aim.write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / TRAINING).symlink_to(aim)
    save_training(SAC_.plain(), tmp_path / "out")
    assert aim.read_text() == "mine"


class Bomb:
    def __init__(self, fuse: Path) -> None:
        self.fuse = fuse

    def __reduce__(self) -> Any:
        return Path.touch, (self.fuse,)


def test_hostile_files(tmp_path: Path) -> None:
    """Nothing runs; whatever is wrong is one line."""
    model = DQN("MlpPolicy", Echo(discrete=True), seed=0, buffer_size=50, learning_starts=10)
    model.learn(40)
    save_training(model, tmp_path)
    path, fuse = tmp_path / TRAINING, tmp_path / "fuse"
    whole = path.read_bytes()
    arrays, record = read_arrays(path, KIND)
    facts = {n: v for n, v in record.items() if n not in ("format", "kind", "checksum")}
    rng = np.random.default_rng(0)

    def refused() -> bool:
        with contextlib.suppress(InputError):
            load_training(DQN, tmp_path, Echo(discrete=True))
            return False
        return True

    for data in (b"", pickle.dumps(Bomb(fuse)), whole[:-7], whole[100:]):
        path.write_bytes(data)
        assert refused()
    for _ in range(20):
        at = int(rng.integers(len(whole)))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :])
        assert refused()
    odd = ["x", -1, [], {}, ["class", "os:system"], ["new", "os:system", {}], ["nonsense"], 10**30]
    count = 0
    for name in sorted(facts["model"]):
        for entry in rng.permutation(np.array(odd, object))[:3].tolist():
            changed = {**facts, "model": {**facts["model"], name: entry}}
            write_arrays(path, KIND, arrays, changed)
            count += refused()
    assert count > 40
    for name in sorted(facts):
        for entry in odd:
            write_arrays(path, KIND, arrays, {**facts, name: entry})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResumeWarning)
                refused()
    for entry in ({"step": 1}, {"__class__": 1}, {"_mvpi_plug": 1}, {"a b": 1}):
        write_arrays(path, KIND, arrays, {**facts, "model": {**facts["model"], **entry}})
        assert refused() == (entry != {"step": 1})
    assert not fuse.exists()


# State in ordinary places: what is one thing at two places stays one, also after resuming.


class Side(Enum):
    LONG, SHORT = 1, -1


class Trade(NamedTuple):
    side: Side
    size: float


class Account:
    def __init__(self, cash: dict[str, float], place: Any) -> None:
        self.cash, self.place, self.total = cash, place, 0.0

    def book(self, amount: float) -> float:
        self.cash["all"] += amount
        self.place += amount
        self.total += amount
        return self.total


class Aliased(Echo):
    """Parts share a dictionary and an array; trades are enums in tuples; methods are kept."""

    def __init__(self) -> None:
        super().__init__()
        cash, memory, total = {"all": 0.0}, np.zeros(4), 0.0

        def count(amount: float) -> float:
            nonlocal total
            total += amount
            return total

        self.places = memory[:2], memory[::-1][:2]
        self.one, self.other = (Account(cash, place) for place in self.places)
        self.current, self.book, self.count = self.one, self.other.book, count
        self.trades: list[Trade] = []
        self.draw = np.random.default_rng(5).normal
        self.named = np.array(["a", "b"])
        self.sums = {self.one: 0.0, self.other: 0.0}

    def step(self, action: Any) -> Any:
        seen, reward, *rest = super().step(action)
        self.current = self.other if self.current is self.one else self.one
        side = Side.LONG if reward > 0 else Side.SHORT
        self.trades.append(Trade(side, self.current.book(self.draw())))
        self.sums[self.current] += self.count(0.1) + self.book(0.5)
        self.places[0][0] *= 0.9
        recent = sum(trade.side.value * trade.size for trade in self.trades[-3:])
        shared = self.one.cash["all"] + self.other.place.sum() + self.one.place.sum()
        seen[1] = np.tanh(recent + shared + self.sums[self.one])
        return seen, reward, *rest


def small_td3(env: Any, **more: Any) -> TD3:
    small = {"learning_starts": 30, "policy_kwargs": {"net_arch": [8]}, "buffer_size": 500}
    return TD3("MlpPolicy", env, **{**small, "seed": 1, **more})


@pytest.mark.parametrize("seed", [1, None])
def test_what_is_one_stays_one(seed: int | None, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResumeWarning)
        whole, loaded = continued(lambda e: small_td3(e, seed=seed), TD3, Aliased, tmp_path)
    assert digest(loaded) == digest(whole)


class Toy(Echo):
    """Draws its first number after `reset`, as environments with a fixed start do."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        gym.Env.reset(self, seed=seed)
        self._time, self._terminates = 0, False
        return np.zeros(2, np.float32), {}


def test_a_generator_that_is_made_late(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResumeWarning)
        whole, loaded = continued(lambda e: small_td3(e, seed=None), TD3, Toy, tmp_path)
    assert digest(loaded) == digest(whole)


class Clocked(Echo):
    def __init__(self) -> None:
        super().__init__()
        self.now: Any = pandas.Timestamp("2020-01-01")

    def step(self, action: Any) -> Any:
        self.now += pandas.Timedelta(days=1)
        return super().step(action)


class Remembering(Echo):
    """Has objects in a list that `reset` reads."""

    def __init__(self) -> None:
        super().__init__()
        self.accounts: list[Account] = []

    def reset(self, **more: Any) -> Any:
        self.known = sum(account.total for account in self.accounts)
        return super().reset(**more)

    def step(self, action: Any) -> Any:
        self.accounts.append(Account({"all": 0.0}, np.zeros(1)))
        return super().step(action)


@pytest.mark.parametrize(("env", "where"), [(Clocked, "now"), (Remembering, r"accounts\.0")])
def test_what_cannot_be_made_again_is_warned_of(env: Any, where: str, tmp_path: Path) -> None:
    with pytest.warns(ResumeWarning, match=rf"model\.env\.envs\.0\.env\.{where}.*a new episode"):
        continued(small_td3, TD3, env, tmp_path)


def test_other_processes_are_not_mixed_up(tmp_path: Path) -> None:
    """The numbers of their connections belong to the process that was saved."""

    def envs() -> Any:
        return SubprocVecEnv([Echo, Echo], start_method="forkserver")

    def make(env: Any) -> Any:
        return PPO("MlpPolicy", env, n_steps=16, batch_size=16, seed=2)

    whole = make(envs())
    whole.learn(STEPS)
    save_training(whole, tmp_path)
    env = envs()
    before = [remote.fileno() for remote in env.remotes]
    with pytest.warns(ResumeWarning, match=r"remotes\.0.*a new episode begins"):
        loaded = load_training(PPO, tmp_path, env)
    assert [remote.fileno() for remote in env.remotes] == before
    assert loaded.learn(STEPS, reset_num_timesteps=False).num_timesteps > 2 * STEPS
    for vec_env in (env, whole.env):
        vec_env.close()


def test_times_in_an_episode_go_on(tmp_path: Path) -> None:
    """The discounted occupancy counts on from the middle of an episode."""

    def make(env: Any) -> Any:
        return SAC_.plugged(0.5, env, occupancy="discounted")

    whole, loaded = continued(make, SAC, lambda: DummyVecEnv([Echo, Echo]), tmp_path)
    assert augmenter_of(loaded).y == augmenter_of(whole).y
    assert digest(loaded) == digest(whole)


def test_other_versions_are_told(tmp_path: Path) -> None:
    save_training(SAC_.plain(Echo()).learn(30), tmp_path)
    arrays, record = read_arrays(tmp_path / TRAINING, KIND)
    facts = {n: v for n, v in record.items() if n not in ("format", "kind", "checksum")}
    assert set(facts["versions"]) >= {"mvpi", "stable_baselines3", "gymnasium", "numpy", "torch"}
    older = facts["versions"] | {"torch": "1.0", "a package that is not here": "2"}
    write_arrays(tmp_path / TRAINING, KIND, arrays, {**facts, "versions": older})
    with pytest.warns(ResumeWarning, match=r"saved with torch 1\.0 \(now 2.*\): it goes on"):
        load_training(SAC, tmp_path, Echo())


def test_views_outside_their_array_are_refused(tmp_path: Path) -> None:
    save_training(SAC_.plain(Aliased()).learn(30), tmp_path)
    arrays, record = read_arrays(tmp_path / TRAINING, KIND)
    facts = {n: v for n, v in record.items() if n not in ("format", "kind", "checksum")}
    text = json.dumps(facts)
    found = re.search(r'\["view", .*?"<f8", \[2\], (\d+), \[(-?\d+)\]\]', text)
    assert found is not None
    for change in ('"<f8", [2], 40, [8]]', '"<f8", [2], 0, [8000]]', '"<f8", [2], -8, [8]]'):
        hostile = text.replace(found[0], found[0].rpartition('"<f8"')[0] + change)
        write_arrays(tmp_path / TRAINING, KIND, arrays, json.loads(hostile))
        with pytest.raises(InputError, match="is damaged, or env is another one"):
            load_training(SAC, tmp_path, Aliased())
