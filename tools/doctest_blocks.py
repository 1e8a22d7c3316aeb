"""An extension of Griffe: examples in docstrings become blocks of code on the site.

To Markdown the `>>>` of an example is a quotation within a quotation within a quotation.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class DoctestBlocks(griffe.Extension):
    """Fences the examples of every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with a fence around every example, which ends at an empty line.

    >>> fenced("A sum.\\n\\n>>> 1 + 1\\n2\\n\\nNo more.").splitlines()
    ['A sum.', '', '```pycon', '>>> 1 + 1', '2', '```', '', 'No more.']
    """
    example = re.compile(r"^( *)>>> .*(?:\n(?! *$).+)*", re.MULTILINE)
    return example.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
