"""`make faults`: hundreds of faults on purpose; counts by kind in docs/reliability.md."""

import argparse
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import torch

from pscd import EnergyDetector
from pscd.fast import cpp
from pscd.progress import progress_bar
from studies.faults.command import FLAGS, bits
from studies.faults.command import run as train
from studies.faults.kinds import KINDS, Reference
from studies.reliability import MEMORY_DISK, put_table


def reference(folder: Path) -> Reference:
    """An undisturbed run and a detector in a folder, and what they give."""
    cpp.library()  # compiled, or found, before anything is timed or forked
    done = train(folder / "right")
    assert done.code == 0, done.errors
    start = time.monotonic()
    assert train(folder / "timed").code == 0
    seconds = time.monotonic() - start
    found = bits(folder / "right")
    assert found is not None
    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)).numpy()
    detector = EnergyDetector(updates=3).fit(x)
    detector.save(folder / "detector")
    rows = x[:5].tolist()
    return Reference(
        folder / "right", found, seconds, folder / "detector", detector.score_samples(rows).tobytes(), rows
    )


def inject(name: str, number: int, seed: int, right: Reference) -> str | None:
    """One fault, in a folder of its own; returns what was wrong."""
    kind, _ = KINDS[name]
    home = Path(tempfile.mkdtemp(dir=right.folder.parent))
    home.chmod(0o755)
    try:
        return kind(home / "run", random.Random(f"{name} {seed} {number}"), right)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the faults of each kind, at least one (default: 1)"
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed, other moments and places (default: 0)")
    parser.add_argument("--only", default="", help="kinds with this in their name")
    parser.add_argument("--write", action="store_true", help="put the counts into docs/reliability.md")


def run(args: argparse.Namespace) -> int:
    """Inject faults, print the counts; returns 1 if anything was wrong."""
    torch.set_num_threads(1)
    share = 0.0 if args.quick else args.share
    counts = {name: max(1, round(share * n)) for name, (_, n) in KINDS.items() if args.only in name}
    wrong: dict[str, list[str]] = {name: [] for name in counts}
    with (
        tempfile.TemporaryDirectory(dir=MEMORY_DISK) as folder,
        progress_bar(sum(counts.values()), show=True, unit="fault") as bar,
    ):
        os.chmod(folder, 0o755)
        right = reference(Path(folder))
        for name, n in counts.items():
            for number in range(n):
                fault = inject(name, number, args.seed, right)
                bar.update()
                if fault is not None:
                    wrong[name].append(fault)
                    bar.write(f"{name}, number {number}: {fault}")
    _report(counts, wrong, args.seed, write=args.write)
    return 1 if any(wrong.values()) else 0


def _report(counts: dict[str, int], wrong: dict[str, list[str]], seed: int, *, write: bool) -> None:
    head = ["fault", "injected", "tracebacks", "wrong numbers", "lost models", "other"]
    rows = [[name, str(n), *(str(c) for c in _by_sort(wrong[name]))] for name, n in counts.items()]
    totals = [sum(column) for column in zip(*(_by_sort(found) for found in wrong.values()), strict=True)]
    rows.append(["**all**", str(sum(counts.values())), *map(str, totals)])
    for row in rows:
        print("  ".join(f"{cell:>14}" if i else f"{cell:<38}" for i, cell in enumerate(row)))
    if write:
        put_table("faults", head, rows, f"`make faults`, seed {seed}: `pscd train moon {FLAGS}`.")


def _by_sort(faults: list[str]) -> list[int]:
    sorts = ("traceback", "wrong number", "lost")
    found = [sum(fault.startswith(sort) for fault in faults) for sort in sorts]
    return [*found, len(faults) - sum(found)]
