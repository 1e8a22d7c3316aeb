"""Learning from data in a directory, and `mvpi offline`: exact resume, mistakes in one line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.minari_data import collected

import mvpi.envs
from mvpi._storage.metrics import read_metrics
from mvpi.agents.training import Interrupted
from mvpi.cli import main
from mvpi.cli.offline import policy_in
from mvpi.errors import InputError
from mvpi.offline import Dataset, td3_bc
from mvpi.offline.settings import TD3BCSettings
from mvpi.offline.td3_bc import TD3BC
from mvpi.offline.training import learn_finite_in, learn_in
from mvpi.paper.offline import gathered
from mvpi.risk import VarianceBudget

SMALL = {"hidden": (8, 8), "batch_size": 16, "ratio_every": 20, "ratio_steps": 5}
NUMBERS = {"--batch-size": 16, "--ratio-every": 20, "--ratio-steps": 5, "--discount": 0.5}
OPTIONS = ["--hidden", "8", "8", *(str(x) for pair in NUMBERS.items() for x in pair)]
Uninterrupted = Callable[[Any, int], dict[str, bytes]]
FILES = ("config.json", "metrics.csv", "policy.safetensors", "checkpoint.safetensors")


def portfolio(rows: int = 400, seed: int = 0) -> Dataset:
    """Random portfolios and what they earned."""
    rng = np.random.default_rng(seed)
    problem = mvpi.envs.Markowitz(bound=0.5)
    actions = rng.uniform(-0.5, 0.5, (rows, 2))
    returns = rng.multivariate_normal(problem.mean, problem.covariance, rows)
    seen = np.ones((rows, 1))
    return Dataset(seen, actions, (actions * returns).sum(1), seen, np.zeros(rows, bool), seen[:1])


def learner(risk: Any = 1.0, data: Dataset | None = None, **changes: Any) -> TD3BC:
    settings = TD3BCSettings(**{**SMALL, **changes})
    return TD3BC(data or portfolio(), risk, 0.5, settings=settings)


def bytes_in(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in FILES}


def all_bytes(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    """The bytes of a run that was never interrupted: each is made once."""

    @cache
    def run(risk: Any, updates: int) -> dict[str, bytes]:
        out = tmp_path_factory.mktemp("whole")
        learn_in(out, learner(risk), updates)
        return bytes_in(out)

    return run


@pytest.mark.parametrize("risk", [1.0, VarianceBudget(0.01)], ids=str)
@pytest.mark.parametrize("rows", [1, 3])
def test_resumed_runs_end_with_the_same_bytes(
    tmp_path: Path, uninterrupted: Uninterrupted, risk: Any, rows: int
) -> None:
    whole = uninterrupted(risk, 90)
    seen = []

    def die(row: dict[str, Any]) -> None:
        seen.append(row)
        if len(seen) == rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn_in(tmp_path / "cut", learner(risk), 90, die)
    learn_in(tmp_path / "cut", learner(risk), 90)
    assert bytes_in(tmp_path / "cut") == whole


def test_a_longer_run_goes_on(tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    learn_in(tmp_path / "parts", learner(), 40)
    learn_in(tmp_path / "parts", learner(), 80)
    assert bytes_in(tmp_path / "parts") == uninterrupted(1.0, 80)
    with pytest.raises(InputError, match="already holds 80 updates, more than the 40"):
        learn_in(tmp_path / "parts", learner(), 40)


def test_a_run_that_ended_between_two_estimates_goes_on_exactly(
    tmp_path: Path, uninterrupted: Uninterrupted, caplog: pytest.LogCaptureFixture
) -> None:
    whole = uninterrupted(1.0, 60)
    for updates, again in (
        (10, r"^$"),
        (50, "10 updates, .* of update 0"),
        (60, "50 .* of update 40"),
    ):
        caplog.clear()
        learn_in(tmp_path / "parts", learner(), updates)
        assert re.search(again, caplog.text)
        if updates == 50:
            with pytest.raises(InputError, match="already holds 50 updates, more than the 48"):
                learn_in(tmp_path / "parts", learner(), 48)
    assert bytes_in(tmp_path / "parts") == whole


@pytest.fixture(scope="module")
def whole_by_sixes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("sixes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(td3_bc, "_UPDATES_TOGETHER", 6)
        learn_in(out, learner(), 60)
    return bytes_in(out)


@pytest.mark.parametrize("at", [1, 3, 4])
def test_a_stop_that_is_asked_for_is_made_at_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole_by_sixes: dict[str, bytes], at: int
) -> None:
    """In the middle of a period, not only where `y` is estimated; the bytes stay the same."""
    monkeypatch.setattr(td3_bc, "_UPDATES_TOGETHER", 6)
    stopped, calls = learner(), 0
    draw, before = stopped._draw, signal.getsignal(signal.SIGTERM)

    def asked(count: int) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return draw(count)

    monkeypatch.setattr(stopped, "_draw", asked)
    expected = 6 * at if at < 4 else 20
    with pytest.raises(Interrupted, match=f"after a checkpoint at update {expected};"):
        learn_in(tmp_path / "cut", stopped, 60)
    assert signal.getsignal(signal.SIGTERM) is before
    resumed = learner()
    learn_in(tmp_path / "cut", resumed, 60)
    assert bytes_in(tmp_path / "cut") == whole_by_sixes


def test_sigterm_from_the_shell_leaves_a_checkpoint(tmp_path: Path) -> None:
    portfolio(2_000).save(tmp_path / "data.npz")
    program = [sys.executable, "-m", "mvpi", "offline", "learn", str(tmp_path / "data.npz")]
    options = ["--updates", "1000000", "--ratio-every", "1000", "--out", str(tmp_path / "run")]
    with subprocess.Popen(
        [*program, *OPTIONS, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        metrics = tmp_path / "run" / "metrics.csv"
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.02)
        process.terminate()
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    *rows, last = err.splitlines()
    assert out == ""
    assert re.fullmatch(r"mvpi: stopped after a checkpoint at update \d+; the same .*", last)
    assert rows  # a line an estimate, also without a terminal
    told = re.compile(r"update \d+000: y = [-\d.e]+ \([-\d.e]+ to [-\d.e]+\), effective size")
    assert all(map(told.match, rows))


def test_nothing_is_written_before_the_updates_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="updates must be a multiple of policy_delay, got 3 and 2"):
        learn_in(tmp_path / "run", learner(), 3)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_real_kills(tmp_path: Path) -> None:
    portfolio(5_000).save(tmp_path / "data.npz")

    def command(out: str) -> list[str]:
        program = [sys.executable, "-m", "mvpi", "offline", "learn", str(tmp_path / "data.npz")]
        return [*program, *OPTIONS, "--updates", "1000", "--out", str(tmp_path / out), "--json"]

    subprocess.run(command("whole"), check=True, capture_output=True)
    for kill in range(5):
        process = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL)
        metrics = tmp_path / "killed" / "metrics.csv"
        before = metrics.stat().st_size if metrics.exists() else 0
        while process.poll() is None and (not metrics.exists() or metrics.stat().st_size <= before):
            time.sleep(0.01)
        time.sleep(0.03 * kill)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(command("killed"), check=True, capture_output=True)
    assert bytes_in(tmp_path / "killed") == bytes_in(tmp_path / "whole")


def test_other_settings_or_data_are_refused(tmp_path: Path) -> None:
    learn_in(tmp_path, learner(), 20)
    with pytest.raises(InputError, match=r"other settings: alpha is 2\.5 there and 1\.0 here"):
        learn_in(tmp_path, learner(alpha=1.0), 20)
    with pytest.raises(InputError, match="fingerprint is"):
        learn_in(tmp_path, learner(data=portfolio(seed=1)), 20)
    damaged = tmp_path / "checkpoint.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-7])
    with pytest.raises(InputError, match=r"checkpoint\.safetensors"):
        learn_in(tmp_path, learner(), 20)


# The command line.


def test_warnings_are_one_line(tmp_path: Path) -> None:
    gathered(np.random.default_rng(0)).save(tmp_path / "data.npz")
    np.savez(tmp_path / "policy.npz", policy=np.full((4, 2), 0.5))  # half of it is not in the data
    program = [sys.executable, "-m", "mvpi", "offline", "evaluate", "--discount", "0.7"]
    files = [str(tmp_path / name) for name in ("data.npz", "policy.npz")]
    done = subprocess.run([*program, *files], check=True, capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("mvpi: warning: the data have no transitions for ")


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    main(["offline", *arguments, "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_finite_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = str(tmp_path / "four.npz"), str(tmp_path / "run")
    gathered(np.random.default_rng(0)).save(path)
    options = ["--discount", "0.7", "--out", out]
    learned = told(capsys, "learn", path, "--risk", "4.0", *options)
    assert learned["policy"][0] == pytest.approx([0.0, 1.0], abs=1e-3)
    # The numbers are those of the policy that was found, also when others were tried on the way.
    other = ["--discount", "0.7", "--out", str(tmp_path / "other")]
    budget = told(capsys, "learn", path, "--risk", "budget:0.3", *other)
    weighed = told(capsys, "evaluate", path, other[-1], "--discount", "0.7")
    assert [budget["y"], budget["value"]] == pytest.approx([weighed["mean"]] * 2, abs=1e-6)
    assert weighed["variance"] == pytest.approx(0.3, abs=1e-6)
    assert learned["y"] == pytest.approx(-0.7 / 1.7, abs=1e-6)
    before = all_bytes(tmp_path)
    assert told(capsys, "learn", path, "--risk", "4.0", *options) == learned
    main(["offline", "learn", path, "--risk", "4.0", *options])
    assert "policy.npz was finished already." in " ".join(capsys.readouterr().out.split())
    assert all_bytes(tmp_path) == before
    found = told(capsys, "evaluate", path, out, "--discount", "0.7")
    low, high = found["intervals"]["mean"]
    assert low - 1e-12 <= found["mean"] <= high + 1e-12  # the sure loss: the interval is a point
    assert found["mean"] == pytest.approx(-0.7 / 1.7, abs=0.05)  # the sure loss, every other step
    assert found["fitted_q_mean"] == pytest.approx(found["mean"], abs=1e-6)
    main(["offline", "evaluate", path, out, "--discount", "0.7", "--method", "exact"])
    assert "95% interval" in capsys.readouterr().out


def test_a_table_is_learned_in_a_run_directory(tmp_path: Path) -> None:
    data, out = gathered(np.random.default_rng(0)), tmp_path / "run"
    learn_finite_in(out, data, mvpi.MeanVariance(1.0), 0.7)
    rows = read_metrics(out)
    assert [row["iterations"] for row in rows] == list(range(len(rows)))
    assert np.all(np.diff([row["value"] for row in rows]) >= 0.0)
    before = all_bytes(out)
    with pytest.raises(InputError, match=r"risk is '1\.0' there and '2\.0' here"):
        learn_finite_in(out, data, mvpi.MeanVariance(2.0), 0.7)
    with pytest.raises(InputError, match=r"discount is 0\.7 there and 0\.5 here"):
        learn_finite_in(out, data, mvpi.MeanVariance(1.0), 0.5)
    with pytest.raises(InputError, match="fingerprint is"):
        learn_finite_in(out, gathered(np.random.default_rng(1)), mvpi.MeanVariance(1.0), 0.7)
    with pytest.raises(InputError, match="algorithm is 'finite' there and 'td3-bc' here"):
        learn_in(out, learner(), 20)
    assert all_bytes(out) == before
    # What a killed run leaves is no obstacle.
    (out / "policy.npz").unlink()
    (out / "metrics.csv").write_text("iterations,y\n0,1")
    learn_finite_in(out, data, mvpi.MeanVariance(1.0), 0.7)
    assert all_bytes(out) == before


def test_a_policy_of_unknown_origin_is_neither_replaced_nor_guessed(tmp_path: Path) -> None:
    np.savez(tmp_path / "policy.npz", policy=np.full((4, 2), 0.5))
    before = all_bytes(tmp_path)
    with pytest.raises(InputError, match=r"policy\.npz does not say how it was learned"):
        learn_finite_in(tmp_path, gathered(np.random.default_rng(0)), mvpi.MeanVariance(1.0), 0.7)
    assert all_bytes(tmp_path) == before
    learner().save(tmp_path / "policy.safetensors")
    with pytest.raises(InputError, match=r"policy\.npz and policy\.safetensors; name one"):
        policy_in(tmp_path)
    assert policy_in(tmp_path / "policy.npz").shape == (4, 2)


def test_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = str(tmp_path / "portfolio.npz"), str(tmp_path / "run")
    portfolio().save(path)
    told(capsys, "learn", path, *OPTIONS, "--updates", "40", "--out", out)
    row = told(capsys, "learn", path, *OPTIONS, "--updates", "60", "--out", out)
    assert row["updates"] == 60
    again = told(capsys, "learn", path, *OPTIONS, "--updates", "60", "--out", out)
    assert again == row
    agent = mvpi.load(out)
    assert agent.predict([1.0]).shape == (2,)


def test_bounds_of_actions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = str(tmp_path / "portfolio.npz"), tmp_path / "run"
    portfolio().save(path)
    bounds = ["--low", "-1", "--high", "2", "3"]
    told(capsys, "learn", path, *OPTIONS, *bounds, "--updates", "20", "--out", str(out))
    config = json.loads((out / "config.json").read_text())
    assert (config["low"], config["high"]) == ([-1.0, -1.0], [2.0, 3.0])


def test_relabelling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    raw, *_ = collected(gym.make("mvpi/Markowitz-v0"), "mvpi/raw-v0", 150)
    main(["offline", "relabel", "mvpi/raw-v0", "mvpi/new-v0", "--risk", "2.0", "--y", "0.1"])
    assert "mvpi/new-v0: y = 0.1." in capsys.readouterr().out
    main(["offline", "relabel", "mvpi/raw-v0", "mvpi/other-v0", "--risk", "2.0"])
    y = float(np.mean(Dataset.from_minari(raw).rewards))
    assert f"mvpi/other-v0: y = {y:.5g}." in capsys.readouterr().out
    expected = mvpi.MeanVariance(2.0).augment(Dataset.from_minari(raw).rewards, 0.1)
    np.testing.assert_array_equal(Dataset.from_minari("mvpi/new-v0").rewards, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("learn nothing.npz", "nothing.npz does not exist"),
        ("learn no/such-v0", "no/such-v0"),
        ("learn {data} --risk much", "risk must be a number"),
        ("learn {data} --discount 2", "discount must be"),
        ("learn {data} --updates 20", "--updates is for networks"),
        ("learn {data} --updates -3", "--updates is for networks"),
        ("learn {data} --batch-size 16", "--batch-size is for networks"),
        ("learn {data} --batch-size 0", "batch_size must be a whole number >= 1"),
        ("learn {data} --hidden 8 8", "--hidden is for networks"),
        ("learn {data} --low 0", "--low is for networks"),
        ("relabel {set} other/new-v0 --discount 5", "discount is for the ratio of a policy"),
        ("relabel {set} other/new-v0 --y 1 --discount 0.9", "y is given, 1.0, so policy"),
        ("evaluate {data} nothing.npz", "nothing.npz does not exist"),
        ("relabel no/such-v0 other/new-v0", "no/such-v0"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    message: str,
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    gathered(np.random.default_rng(0)).save("data.npz")
    if "{set}" in arguments:
        collected(gym.make("mvpi/Markowitz-v0"), "mvpi/raw-v0", 20)
    before = all_bytes(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main(["offline", *arguments.format(data="data.npz", set="mvpi/raw-v0").split()])
    error = capsys.readouterr().err
    assert all_bytes(tmp_path) == before
    assert exit_.value.code == 2
    assert error.startswith("mvpi: ")
    assert error.count("\n") == 1
    assert message in error
