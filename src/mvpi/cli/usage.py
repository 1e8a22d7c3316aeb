"""Arguments of the command line: read by tyro, whose error messages become one line."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import tyro

from mvpi.cli.suggestions import Place, place
from mvpi.errors import InputError
from mvpi.risk import forms

Command = TypeVar("Command")


def _risk_text(*but: str) -> Any:
    told = f"Risk measure: {forms(but)}."
    return Annotated[str, tyro.conf.arg(metavar="RISK", help=told)]


if TYPE_CHECKING:
    RiskText = str
    LearnableRisk = str
    ExactRisk = str
    RewardRisk = str
else:
    RiskText = _risk_text()
    LearnableRisk = _risk_text("var")
    ExactRisk = _risk_text("range")
    RewardRisk = _risk_text("var", "range", "return")
"""Options that `parse_risk` reads: all measures, those of agents, of `solve`, of rewards alone."""

_WRONG_USAGE = 2
_WIDE = 100_000
"""Columns of a terminal on which no message is broken into lines."""


def parsed(parse: Callable[[Sequence[str]], Command], arguments: Sequence[str]) -> Command:
    """What `parse` makes of the arguments; where it would exit with a box, an `InputError`."""
    _refuse_unusable(arguments)

    def help_of(path: Sequence[str]) -> str:
        return _drawn(parse, [*path, "--help"])

    if not {"-h", "--help"}.isdisjoint(arguments):  # tyro would print the help of what it knows
        where = place(help_of, arguments)
        if where.unknown_command is not None:
            raise InputError(_line("", where))
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
    box = _drawn(parse, arguments)
    raise InputError(_line(box, place(help_of, arguments))) from None


def _drawn(
    parse: Callable[[Sequence[str]], object], arguments: Sequence[str], columns: int = _WIDE
) -> str:
    """What tyro prints of arguments at which it ends the program, on a very wide terminal."""
    wide = io.StringIO()
    with redirect_stdout(wide), redirect_stderr(wide), _columns(columns), suppress(SystemExit):
        parse(arguments)
    return re.sub(r"\x1b\[[0-9;]*m", "", wide.getvalue())


def _refuse_unusable(arguments: Sequence[str]) -> None:
    """Refuse empty arguments, and characters that no file name has.

    As a path an empty text would be the working directory.
    """
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if "\0" in argument or not _encodable(argument):
            raise InputError(f"an argument has a character that no file name has: {argument!a}")
        name = argument[:-1] if re.fullmatch(r"--[^=]+=", argument) else before
        if argument in ("", f"{name}="):
            which = name if name.startswith("--") else "an argument"
            raise InputError(f"{which} must not be empty; give it a value, or leave it out")


def _encodable(argument: str) -> bool:
    try:
        os.fsencode(argument)
    except UnicodeEncodeError:
        return False
    return True


def _line(box: str, where: Place) -> str:
    """What a box of tyro says: its first paragraph, the nearest name, where to read more.

    >>> from mvpi.cli.suggestions import Help
    >>> where = Place(("train", "td3"), Help((), {"--seed": "--seed INT"}), ("--sede", "3"))
    >>> print(_line('''
    ... ╭─ Unrecognized options ─╮
    ... │ Unrecognized: --sede   │
    ... │ ────────────────────── │
    ... │ For full helptext, run │
    ... │     mvpi --help        │
    ... ╰────────────────────────╯''', where))
    Unrecognized: --sede; perhaps you meant --seed INT; see mvpi train td3 --help
    """
    if where.unknown_command is not None:
        mistyped = True
        told = f"there is no command {' '.join(['mvpi', *where.path, where.unknown_command])}"
    else:
        title, *lines = (line.strip("╭╮╰╯│ ") for line in box.strip().splitlines())
        message = dropwhile(lambda line: not line.strip("─-"), lines)
        first = " ".join(takewhile(lambda line: line.strip("─-"), message)).rstrip(".")
        mistyped = "Unrecognized" in title
        told = first if mistyped else _number_rule(first)
    parts = [told]
    meant = where.meant()
    if meant is not None:
        parts.append(f"perhaps you meant {meant}")
    if mistyped and where.help.commands:
        parts.append(f"Available subcommands: {', '.join(where.help.commands)}")
    return "; ".join([*parts, f"see {where.remedy}"])


def _number_rule(message: str) -> str:
    """What an option of numbers takes, in place of what Python's `int` and `float` say.

    >>> _number_rule("Error parsing --steps: invalid literal for int() with base 10: '1e5'")
    "--steps must be a whole number such as 100000, got '1e5'"
    """
    wrong = r"Error parsing (\S+): (invalid literal for int|could not convert string to float).*: "
    found = re.match(wrong, message)
    if found is None:
        return message
    kind = "whole number such as 100000" if "int" in found[2] else "number"
    return f"{found[1]} must be a {kind}, got {message[found.end() :]}"


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
