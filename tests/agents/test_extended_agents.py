"""Agents trained with RiskRange and OfReturn: resumed, saved, equal where they must be equal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest

import mvpi
from mvpi import CVaR, InputError, MeanVariance, OfReturn, Risk, RiskRange, VarianceBudget
from mvpi.augmenter.dual_estimates import phased_in
from mvpi.envs import Markowitz

TD3 = {
    "hidden": (16, 16),
    "learning_starts": 60,
    "batch_size": 16,
    "buffer_size": 300,
    "evaluation_every": 100,
    "evaluation_episodes": 4,
    "checkpoint_every": 50,
}
PPO = {
    "hidden": (8,),
    "n_steps": 50,
    "batch_size": 25,
    "evaluation_every": 100,
    "evaluation_episodes": 4,
    "checkpoint_every": 50,
}
SHORT: dict[str, Any] = {"horizon": 10}
RISKS = [
    RiskRange(0.0, 2.0),
    RiskRange(0.2, 2.0),
    OfReturn(1.0),
    OfReturn(CVaR(0.3)),
    OfReturn(RiskRange(0.1, 1.0)),
    OfReturn(VarianceBudget(0.5)),
]


def short_episodes() -> gym.Env[Any, Any]:
    return Markowitz(**SHORT)


def made(algorithm: str, risk: Risk | float, **settings: Any) -> Any:
    kind, own = (mvpi.TD3, TD3) if algorithm == "td3" else (mvpi.PPO, PPO)
    return kind(short_episodes, risk, seed=1, **{**own, **settings})


def parameters(agent: Any) -> list[list[float]]:
    return [p.ravel().tolist() for p in agent.policy.parameters]


@pytest.mark.parametrize("algorithm", ["td3", "ppo"])
@pytest.mark.parametrize("risk", RISKS, ids=str)
def test_a_run_that_was_interrupted_ends_with_the_same_bytes(
    tmp_path: Path, algorithm: str, risk: Risk
) -> None:
    class Stopped(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        if row["steps"] >= 200:
            raise Stopped

    whole = made(algorithm, risk).learn(400, tmp_path / "whole")
    with pytest.raises(Stopped):
        made(algorithm, risk).learn(400, tmp_path / "cut", on_row=stop)
    made(algorithm, risk).learn(400, tmp_path / "cut")
    files = [(tmp_path / name / "policy.safetensors").read_bytes() for name in ("whole", "cut")]
    assert files[0] == files[1]
    assert np.isfinite(whole.policy.parameters[0]).all()


@pytest.mark.parametrize(
    ("algorithm", "settings"), [("td3", {}), ("td3", {"engine": "jax"}), ("ppo", {})]
)
def test_a_range_of_one_value_is_the_plain_agent(algorithm: str, settings: dict[str, Any]) -> None:
    plain = made(algorithm, 0.7, **settings).learn(200)
    ranged = made(algorithm, RiskRange(0.7, 0.7), **settings).learn(200)
    assert parameters(ranged) == parameters(plain)
    assert ranged.at(0.7).predict([1.0]).tolist() == plain.predict([1.0]).tolist()
    with pytest.raises(InputError, match=r"range of training, 0\.7 to 0\.7, got 1"):
        ranged.at(1.0)


def test_both_engines_learn_the_same_from_a_range() -> None:
    native, jax = (
        made("td3", OfReturn(RiskRange(0.1, 1.0)), engine=engine).learn(120)
        for engine in ("native", "jax")
    )
    for ours, theirs in zip(native.policy.parameters, jax.policy.parameters, strict=True):
        assert np.allclose(ours, theirs, atol=2e-3)


@pytest.mark.parametrize("algorithm", ["td3", "ppo"])
def test_at_is_the_policy_with_the_risk_aversion_written_in(algorithm: str) -> None:
    agent = made(algorithm, RiskRange(0.2, 2.0)).learn(200)
    for lam in (0.2, 0.5, 2.0):
        x = np.array([1.0, agent.policy.columns._known_range().coordinate(lam)], np.float32)
        written = agent.policy.spaces.actions.to_env_action(agent.policy(x))
        assert np.allclose(agent.at(lam).predict([1.0]), written, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["td3", "ppo"])
@pytest.mark.parametrize("risk", RISKS, ids=str)
def test_saved_and_loaded(tmp_path: Path, algorithm: str, risk: Risk) -> None:
    agent = made(algorithm, risk).learn(200)
    agent.save(tmp_path / "p.safetensors")
    loaded = mvpi.load(tmp_path / "p.safetensors")
    extra = {"return_so_far": 0.3} if risk.of_return else {}
    choose: Callable[[Any], Any] = lambda a: a  # noqa: E731
    if "risk_aversion" in risk.columns:
        choose = lambda a: a.at(0.5)  # noqa: E731
    one, two = choose(agent), choose(loaded)
    assert one.predict([1.0], **extra).tolist() == two.predict([1.0], **extra).tolist()
    one.save(tmp_path / "at.safetensors")
    again = mvpi.load(tmp_path / "at.safetensors")
    assert again.risk == one.risk
    assert again.predict([1.0], **extra).tolist() == one.predict([1.0], **extra).tolist()
    seen = [mvpi.evaluate(a, short_episodes, episodes=5, seed=2) for a in (one, again)]
    assert seen[0].returns.tolist() == seen[1].returns.tolist()


def test_what_is_missing_is_named() -> None:
    ranged, of_return = made("td3", RiskRange(0.0, 2.0)), made("td3", OfReturn(1.0))
    both, plain = made("td3", OfReturn(RiskRange(0.5, 2.0))), made("td3", 1.0)
    with pytest.raises(InputError, match=r"every risk aversion from 0 to 2: choose .* agent\.at"):
        ranged.predict([1.0])
    with pytest.raises(InputError, match="every risk aversion from 0 to 2"):
        mvpi.evaluate(ranged, short_episodes, episodes=1)
    with pytest.raises(InputError, match="return_so_far=g"):
        of_return.predict([1.0])
    with pytest.raises(InputError, match="return_so_far=g"):
        both.at(1.0).predict([1.0])
    with pytest.raises(InputError, match="does not look at return_so_far"):
        plain.predict([1.0], return_so_far=0.0)
    with pytest.raises(InputError, match=r"trained at .* alone, not with a RiskRange"):
        plain.at(1.0)
    with pytest.raises(InputError, match="must be finite"):
        of_return.predict([1.0], return_so_far=float("nan"))
    with pytest.raises(InputError, match="one per observation"):
        of_return.predict([[1.0]] * 3, return_so_far=[0.0, 1.0])
    with pytest.raises(InputError, match="nothing was measured yet"):
        ranged.frontier()
    assert of_return.predict([[1.0]] * 3, return_so_far=[0.0, 1.0, 2.0]).shape == (3, 2)


class GainsThen(gym.Env[Any, Any]):
    """Pays 1 at the first step and the action at the second: who looks at 1 can tell them apart."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, **options: Any) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=options.get("seed"))
        self._first = True
        return np.zeros(1, np.float32), {}

    def step(
        self, action: Any
    ) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        first, self._first = self._first, False
        return np.zeros(1, np.float32), 1.0 if first else float(action[0]), not first, False, {}


def test_evaluate_keeps_count_of_the_return() -> None:
    agent = mvpi.TD3(GainsThen, OfReturn(1.0), **TD3)
    wanted = 1.0 + float(agent.predict([0.0], return_so_far=1.0)[0])
    assert mvpi.evaluate(agent, episodes=2).returns.tolist() == pytest.approx([wanted] * 2)


def test_the_learned_frontier_falls_and_answers() -> None:
    agent = made("td3", RiskRange(0.2, 2.0), evaluation_episodes=6).learn(600)
    frontier = agent.frontier()
    assert frontier.risk_aversions.tolist() == RiskRange(0.2, 2.0).grid(6).tolist()
    assert (np.diff(frontier.means) <= 0.0).all()
    assert (np.diff(frontier.variances) <= 0.0).all()
    assert (frontier.mean_intervals[:, 0] <= frontier.means).all()
    assert (frontier.variances <= frontier.variance_intervals[:, 1]).all()
    limit = float(frontier.variances[[0, -1]].mean())
    lam = agent.with_variance_at_most(limit).risk.risk_aversion
    assert (
        np.interp(np.log(lam), np.log(frontier.risk_aversions), frontier.variances) <= limit + 1e-9
    )
    assert agent.with_variance_at_most(1e9).risk.risk_aversion == 0.2
    assert agent.with_mean_at_least(-1e9).risk.risk_aversion == 2.0
    with pytest.raises(InputError, match="the least variance that was measured"):
        agent.with_variance_at_most(0.0)
    with pytest.raises(InputError, match="the largest mean that was measured"):
        agent.with_mean_at_least(1e9)


def test_risk_aversion_along_a_line() -> None:
    """Between two points of the frontier the risk aversion is interpolated."""
    from mvpi.agents.learned_frontier import LearnedFrontier

    known = RiskRange(0.0, 2.0)
    nothing = np.zeros((3, 2))
    line = LearnedFrontier(
        known.grid(3), np.array([3.0, 2.0, 1.0]), np.array([9.0, 4.0, 1.0]), nothing, nothing, known
    )
    assert line.with_variance_at_most(6.5) == pytest.approx(0.5)
    assert line.with_variance_at_most(4.0) == pytest.approx(1.0)
    assert line.with_mean_at_least(1.5) == pytest.approx(1.5)
    assert line.with_mean_at_least(3.0) == pytest.approx(0.0)


@pytest.mark.parametrize("risk", [0.0, CVaR(0.3, 0.0), mvpi.RiskRange(0.0, 0.0)], ids=str)
@pytest.mark.parametrize(("kind", "settings"), [(mvpi.TD3, TD3), (mvpi.PPO, PPO)])
def test_at_risk_0_it_is_the_plain_agent(
    tmp_path: Path, kind: Any, settings: dict[str, Any], risk: Any
) -> None:
    """Bit for bit, also when it was saved and loaded."""
    plain = kind("Pendulum-v1", 0.0, seed=1, **settings).learn(200)
    of_return = kind("Pendulum-v1", OfReturn(risk), seed=1, **settings).learn(200, tmp_path / "run")
    assert parameters(of_return) == parameters(plain)
    assert parameters(mvpi.load(tmp_path / "run")) == parameters(plain)
    assert parameters(kind("Pendulum-v1", 0.0, seed=1, **settings)) != parameters(plain)
    observation = np.array([1.0, 0.0, 0.5])
    np.testing.assert_array_equal(of_return.predict(observation), plain.predict(observation))
    assert mvpi.evaluate(of_return, episodes=2).mean == mvpi.evaluate(plain, episodes=2).mean


def test_a_part_of_a_risk_is_in_the_same_family() -> None:
    """`w` of mean-variance is the risk aversion `w lam`, `w` of CVaR is CVaR with that weight."""
    r = np.random.default_rng(0).normal(size=50)
    for whole, part in (
        (mvpi.MeanVariance(2.0), mvpi.MeanVariance(0.6)),
        (CVaR(0.2), CVaR(0.2, 0.3)),
    ):
        y = whole.dual(r)
        assert part.dual(r) == y
        phased = phased_in(r, whole.augment(r, y), 0.3)
        np.testing.assert_allclose(phased, part.augment(r, y), atol=1e-12)


@pytest.mark.parametrize("algorithm", ["td3", "ppo"])
@pytest.mark.parametrize("of", [mvpi.MeanVariance, OfReturn], ids=["step", "return"])
def test_the_risk_is_phased_in(algorithm: str, of: Any) -> None:
    """The first update is made half way, when a hundredth counts: of the risk aversion, too."""
    first = 70 if algorithm == "td3" else 50
    phased = made(algorithm, of(80.0), risk_warmup=2 * first).learn(first)
    part, more, none = (made(algorithm, of(lam)).learn(first) for lam in (0.8, 1.6, 1e-12))

    def distance(other: Any) -> float:
        pairs = zip(phased.policy.parameters, other.policy.parameters, strict=True)
        return max(float(np.abs(a - b).max()) for a, b in pairs)

    assert distance(part) < 1e-6
    assert min(distance(more), distance(none)) > 1e-5


@pytest.mark.parametrize("algorithm", ["td3", "ppo"])
def test_a_risk_that_is_phased_in_is_resumed(tmp_path: Path, algorithm: str) -> None:
    class Stopped(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        if row["steps"] >= 200:
            raise Stopped

    warm = {"risk_warmup": 350}
    made(algorithm, OfReturn(1.0), **warm).learn(400, tmp_path / "whole")
    with pytest.raises(Stopped):
        made(algorithm, OfReturn(1.0), **warm).learn(400, tmp_path / "cut", on_row=stop)
    made(algorithm, OfReturn(1.0), **warm).learn(400, tmp_path / "cut")
    files = [(tmp_path / name / "policy.safetensors").read_bytes() for name in ("whole", "cut")]
    assert files[0] == files[1]


@pytest.mark.parametrize("wrong", [-1, 0.5, "many", None, float("nan"), True])
def test_malformed_warmups(wrong: Any) -> None:
    for algorithm in ("td3", "ppo"):
        with pytest.raises(InputError, match="risk_warmup must be a whole number") as refused:
            made(algorithm, OfReturn(1.0), risk_warmup=wrong)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("algorithm", ["td3", "ppo"])
def test_at_uses_the_policy_that_was_measured_to_be_better(tmp_path: Path, algorithm: str) -> None:
    """Measured: a gamble up to 1.2 and then a sure thing, which is better from 0.3 on."""
    agent, rng = made(algorithm, RiskRange(0.0, 2.0)).learn(200), np.random.default_rng(0)
    measured = []
    for lam in np.repeat(np.linspace(0.0, 2.0, 20), 5).tolist():
        r = 1.3 + rng.standard_normal(100) if lam < 1.2 else np.ones(100)
        measured.append([lam, r.size, r.sum(), np.square(r).sum(), r.sum()])
    facts = {**agent.config(), "steps": 200, "measured": measured}
    agent.policy.save(tmp_path / "p.safetensors", facts)
    agent = mvpi.load(tmp_path / "p.safetensors")

    def acts_like(lam: float) -> list[float]:
        action: list[float] = agent.policy.at(lam).predict([1.0]).tolist()
        return action

    assert agent.at(0.1).predict([1.0]).tolist() == acts_like(0.1)
    chosen = agent.at(0.8)
    assert chosen.risk == MeanVariance(0.8)
    calm = [acts_like(lam) for lam in np.linspace(0.0, 2.0, 20) if lam >= 1.2]
    assert chosen.predict([1.0]).tolist() in calm
    chosen.save(tmp_path / "at.safetensors")
    assert mvpi.load(tmp_path / "at.safetensors").predict([1.0]).tolist() in calm
    # A budget is about the very policies that were measured: no other one is taken.
    steady = agent.frontier().with_variance_at_most(0.1)
    assert agent.with_variance_at_most(0.1).predict([1.0]).tolist() == acts_like(steady)


@pytest.mark.parametrize("out", [False, True])
def test_the_final_policy_is_measured_several_times(tmp_path: Path, out: bool) -> None:
    """In memory when it is asked for, in a run directory at the end; training goes on as before."""
    agent = made("td3", RiskRange(0.0, 2.0)).learn(200, tmp_path / "run" if out else None)
    found = agent.frontier()
    assert np.all(found.mean_intervals[:, 1] > found.mean_intervals[:, 0])  # several episodes each
    if out:
        assert mvpi.load(tmp_path / "run").frontier().means.tolist() == found.means.tolist()
        agent = made("td3", RiskRange(0.0, 2.0))
    agent.learn(400, tmp_path / "run" if out else None)
    assert parameters(agent) == parameters(made("td3", RiskRange(0.0, 2.0)).learn(400))
