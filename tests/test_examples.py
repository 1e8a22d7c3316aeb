"""The examples run; at full length, which is slow, the risk-averse one is nearly the best."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mvpi.envs import Markowitz

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORT = {"STEPS": 500, "FRAMES": 100, "UPDATES": 2, "ITERATIONS": 2}
LOOPS = ("cleanrl_loop", "torchrl_loop")
PROBLEM = Markowitz(bound=0.5)

pytestmark = [
    # TorchRL announces changes of its own while it is imported and used.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_other_libraries_run(name: str) -> None:
    loop = example(name)
    for constant in vars(loop).keys() & SHORT.keys():
        setattr(loop, constant, SHORT[constant])
    action = loop.train(loop.RISK)
    assert PROBLEM.action_space.contains(action.astype(float))


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_other_libraries_learn(name: str) -> None:
    loop = example(name)
    best = PROBLEM.value(PROBLEM.best_action(loop.RISK), loop.RISK)
    assert PROBLEM.value(loop.train(0.0), loop.RISK) < 0.0
    assert PROBLEM.value(loop.train(loop.RISK), loop.RISK) > 0.95 * best


@pytest.fixture(scope="module")
def first_look(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `make run` prints first, on a terminal of 80 columns."""
    directory = tmp_path_factory.mktemp("first_look")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "first_look.py"), "out"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=directory,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert done.stderr == ""
    for line in done.stdout.splitlines():
        if "Efficient frontier: " in line:
            assert (directory / line.partition(": ")[2]).stat().st_size > 0
    return done.stdout


def test_readme_shows_what_the_first_look_prints(first_look: str) -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    shown = re.search(r"First it prints\n\n((?:(?: {4}.*)?\n)+)", readme)
    assert shown is not None
    lines = [line.removeprefix("    ") for line in shown[1].strip("\n").splitlines()]
    printed = [line.rstrip() for line in first_look.splitlines()]
    assert len(lines) > 12
    assert lines == printed[: len(lines)]


def test_every_row_of_the_first_look_has_the_value_its_table_states(first_look: str) -> None:
    tables = first_look.split("value = mean - ")[1:]
    assert len(tables) == 3
    for table in tables:
        risk_aversion = float(table.split()[0])
        rows = re.findall(
            r"^  (risk-neutral|MVPI|global optimum) +([-\d. ]+)$", table, re.MULTILINE
        )
        assert len(rows) == 3
        values = []
        for _, numbers in rows:
            mean, variance, deviation, value, *bound = map(float, numbers.split())
            assert value == pytest.approx(mean - risk_aversion * variance, rel=1e-3)
            assert deviation**2 == pytest.approx(variance, rel=1e-3)
            assert bound in ([], [value])
            values.append(value)
        assert values[0] < values[2]  # risk aversion pays
        assert values[1] <= values[2]
