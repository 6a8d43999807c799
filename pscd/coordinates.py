"""The coordinates that a network sees: columns shifted and scaled."""

from dataclasses import dataclass

import torch
from torch import Tensor

GROSS = 10.0  # interquartile ranges outside the quartiles beyond which a value does not count
QUANTILE_ROWS = 100_000  # the most rows to compute quartiles from


@dataclass(frozen=True)
class Coordinates:
    """z = (x - shift) / scale, column by column.

    Shift and scale are float64, so that columns far from 0, such as time stamps, lose no precision.

    Args:
        shift: of the shape of a row.
        scale: of the shape of a row, positive.

    >>> coordinates = Coordinates(torch.tensor([1.0]).double(), torch.tensor([2.0]).double())
    >>> coordinates.forward(torch.tensor([[5.0]]))
    tensor([[2.]])
    >>> coordinates.inverse(torch.tensor([[2.0]]))
    tensor([[5.]], dtype=torch.float64)
    """

    shift: Tensor
    scale: Tensor

    @classmethod
    def identity(cls, shape: tuple[int, ...]) -> "Coordinates":
        """Coordinates that leave rows of a given shape as they are."""
        return cls(torch.zeros(shape).double(), torch.ones(shape).double())

    @classmethod
    def standard(cls, x: Tensor) -> "Coordinates":
        """Mean 0 and standard deviation 1 for each column, gross outliers excluded.

        A value further than `GROSS` interquartile ranges outside the quartiles does not count: a single typing error
        would otherwise squeeze all other rows into a point. Clean data have no such values.

        Args:
            x: rows, `(n, *shape)`.

        Returns:
            The coordinates; the scale of a constant column is 0.
        """
        rows = x[torch.linspace(0, len(x) - 1, min(len(x), QUANTILE_ROWS), dtype=torch.float64).long()]
        rows = rows.double().flatten(1)
        low, high = (torch.quantile(rows, q, dim=0).view(x.shape[1:]) for q in (0.25, 0.75))
        reach = GROSS * (high - low)
        x = x.double()
        kept = ((x >= low - reach) & (x <= high + reach)) | (reach == 0)
        count = kept.sum(0)
        mean = (x * kept).sum(0) / count
        variance = ((x - mean).square() * kept).sum(0) / (count - 1)
        return cls(mean, variance.sqrt())

    def to(self, device: torch.device) -> "Coordinates":
        """The same coordinates on a device."""
        return Coordinates(self.shift.to(device), self.scale.to(device))

    def forward(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Rows as the network sees them.

        Args:
            x: rows in the units of the data, `(n, *shape)`.
            dtype: of the result.

        Returns:
            `(n, *shape)`.
        """
        return ((x - self.shift) / self.scale).to(dtype)

    def inverse(self, z: Tensor) -> Tensor:
        """Rows back in the units of the data, `(n, *shape)` in float64."""
        return z * self.scale + self.shift
