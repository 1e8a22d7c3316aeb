"""The progress of a study while it runs: counts, the time left, and failures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from helpers.experiments import finish

from mvpi.errors import InputError
from mvpi.experiments.experiment import Experiment
from mvpi.experiments.progress import ProgressEstimate, run_experiments
from mvpi.experiments.runner import Event


def test_the_progress_counts_and_estimates(tmp_path: Path) -> None:
    slow = [Experiment("td3", "Hopper-v4", 1.0, seed, 1_000) for seed in range(3)]
    fast = Experiment("mvp", "Hopper-v4", 1.0, 0, 1_000)
    progress = ProgressEstimate([*slow, fast], done=2, root=tmp_path)
    assert str(progress) == "2 of 6 done, 0 running"
    progress.update(Event(slow[0], "running"), now=0.0)
    progress.update(Event(fast, "running"), now=0.0)
    progress.update(Event(fast, "done"), now=10.0)
    progress.update(Event(slow[0], "done"), now=100.0)
    assert progress.remaining() == 2 * 100.0 / 2  # two runs of TD3 on two cores
    progress.update(Event(slow[1], "running"), now=100.0)
    directory = tmp_path / slow[1].name
    directory.mkdir()
    (directory / "metrics.csv").write_text("steps,return_mean\n400,1.0\n600,1.0\n")
    assert progress.steps_of(slow[1]) == 600
    assert progress.remaining() == pytest.approx((40.0 + 100.0) / 2)
    progress.update(Event(slow[1], "failed", "no reason"), now=120.0)
    progress.update(Event(slow[2], "waiting", "killed"), now=121.0)
    assert str(progress) == "4 of 6 done, 0 running, 1 failed, 0:00:50 left"


def test_the_estimate_is_of_the_steps_that_were_made_here(tmp_path: Path) -> None:
    resumed, elsewhere, judged, begun, fresh = (
        Experiment("td3", "Hopper-v4", 1.0, seed, 1_000) for seed in range(5)
    )
    for experiment, steps in ((resumed, 900), (begun, 400)):
        (tmp_path / experiment.name).mkdir()
        (tmp_path / experiment.name / "metrics.csv").write_text(f"steps\n{steps}\n")
    finish(judged, tmp_path)
    progress = ProgressEstimate([resumed, elsewhere, judged, begun, fresh], done=0, root=tmp_path)
    progress.update(Event(elsewhere, "waiting", "locked by another process"), now=0.0)
    progress.update(Event(elsewhere, "done"), now=1.0)
    progress.update(Event(judged, "running"), now=1.0)  # only its final episodes are left
    progress.update(Event(judged, "done"), now=3.0)
    assert progress.remaining() is None
    progress.update(Event(resumed, "running"), now=3.0)
    progress.update(Event(resumed, "done"), now=13.0)  # 100 steps in 10 seconds
    assert progress.remaining() == pytest.approx((600 + 1_000) * 0.1)


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


@pytest.mark.parametrize("left", [0, 1])
def test_what_is_finished_already_is_counted_but_not_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left: int
) -> None:
    experiments = [Experiment("td3", "Hopper-v4", 1.0, seed, 1_000) for seed in range(3)]

    def runner(experiments: Sequence[Experiment], root: Path) -> Iterator[Event]:
        yield from (Event(e, "done") for e in experiments[left:])
        for experiment in experiments[:left]:
            yield Event(experiment, "running")
            yield Event(experiment, "done")

    assert run_experiments(experiments, tmp_path, runner) == {}
    told = capsys.readouterr().err.splitlines()
    counts = "3 of 3 done, 0 running, 0:00:00 left"
    assert told == [f"done {e.name}; {counts}" for e in experiments[:left]]
