"""Gaussians of which some cells of a row are missing: exact marginals and conditionals, without a cube per row.

With the precision matrix P, a row z, its missing cells M and the others O:

- the missing cells given the others are Gaussian, with mean mu_M - P_MM^-1 P_MO (z_O - mu_O) and covariance P_MM^-1;
- with them at that mean, the quadratic form of the whole row is that of the marginal of the others;
- log |Sigma_OO| = log |Sigma| + log |P_MM|;
- an observed cell j given all other observed cells has precision P_jj - P_jM P_MM^-1 P_Mj, and lies by
  (P (z - mu))_j over that precision away from its mean.

So only blocks of the size of the gaps are inverted, once for all rows with the same gaps.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pscd.mixtures.background import LOG_2PI

BLOCK_NUMBERS = 1_000_000  # numbers in the largest tensor that a block of rows needs


@dataclass(frozen=True)
class Gaps:
    """Rows that miss the same number m of cells."""

    rows: Tensor  # their indices, `(r,)`
    pattern: Tensor  # which pattern each of them has, `(r,)`
    cells: Tensor  # the missing columns of each pattern, `(p, m)`

    @property
    def of_rows(self) -> Tensor:
        """The missing columns of each row, `(r, m)`."""
        return self.cells[self.pattern]


def gaps(missing: Tensor) -> list[Gaps]:
    """The rows with missing cells, by number of missing cells and by pattern.

    >>> [g.cells.tolist() for g in gaps(torch.tensor([[True, False], [False, False], [True, False], [True, True]]))]
    [[[0]], [[0, 1]]]
    """
    count = missing.sum(1)
    found = []
    for m in count[count > 0].unique().tolist():
        rows = (count == m).nonzero().flatten()
        # Bytes compare much faster than rows of flags.
        packed = np.packbits(missing[rows].numpy(), axis=1)
        as_bytes = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1])))
        _, first, pattern = np.unique(as_bytes, return_index=True, return_inverse=True)
        cells = missing[rows[torch.from_numpy(first)]].nonzero()[:, 1].view(-1, m)
        found.append(Gaps(rows, torch.from_numpy(pattern.ravel()), cells))
    return found


@dataclass(frozen=True)
class Block:
    """Some rows of a table, numbers and categories apart."""

    rows: Tensor  # their indices in the table, `(n,)`
    z: Tensor  # their numbers, `(n, d)`, NaN where missing
    codes: Tensor  # their categories, `(n, C)`, -1 where missing
    holes: list[Gaps]  # the missing ones among their numbers


@dataclass(frozen=True)
class Filled:
    """Rows with their missing cells at the conditional mean under each of K Gaussians."""

    precision: Tensor  # of the Gaussians, `(K, d, d)`
    apart: Tensor  # filled rows less the means, `(K, n, d)`
    pull: Tensor  # precision times `apart`, `(K, n, d)`; 0 at missing cells
    log_prob: Tensor  # log density of the observed cells, `(n, K)`
    blocks: list[tuple[Gaps, Tensor]]  # the gaps, with P_MM^-1 of each pattern, `(K, p, m, m)`

    def variances(self) -> Tensor:
        """Variance of each cell given the observed other cells of its row, `(K, n, d)`."""
        diagonal = torch.diagonal(self.precision, dim1=1, dim2=2)
        result = (1 / diagonal)[:, None].expand_as(self.apart).clone()
        for gap, inverse in self.blocks:
            to_all = self.precision[:, gap.cells]
            explained = (to_all * (inverse @ to_all)).sum(2)
            of_pattern = 1 / (diagonal[:, None] - explained).clamp(min=1e-300)
            index = gap.cells.expand(len(inverse), -1, -1)
            of_pattern.scatter_(2, index, torch.diagonal(inverse, dim1=2, dim2=3))
            result[:, gap.rows] = of_pattern[:, gap.pattern]
        return result

    def add_conditional_covariances(self, scatter: Tensor, share: Tensor) -> None:
        """Add to `scatter`, `(K, d, d)`, the sum over rows of share, `(n, K)`, times Cov(missing cells | others)."""
        k, d = scatter.shape[:2]
        for gap, inverse in self.blocks:
            total = share.new_zeros(k, len(gap.cells)).index_add_(1, gap.pattern, share[gap.rows].T)
            place = gap.cells[:, :, None] * d + gap.cells[:, None, :]
            weighted = (inverse[:k] * total[:, :, None, None]).flatten(1)
            scatter.view(k, d * d).index_add_(1, place.flatten(), weighted)

    def traces(self) -> Tensor:
        """Trace of (P_l)_MM Cov_k(missing cells | others) for rows and Gaussians k, l: `(n, K, K)`."""
        k, n = self.apart.shape[:2]
        result = self.apart.new_zeros(n, k, k)
        for gap, inverse in self.blocks:
            own = sub_blocks(self.precision, gap.cells).flatten(2)
            result[gap.rows] = torch.einsum("lpi,kpi->pkl", own, inverse.flatten(2))[gap.pattern]
        return result


def fill(z: Tensor, holes: list[Gaps], means: Tensor, precision: Tensor, log_det: Tensor) -> Filled:
    """Marginalise the missing cells of rows under K Gaussians."""
    missing = z.isnan()
    apart = torch.where(missing, 0.0, z - means[:, None])
    log_dets = log_det.expand(len(z), -1).clone()
    blocks = []
    pull = apart @ precision
    for gap in holes:
        factor = torch.linalg.cholesky(sub_blocks(precision, gap.cells))
        inverse = torch.cholesky_inverse(factor)
        cells = gap.of_rows
        there = pull[:, gap.rows[:, None], cells]
        apart[:, gap.rows[:, None], cells] = -(inverse[:, gap.pattern] @ there[..., None]).squeeze(3)
        log_dets[gap.rows] += 2 * torch.diagonal(factor, dim1=2, dim2=3).log().sum(2).T[gap.pattern]
        blocks.append((gap, inverse))
    if blocks:
        pull = (apart @ precision).masked_fill(missing, 0.0)
    observed = (~missing).sum(1, keepdim=True).to(z.dtype)
    log_prob = -0.5 * ((apart * pull).sum(2).T + log_dets + LOG_2PI * observed)
    return Filled(precision, apart, pull, log_prob, blocks)


def sub_blocks(matrices: Tensor, cells: Tensor) -> Tensor:
    """Rows and columns `cells`, `(p, m)`, of K matrices `(K, d, d)`: `(K, p, m, m)`."""
    return matrices[:, cells[:, :, None], cells[:, None, :]]


def row_blocks(missing: Tensor, components: int) -> Iterator[Tensor]:
    """Indices of rows in blocks that fit the memory: complete rows first, then by their number of missing cells."""
    n, d = missing.shape
    count = missing.sum(1)
    order, whole = count.argsort(stable=True), int((count == 0).sum())
    start = 0
    while start < n:
        end = whole if start < whole else n
        size = max(64, BLOCK_NUMBERS // (components * max(1, d)))
        # The largest number of missing cells in the block is that of its last row.
        while size > 64 and size * components * d * int(count[order[min(end, start + size) - 1]]) > BLOCK_NUMBERS:
            size //= 2
        yield order[start : min(end, start + size)]
        start = min(end, start + size)
