"""All tests in random order on a busy machine, many times: `make test-stress RUNS=20`.

Each round runs the tests twice at the same time, each copy with two workers, so that there are about two tests for
every core. A test that fails in one order or under load, and passes otherwise, is a mistake in the test or in the code.
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor


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
    parser.add_argument("--runs", type=int, default=1, help="rounds of two copies (default: 1)")
    parser.add_argument("--copies", type=int, default=2, help="copies at the same time (default: 2)")
    parser.add_argument("--seed", type=int, default=0, help="of the orders (default: 0)")
    parser.add_argument("words", nargs="*", help="for pytest, after --")
    args = parser.parse_args(argv)
    failed = 0
    for number in range(args.runs):
        start = time.monotonic()
        seeds = [args.seed + number * args.copies + copy for copy in range(args.copies)]
        with ThreadPoolExecutor(args.copies) as pool:
            for seed, (code, output) in zip(seeds, pool.map(lambda s: once(s, args.words), seeds), strict=True):
                last = (output.strip().splitlines() or [""])[-1]
                print(f"order {seed}: exit code {code}, {last} ({time.monotonic() - start:.0f} s)", flush=True)
                if code:
                    failed += 1
                    print(output, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
