"""Risk measures as text: `cvar:0.1` on a command line, in a run directory, in a table.

A measure is written as its `name` and its numbers behind colons. Every subclass of `mvpi.Risk` with
a `name` of its own is registered when it is defined, so `parse_risk` knows it. Mean-variance is
written as a plain number.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from typing import Any, ClassVar, Self

from mvpi._checks import check_kind, shown
from mvpi._text import without_address
from mvpi.errors import InputError

_registered: dict[str, type[WithText]] = {}
"""By name, in the order of their definition."""


class WithText:
    """The text forms of a risk measure. All have defaults."""

    name: ClassVar[str] = ""
    """What its text begins with: letters, digits and dashes. Without one, no text names it."""
    form: ClassVar[str] = ""
    """Its text form for help and errors, such as cvar:LEVEL[:WEIGHT]; made up if left out."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in vars(cls):
            _register(cls)

    @classmethod
    def from_text(cls, arguments: str) -> Self:
        """The measure whose text is `name:arguments`; the default takes numbers between colons."""
        return cls(*map(float, arguments.split(":")))

    @property
    def text(self) -> str:
        """What `parse_risk` reads; of a measure without a name, its `repr`."""
        if not self.name or not dataclasses.is_dataclass(type(self)):
            return without_address(repr(self))
        return ":".join([self.name, *(repr(getattr(self, x)) for x in _numbers(type(self)))])

    @property
    def label(self) -> str:
        """What the measure is called in tables and figures."""
        return self.text

    @property
    def value_label(self) -> str:
        """What its value is called at the head of a column."""
        return str(self)


def forms(but: Collection[str] = ()) -> str:
    """The text forms of all measures, for help and errors; `but` names some to leave out."""
    named = [_form(measure) for name, measure in _registered.items() if name not in but]
    return ", ".join(["a number (mean-variance)", *named])


def parsed(text: str) -> Any:
    """The measure that a text with a colon names, or the number that it is."""
    check_kind(text, str, "risk", "a text")
    name, colon, arguments = text.partition(":")
    try:
        return _registered[name].from_text(arguments) if colon else float(name)
    except (KeyError, TypeError):
        pass
    except ValueError as error:
        if isinstance(error, InputError):
            raise
    raise InputError(f"risk must be {forms()}, got {shown(text)}")


def exact(value: float) -> str:
    """All the digits it has, so that two numbers never look the same."""
    return repr(value).removesuffix(".0")


def _register(cls: type[WithText]) -> None:
    if not cls.name:
        return
    check_kind(cls.name, str, "the name of a risk measure", "a text")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", cls.name) or cls.name in ("inf", "infinity", "nan"):
        raise InputError(
            "the name of a risk measure must be of lower-case letters, digits and dashes, and no "
            f"number, got {shown(cls.name)}"
        )
    known = _registered.get(cls.name, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InputError(
            f"the name {cls.name!r} is that of {known.__qualname__}: choose another for "
            f"{cls.__qualname__}"
        )
    _registered[cls.name] = cls


def _form(cls: type[WithText]) -> str:
    if cls.form:
        return cls.form
    return ":".join([cls.name, *map(str.upper, _numbers(cls))])


def _numbers(cls: Any) -> list[str]:
    """What a measure is made of: the names of its fields, or "..." if it is no dataclass."""
    if not dataclasses.is_dataclass(cls):
        return ["..."]
    return [field.name for field in dataclasses.fields(cls)]
