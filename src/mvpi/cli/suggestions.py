"""Suggestions for a mistyped command, read from the help texts of the commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

_SYNONYMS = {
    "--lambda": "--risk",
    "--lam": "--risk",
    "--risk-aversion": "--risk",
    "--environment": "--env",
    "--env-id": "--env",
    "--task": "--env",
    "--total-timesteps": "--steps",
    "--timesteps": "--steps",
    "help": "--help",
    "version": "--version",
}
"""What others, and the paper, call an option."""


@dataclass(frozen=True)
class Help:
    """What the help of a command lists."""

    commands: tuple[str, ...]
    """The commands below it; none where it takes options only."""
    options: dict[str, str]
    """Its options with what they take: "--seeds": "--seeds INT"."""


def read_help(text: str) -> Help:
    """What a help text lists, drawn on a terminal so wide that nothing is broken into lines.

    >>> read_help("usage: mvpi paper [-h] {curves,table}\\n╭─ subcommands").commands
    ('curves', 'table')
    >>> read_help("│ --seeds INT   How many runs. │").options
    {'--seeds': '--seeds INT'}
    """
    usage = re.search(r"^usage: .*\{([\w,-]+)\}\s*$", text, re.MULTILINE)
    options = {}
    for line in re.findall(r"^[│ ] ?(--\S.*)", text, re.MULTILINE):
        form = re.split(r"  |│", line)[0].strip()
        for option in form.split(", "):
            options[option.split()[0]] = option
    below = usage[1].split(",") if usage and "subcommands" in text else []
    return Help(tuple(below), options)


@dataclass(frozen=True)
class Place:
    """How far the arguments name commands, and what can follow."""

    path: tuple[str, ...]
    help: Help
    rest: tuple[str, ...]

    @property
    def remedy(self) -> str:
        """Where to read more."""
        return " ".join(["mvpi", *self.path, "--help"])

    @property
    def unknown_command(self) -> str | None:
        """The first argument, where a command was expected and there is no such one."""
        first = self.rest[0] if self.rest and self.help.commands else "-"
        return None if first.startswith("-") else first

    def meant(self) -> str | None:
        """The nearest command, or the nearest option to the first that does not exist."""
        options = {"--help": "--help", **self.help.options}
        if not self.path:
            options["--version"] = "--version"
        if self.unknown_command is not None:
            other = options.get(_SYNONYMS.get(self.unknown_command, ""))
            return other or _nearest(self.unknown_command, self.help.commands)
        for argument in self.rest:
            name = argument.partition("=")[0].replace("_", "-")
            if name.startswith("--") and name not in options:
                other = _SYNONYMS.get(name)
                found = other if other in options else _nearest(name, options)
                return None if found is None else options[found]
        return None


def place(help_of: Callable[[Sequence[str]], str], arguments: Sequence[str]) -> Place:
    """Follow the arguments as far as they name commands; `help_of` gives the help of a path."""
    path: tuple[str, ...] = ()
    while True:
        found = read_help(help_of(path))
        rest = tuple(arguments[len(path) :])
        if not rest or rest[0] not in found.commands:
            return Place(path, found, rest)
        path = (*path, rest[0])


def _nearest(name: str, known: Sequence[str] | dict[str, str]) -> str | None:
    found = get_close_matches(name, list(known), n=1, cutoff=0.6)
    if not found:  # the beginning of a longer name, such as --evaluation
        found = [other for other in known if other.startswith(name) and len(name) > 3]
    return found[0] if found else None
