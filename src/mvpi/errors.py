"""The one exception for a user's mistake."""


class InputError(ValueError):
    """Something that was passed in cannot be used.

    The message is one line: the value, the bound it breaks, and the remedy. The command line
    prints it as it is and exits with status 2.
    """
