"""Makes the helpers importable from the tests beside them, whatever pytest's import mode."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("checks")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small are slower with more, and two test processes share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
