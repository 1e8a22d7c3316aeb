"""Arguments of the command line: read by tyro, whose mistakes become one line."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from itertools import groupby, takewhile
from typing import TypeVar

from mvpi.errors import InputError

Command = TypeVar("Command")

_WRONG_USAGE = 2
_WIDE = 100_000
"""Columns of a terminal on which no message is broken into lines."""


def parsed(parse: Callable[[Sequence[str]], Command], arguments: Sequence[str]) -> Command:
    """What `parse` makes of the arguments; where it would exit with a box, an `InputError`."""
    _refuse_empty(arguments)
    told = io.StringIO()
    try:
        with redirect_stderr(told):
            command = parse(arguments)
    except SystemExit as end:
        if end.code != _WRONG_USAGE:
            raise
    else:
        sys.stderr.write(told.getvalue())
        return command
    # The box was broken into lines, words of a path included: draw it once more on a wide terminal.
    wide = io.StringIO()
    try:
        with redirect_stderr(wide), _columns(_WIDE):
            return parse(arguments)
    except SystemExit:
        raise InputError(_line(wide.getvalue())) from None


def _refuse_empty(arguments: Sequence[str]) -> None:
    """No option or argument has a use for an empty text; as a path it would be the directory."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        name = argument[:-1] if re.fullmatch(r"--[^=]+=", argument) else before
        if argument in ("", f"{name}="):
            which = name if name.startswith("--") else "an argument"
            raise InputError(f"{which} must not be empty; give it a value, or leave it out")


def _line(box: str) -> str:
    """What a box of tyro says: its first paragraph, the nearest name, where to read more.

    >>> print(_line('''
    ... ╭─ Unrecognized options ─╮
    ... │ Unrecognized: --seed   │
    ... │ ────────────────────── │
    ... │ Perhaps you meant:     │
    ... │     --seeds INT        │
    ... │         How many runs. │
    ... │ ────────────────────── │
    ... │ For full helptext, run │
    ... │     mvpi train --help  │
    ... ╰────────────────────────╯'''))
    Unrecognized: --seed; perhaps you meant --seeds INT; see mvpi train --help
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    _, *lines = (line.strip("╭╮╰╯│ ") for line in plain.strip().splitlines())  # without the title
    sections: list[list[str]] = []
    for is_rule, group in groupby(lines, lambda line: bool(line) and not line.strip("─-")):
        if not is_rule:
            sections.append(list(group))
    first, *others = sections
    parts = [" ".join(takewhile(bool, first)).rstrip(".")]
    for title, *rest in others:
        if title.startswith("Available subcommands"):
            parts.append(title)
        elif title.startswith("Perhaps you meant") and rest:
            parts.append(f"perhaps you meant {rest[0]}")
    remedy = re.search(r"(mvpi[\w -]* --help)\W*$", plain)
    return "; ".join([*parts, f"see {remedy[1] if remedy else 'mvpi --help'}"])


@contextmanager
def _columns(number: int) -> Iterator[None]:
    """The width of the terminal, as `shutil.get_terminal_size` sees it."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(number)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
