"""A report that is kept up to date while a run trains."""

import sys
import time
from collections.abc import Callable

from pscd.errors import UserError
from pscd.model import Model
from pscd.report.page import write_page
from pscd.report.plane import Frames, energy_grid, read_frames, write_frames
from pscd.report.write import check_extra, run_page, write_report
from pscd.run_folder import RunFolder

EVERY = 10.0  # seconds between two versions of the file
SHARE = 0.05  # of the time that writing may take
REACH = 2.6  # deviations around the middle of the data that snapshots show


class LiveReport:
    """What `pscd train --report` hands to the training: writes the report now and then, and keeps snapshots.

    A file that cannot be written is told once, and is no reason to stop training.

    Args:
        folder: the run folder.

    Raises:
        UserError: the extra `report` is not installed.
    """

    def __init__(self, folder: RunFolder) -> None:
        check_extra()
        self.folder = folder
        self._frames = read_frames(folder.snapshots)  # of a run that goes on
        self._next = time.monotonic() + EVERY
        self._told = False

    def logged(self, row: dict[str, float]) -> None:
        """Write the report again if it is time to; called after each row of the log, which is read from the folder.

        Args:
            row: what was logged.
        """
        start = time.monotonic()
        if start >= self._next:
            self._try(lambda: write_page(run_page(self.folder, running=True), self.folder.report))
            now = time.monotonic()
            self._next = now + max(EVERY, (now - start) / SHARE)

    def checkpointed(self, model: Model, step: int) -> None:
        """Keep the energy of a model of two columns as it is now.

        Args:
            model: as of this update.
            step: number of the update.
        """
        if model.shape != (2,) or model.shift.shape != (2,):
            return
        shift, scale = model.shift.tolist(), model.scale.tolist()
        sides = [(a - REACH * b, a + REACH * b) for a, b in zip(shift, scale, strict=True)]
        frames = self._frames or Frames((), (), (*sides[0], *sides[1]))
        self._frames = frames.with_one(energy_grid(model, frames.window), step)
        if self.folder.metrics.is_file():  # nothing is written before the run itself has written something
            kept = self._frames
            self._try(lambda: write_frames(self.folder.snapshots, kept))

    def finished(self) -> bool:
        """Write the last version, for a run that has ended in whatever way.

        Returns:
            Whether there is one.
        """
        return self.folder.metrics.is_file() and self._try(lambda: write_report(self.folder.path))

    def _try(self, write: Callable[[], object]) -> bool:
        try:
            write()
            return True
        except (UserError, OSError) as error:
            if not self._told:
                print(f"the report is not written: {error}", file=sys.stderr)
            self._told = True
            return False
