"""Inputs one after the other in a process that may crash, hang or take all memory, and a parent that notices.

An input is a function of the format, the seed and its number, so any of them can be made again.
"""

import mmap
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pscd.errors import UserError
from studies.fuzz.formats import Format
from studies.reliability import MEMORY_DISK

MEMORY = 2**30  # bytes that reading one small file may take
SECONDS, PATIENCE = 10, 600  # of the processor, and of the clock, that it may take
MOST_FINDINGS = 20  # after which a format is left
RAN_CODE = 77  # exit code of a process in which a file tried to run something
DID_MORE = {"os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect", "pickle.find_class"}


@dataclass
class Outcome:
    """What became of the inputs of one format.

    Args:
        read: how many gave a value.
        refused: how many gave one line.
        findings: what else there was, by the input's number.
        seconds: that it took.
    """

    read: int = 0
    refused: int = 0
    findings: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def n(self) -> int:
        """How many inputs there were."""
        return self.read + self.refused + len(self.findings)

    def with_(self, other: "Outcome") -> "Outcome":
        """Both together; they have no input in common."""
        return Outcome(
            self.read + other.read,
            self.refused + other.refused,
            {**self.findings, **other.findings},
            self.seconds + other.seconds,
        )


def wrong_file(name: str, kind: Format, seed: int, number: int) -> bytes:
    """The input of that number."""
    return kind.wrong(random.Random(f"{name} {seed} {number}"))


def read_all(name: str, kind: Format, *, seed: int, first: int, n: int, seconds: float = 1e9) -> Outcome:
    """Read inputs `first` to `first + n - 1`, or as many as the seconds allow."""
    outcome, start, number = Outcome(), time.monotonic(), first
    shared = mmap.mmap(-1, 24)  # the number at which the child is, and its two counts
    while number < first + n and time.monotonic() - start < seconds and len(outcome.findings) < MOST_FINDINGS:
        shared[:] = struct.pack("3q", number, 0, 0)
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of a test runner have no part in it
            child = os.fork()
        if child == 0:
            os.close(reader)
            os._exit(_child(name, kind, seed, range(number, first + n), shared, writer, start + seconds))
        os.close(writer)
        with os.fdopen(reader) as pipe:
            told = pipe.read()
        status = os.waitpid(child, 0)[1]
        number, read, refused = struct.unpack("3q", shared[:])
        outcome.read, outcome.refused = outcome.read + read, outcome.refused + refused
        if status == 0:
            break
        outcome.findings[number] = told.strip() or _cause(status)
        number += 1
    outcome.seconds = time.monotonic() - start
    return outcome


def _cause(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "hang" if number in (signal.SIGALRM, signal.SIGPROF) else f"crash: {signal.Signals(number).name}"
    return "ran code" if os.WEXITSTATUS(status) == RAN_CODE else f"exit code {os.WEXITSTATUS(status)}"


def _child(name: str, kind: Format, seed: int, numbers: range, shared: mmap.mmap, told: int, end: float) -> int:
    """Read the inputs; returns at the first one with which something other than a value or a line comes."""
    import torch

    torch.set_num_threads(1)
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)  # a hang ends the process, even one that Python does not see
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # C libraries have words of their own for damaged files
    _limit_memory()
    _watch()
    read = refused = 0
    parent = os.getppid()
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as folder:
        for number in numbers:
            content = wrong_file(name, kind, seed, number)
            shared[:] = struct.pack("3q", number, read, refused)
            path = Path(folder) / (kind.suffix if not kind.suffix.startswith((".", "-", "_")) else f"x{kind.suffix}")
            path.write_bytes(content)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    kind.read(path)
                read += 1
            except UserError as error:
                if len(str(error).splitlines()) != 1:
                    os.write(told, f"not one line: {error}"[:2000].encode())
                    return 1
                refused += 1
            except BaseException:
                os.write(told, traceback.format_exc()[-3000:].encode())
                return 1
            if time.monotonic() > end or os.getppid() != parent:  # which may have been killed
                break
    shared[:] = struct.pack("3q", number, read, refused)
    return 0


def _limit_memory() -> None:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _watch() -> None:
    """End the process if a file makes it start a program, connect, or look up what a pickle asks for."""

    def hook(event: str, _: tuple[Any, ...]) -> None:
        if event in DID_MORE:
            os._exit(RAN_CODE)

    sys.addaudithook(hook)
