"""All tests in random order on a busy machine, many times: `make test-stress RUNS=20`.

Each round runs the tests twice at the same time, each copy with two workers, so that there are about two tests for
every core. A test that fails in one order or under load, and passes otherwise, is a mistake in the test or in the code.

Every run is a line of `docs/results/stress.jsonl`: order, commit, exit code, last line, seconds, load of the machine.
What a run that failed had to say is in `runs/stress`. Orders that are in the log are not taken again, so rounds may be
made in several sittings.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path("runs/stress")
LOG = Path("docs/results/stress.jsonl")


def once(seed: int, words: list[str]) -> tuple[int, str]:
    """One run of the tests, in the order that the seed gives; returns exit code and output."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "--random-order", f"--random-order-seed={seed}", *words]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def main(argv: list[str] | None = None) -> int:
    """Run the tests; returns 1 if any of the runs failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1, help="rounds (default: 1)")
    parser.add_argument("--copies", type=int, default=2, help="copies at the same time (default: 2)")
    parser.add_argument("--seed", type=int, default=0, help="of the first order that is not in the log (default: 0)")
    parser.add_argument("words", nargs="*", help="for pytest, after --")
    args = parser.parse_args(argv)
    failed = 0
    for _ in range(args.runs):
        before = {record["order"] for record in records()}
        seed = max([args.seed - 1, *before]) + 1
        with ThreadPoolExecutor(args.copies) as pool:
            for code in pool.map(lambda s: noted(s, args.words), range(seed, seed + args.copies)):
                failed += code != 0
    codes = [record["code"] for record in records()]
    print(f"all in all {len(codes)} runs, {sum(code != 0 for code in codes)} of them failed")
    return 1 if failed else 0


def noted(seed: int, words: list[str]) -> int:
    """One run, told and written to the log; returns its exit code."""
    start, commit = time.monotonic(), _commit()
    code, output = once(seed, words)
    last = (output.strip().splitlines() or [""])[-1]
    seconds, load = round(time.monotonic() - start), round(os.getloadavg()[2], 1)  # of the last 15 minutes
    record = {"order": seed, "commit": commit, "code": code, "last": last, "seconds": seconds, "load": load}
    with LOG.open("a") as file:
        file.write(json.dumps(record | {"words": words}) + "\n")
    print(f"order {seed}: exit code {code}, {last} ({seconds} s, load {load})", flush=True)
    if code:
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"order-{seed}.txt").write_text(output)
        print(output, flush=True)
    return code


def records() -> list[dict]:
    """What the log has."""
    return [json.loads(line) for line in LOG.read_text().splitlines()] if LOG.exists() else []


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], check=False, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
