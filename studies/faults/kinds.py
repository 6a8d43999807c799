"""The kinds of faults: each is a function that lets one happen in a folder, and returns what was wrong about it.

Whatever the fault, four things must hold: no traceback; a model that loads is the right one, bit for bit; a model that
was there, and whose file was left alone, still loads; and the same command goes on to the same bits, or says in one
line why it cannot.
"""

import functools
import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pscd.detector.estimator import EnergyDetector
from pscd.errors import UserError
from pscd.fast import cpp
from pscd.run_folder import RunFolder
from pscd.tables import read
from studies.faults.command import Ended, bits, end, run, start, wait_for

NOBODY = 65534


@dataclass(frozen=True)
class Reference:
    """What is right.

    Args:
        folder: a run that was never disturbed.
        bits: of its model.
        seconds: that it took.
        detector: folder of a detector.
        scores: that it gives to `rows`.
        rows: some rows.
    """

    folder: Path
    bits: str
    seconds: float
    detector: Path
    scores: bytes
    rows: list[list[float]]


Kind = Callable[[Path, random.Random, Reference], str | None]


def _first(*faults: str | None) -> str | None:
    return next((fault for fault in faults if fault is not None), None)


def _no_traceback(ended: Ended) -> str | None:
    return f"traceback:\n{ended.errors}" if "Traceback" in ended.errors else None


def _is_told(ended: Ended) -> str | None:
    """A command that was disturbed may succeed, or say in one line what was in its way."""
    blas = ended.code == 1 and ended.errors.startswith("OpenBLAS error: Memory allocation")  # which ends the process
    return None if ended.code == 0 or ended.in_one_line or blas else f"exit code {ended.code}: {ended.errors}"


def _goes_on(folder: Path, right: Reference, damaged: str = "") -> str | None:
    """The same command, undisturbed: the same bits, and nothing left over.

    Without its settings a run cannot be known again and may be refused, and of a damaged log rows may be missing.
    """
    if bits(folder) not in (None, right.bits):
        return "wrong number: another model loads"
    ended = run(folder)
    if damaged == "config.json" and ended.in_one_line:
        return None
    # A warning in one line (a checkpoint was damaged, the one before is used) may stand there.
    if ended.code != 0:
        return f"does not go on: exit code {ended.code}: {ended.errors}"
    if bits(folder) != right.bits:
        return "wrong number: goes on to another model"
    left = [path.name for path in folder.iterdir() if path.suffix == ".tmp" or path.name == ".lock"]
    rows, right_rows = (RunFolder(f).read_metrics() for f in (folder, right.folder))
    same_log = all(row in right_rows for row in rows) if damaged == "metrics.jsonl" else rows == right_rows
    return f"left over: {left}" if left else None if same_log else "wrong number: another log"


# --- ends that nobody asked for ---


def kill(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """SIGKILL at a random moment."""
    child = start(folder)
    time.sleep(rng.random() * right.seconds)
    os.kill(child, signal.SIGKILL)
    end(child, folder)
    return _goes_on(folder, right)


def kill_twice(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """SIGKILL, and again in the run that goes on."""
    for _ in range(2):
        child = start(folder)
        time.sleep(rng.random() * right.seconds)
        os.kill(child, signal.SIGKILL)
        end(child, folder)
    return _goes_on(folder, right)


def _signal(number: signal.Signals) -> Kind:
    def kind(folder: Path, rng: random.Random, right: Reference) -> str | None:
        child = start(folder)
        time.sleep(rng.random() * right.seconds)
        os.kill(child, number)
        ended = end(child, folder)
        polite = ended.code in (0, 130, -number)
        return _first(
            _no_traceback(ended), None if polite else f"exit code {ended.code}: {ended.errors}", _goes_on(folder, right)
        )

    return kind


# --- a disk that is full, a folder that is closed ---


def write_fails(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """The kernel refuses to write more than so many bytes to a file."""
    most = rng.choice((0, 100, 1000, rng.randrange(20_000)))
    ended = run(folder, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY)))
    # The message itself may be what does not fit.
    quiet = most < 1000 and ended.code in (1, 2)
    return _first(_no_traceback(ended), None if quiet else _is_told(ended), _goes_on(folder, right))


def disk_full(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """A disk with little room, in memory; where the user may not mount one, a file that has no room."""
    folder.mkdir()
    size = rng.choice((4, 8, 16, 24, 32, 48, 64))
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(folder)], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        folder.rmdir()
        return write_fails(folder, rng, right)
    try:
        ended = run(folder)
        wrong = None if bits(folder) in (None, right.bits) else "wrong number: another model loads"
        subprocess.run(["mount", "-o", "remount,size=4m", str(folder)], check=True, capture_output=True)
        return _first(_no_traceback(ended), _is_told(ended), wrong, _goes_on(folder, right))
    finally:
        subprocess.run(["umount", str(folder)], check=True, capture_output=True)


def permission_revoked(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """The folder may not be written to any more, from a random moment on."""
    folder.mkdir()
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    child = start(folder, _as_nobody)
    time.sleep(rng.random() * right.seconds)
    folder.chmod(0o555)
    ended = end(child, folder)
    folder.chmod(0o755)
    return _first(_no_traceback(ended), _is_told(ended), _goes_on(folder, right))


def _as_nobody() -> None:
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def folder_removed(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """The run folder goes away in the middle."""
    child = start(folder)
    wait_for(RunFolder(folder).config, child)
    time.sleep(rng.random() * right.seconds / 2)
    folder.rename(folder.with_name("gone"))
    ended = end(child, folder)
    return _first(_no_traceback(ended), _is_told(ended), _goes_on(folder, right))


# --- files that are not what they were ---


def _damaged(folder: Path, rng: random.Random, right: Reference, damage: Callable[[bytes], bytes]) -> str | None:
    shutil.copytree(right.folder, folder)
    path = rng.choice(sorted(p for p in folder.iterdir() if p.is_file()))
    path.write_bytes(damage(path.read_bytes()))
    lost = (
        None if bits(folder) == right.bits or path.name == "model.safetensors" else f"lost: the model, by {path.name}"
    )
    return _first(lost, _goes_on(folder, right, path.name))


def file_cut(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """A file of a finished run is cut at a random length."""
    return _damaged(folder, rng, right, lambda content: content[: rng.randrange(len(content))])


def bit_flipped(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """A bit of a file of a finished run is another."""
    return _damaged(folder, rng, right, lambda content: _flipped(content, rng))


def _flipped(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    changed[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def unfinished_bit_flipped(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """A bit of a file of a run that was stopped is another: it goes on from the checkpoint before, or is refused."""
    shutil.copytree(right.folder, folder)
    RunFolder(folder).model.unlink()
    path = rng.choice(sorted(p for p in folder.iterdir() if p.is_file()))
    path.write_bytes(_flipped(path.read_bytes(), rng))
    return _goes_on(folder, right, path.name)


def detector_damaged(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """A bit of a detector's file is another, or the file is cut."""
    shutil.copytree(right.detector, folder)
    path = rng.choice(sorted(folder.glob("*.safetensors")))
    content = path.read_bytes()
    path.write_bytes(_flipped(content, rng) if rng.random() < 0.5 else content[: rng.randrange(len(content))])
    try:
        scores = EnergyDetector.load(folder).score_samples(right.rows).tobytes()
    except UserError as error:
        return None if len(str(error).splitlines()) == 1 else f"not one line: {error}"
    return None if scores == right.scores else "wrong number: other scores"


# --- a long table that is scored block by block ---


@functools.cache
def _right_scores(right: Path) -> tuple[tuple[str, ...], bytes, float]:
    """The command that scores a table of 2,000 rows, what it writes undisturbed, and the seconds it takes."""
    table = right.with_name("long.npy")
    np.save(table, np.random.default_rng(0).normal(size=(2000, 2)))
    words, out = ("score", str(right), str(table)), right.with_name("scores.csv")
    start = time.monotonic()
    ended = run(out, _short_blocks, words)
    assert ended.code == 0, ended.errors
    return words, out.read_bytes(), time.monotonic() - start


def _short_blocks() -> None:
    read.block_size = lambda width: 100


def _score_stopped(out: Path, rng: random.Random, right: Reference, damage: Callable[[Path], object]) -> str | None:
    """SIGKILL while a table is scored, damage to what is there, and the same command again: the same bytes."""
    words, scores, seconds = _right_scores(right.folder)
    child = start(out, _short_blocks, words)
    time.sleep(rng.random() * seconds)
    os.kill(child, signal.SIGKILL)
    end(child, out)
    if out.exists():
        return None if out.read_bytes() == scores else "wrong number: other scores"
    damage(out.with_name(f"{out.name}.partial"))
    ended = run(out, _short_blocks, words)
    if ended.code != 0:
        return f"does not go on: exit code {ended.code}: {ended.errors}"
    left = [path.name for path in out.parent.iterdir() if path.name.endswith((".partial", ".tmp"))]
    same = None if out.read_bytes() == scores else "wrong number: other scores"
    return _first(_no_traceback(ended), same, f"left over: {left}" if left else None)


def score_killed(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """SIGKILL in the middle of a table."""
    return _score_stopped(folder.with_suffix(".csv"), rng, right, lambda parts: None)


def score_damaged(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """SIGKILL in the middle of a table, and a bit of a file that was left is another."""

    def damage(parts: Path) -> None:
        files = sorted(path for path in parts.rglob("*") if path.is_file() and path.stat().st_size)
        if files:
            path = rng.choice(files)
            path.write_bytes(_flipped(path.read_bytes(), rng))

    return _score_stopped(folder.with_suffix(".csv"), rng, right, damage)


# --- a machine that gives less ---


def few_handles(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """Few file handles are left."""

    def prepare() -> None:
        n_open = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_open + rng.randrange(6), n_open + 6))

    ended = run(folder, prepare)
    return _first(_no_traceback(ended), _is_told(ended), _goes_on(folder, right))


def little_memory(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """Little memory is left."""

    def prepare() -> None:
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        most = taken + rng.randrange(24) * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

    ended = run(folder, prepare)
    return _first(_no_traceback(ended), _is_told(ended), _goes_on(folder, right))


def clock_changed(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """Every look at the clock gives a time up to ten years before or after."""

    def prepare() -> None:
        for name in ("time", "monotonic", "perf_counter"):
            setattr(time, name, lambda: rng.uniform(-3e8, 3e8))
        time.time_ns = lambda: rng.randrange(10**18)

    ended = run(folder, prepare)
    return _first(_no_traceback(ended), _is_told(ended), _goes_on(folder, right))


def no_compiler(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """The compiler and the folder with what it compiled go away while a training runs, or before it goes on."""
    cache = folder.with_name("cache")

    def prepare() -> None:
        os.environ.update(PATH="", XDG_CACHE_HOME=str(cache), CXX="")
        if rng.random() < 0.5:
            cpp.library.cache_clear()

    child = start(folder, prepare)
    time.sleep(rng.random() * right.seconds)
    shutil.rmtree(cache, ignore_errors=True)
    ended = end(child, folder)
    # Without C++ the last digits differ, so only that it ends well is asked for.
    done = None if ended.code == 0 and bits(folder) is not None else f"exit code {ended.code}: {ended.errors}"
    return _first(_no_traceback(ended), done)


def library_damaged(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """A bit of the compiled C++ in the cache folder is another: it is compiled again."""
    found = cpp._compiled()
    if found is None:
        return None
    cache = folder.with_name("cache")
    shutil.copytree(found.parent, cache / "pscd", ignore=lambda _, names: [n for n in names if found.stem not in n])
    path = cache / "pscd" / found.name
    path.write_bytes(_flipped(path.read_bytes(), rng))

    def prepare() -> None:
        os.environ["XDG_CACHE_HOME"] = str(cache)
        cpp.library.cache_clear()

    ended = run(folder, prepare)
    return _first(_no_traceback(ended), _is_told(ended), _goes_on(folder, right))


# --- two at once ---


def two_at_once(folder: Path, rng: random.Random, right: Reference) -> str | None:
    """A second training in the same folder is told; the first does not notice, or is killed, and its lock with it."""
    first = start(folder, _stop_at_first_log)
    # Until it has stopped, not only until there is a log: a SIGCONT that came before the stop would be lost.
    os.waitid(os.P_PID, first, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    second = run(folder)
    told = second.in_one_line and "in use by another run" in second.errors
    killed = rng.random() < 0.5
    os.kill(first, signal.SIGKILL if killed else signal.SIGCONT)
    ended = end(first, folder)
    fine = killed or ended.code == 0
    return _first(
        None if told else f"the second was not told: {second}",
        None if fine else f"the first ended with {ended.code}: {ended.errors}",
        _goes_on(folder, right),
    )


def _stop_at_first_log() -> None:
    """Let the process stop itself once its folder is locked and it has begun to write."""
    from pscd import runs

    numbers = itertools.count()
    original = runs._lines

    def lines(rows: list[dict[str, float]]) -> str:
        if next(numbers) == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return original(rows)

    runs._lines = lines


KINDS: dict[str, tuple[Kind, int]] = {
    "SIGKILL at a random moment": (kill, 80),
    "SIGKILL twice": (kill_twice, 20),
    "SIGTERM at a random moment": (_signal(signal.SIGTERM), 50),
    "SIGINT at a random moment": (_signal(signal.SIGINT), 50),
    "a write fails": (write_fails, 40),
    "the disk is full": (disk_full, 30),
    "permission revoked": (permission_revoked, 30),
    "the folder is moved away": (folder_removed, 15),
    "a file is cut": (file_cut, 60),
    "a bit is flipped, finished run": (bit_flipped, 80),
    "a bit is flipped, stopped run": (unfinished_bit_flipped, 50),
    "a detector's file is cut or flipped": (detector_damaged, 100),
    "SIGKILL in scoring": (score_killed, 25),
    "SIGKILL in scoring, and a bit is flipped": (score_damaged, 25),
    "few file handles": (few_handles, 24),
    "little memory": (little_memory, 30),
    "the clock jumps": (clock_changed, 15),
    "no compiler, no cache": (no_compiler, 15),
    "the compiled C++ is damaged": (library_damaged, 3),
    "two trainings in one folder": (two_at_once, 20),
}
