"""The exceptions and warnings of the package; the command line prints each as one line."""

import sys
import warnings
from collections.abc import Iterator, Sequence


class InputError(ValueError):
    """Something that was passed in cannot be used.

    The message is one line: the value, the bound it breaks, and the remedy. The command line
    prints it as it is and exits with status 2. Whatever is not printable in it, such as a line
    break in the name of a file, is shown as an escape sequence.
    """

    def __init__(self, message: object) -> None:
        super().__init__("".join(_printable(str(message))))


class EnvironmentFailure(RuntimeError):
    """An environment raised, or returned something no agent can learn from.

    Says what it did and when. The exception it raised itself is the `__cause__`.
    """


class Divergence(RuntimeError):
    """Training produced numbers that are not finite. Says at which step, and what to change."""


class NoConvergence(RuntimeError):
    """A solve did not come to an end. The command line prints the message and exits with 1."""


class ResumeWarning(UserWarning):
    """A run goes on, but not exactly from where it was, or not exactly as it would have."""


def _printable(text: str) -> Iterator[str]:
    for character in text:
        shown = character.isprintable()
        yield character if shown else character.encode("unicode_escape").decode("ascii")


class MissingPackage(ImportError, InputError):
    """A package of an optional extra is not installed; the message says how to install it.

    >>> print(MissingPackage("the report", "jinja2", "report"))
    the report needs the package jinja2: pip install -c constraints.txt '.[report]' in the clone
    """

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs the package {package}: {install_command([extra])}")


def install_command(extras: Sequence[str]) -> str | None:
    """What installs these extras; None if there are none.

    >>> print(install_command(["report", "sb3"]))
    pip install -c constraints.txt '.[report,sb3]' in the clone
    """
    if not extras:
        return None
    return f"pip install -c constraints.txt '.[{','.join(extras)}]' in the clone"


_OF_AGENTS = ("equinox", "jax", "mujoco", "optax")


def missing_extra(error: ModuleNotFoundError) -> MissingPackage | None:
    """What to say of a module that was not found, if it comes with the extra `agents`."""
    package = (error.name or "").partition(".")[0]
    if package not in _OF_AGENTS:
        return None
    return MissingPackage("an agent", package, "agents")


class RiskWarning(UserWarning):
    """A risk measure that will not do what is expected of it with the rewards at hand.

    The message is one line: the value, what may happen, and the remedy.
    """


def warn(message: str, category: type[Warning]) -> None:
    """Warn, pointing at the line outside the package that led here, however deep that is."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals["__name__"].split(".")[0] == "mvpi":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
