"""`write_report`: from the folder of a run or a detector to one HTML file."""

from collections.abc import Sequence
from pathlib import Path

from pscd.errors import UserError
from pscd.files import needs
from pscd.report.page import write_page
from pscd.run_folder import RunFolder


def write_report(
    run: Path | str,
    out: Path | str | None = None,
    *,
    data: Path | str | None = None,
    ids: Sequence[str] | None = None,
    seed: int = 0,
) -> Path:
    """Write a report of a run or a detector: one HTML file that opens without a network.

    Args:
        run: the folder of a trained run or of a detector.
        out: the file; by default `report.html` in the folder.
        data: rows to show, if not those of the training, or if they have moved.
        ids: columns that name a row; by default those that the detector was given.
        seed: of the samples.

    Returns:
        The path of the report.

    Raises:
        UserError: there is nothing to report on, the rows do not fit, or the extra `report` is not installed.

    >>> import pscd, tempfile
    >>> config = pscd.TrainConfig(updates=10, batch_size=32, rows=pscd.RowSettings("moon", n_data=100))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = pscd.train(config, f"{folder}/run", progress=False)
    ...     pscd.report.write_report(run).name
    'report.html'
    """
    check_extra()
    folder = RunFolder(Path(run))
    rows = None if data is None else Path(data), None if ids is None else tuple(ids), seed
    if folder.path.is_dir() and folder.is_detector:
        from pscd.report.detector import detector_page

        page = detector_page(folder, *rows)
    elif folder.path.is_dir() and folder.config.is_file():
        from pscd.report.run import run_page

        page = run_page(folder, *rows)
    else:
        what = "holds no run and no detector" if folder.path.exists() else "no such folder"
        raise UserError(f"{run}: {what}; give the folder of a trained run or of a detector")
    return write_page(page, Path(out) if out is not None else folder.report)


def check_extra() -> None:
    """Raise a `UserError` with what to install, before any work is done."""
    for module in ("altair", "vl_convert", "jinja2"):
        needs(module, "report", "a report")
