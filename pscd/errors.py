"""The one exception that stands for a mistake of the input, not of the library."""


class UserError(ValueError):
    """Bad input, told in one line that says what to do.

    The command line prints the message and exits with code 2, without a traceback.
    """


class Diverged(RuntimeError):
    """Training produced a non-finite or run-away energy, and the retries are used up."""
