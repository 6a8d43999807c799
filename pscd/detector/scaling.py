"""The columns of a table in coordinates that outliers cannot spoil."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from torch import Tensor

GAUSSIAN_IQR = 1.349  # interquartile range of a standard Gaussian
LINEAR = 3.0  # deviations up to which a column is nearly linear
SPIKED_LINEAR = 1.0  # the same where most rows share one value


@dataclass(frozen=True)
class Columns:
    """z = a asinh((x - centre) / (a scale)), column by column: linear in the bulk, logarithmic in the tails.

    Centre is the median and scale the interquartile range, so that up to a quarter of junk on either side
    moves them little, and a value a thousand deviations out ends up at 20. Columns that never vary are
    left out.

    Args:
        kept: `(d,)`, which columns vary.
        centre: `(k,)`, of those that do; so are the others.
        scale: a deviation.
        spiked: whether at least half of the rows share one value.
    """

    kept: Tensor
    centre: Tensor
    scale: Tensor
    spiked: Tensor

    @classmethod
    def fit(cls, x: Tensor) -> Self:
        """Read centre and scale off rows `(n, d)` in float64; a column needs two different values to count."""
        kept = (x != x[0]).any(0)
        if not kept.any():
            raise ValueError("all columns are constant; there is nothing to learn from them")
        x = x[:, kept]
        low, centre, high = torch.from_numpy(np.quantile(x.numpy(), [0.25, 0.5, 0.75], axis=0))
        scale = (high - low) / GAUSSIAN_IQR
        spiked = (x == centre).double().mean(0) >= 0.5
        for j in (spiked | (scale == 0)).nonzero().flatten().tolist():
            scale[j] = _spread_of_the_rest(x[:, j], centre[j])
        return cls(kept, centre, scale, spiked)

    @property
    def _linear(self) -> Tensor:
        return torch.where(self.spiked, SPIKED_LINEAR, LINEAR).double()

    def forward(self, x: Tensor) -> Tensor:
        """Rows `(n, d)` to `(n, k)`."""
        return self._linear * torch.asinh((x[:, self.kept] - self.centre) / (self._linear * self.scale))

    def inverse(self, z: Tensor, constants: Tensor) -> Tensor:
        """Back to `(n, d)`; columns left out take the values in `constants`, `(d,)`."""
        x = constants.expand(len(z), -1).clone()
        x[:, self.kept] = torch.sinh(z / self._linear) * self._linear * self.scale + self.centre
        return x

    def log_slope(self, x: Tensor) -> Tensor:
        """Sum over columns of log dz/dx, `(n,)`: what turns a density of z into one of x."""
        u = (x[:, self.kept] - self.centre) / (self._linear * self.scale)
        return -(self.scale.log() + 0.5 * torch.log1p(u.square())).sum(1)

    def tensors(self) -> dict[str, Tensor]:
        """What `Columns(**tensors)` needs, for saving."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _spread_of_the_rest(x: Tensor, centre: Tensor) -> Tensor:
    """Scale of a column that mostly has one value: typical distance of the others times the root of their share.

    This is the standard deviation of a column with two values, and unlike it does not follow a gross outlier.

    Returns:
        A scalar.
    """
    away = (x - centre).abs()
    others = away[away > 0]
    return others.median() * (len(others) / len(x)) ** 0.5
