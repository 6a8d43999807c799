"""What can go wrong, and whose fault it is."""


class UserError(ValueError):
    """Bad input, told in one line that says what to do.

    The command line prints the message and exits with code 2, without a traceback.
    """


class NotFinite(ValueError):
    """An energy is NaN: the network or its input has overflowed."""


class Diverged(RuntimeError):
    """Training produced a non-finite or run-away energy, and the retries are used up."""
