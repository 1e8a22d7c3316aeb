"""metrics.csv: what is no finite number in it is damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from mvpi import InputError
from mvpi._storage.metrics import read_metrics

STRANGE = ["nan", "inf", "-inf", "1e400", "9" * 5_000, "-1", "0.5", "1e15"]


@pytest.mark.parametrize("steps", STRANGE)
def test_metrics_with_strange_counts_are_damaged(tmp_path: Path, steps: str) -> None:
    (tmp_path / "metrics.csv").write_text(f"steps,y\n1,2\n{steps},3\n")
    with pytest.raises(InputError, match=r"metrics\.csv is damaged: steps is") as caught:
        read_metrics(tmp_path)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("row", ["1,nan", "1,-2", "1,1e999"])
def test_metrics_with_strange_numbers_are_damaged(tmp_path: Path, row: str) -> None:
    (tmp_path / "metrics.csv").write_text(f"steps,return_variance\n{row}\n")
    with pytest.raises(InputError, match=r"metrics\.csv is damaged: return_variance is"):
        read_metrics(tmp_path)
