"""What a run is given to train on: rows in memory, or a source of more rows than fit into it."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pscd.config import TrainConfig
from pscd.data import as_rows
from pscd.data.sources import as_source
from pscd.data.streams import Sample, Source, fingerprint, sample_size
from pscd.recipes.tables import Prepared, sampled_note
from pscd.training.batches import Batches
from pscd.training.initial import check_label


@dataclass(frozen=True)
class Given:
    """Rows in memory, or a sample of a source.

    Args:
        rows: `(n, *shape)`, in the units of the data: all of them, or a sample.
        source: of all rows; None if they are in memory.
        sample: of the source.
        n_rows: of the source, where it is known.
    """

    rows: Tensor
    source: Source | None = None
    sample: Sample | None = None
    n_rows: int | None = None

    @classmethod
    def of(cls, x: Any, label: Tensor | None, config: TrainConfig | None) -> "Given":
        """Find out how rows are given.

        Args:
            x: rows, or what gives them; see `fit`.
            label: `(n,)`, of rows in an array.
            config: of the run; None: the default, which depends on the rows.

        Returns:
            The rows, or a sample of them.

        Raises:
            UserError: they are no rows.
        """
        seed = 0 if config is None else config.seed
        labelled = config is not None and config.energy.classes > 0
        source = as_source(x, "auto" if config is None else config.rows.stream, label=label, labelled=labelled)
        if source is None:
            return cls(as_rows(x))
        sample = source.sample(sample_size(source.shape), seed)
        return cls(as_rows(sample.x), source, sample, source.n_rows)

    def check_label(self, label: Tensor | None, config: TrainConfig, device: torch.device) -> Tensor | None:
        """The labels of rows in memory; None where there are none, or where they come with the rows.

        Args:
            label: `(n,)`, or None.
            config: of the run.
            device: where to train.

        Returns:
            The labels on the device.

        Raises:
            UserError: labels are missing or out of range.
        """
        if self.source is None:
            return check_label(label, len(self.rows), config, device)
        if label is not None and self.n_rows is not None:
            check_label(label, self.n_rows, config, torch.device("cpu"))
        return None

    def without(self, index: Tensor) -> "Given":
        """The same without some of the sample's rows, which are held out; rows in memory are divided elsewhere."""
        if self.source is None or self.sample is None or not len(index):
            return self
        return replace(self, source=self.source.leaving_out(self.sample.position[index.numpy()]))

    def checksum(self, of_rows: str) -> str:
        """What tells these rows from others.

        Args:
            of_rows: checksum of the rows in memory, or of the sample.

        Returns:
            That of the rows, or of source and sample.
        """
        return of_rows if self.source is None or self.sample is None else fingerprint(self.source, self.sample)

    def notes(self, prepared: Prepared) -> tuple[str, ...]:
        """What was found out about the rows, and whether it was on a sample."""
        if self.source is None or self.n_rows == len(self.rows):
            return prepared.notes
        return (*prepared.notes, sampled_note(len(self.rows), self.n_rows))

    def batches(
        self, prepared: Prepared, config: TrainConfig, device: torch.device
    ) -> AbstractContextManager[Tensor | Batches]:
        """What an update takes its rows from: all of them in memory, or batches of the source.

        Args:
            prepared: the rows to train on.
            config: of the run.
            device: where to train.

        Returns:
            To be used in a `with` statement.
        """
        if self.source is None:
            return nullcontext(prepared.z.to(device))
        return Batches(self.source, prepared, config, device)
