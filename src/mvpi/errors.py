"""The exceptions: for a user's mistake, and for a solve that got stuck."""


class InputError(ValueError):
    """Something that was passed in cannot be used.

    The message is one line: the value, the bound it breaks, and the remedy. The command line
    prints it as it is and exits with status 2.
    """


class NoConvergence(RuntimeError):
    """A solve did not come to an end. The command line prints the message and exits with 1."""
