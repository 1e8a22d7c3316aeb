"""The command line. Every mistake of a user is one line on standard error and exit status 2."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro
from rich.console import Console

from mvpi.commands.evaluate import Evaluate
from mvpi.commands.solve import FrontierCommand, Solve
from mvpi.commands.train import Train
from mvpi.errors import EnvironmentFailure, InputError

Command = (
    Annotated[Solve, tyro.conf.subcommand("solve")]
    | Annotated[FrontierCommand, tyro.conf.subcommand("frontier")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `mvpi` command."""
    console = Console(highlight=False)
    try:
        command: Solve | FrontierCommand | Train | Evaluate = tyro.cli(
            Command,
            prog="mvpi",
            description="Risk-averse reinforcement learning by mean-variance policy iteration.",
            args=arguments,
        )
        command.run(console)
    except (InputError, EnvironmentFailure, OSError, MemoryError) as error:
        message = str(error) or type(error).__name__
        sys.exit(_failed(" ".join(message.split())))
    except KeyboardInterrupt as interrupt:
        sys.exit(_failed(str(interrupt) or "interrupted", status=130))


def _failed(message: str, status: int = 2) -> int:
    print(f"mvpi: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
