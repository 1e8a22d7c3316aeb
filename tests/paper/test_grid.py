"""The paper's grid: its size, its protocol, and what is no grid."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mvpi.cli.paper import PaperCurves, PaperRisky, PaperTable
from mvpi.errors import InputError
from mvpi.paper.grid import METHODS, RISK_AVERSIONS, TASKS, Grid
from mvpi.paper.published import PUBLISHED


def test_the_whole_grid_of_the_paper() -> None:
    experiments = Grid().experiments()
    # TD3 knows no risk aversion: one run serves all three.
    assert len(experiments) == 8 * 10 * (1 + 5 * 3)
    assert len({e.identity for e in experiments}) == len(experiments)
    assert {e.environment for e in experiments} == set(TASKS)
    assert {e.action_noise for e in experiments} == {0.1}
    assert {e.steps for e in experiments} == {10**6}
    assert {e.episodes for e in experiments} == {100}
    assert [e.seed for e in experiments] == sorted(e.seed for e in experiments)
    assert PaperCurves().grid == Grid()
    assert PaperTable().grid == Grid(methods=("TD3", "TRVO", "MVPI-TD3"))
    assert list(RISK_AVERSIONS) == list(PUBLISHED)
    assert PaperRisky().grid.risk_aversions == (1.0,)  # of other papers


def test_the_protocol_of_the_paper_is_the_default_of_every_algorithm() -> None:
    """So that runs of `mvpi train` and of the paper's grid have the same settings."""
    assert (Grid().evaluation_every, Grid().evaluation_episodes) == (10_000, 20)
    for experiment in Grid(seeds=1).experiments():
        assert replace(experiment, settings={}).identity == experiment.identity


def test_identities_are_those_of_runs_that_were_made_earlier() -> None:
    """Of run directories of version 0.1: another identity, and they would be run again."""
    known = {
        ("HalfCheetah-v4", "TRVO"): "a5f823b289",
        ("InvertedDoublePendulum-v4", "TRVO"): "4e83d0bd0b",
        ("Walker2d-v4", "TRVO"): "8839b5445e",
    }
    for (task, method), identity in known.items():
        assert Grid().experiment(task, method, 1.0, seed=0).identity == identity


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ("SAC",)}, "methods must be among TD3, MVPI-TD3"),
        ({"methods": ()}, "methods must be at least one"),
        ({"tasks": ("Hopper-v4", "Hopper-v4")}, "tasks must be at least one, each once"),
        ({"risk_aversions": (0.0,)}, "risk aversion must be > 0"),
        ({"seeds": 0}, "seeds must be a whole number >= 1"),
        ({"steps": 0}, "steps must be a whole number >= 1"),
        ({"evaluation_every": 0}, "evaluation_every must be a whole number >= 1"),
    ],
)
def test_what_is_no_grid(options: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Grid(**options)  # type: ignore[arg-type]


def test_every_method_can_be_run_at_every_risk_aversion() -> None:
    for name, method in METHODS.items():
        experiment = Grid().experiment("Hopper-v4", name, 0.5, seed=0)
        assert experiment.algorithm == method.algorithm
        assert experiment.risk == ("0.5" if method.averse else "0.0")
