"""Exceptions of the library."""


class UserError(ValueError):
    """Bad input, explained in one line that says what to do.

    The command line prints the message and exits with code 2, without a traceback.

    >>> from pscd import Mala
    >>> Mala(n_steps=0)
    Traceback (most recent call last):
        ...
    pscd.errors.UserError: n_steps must be a positive number, got 0
    """

    def __str__(self) -> str:
        # Part of it may be quoted from a file: one line without control characters, and not the whole file.
        text = "".join(c if c.isprintable() else " " for c in super().__str__())
        return text if len(text) <= 2000 else f"{text[:2000]} ..."


class InUse(UserError):
    """Another process is writing to a folder; it may be free later."""


class LostProcess(RuntimeError):
    """One of several processes that train together has ended or does not answer; the others cannot continue."""


class NotFinite(ValueError):
    """An energy is NaN: the network or its input has overflowed."""


class Diverged(RuntimeError):
    """Training diverged more often than `max_retries` allows.

    A number was not finite, or the energies of data and samples moved too far apart.

    Args:
        reason: what happened, the same on every machine, so that results can store it.
        advice: where the last good model is, and what to try.

    >>> import pscd, torch
    >>> from pscd.training.guard import check
    >>> check({"loss": torch.tensor(float("nan"))}, pscd.TrainConfig())
    Traceback (most recent call last):
        ...
    pscd.errors.Diverged: loss is nan
    """

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason, advice)  # both, so that it can be pickled

    @property
    def reason(self) -> str:
        """What happened."""
        return self.args[0]

    def __str__(self) -> str:
        return "; ".join(filter(None, self.args))
