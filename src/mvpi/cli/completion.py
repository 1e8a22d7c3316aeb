"""`mvpi completion`: completion of commands and options in a shell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Completion:
    """Print a script that completes commands and options in a shell.

    bash, in ~/.bashrc: eval "$(mvpi completion bash)"

    zsh, in ~/.zshrc after compinit: eval "$(mvpi completion zsh)"

    fish: mvpi completion fish > ~/.config/fish/completions/mvpi.fish
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """The shell."""

    def arguments(self) -> list[str]:
        """What asks tyro, which reads the command line, for the script."""
        return ["--tyro-print-completion", self.shell]
