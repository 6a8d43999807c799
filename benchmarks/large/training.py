"""Training on the table: peak memory and updates per second, streamed and in memory."""

from pathlib import Path
from typing import Any

from benchmarks.large.table import make_npy
from pscd.files import markdown_table


def measure(folder: Path, n_rows: int) -> dict[str, Any]:
    """Make the table.

    Args:
        folder: for the table.
        n_rows: of the table.

    Returns:
        Plain values.
    """
    path = make_npy(folder / "table.npy", n_rows)
    return {"bytes": path.stat().st_size}


def section(values: dict[str, Any]) -> list[str]:
    """The lines of the page."""
    return ["## Training", "", markdown_table(["table", "bytes"], [["npy", f"{values['bytes']:,}"]])]
