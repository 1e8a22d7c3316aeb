"""Which process of the tests gets what: whole files, the long ones first.

Tests of a file share fixtures and compiled functions, which would else be made in each process. So
do the files of a group. The order within a file, and of the files that are not named here, is that
of pytest-randomly.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from xdist.scheduler import LoadScopeScheduling

_GROUPS = {
    "tests/rllib/": "Ray",
    "tests/experiments/test_cluster.py": "Ray",
    "tests/report/test_live_in_browser.py": "browser",
    "tests/report/test_page_in_browser.py": "browser",
    "tests/report/test_range_in_browser.py": "browser",
}

# The longest, so that no process is left with one of them when the others are done.
_FIRST = (
    "Ray",
    "tests/test_documents.py",
    "tests/agents/test_training_on_policy.py",
    "tests/experiments/test_local.py",
    "browser",
    "tests/attack/test_attacks.py",
    "tests/sb3/test_every_algorithm.py",
    "tests/cli/test_paper.py",
    "tests/offline/test_training.py",
    "tests/offline/test_extended.py",
    "tests/agents/test_training.py",
    "tests/sb3/test_extended_risks.py",
    "tests/sb3/test_model_files.py",
    "tests/sb3/test_buffers.py",
    "tests/tabular/test_solve.py",
    "tests/cli/test_app.py",
)


def group_of(nodeid: str) -> str:
    """The group of a test: that of its file, or its file."""
    file = nodeid.split("::", 1)[0]
    return next((group for start, group in _GROUPS.items() if file.startswith(start)), file)


def order(groups: OrderedDict[str, Any]) -> None:
    """The longest first, the others as they are."""
    for group in reversed(_FIRST):
        if group in groups:
            groups.move_to_end(group, last=False)


class GroupScheduling(LoadScopeScheduling):
    """Hands out one group after the other, to the process that has almost nothing left to do."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        if all(not assigned for assigned in self.assigned_work.values()):  # the first of all
            order(self.workqueue)
        super()._assign_work_unit(node)
