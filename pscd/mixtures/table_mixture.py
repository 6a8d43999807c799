"""A mixture for tables with missing values and categories: Gaussians times tables of categories.

    m(x) = sum_k w_k N(z; mu_k, Sigma_k) prod_c T_kc[code of column c]

Within a component, numbers and categories are independent; their dependence is in the components. All marginals and
conditionals are exact, so missing values are integrated out.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from pscd.mixtures.missing import Block, Filled, fill, gaps, row_blocks
from pscd.mixtures.mixture import Mixture


def split_columns(x: Tensor, levels: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers and categories of rows apart."""
    if x.ndim != 2 or x.shape[1] != len(levels):
        raise ValueError(f"rows must have {len(levels)} columns, got shape {tuple(x.shape)}")
    x = x.double()
    codes, sizes = x[:, levels > 0], levels[levels > 0]
    if ((codes.frac() != 0) & ~codes.isnan() | (codes < 0) | (codes >= sizes)).any():
        raise ValueError("codes of categories must be 0, 1, ... up to one less than the number of levels, or NaN")
    return x[:, levels == 0], codes.nan_to_num(nan=-1.0).long()


class TableMixture(nn.Module):
    """A mixture on rows `(n, D)` of numbers and of codes of categories; NaN is a missing cell.

    Args:
        weights: `(K,)`, summing to one.
        means: of the d numeric columns, `(K, d)`.
        factors: lower Cholesky factors of their covariances, `(K, d, d)`.
        log_tables: log probabilities of the categories, those of one column after those of the other, `(K, L_1 + ...)`;
            none if not given.
        levels: for each column the number of its categories, 0 for a numeric one, `(D,)`; all numeric if not given.
        spread: for each numeric column the factor by which residuals of new rows exceed those of the fit, `(d,)`; one
            if not given. It widens intervals and draws.
        bounds: lowest and highest value of each numeric column that a prediction may have, `(2, d)`; none if not given.

    >>> weights, means = torch.tensor([0.5, 0.5]).double(), torch.tensor([[-1.0], [1.0]]).double()
    >>> tables = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).double()
    >>> mixture = TableMixture(weights, means, torch.ones(2, 1, 1).double(), tables.log(), torch.tensor([0, 2]))
    >>> mixture.log_prob(torch.tensor([[float("nan"), 0.0], [float("nan"), float("nan")]])).exp()
    tensor([0.5000, 1.0000], dtype=torch.float64)
    """

    log_tables: Tensor
    levels: Tensor
    spread: Tensor
    bounds: Tensor

    def __init__(
        self,
        weights: Tensor,
        means: Tensor,
        factors: Tensor,
        log_tables: Tensor | None = None,
        levels: Tensor | None = None,
        spread: Tensor | None = None,
        bounds: Tensor | None = None,
    ) -> None:
        super().__init__()
        k, d = means.shape
        self.numbers = Mixture(weights.double(), means.double(), factors.double())
        values = {
            "log_tables": torch.empty(k, 0) if log_tables is None else log_tables,
            "spread": torch.ones(d) if spread is None else spread,
            "bounds": torch.tensor([[-torch.inf], [torch.inf]]).repeat(1, d) if bounds is None else bounds,
        }
        for name, value in values.items():
            self.register_buffer(name, value.double())
        self.register_buffer("levels", torch.zeros(d).long() if levels is None else levels.long())

    def tensors(self) -> dict[str, Tensor]:
        """The arguments of `TableMixture(**tensors)`, for saving."""
        names = ("log_tables", "levels", "spread", "bounds")
        return {**self.numbers.tensors(), **{name: getattr(self, name) for name in names}}

    @property
    def weights(self) -> Tensor:
        """`(K,)`."""
        return self.numbers.weights

    @property
    def means(self) -> Tensor:
        """`(K, d)`."""
        return self.numbers.means

    @property
    def factors(self) -> Tensor:
        """`(K, d, d)`."""
        return self.numbers.factors

    @property
    def covariances(self) -> Tensor:
        """`(K, d, d)`."""
        return self.factors @ self.factors.mT

    @cached_property
    def precision(self) -> Tensor:
        """Inverse covariances of the numbers, `(K, d, d)`."""
        return torch.cholesky_inverse(self.numbers.factors)

    @cached_property
    def log_det(self) -> Tensor:
        """Log determinants of the covariances, `(K,)`."""
        return 2 * torch.diagonal(self.numbers.factors, dim1=1, dim2=2).log().sum(1)

    @property
    def numeric(self) -> Tensor:
        """Indices of the numeric columns, `(d,)`."""
        return (self.levels == 0).nonzero().flatten()

    @property
    def categorical(self) -> Tensor:
        """Indices of the categorical columns, `(C,)`."""
        return (self.levels > 0).nonzero().flatten()

    @property
    def table_starts(self) -> Tensor:
        """Where the table of each categorical column starts in `log_tables`, `(C,)`."""
        sizes = self.levels[self.categorical]
        return sizes.cumsum(0) - sizes

    def tables(self) -> list[Tensor]:
        """Probabilities of the categories of each categorical column, `(K, L)`."""
        return list(self.log_tables.exp().split(self.levels[self.categorical].tolist(), 1))

    # --- parts that the computations share ---

    def blocks(self, x: Tensor) -> Iterator[Block]:
        """Rows `(n, D)` in blocks that fit the memory, complete rows first."""
        z, codes = split_columns(x, self.levels)
        for rows in row_blocks(z.isnan(), len(self.weights)):
            yield Block(rows, z[rows], codes[rows], gaps(z[rows].isnan()))

    def fill(self, block: Block) -> Filled:
        """The missing numbers of rows marginalised under each component."""
        return fill(block.z, block.holes, self.means, self.precision, self.log_det)

    def log_categories(self, codes: Tensor) -> Tensor:
        """Log probability of each code, `(n, C)`, under each component: `(K, n, C)`, 0 where missing."""
        logs = self.log_tables[:, codes.clamp(min=0) + self.table_starts]
        return logs.masked_fill(codes < 0, 0.0)

    def log_parts(self, filled: Filled, codes: Tensor) -> Tensor:
        """Log of weight times density of the observed cells for each component, `(n, K)`."""
        return self.weights.log() + filled.log_prob + self.log_categories(codes).sum(2).T

    def block_parts(self, block: Block) -> Tensor:
        """`log_parts` of a block; complete rows take one matrix product."""
        if block.holes:
            return self.log_parts(self.fill(block), block.codes)
        return self.numbers.parts(block.z) + self.log_categories(block.codes).sum(2).T

    def parts(self, x: Tensor) -> Tensor:
        """Log of weight times density of the observed cells of rows `(n, D)` for each component, `(n, K)`."""
        result = self.weights.new_empty(len(x), len(self.weights))
        for block in self.blocks(x):
            result[block.rows] = self.block_parts(block)
        return result

    # --- rows ---

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of the observed cells of rows `(n, D)`, the others integrated and summed over: `(n,)`."""
        return self.parts(x).logsumexp(1)

    def energy(self, x: Tensor) -> Tensor:
        """The energy -log m that a row is expected to have once its missing cells are known, `(n,)`.

        The missing cells are distributed as the mixture has them given the others. For one Gaussian this is half of
        the quadratic form of the observed cells plus their missing number, and a constant: a row is neither stranger
        nor more ordinary for what is missing. For several components, the expectation of -log sum_l w_l p_l under
        component k is taken as -log sum_l w_l exp(E_k log p_l): exact where the components that a row may belong to
        are the same or far apart, and otherwise too high (Jensen's inequality), by log K at most.
        """
        result = self.weights.new_empty(len(x))
        for block in self.blocks(x):
            filled = self.fill(block)
            parts = self.log_parts(filled, block.codes)
            gap = block.z.isnan().any(1) | (block.codes < 0).any(1)
            e = -parts.logsumexp(1)
            if gap.any():
                e[gap] = self._expected_energy(filled, block.codes, parts.softmax(1))[gap]
            result[block.rows] = e
        return result

    def _expected_energy(self, filled: Filled, codes: Tensor, share: Tensor, negligible: float = 1e-4) -> Tensor:
        # Components with a responsibility below `negligible` do not count.
        traces = filled.traces()
        # sum_v T_k[v] log T_l[v] for all pairs of components, and what is known beside it.
        crossed = [t @ log.T for t, log in zip(self.tables(), self._split_logs(), strict=True)]
        missing = (codes < 0).to(share.dtype)
        guess = torch.einsum("nc,ckl->nkl", missing, torch.stack(crossed)) if crossed else torch.zeros_like(traces)
        known = self.log_categories(codes).sum(2).T + self.weights.log()
        total = share.new_zeros(len(share))
        for k in range(len(self.weights)):
            likely = (share[:, k] > negligible).nonzero().flatten()
            whole = filled.apart[k, likely] + self.means[k]
            squared = fill(whole, [], self.means, self.precision, self.log_det).log_prob - 0.5 * traces[likely, k]
            energy = -(squared + known[likely] + guess[likely, k]).logsumexp(1)
            total[likely] += share[likely, k] * energy
        return total / torch.where(share > negligible, share, 0.0).sum(1)

    def _split_logs(self) -> list[Tensor]:
        return list(self.log_tables.split(self.levels[self.categorical].tolist(), 1))

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """`(n, D)` draws, categories as codes."""
        return self.complete(self.weights.new_full((n, len(self.levels)), torch.nan), generator)

    # --- missing cells ---

    def complete(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw the missing cells of rows given the others: one imputation of several."""
        result = x.double().clone()
        for block in self.blocks(x):
            filled = self.fill(block)
            share = self.log_parts(filled, block.codes).softmax(1)
            k = torch.multinomial(share, 1, generator=generator).squeeze(1)
            drawn = filled.apart[k, torch.arange(len(k))] + self.means[k]
            for gap, inverse in filled.blocks:
                noise = torch.randn(*gap.of_rows.shape, 1, generator=generator, dtype=drawn.dtype)
                factor = torch.linalg.cholesky(inverse)[k[gap.rows], gap.pattern]
                drawn[gap.rows[:, None], gap.of_rows] += (factor @ noise).squeeze(2) * self.spread[gap.of_rows]
            guess = [torch.multinomial(t[k], 1, generator=generator) for t in self.tables()]
            self._put(result, block, drawn, guess)
        return result

    def expected(self, x: Tensor) -> Tensor:
        """The missing cells of rows `(n, D)` at their conditional mean, or at the likeliest category: `(n, D)`."""
        result = x.double().clone()
        for block in self.blocks(x):
            filled = self.fill(block)
            share = self.log_parts(filled, block.codes).softmax(1)
            mean = (torch.einsum("nk,knd->nd", share, filled.apart) + share @ self.means).clamp(*self.bounds)
            guess = [(share @ t).argmax(1, keepdim=True) for t in self.tables()]
            self._put(result, block, mean, guess)
        return result

    def _put(self, result: Tensor, block: Block, numbers: Tensor, categories: list[Tensor]) -> None:
        """Put numbers and categories into the missing cells of some rows of `result`."""
        rows, codes = block.rows[:, None], block.codes
        result[rows, self.numeric] = torch.where(block.z.isnan(), numbers, block.z)
        if categories:
            result[rows, self.categorical] = torch.where(codes < 0, torch.cat(categories, 1), codes).double()


def imputed(mixture: Mixture, z: Tensor) -> Tensor:
    """Rows of numbers `(n, d)`, NaN where missing, with missing cells at their conditional mean, in float64."""
    return TableMixture(mixture.weights, mixture.means, mixture.factors).to(z.device).expected(z)


def join(parts: Sequence[tuple[float, TableMixture]]) -> TableMixture:
    """The mixture of mixtures with so much weight each; spread and bounds are those of the first."""
    weights = torch.cat([weight * part.weights for weight, part in parts])
    means, factors, tables = (
        torch.cat([getattr(part, name) for _, part in parts]) for name in ("means", "factors", "log_tables")
    )
    first = parts[0][1]
    return TableMixture(weights, means, factors, tables, first.levels, first.spread, first.bounds)
