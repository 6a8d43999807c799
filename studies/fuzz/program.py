"""`make fuzz`: wrong files for every reader; each must give a value or one line, quickly and in little memory."""

import argparse
from pathlib import Path
from typing import Any

from pscd.errors import UserError
from pscd.files import read_json, write_json
from studies.fuzz.formats import Format, formats
from studies.fuzz.isolate import MEMORY, MOST_FINDINGS, SECONDS, Outcome, read_all, wrong_file
from studies.reliability import PAGE, put_table

BATCH = 5000  # inputs after which the counts are written
FINDINGS = Path("runs/fuzz")
COUNTS = PAGE.with_name("results") / "fuzz.json"


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("--n", type=int, default=100_000, help="inputs for each format (default: 100000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first input (default: 0)")
    parser.add_argument("--seconds", type=float, default=1e9, help="the most for each format (default: no limit)")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other inputs (default: 0)")
    parser.add_argument("--only", default="", help="formats with one of these in their names (a,b)")
    parser.add_argument("--write", action="store_true", help="put the counts into docs/reliability.md")
    parser.add_argument("--more", action="store_true", help="go on after the inputs that are counted there, up to --n")


def run(args: argparse.Namespace) -> int:
    """Fuzz, print a line for each format, keep the inputs that were findings; returns 1 if there are any."""
    if args.more and not args.write:
        raise UserError("--more goes with --write")
    if args.quick:
        args.n = min(args.n, 100)
    n_findings = 0
    for name, kind in formats().items():
        if any(word in name for word in args.only.split(",")):
            outcome = _more(name, kind, args) if args.more else _inputs(name, kind, args)
            n_findings += len(outcome.findings)
            _tell(name, kind, outcome, args.seed)
    return 1 if n_findings else 0


def _inputs(name: str, kind: Format, args: argparse.Namespace) -> Outcome:
    outcome = read_all(name, kind, seed=args.seed, first=args.first, n=args.n, seconds=args.seconds)
    if args.write:
        _put(name, outcome, args.seed)
    return outcome


def _more(name: str, kind: Format, args: argparse.Namespace) -> Outcome:
    """Inputs that were not tried yet, counted with those that were; those of another seed are not counted again."""
    before = _counts().get(name, {})
    all_ = Outcome()
    if before.get("seed") == args.seed:
        all_ = Outcome(before["read"], before["refused"], dict.fromkeys(range(-before["findings"], 0), ""))
    new = Outcome()
    while all_.n < args.n and new.seconds < args.seconds and len(new.findings) < MOST_FINDINGS:
        n, seconds = min(BATCH, args.n - all_.n), args.seconds - new.seconds
        batch = read_all(name, kind, seed=args.seed, first=all_.n, n=n, seconds=seconds)
        all_, new = all_.with_(batch), new.with_(batch)
        _put(name, all_, args.seed)
    return new


def _tell(name: str, kind: Format, outcome: Outcome, seed: int) -> None:
    print(
        f"{name:<16} {outcome.read:>7} read {outcome.refused:>7} refused {len(outcome.findings):>3} findings "
        f"{outcome.seconds:>6.0f} s",
        flush=True,
    )
    for number, what in outcome.findings.items():
        FINDINGS.mkdir(parents=True, exist_ok=True)
        path = FINDINGS / f"{name.replace(', ', '-')}-{seed}-{number}{kind.suffix}"
        path.write_bytes(wrong_file(name, kind, seed, number))
        print(f"  {path}: {what}", flush=True)


def _counts() -> dict[str, Any]:
    return read_json(COUNTS) if COUNTS.exists() else {}


def _put(name: str, o: Outcome, seed: int) -> None:
    """Keep the counts, and write the table of all that are kept: formats that were left out now stay as they were."""
    kept = _counts()
    kept[name] = {"read": o.read, "refused": o.refused, "findings": len(o.findings), "seed": seed}
    write_json(COUNTS, kept)
    rows = [
        [name, f"{o['read'] + o['refused']:,}", f"{o['read']:,}", f"{o['refused']:,}", str(o["findings"])]
        for name, o in kept.items()
    ]
    note = f"`make fuzz`; at most {SECONDS} s of the processor and {MEMORY / 2**30:.0f} GiB for each file."
    put_table("fuzz", ["format", "inputs", "read", "refused in one line", "findings"], rows, note)
