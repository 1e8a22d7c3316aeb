"""The gallery: scripts of at most 40 lines that run, each with its picture; and the notebooks."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mvpi

ROOT = Path(__file__).parents[1]
SCRIPTS = {path.stem: path for path in sorted((ROOT / "examples/gallery").glob("*.py"))}
NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
PAGE = ROOT / "docs/gallery.md"
PICTURES = ROOT / "docs/gallery"

LINES = 40
PICTURE_BYTES, FILM_BYTES = 150_000, 1_000_000


def run(name: str, monkeypatch, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """What the script leaves behind, run in an empty directory; its picture is there."""
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    try:
        left = runpy.run_path(str(SCRIPTS[name]))
    finally:
        plt.close("all")
    check_picture(tmp_path, name)
    return left


def run_by_itself(name: str, tmp_path: Path, *arguments: str, **variables: str) -> str:
    """What it prints, in a process of its own: for libraries that leave things behind."""
    done = subprocess.run(
        [sys.executable, str(SCRIPTS[name]), *arguments],
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    check_picture(tmp_path, name)
    return done.stdout


def check_picture(directory: Path, name: str) -> None:
    assert (directory / f"out/gallery/{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_short_and_use_public_names(name: str) -> None:
    text = SCRIPTS[name].read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LINES
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [*str(node.module).split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names for part in alias.name.split(".")]
        elif isinstance(node, ast.Attribute):
            names = [node.attr]
        assert [one for one in names if one.startswith("_")] == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_page_shows_every_script_with_its_picture(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"](../examples/gallery/{name}.py)" in page
    assert f"](gallery/{name}.png)" in page


def test_pictures_are_small_and_none_is_left_over() -> None:
    shown = set(re.findall(r"\]\(gallery/([\w.-]+)\)", PAGE.read_text(encoding="utf-8")))
    assert shown == {path.name for path in PICTURES.iterdir()}
    for path in PICTURES.iterdir():
        assert path.stat().st_size < (FILM_BYTES if path.suffix == ".gif" else PICTURE_BYTES)


def test_inventory_frontier(monkeypatch, tmp_path: Path) -> None:
    """The policies that were read off the frontier are those of a solve at one risk aversion."""
    left = run("inventory_frontier", monkeypatch, tmp_path, "12")
    for lam, found in zip((0.0, 0.03, 0.07), left["policies"].values(), strict=True):
        assert found.value == pytest.approx(mvpi.optimize(left["mdp"], lam).value)


def test_perishable_inventory(monkeypatch, tmp_path: Path) -> None:
    """The risk-averse shop is steadier than the risk-neutral one, and pays for it."""
    left = run("perishable_inventory", monkeypatch, tmp_path, "5")
    neutral = mvpi.solve(left["mdp"])
    assert left["best"].variance < neutral.variance
    assert left["best"].mean < neutral.mean


def test_own_risk_measure(monkeypatch, tmp_path: Path) -> None:
    left = run("own_risk_measure", monkeypatch, tmp_path)
    found, shares = left["found"], left["shares"]
    # The newsvendor: the smallest stock that meets demand with probability (5 - 3) / 5.
    assert found[-1].policy_by_label == {"day": next(q for q in range(41) if (q + 1) / 41 >= 0.4)}
    # With the median as y, the value is the mean less a share of the mean absolute deviation.
    demand = np.arange(41)
    for share, one in list(zip(shares, found, strict=True))[::10]:
        profits = np.array([5 * np.minimum(q, demand) - 3 * q for q in range(41)])
        off = np.abs(profits - np.median(profits, axis=1, keepdims=True)).mean(axis=1)
        assert one.value == pytest.approx((profits.mean(axis=1) - (1 - share) * off).max())
        assert one.upper_bound == pytest.approx(one.value)


def test_own_loop(monkeypatch, tmp_path: Path) -> None:
    left = run("own_loop", monkeypatch, tmp_path, "2")
    assert len(left["curve"]) == 2


@pytest.mark.slow
def test_own_loop_learns(monkeypatch, tmp_path: Path) -> None:
    left = run("own_loop", monkeypatch, tmp_path)
    env = left["env"]
    assert left["curve"][-1] > 0.98 * env.value(env.best_action(2.0), 2.0)


@pytest.mark.slow
def test_off_line_from_a_minari_file(tmp_path: Path) -> None:
    run_by_itself("offline_minari", tmp_path, "1")
    assert (tmp_path / "out/gallery/minari/gamble/random1-v0").is_dir()


@pytest.mark.slow
def test_one_run_for_every_risk_aversion(monkeypatch, tmp_path: Path) -> None:
    left = run("every_risk_aversion", monkeypatch, tmp_path)
    assert "range" in (tmp_path / "out/gallery/every_risk_aversion.html").read_text("utf-8")
    market = left["market"]
    for lam, action in zip(left["lams"], left["learned"], strict=True):
        assert market.value(action, lam) > 0.8 * market.value(market.best_action(lam), lam)


@pytest.mark.slow
def test_a_portfolio_on_real_prices(monkeypatch, tmp_path: Path) -> None:
    """What the page says: best in the sample, and out of it no difference that is not noise."""
    from scipy.optimize import minimize

    left = run("real_portfolio", monkeypatch, tmp_path)
    r, old, earned, policies = (left[key] for key in ("r", "old", "earned", "policies"))
    value = {name: left["RISK"].value(earned(theta)) for name, theta in policies.items()}
    assert max(value, key=lambda name: value[name]) == "MVPI"

    def objective(theta: np.ndarray) -> np.ndarray:
        rewards = earned(theta, ~old)
        return rewards - 0.05 * (rewards - rewards.mean()) ** 2

    for theta in (policies[name] for name in policies if name != "MVPI"):
        difference = objective(policies["MVPI"]) - objective(theta)
        assert abs(difference.mean()) < 2 * difference.std() / len(difference) ** 0.5
    # Markowitz's weights by another solver.
    mean, covariance = r[old].mean(0), np.cov(r[old].T)
    weights = minimize(
        lambda w: 0.05 * w @ covariance @ w - w @ mean,
        np.full(20, 0.05),
        bounds=[(0, 1)] * 20,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
    ).x
    assert np.exp(policies["Markowitz"][:20]) == pytest.approx(weights, abs=2e-3)


@pytest.mark.slow
def test_sac_made_risk_averse(monkeypatch, tmp_path: Path) -> None:
    left = run("sac_risk_averse", monkeypatch, tmp_path)
    plain, averse = (left["market"].value(a, 1.0) for a in left["learned"].values())
    best = left["market"].value(left["market"].best_action(1.0), 1.0)
    assert plain < 0.5 * best
    assert averse > 0.9 * best


@pytest.mark.slow
def test_torchrl_with_its_buffer(monkeypatch, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchRL announces changes of its own
        left = run("torchrl_buffer", monkeypatch, tmp_path)
    best = left["market"].value(left["market"].best_action(2.0), 2.0)
    assert left["curve"][6_000] > 0.8 * best


@pytest.mark.slow
def test_ppo_of_rllib(tmp_path: Path) -> None:
    run_by_itself("rllib_ppo", tmp_path, "1")


@pytest.mark.slow
def test_hopper_and_its_film(tmp_path: Path) -> None:
    printed = run_by_itself("hopper_film", tmp_path, "300")
    film = tmp_path / "out/gallery/hopper_film.gif"
    assert film.exists() or printed.count("no film:") == 2


@pytest.mark.slow
def test_hopper_without_off_screen_rendering(tmp_path: Path) -> None:
    printed = run_by_itself("hopper_film", tmp_path, "300", MUJOCO_GL="disable")
    assert printed.count("no film:") == len(printed.splitlines()) == 2
    assert not (tmp_path / "out/gallery/hopper_film.gif").exists()


def test_notebooks_carry_no_outputs() -> None:
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            assert cell.get("outputs", []) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ipykernel and its sockets
        notebook = nbformat.read(path, as_version=4)
        client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}})
        client.execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown)
