"""What a choice between detectors could reach at the most.

    python -m studies detection.bounds docs/results/detection.json

For each table, labels choose the better of `EnergyDetector` and one other detector, or the best of all. Nobody has
these labels, so the numbers are bounds, not results.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pscd.files import read_json
from studies.engine.markdown import markdown_table

OURS = "EnergyDetector"
BEST = "the best of all"
MEASURES = ("auroc", "ap")


def by_table(cells: Sequence[Mapping[str, Any]], measure: str) -> dict[str, dict[str, float]]:
    """The mean over seeds for each table and detector, where no junk was added.

    Args:
        cells: of the benchmark's JSON file.
        measure: `auroc` or `ap`.

    Returns:
        Numbers by table, then by detector.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for cell in cells:
        settings = cell["settings"]
        if settings["extra"] == 0 and cell.get(measure) is not None:
            found.setdefault(settings["set"], {}).setdefault(settings["detector"], []).append(cell[measure])
    return {table: {name: statistics.fmean(v) for name, v in row.items()} for table, row in found.items()}


def bounds(tables: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean over tables of the better of ours and each other detector, and of the best of all.

    Args:
        tables: numbers by table, then by detector; a detector that failed on a table has none there.

    Returns:
        Means by the other detector's name, largest first; ours alone has its own name.
    """
    names = {name for row in tables.values() for name in row}
    better = {
        name: statistics.fmean(max(row[OURS], row.get(name, 0.0)) for row in tables.values()) for name in sorted(names)
    }
    better[BEST] = statistics.fmean(max(row.values()) for row in tables.values())
    return dict(sorted(better.items(), key=lambda item: -item[1]))


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="detection.json, as the benchmark wrote it")
    args = parser.parse_args(argv)
    runs = read_json(args.report)["runs"]
    found = {measure: bounds(by_table(runs, measure)) for measure in MEASURES}
    rows = [[name, *(f"{found[m][name]:.3f}" for m in MEASURES)] for name in found["auroc"]]
    print(markdown_table([f"{OURS}, or", "AUROC", "AP"], rows))


if __name__ == "__main__":
    main()
