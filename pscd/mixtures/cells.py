"""Every cell of a table given the others of its row: how surprising it is, and what should stand there."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pscd.mixtures.background import LOG_2PI
from pscd.mixtures.missing import Block, Filled
from pscd.mixtures.table_mixture import TableMixture


@dataclass(frozen=True)
class Conditionals:
    """Numeric cells of a block of rows, each as a mixture of K normal distributions given the others of its row."""

    log_share: Tensor  # logs of the components' weights, `(K, n, d)`
    mean: Tensor  # `(K, n, d)`
    variance: Tensor  # `(K, n, d)`

    def log_densities(self, z: Tensor) -> Tensor:
        """Log of weight times density of each component at `z`, `(n, d)`: `(K, n, d)`."""
        apart = (z - self.mean).square() / self.variance
        return self.log_share - 0.5 * (apart + self.variance.log() + LOG_2PI)

    def log_peak(self, peaks: int = 4) -> Tensor:
        """The highest log density of each cell, at the means of the `peaks` highest components: `(n, d)`."""
        if len(self.mean) == 1:
            return -0.5 * (self.variance[0].log() + LOG_2PI)
        heights = self.log_share - 0.5 * self.variance.log()
        best = heights.topk(min(peaks, len(heights)), 0).indices
        means = self.mean.gather(0, best)
        return torch.stack([self.log_densities(mean).logsumexp(0) for mean in means]).amax(0)

    def log_tail(self, z: Tensor) -> Tensor:
        """Log of the two-sided tail probability at `z`, `(n, d)`: of a value as far out, on either side."""
        t = (z - self.mean) / self.variance.sqrt()
        below = (self.log_share + torch.special.log_ndtr(t)).logsumexp(0)
        above = (self.log_share + torch.special.log_ndtr(-t)).logsumexp(0)
        return (torch.minimum(below, above) + math.log(2)).clamp(max=0.0)

    def expectation(self) -> Tensor:
        """The mean of each cell, `(n, d)`."""
        return (self.log_share.exp() * self.mean).sum(0)

    def quantile(self, level: float, halvings: int = 50) -> Tensor:
        """The quantile of each cell, `(n, d)`, by bisection."""
        share, deviation = self.log_share.exp(), self.variance.sqrt()
        of_component = self.mean + deviation * math.sqrt(2) * torch.special.erfinv(
            torch.tensor(2 * level - 1, dtype=self.mean.dtype)
        )
        # The quantile of a mixture lies between those of its components.
        low, high = of_component.amin(0), of_component.amax(0)
        for _ in range(halvings if len(share) > 1 else 0):
            middle = (low + high) / 2
            below = (share * 0.5 * torch.special.erfc((self.mean - middle) / (deviation * math.sqrt(2)))).sum(0)
            low, high = torch.where(below < level, middle, low), torch.where(below < level, high, middle)
        return (low + high) / 2


@dataclass(frozen=True)
class Cells:
    """Every cell of rows `(n, D)` given the trusted other cells of its row.

    Args:
        cost: nats by which the cell is less likely than the likeliest value, `(n, D)`, at least 0; 0 where missing.
        surprise: minus the log of the probability of a value at least as unlikely, `(n, D)`: of one as far out on
            either side, for a number, of all categories that are no likelier, for a category; 0 where missing.
        log_prob: log density or log probability of the cell, `(n, D)`; 0 where missing.
        mean: the conditional mean of numbers, the likeliest category, `(n, D)`.
        model: the mixture.
        x: the rows.
        trusted: the cells that were relied on, `(n, D)`.
    """

    cost: Tensor
    surprise: Tensor
    log_prob: Tensor
    mean: Tensor
    model: TableMixture
    x: Tensor
    trusted: Tensor

    @classmethod
    def of(cls, model: TableMixture, x: Tensor, trusted: Tensor | None = None) -> "Cells":
        """The cells of rows."""
        x = x.double()
        there = ~x.isnan()
        trusted = there if trusted is None else there & trusted
        cost, surprise, log_prob, mean = (torch.zeros_like(x) for _ in range(4))
        numeric = model.numeric
        for block in model.blocks(torch.where(trusted, x, torch.nan)):
            rows, filled = block.rows, model.fill(block)
            parts = model.log_parts(filled, block.codes)
            found = _conditionals(model, block, filled, parts)
            value = x[rows][:, numeric]
            density = found.log_densities(value).logsumexp(0)
            log_prob[rows[:, None], numeric] = density.nan_to_num(nan=0.0)
            cost[rows[:, None], numeric] = (found.log_peak() - density).clamp(min=0.0).nan_to_num(nan=0.0)
            surprise[rows[:, None], numeric] = -found.log_tail(value).nan_to_num(nan=0.0)
            mean[rows[:, None], numeric] = found.expectation().clamp(*model.bounds)
            logs = model.log_categories(block.codes)
            for c, (column, table) in enumerate(zip(model.categorical.tolist(), model.tables(), strict=True)):
                chance = (parts - logs[:, :, c].T).softmax(1) @ table
                code = x[rows, column]
                own = chance.gather(1, code.nan_to_num(nan=0.0).long()[:, None])
                no_likelier = (chance * (chance <= own)).sum(1)
                known = ~code.isnan()
                log_prob[rows, column] = torch.where(known, own.squeeze(1).log(), 0.0)
                cost[rows, column] = torch.where(known, (chance.amax(1) / own.squeeze(1)).log(), 0.0)
                surprise[rows, column] = torch.where(known, -no_likelier.clamp(max=1.0).log(), 0.0)
                mean[rows, column] = chance.argmax(1).double()
        return cls(cost, surprise, log_prob, mean, model, x, trusted)

    def quantiles(self, level: float = 0.9, where: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Central intervals for cells given the trusted other cells of their rows."""
        lower, upper = torch.full_like(self.x, torch.nan), torch.full_like(self.x, torch.nan)
        numeric = self.model.numeric
        wanted = torch.ones_like(self.trusted) if where is None else where
        some = wanted[:, numeric].any(1).nonzero().flatten()
        for block in self.model.blocks(torch.where(self.trusted, self.x, torch.nan)[some]):
            rows, filled = some[block.rows], self.model.fill(block)
            found = _conditionals(self.model, block, filled, self.model.log_parts(filled, block.codes))
            i, j = wanted[rows][:, numeric].nonzero(as_tuple=True)
            cell = Conditionals(found.log_share[:, i, j], found.mean[:, i, j], found.variance[:, i, j])
            lower[rows[i], numeric[j]] = cell.quantile(0.5 - level / 2)
            upper[rows[i], numeric[j]] = cell.quantile(0.5 + level / 2)
        return lower, upper


def _conditionals(model: TableMixture, block: Block, filled: Filled, parts: Tensor) -> Conditionals:
    """Every numeric cell of rows given the others that are there."""
    variance = filled.variances()
    # A cell that is there lies pull times variance from its conditional mean; one that is missing lies at it.
    away = filled.pull * variance
    mean = model.means[:, None] + filled.apart - away
    own = -0.5 * (away.square() / variance + variance.log() + LOG_2PI)
    without = parts.T[:, :, None] - own.masked_fill(block.z.isnan(), 0.0)
    return Conditionals(without.log_softmax(0), mean, variance * model.spread.square())


def trusted_cells(model: TableMixture, x: Tensor, false_alarms: float = 1e-3, *, max_distrusted: float = 0.5) -> Tensor:
    """Which cells agree with the others of their row, `(n, D)`; false for missing and for wrong cells."""
    # The most surprising cell of a row is removed first, and the others are compared again without it, because one
    # wrong cell makes correct ones look wrong. At the end cells come back that agree with those that are left. If the
    # largest share is removed and surprises are left, the row as a whole is anomalous, and its energy shows it.
    x = x.double()
    there = ~x.isnan()
    trusted = there.clone()
    most = (max_distrusted * there.sum(1)).long().clamp(min=1)
    least = -math.log(false_alarms)
    active = torch.arange(len(x))
    while len(active):
        surprise = Cells.of(model, x[active], trusted[active]).surprise
        worst, cell = surprise.masked_fill(~trusted[active], -1.0).max(1)
        wrong = (worst > least) & ((there & ~trusted)[active].sum(1) < most[active])
        active, cell = active[wrong], cell[wrong]
        trusted[active, cell] = False
    active = (there & ~trusted).any(1).nonzero().flatten()
    while len(active):
        surprise = Cells.of(model, x[active], trusted[active]).surprise
        least_of_row, cell = surprise.masked_fill((trusted | ~there)[active], math.inf).min(1)
        right = least_of_row < least
        active, cell = active[right], cell[right]
        trusted[active, cell] = True
    return trusted
