"""A small training by the command line, in a forked process: an import of torch for each fault would take hours."""

import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pscd.cli import train
from pscd.cli.main import main
from pscd.errors import UserError
from pscd.files import read_tensors, tensors_digest
from pscd.run_folder import RunFolder
from pscd.runs import train as train_into

FLAGS = (
    "--updates 24 --batch-size 8 --gamma 0.5 --set rows.n_data=100 --set chains.buffer_size=20 "
    "--set chains.jump_components=2 --set sampler.n_steps=2 --set energy.width=8 --set energy.depth=1 "
    "--set energy.fourier=2 --set guard.log_every=4 "
    "--set guard.checkpoint_every=6"
)
TRAIN = ("train", "moon", *FLAGS.split())
SIGNALS = (signal.SIGINT, signal.SIGTERM)
Prepare = Callable[[], object]


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Args:
        code: its exit code; that of a signal is negative.
        errors: what it wrote to standard error, without progress lines.
    """

    code: int
    errors: str

    @property
    def in_one_line(self) -> bool:
        """Whether it said what was wrong, in one line."""
        return self.code == 2 and len(self.errors.splitlines()) == 1 and self.errors.startswith("pscd: ")


def _only_train(args: object) -> None:
    """`pscd train` up to the model: drawing samples and a picture takes longer than all else."""
    train_into(train.config_from(args, None), args.out, progress=False)  # type: ignore[arg-type, attr-defined]


def start(folder: Path, prepare: Prepare = lambda: None, words: Sequence[str] = TRAIN) -> int:
    """Begin a command, the training by default, in a process of its own; `prepare` is called in it after imports."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the child can take care of itself
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of a test runner have no part in it
        child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return child
    code, done = 1, False
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(f"{folder}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), 2)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
        train.run = _only_train  # type: ignore[assignment]
        prepare()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        code = main([*words, "--out", str(folder)])
        done = True  # what comes after it is not the command's
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        if not done:
            traceback.print_exc()
    finally:
        os._exit(code)


def end(child: int, folder: Path) -> Ended:
    """Wait for a process that `start` began."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    log = Path(f"{folder}.err")
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return Ended(code, "\n".join(line for line in lines if line.strip()))


def run(folder: Path, prepare: Prepare = lambda: None, words: Sequence[str] = TRAIN) -> Ended:
    """The whole command."""
    return end(start(folder, prepare, words), folder)


def wait_for(path: Path, child: int, seconds: float = 30) -> None:
    """Wait until a file is there, or the process has ended."""
    until = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < until:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.001)


def bits(folder: Path) -> str | None:
    """A checksum of the model of a finished run; None if reading it gives one line."""
    from pscd.model import Model

    path = RunFolder(folder).model
    try:
        Model.load(path)
    except UserError:
        return None
    return tensors_digest(read_tensors(path)[0])
