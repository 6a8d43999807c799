"""The rows of a run: in memory, or a source of more rows than fit into it."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pscd.config import TrainConfig
from pscd.data import as_rows
from pscd.data.sources import as_source
from pscd.data.streams import Sample, Source, fingerprint, sample_size
from pscd.errors import UserError
from pscd.recipes.tables import Prepared, sampled_note
from pscd.training.batches import Batches


@dataclass(frozen=True)
class TrainingRows:
    """Rows in memory, or a source with a sample of it."""

    sample: Tensor  # `(n, *shape)`, in the units of the data: all rows, or a sample of the source
    source: Source | None = None  # of all rows; None if they are in memory
    chosen: Sample | None = None  # the places of the sample in the source
    n_rows: int | None = None  # of the source, where it is known

    @classmethod
    def of(cls, x: Any, label: Tensor | None, *, stream: Any, seed: int, labelled: bool) -> "TrainingRows":
        """Hold rows that are given as `fit` takes them, or stream them."""
        source = as_source(x, stream, label=label, labelled=labelled)
        if source is None:
            return cls(as_rows(x, missing=True))
        sample = source.sample(sample_size(source.shape), seed)
        return cls(as_rows(sample.x), source, sample, source.n_rows)

    def check_label(self, label: Tensor | None, config: TrainConfig, device: torch.device) -> Tensor | None:
        """The labels of rows in memory, on the device; None without classes, or where they come with the rows."""
        if self.source is None:
            return check_label(label, len(self.sample), config, device)
        if label is not None and self.n_rows is not None:
            check_label(label, self.n_rows, config, torch.device("cpu"))
        return None

    def without(self, index: Tensor) -> "TrainingRows":
        """The same without some of the sample's rows, which are held out; rows in memory are divided elsewhere."""
        if self.source is None or self.chosen is None or not len(index):
            return self
        return replace(self, source=self.source.leaving_out(self.chosen.position[index.numpy()]))

    def checksum(self, of_rows: str) -> str:
        """The checksum of the rows in memory, as given, or that of source and sample."""
        return of_rows if self.source is None or self.chosen is None else fingerprint(self.source, self.chosen)

    def notes(self, prepared: Prepared) -> tuple[str, ...]:
        """The notes of the preparation, and whether it was that of a sample."""
        if self.source is None or self.n_rows == len(self.sample):
            return prepared.notes
        return (*prepared.notes, sampled_note(len(self.sample), self.n_rows))

    def batches(
        self, prepared: Prepared, config: TrainConfig, device: torch.device
    ) -> AbstractContextManager[Tensor | Batches]:
        """All prepared rows in memory, or batches of the source, for use in a `with` statement."""
        if self.source is None:
            return nullcontext(prepared.z.to(device))
        return Batches(self.source, prepared, config, device)


def check_label(label: Tensor | None, n: int, config: TrainConfig, device: torch.device) -> Tensor | None:
    """The labels `(n,)` for a conditional energy, on the device; None for an energy without classes."""
    classes = config.energy.classes
    if not classes:
        return None
    if label is None or label.shape != (n,):
        raise UserError(
            f"an energy with {classes} classes needs a label for each row; without labels, set energy.classes to 0"
        )
    if label.min() < 0 or label.max() >= classes:
        raise UserError(
            f"labels must lie between 0 and {classes - 1}, and one is {int(label.max())}; change energy.classes"
        )
    return label.long().to(device)
