"""Names in records of earlier versions mean what they are called today."""

from __future__ import annotations

from importlib import import_module

from mvpi._storage.names import _MOVED, current_names


def test_everything_that_moved_is_where_the_list_says() -> None:
    for name in _MOVED.values():
        module, _, attribute = name.replace(":", ".").rpartition(".")
        assert callable(getattr(import_module(module), attribute))


def test_names_are_found_at_any_depth_and_nothing_else_is_changed() -> None:
    old = {"spec": {"wrappers": [{"entry_point": "mvpi.risky:RiskyZone", "std": 1.0}], "id": None}}
    new = {"spec": {"wrappers": [{"entry_point": "mvpi.envs:RiskyZone", "std": 1.0}], "id": None}}
    assert current_names(old) == current_names(new) == new
