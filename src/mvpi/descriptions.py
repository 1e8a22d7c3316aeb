"""Descriptions of objects that are the same in every process."""

from __future__ import annotations

import re


def lasting(description: str) -> str:
    """What `repr` or `str` says of an object, without its address in memory.

    >>> lasting("<Gamble object at 0x7f55d4e1c0d0>")
    '<Gamble object>'
    """
    return re.sub(r" at 0x[0-9a-f]+", "", description)
