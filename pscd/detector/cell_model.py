"""The distribution of each cell of a table, given the trusted cells of its row."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from pscd.coordinates import Coordinates
from pscd.mixtures import MixtureSettings, TableMixture, fit_mixture
from pscd.rng import Stream, generator

# Cells are predicted from fewer components than densities have, and from fewer rows, since each cell takes its time;
# and from more shrunken ones, since a component that is too narrow makes correct cells look wrong. For the same reason
# there are no boxes: they would take the rows of columns with a bounded range, such as a time of day.
SETTINGS = MixtureSettings(
    wrong_cells=True,
    boxes=(),
    first_share=0.02,
    max_rows=10_000,
    choosing_rows=4_000,
    held_out=0.25,
    components=(1, 2, 4, 8, 16, 32),
    near=0.85,
    pseudo_rows=4.0,
    ridge=1e-4,
)


@dataclass(frozen=True)
class Drawn:
    """Random rows of the table, `(m, V)`, that a mixture is fitted to once it is needed, and the seed of the fit."""

    rows: Tensor
    seed: int


@dataclass(frozen=True)
class CellModel:
    """A robust mixture of the columns that vary, in coordinates in which numbers have comparable scales."""

    columns: Coordinates | None  # of the numeric columns; None if no number varies
    source: TableMixture | Drawn  # of the columns that vary, or the rows to fit it to
    levels: Tensor  # number of categories of each column, 0 for a number, `(D,)`
    varies: Tensor  # which columns the mixture sees, `(D,)`
    constants: Tensor  # value of the others, `(D,)`; NaN for a column without values

    @classmethod
    def fit(cls, x: Tensor, levels: Tensor, *, seed: int) -> "CellModel":
        """Choose the coordinates of rows `(n, D)`, and draw rows for the mixture, which is fitted at its first use."""
        columns, varies, constants = _varying(x, levels)
        index = torch.randperm(len(x), generator=generator(seed, Stream.MIXED_MIXTURE))[: SETTINGS.max_rows]
        unfitted = cls(columns, Drawn(x[:0], seed), levels, varies, constants)
        return replace(unfitted, source=Drawn(unfitted.forward(x[index]), seed))

    @cached_property
    def mixture(self) -> TableMixture:
        """The mixture of the columns that vary, numbers and categories."""
        if isinstance(self.source, TableMixture):
            return self.source
        levels = self.levels[self.varies]
        return fit_mixture(self.source.rows, levels, seed=self.source.seed, settings=SETTINGS).components

    @cached_property
    def numbers(self) -> Tensor:
        """Which of the columns that the mixture sees are numbers, `(V,)`."""
        return self.levels[self.varies] == 0

    @cached_property
    def all_vary(self) -> bool:
        """Whether the mixture sees every column."""
        return bool(self.varies.all())

    @cached_property
    def only_numbers(self) -> bool:
        """Whether no column is one of categories."""
        return self.columns is not None and not bool(self.levels.any())

    def forward(self, x: Tensor) -> Tensor:
        """Rows `(n, D)` as the mixture sees them, `(n, V)`."""
        if self.only_numbers:
            assert self.columns is not None
            return self.columns.forward(x.double(), torch.float64)
        z = x.double()[:, self.varies].clone()
        if self.columns is not None:
            z[:, self.numbers] = self.columns.forward(x[:, self.levels == 0].double(), torch.float64)
        return z

    def inverse(self, z: Tensor) -> Tensor:
        """Rows of the mixture `(n, V)` in the units of the table, `(n, D)`; other columns have their constants."""
        x = self.constants.expand(len(z), -1).clone()
        x[:, self.varies] = z
        if self.columns is not None:
            x[:, self.levels == 0] = self.columns.inverse(z[:, self.numbers])
        return x

    def spread(self, values: Tensor) -> Tensor:
        """Values of the mixture's columns `(n, V)` for all columns of the rows, `(n, D)`, 0 for the others."""
        result = values.new_zeros(len(values), len(self.varies))
        result[:, self.varies] = values
        return result

    def is_new(self, x: Tensor) -> Tensor:
        """Which cells of rows `(n, D)` hold a new value in a column that is constant in the training rows."""
        return (x != self.constants) & ~x.isnan() & ~self.varies

    def category_energy(self, z: Tensor) -> Tensor:
        """Energy of the categories of rows `(n, V)` given their numbers, -log m(categories | numbers): `(n,)`."""
        if self.only_numbers or self.numbers.all():  # the first is quicker to answer
            return z.new_zeros(len(z))
        if not self.numbers.any():
            return self.mixture.energy(z)
        return self.mixture.energy(z) - self._marginal.energy(z[:, self.numbers])

    def category_log_prob(self, z: Tensor) -> Tensor:
        """Log probability of the observed categories given the observed numbers: `(n,)`."""
        if self.numbers.all():
            return z.new_zeros(len(z))
        numbers = self._marginal.log_prob(z[:, self.numbers]) if self.numbers.any() else 0.0
        return self.mixture.log_prob(z) - numbers

    @property
    def _marginal(self) -> TableMixture:
        """The mixture of the numbers alone."""
        mixture = self.mixture
        return TableMixture(mixture.weights, mixture.means, mixture.factors)

    def tensors(self) -> dict[str, Tensor]:
        """What a file holds of the model, besides the coordinates."""
        own = {"levels": self.levels, "varies": self.varies, "constants": self.constants}
        return own | {f"mixture.{name}": t for name, t in self.mixture.tensors().items()}


def _varying(x: Tensor, levels: Tensor) -> tuple[Coordinates | None, Tensor, Tensor]:
    """Coordinates of the numbers, which columns vary, and the value of those that do not."""
    first = torch.where(x.isnan(), torch.inf, x).amin(0)
    last = torch.where(x.isnan(), -torch.inf, x).amax(0)
    varies = last > first
    if not varies.any():
        raise ValueError("all columns are constant; there is nothing to learn from them")
    constants = torch.where(first.isfinite(), first, torch.nan)
    numbers = levels == 0
    if not (numbers & varies).any():
        return None, varies, constants
    columns = Coordinates.robust(x[:, numbers])
    assert columns.used is not None
    assert columns.constants is not None
    constants[numbers] = torch.where(columns.used, torch.nan, columns.constants)
    return columns, varies, constants
