"""What a detector has learnt from a table, in a few lines."""

from typing import TYPE_CHECKING

from pscd.cli.output import say

if TYPE_CHECKING:
    from pscd.detector.estimator import EnergyDetector


def print_learnt(detector: "EnergyDetector", n_rows: int) -> None:
    """Print what was learnt from, and what the detector makes of the rows as a whole.

    Args:
        detector: the fitted detector.
        n_rows: of the table.
    """
    schema = detector.reader_.schema
    say(f"{n_rows} rows, {n_learnt(detector)} columns; estimated contamination: {100 * detector.contamination_:.1f} %")
    for column in schema.columns:
        if not column.is_learnt and column.notes and "stated" not in column.notes[0]:
            say(f"  left out: {column.name} ({'; '.join(column.notes)})")
        elif column.stray or any("as stated" in note for note in column.notes):
            say(f"  {column.name}: {'; '.join(column.notes)}")
    if detector.gamma > 0:
        say(f"gamma {detector.gamma:.3g}: {detector.n_ignored} rows were ignored")
    else:
        say("gamma 0: every row counted")
    say(f"outlier: energy above {-detector.offset_:.4g}, {_threshold_words(detector)}")


def _threshold_words(detector: "EnergyDetector") -> str:
    """Where the threshold of a detector comes from."""
    if detector.contamination != "auto":
        return f"the strangest {100 * float(detector.contamination):.3g} % of these rows (--contamination)"
    if detector.contamination_ > 0:
        return "which 99 % of the model's own samples stay below"
    return "in any case the strangest hundredth of these rows (--contamination)"


def n_learnt(detector: "EnergyDetector") -> int:
    """Number of columns that a detector has learnt from.

    Args:
        detector: the fitted detector.

    Returns:
        The number, without columns that were left out.
    """
    return len(detector.columns)
