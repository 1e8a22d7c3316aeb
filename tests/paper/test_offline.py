"""The paper's off-line experiment when something is in its way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mvpi import cli
from mvpi.errors import InputError
from mvpi.paper import offline


class Failing:
    """Runs of Algorithm 2 that come to grief in the second iteration."""

    reason: BaseException | None = None

    def __init__(self, data: list[Any], *_: Any) -> None:
        self.policies = np.full((len(data), 4, 2), 0.5)

    def iterations(self, count: int) -> Iterator[Any]:
        yield self.policies
        if self.reason is not None:
            raise self.reason
        yield self.policies * np.nan


@pytest.mark.parametrize(
    ("reason", "status", "words"),
    [
        (None, 2, "diverged: no probabilities after iteration 2 at lam = 0; use smaller risk"),
        (InputError("weights must be finite"), 2, "diverged: weights must be finite; use smaller"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_a_failure_leaves_the_files_of_an_earlier_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    reason: BaseException | None,
    status: int,
    words: str,
) -> None:
    monkeypatch.setattr(Failing, "reason", reason)
    monkeypatch.setattr(offline, "Runs", Failing)
    (tmp_path / "offline.csv").write_text("of an earlier time")
    with pytest.raises(SystemExit) as stopped:
        cli.main(["paper", "offline", "--runs", "2", "--json", "--out", str(tmp_path)])
    assert stopped.value.code == status
    assert words in capsys.readouterr().err
    assert (tmp_path / "offline.csv").read_text() == "of an earlier time"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("values", [[], ["1", "2", "1"]])
def test_risk_aversions_are_given_once_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], values: list[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["paper", "offline", "--out", str(tmp_path), "--risk-aversions", *values])
    assert stopped.value.code == 2
    assert "risk_aversions must be at least one, each once, got (" in capsys.readouterr().err


def test_a_directory_may_have_any_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Steady(Failing):
        def iterations(self, count: int) -> Iterator[Any]:
            return iter([self.policies] * count)

    monkeypatch.setattr(offline, "Runs", Steady)
    out = tmp_path / "x[" / ("a]" * 60)
    cli.main(["paper", "offline", "--runs", "2", "--iterations", "2", "--out", str(out)])
    assert f"Wrote {out}/offline.csv and {out}/offline.png.\n" in capsys.readouterr().out
    lines = (out / "offline.csv").read_text().splitlines()
    assert lines[0] == "risk_aversion,iteration,mean,standard_error,runs"
    assert lines[-1] == "8.0,2,0.5,0.0,2"
    assert len(lines) == 1 + 5 * 3
