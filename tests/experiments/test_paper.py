"""The paper's grid, and the overview of a study while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from small import finish

from mvpi.commands.overview import Overview, run_experiments
from mvpi.commands.paper import PaperCurves, PaperRisky, PaperTable
from mvpi.errors import InputError
from mvpi.experiments.experiment import Experiment
from mvpi.experiments.paper import METHODS, PUBLISHED, RISK_AVERSIONS, TASKS, Grid
from mvpi.experiments.runner import Event


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
    assert PaperCurves().risk_aversions == PaperTable().risk_aversions == RISK_AVERSIONS
    assert list(RISK_AVERSIONS) == list(PUBLISHED)
    assert PaperRisky().risk_aversions == (1.0,)  # of other papers


def test_the_protocol_of_the_paper_is_the_default_of_every_algorithm() -> None:
    protocol = {"evaluation_every": 10_000, "evaluation_episodes": 20}
    plain, explicit = Grid(seeds=1), Grid(seeds=1, settings=protocol)
    assert [e.name for e in plain.experiments()] == [e.name for e in explicit.experiments()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ("SAC",)}, "methods must be among TD3, MVPI-TD3"),
        ({"methods": ()}, "methods must be at least one"),
        ({"tasks": ("Hopper-v4", "Hopper-v4")}, "tasks must be at least one, each once"),
        ({"risk_aversions": (0.0,)}, "risk aversion must be > 0"),
        ({"seeds": 0}, "seeds must be a whole number >= 1"),
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


def test_the_overview_counts_and_estimates(tmp_path: Path) -> None:
    slow = [Experiment("td3", "Hopper-v4", 1.0, seed, 1_000) for seed in range(3)]
    fast = Experiment("mvp", "Hopper-v4", 1.0, 0, 1_000)
    overview = Overview([*slow, fast], done=2, root=tmp_path)
    assert str(overview) == "2 of 6 done, 0 running"
    overview.update(Event(slow[0], "running"), now=0.0)
    overview.update(Event(fast, "running"), now=0.0)
    overview.update(Event(fast, "done"), now=10.0)
    overview.update(Event(slow[0], "done"), now=100.0)
    assert overview.remaining() == 2 * 100.0 / 2  # two runs of TD3 on two cores
    overview.update(Event(slow[1], "running"), now=100.0)
    directory = tmp_path / slow[1].name
    directory.mkdir()
    (directory / "metrics.csv").write_text("steps,return_mean\n400,1.0\n600,1.0\n")
    assert overview.steps_of(slow[1]) == 600
    assert overview.remaining() == pytest.approx((40.0 + 100.0) / 2)
    overview.update(Event(slow[1], "failed", "no reason"), now=120.0)
    overview.update(Event(slow[2], "waiting", "killed"), now=121.0)
    assert str(overview) == "4 of 6 done, 0 running, 1 failed, 0:00:50 left"


def test_the_estimate_is_of_the_steps_that_were_made_here(tmp_path: Path) -> None:
    resumed, elsewhere, judged, begun, fresh = (
        Experiment("td3", "Hopper-v4", 1.0, seed, 1_000) for seed in range(5)
    )
    for experiment, steps in ((resumed, 900), (begun, 400)):
        (tmp_path / experiment.name).mkdir()
        (tmp_path / experiment.name / "metrics.csv").write_text(f"steps\n{steps}\n")
    finish(judged, tmp_path)
    overview = Overview([resumed, elsewhere, judged, begun, fresh], done=0, root=tmp_path)
    overview.update(Event(elsewhere, "waiting", "another process is at it"), now=0.0)
    overview.update(Event(elsewhere, "done"), now=1.0)
    overview.update(Event(judged, "running"), now=1.0)  # only its final episodes are left
    overview.update(Event(judged, "done"), now=3.0)
    assert overview.remaining() is None
    overview.update(Event(resumed, "running"), now=3.0)
    overview.update(Event(resumed, "done"), now=13.0)  # 100 steps in 10 seconds
    assert overview.remaining() == pytest.approx((600 + 1_000) * 0.1)


@pytest.mark.parametrize("end", [KeyboardInterrupt(), InputError("lost the cluster"), OSError(28)])
def test_failures_are_told_however_it_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: BaseException
) -> None:
    experiment = Experiment("td3", "Hopper-v4", 1.0, 0, 1_000)

    def runner(experiments: Sequence[Experiment], root: Path) -> Iterator[Event]:
        yield Event(experiments[0], "failed", "a wheel came off")
        raise end

    with pytest.raises(type(end)):
        run_experiments([experiment], tmp_path, runner, quiet=True)
    told = capsys.readouterr().err
    assert told.startswith(f"failed: {experiment.name}: a wheel came off (log: {tmp_path}")
    assert told.count("\n") == 1
