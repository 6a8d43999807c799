"""How long training will take: told after its first updates, where it is long enough to make other plans."""

from pscd import fast
from pscd.progress import duration

LONG = 60.0  # seconds; what takes less needs no planning


def forecast(seconds: float, *, left: int, where: str = "cpu", kept: bool = False) -> str | None:
    """A sentence about the time that training takes, and what to do if that is too long.

    Args:
        seconds: that an update takes here.
        left: updates to come.
        where: kind of the device.
        kept: whether it is a run that keeps checkpoints and can be stopped, as those of `pscd train` are.

    Returns:
        The sentence; None if training is over soon.

    >>> forecast(1.05, left=2000, where="cuda")
    'about 35 min for 2,000 updates on cuda; 200 take 4 min'
    >>> forecast(0.001, left=2000)
    """
    if seconds * left < LONG:
        return None
    cores = fast.allowed_threads()
    place = where if where != "cpu" else f"{cores} cores" if cores > 1 else "one core"
    said = f"about {duration(seconds * left)} for {left:,} updates on {place}"
    fewer = left // 10
    if fewer:
        said += f"; {fewer:,} take {duration(seconds * fewer)}"
    return f"{said}. Ctrl-C stops it at any time: the run can be used then, and goes on later" if kept else said
