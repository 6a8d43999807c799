"""A measurement in a process of its own, so that its peak memory is its own: `python -m studies large.child`."""

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MB = 1_000_000


def run(function: str, *, threads: int | None = None, **arguments: Any) -> dict[str, Any]:
    """Call a function in a fresh process.

    Args:
        function: `package.module:name`; it takes the arguments and returns plain values.
        threads: `OMP_NUM_THREADS` of the process; None: as here.
        arguments: plain values.

    Returns:
        What it returned, with `seconds`, and in megabytes `import_mb`, the memory after `import pscd` and all that the
        library loads at first use, and `peak_mb`, the most that the process held beyond that.

    Raises:
        RuntimeError: the process failed.
    """
    environment = dict(os.environ) | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
    command = [sys.executable, "-m", "studies.large.child", function, json.dumps(arguments)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{function} ended with {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def resident() -> float:
    """Megabytes of memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MB


def peak() -> float:
    """Megabytes of memory that this process has held at most."""
    # Not `getrusage`: Linux counts what the parent held when it forked.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / MB


def main() -> None:
    """Import, note the memory, call, and print the result as the last line."""
    import pscd

    assert pscd.fit  # torch, and all of the library that training needs
    before = resident()
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    start = time.perf_counter()
    result = function(**json.loads(sys.argv[2]))
    seconds = time.perf_counter() - start
    print(json.dumps({**result, "seconds": seconds, "import_mb": before, "peak_mb": peak() - before}))


if __name__ == "__main__":
    main()
