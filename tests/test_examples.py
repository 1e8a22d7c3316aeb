"""The examples run; at full length, which is slow, the risk-averse one is nearly the best."""

from __future__ import annotations

import importlib.util
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
