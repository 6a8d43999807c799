"""EM for a mixture of Gaussians times tables of categories, with missing cells, a fixed tail and a background."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pscd.mixtures.background import Background
from pscd.mixtures.missing import Block, Filled
from pscd.mixtures.table_mixture import TableMixture, join


@dataclass(frozen=True)
class MixtureSettings:
    """How a mixture is fitted."""

    # Whether some rows may be contamination; without, this is maximum likelihood with shrinkage.
    background: bool = True
    wrong_cells: bool = False  # whether single cells that disagree with the others of their row are treated as missing
    first_false_alarms: float = 1e-3  # share of correct cells that the first model distrusts
    # The same of later models: fewer, because each fit without the cells that do not suit it is narrower than the one
    # before.
    false_alarms: float = 1e-4
    # Numbers of components to try in turn, until two in a row do not improve.
    components: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    clusters: int = 4  # up to so many components start at clusters of the rows, more of them as halves of fewer
    max_rows: int = 20_000  # rows used, at most
    choosing_rows: int = 20_000  # of these, rows that choose the number of components, at most
    held_out: float = 0.2  # share of the choosing rows that are held out
    min_gain: float = 3e-4  # nats a held-out row by which more components must be better
    rounds: int = 200  # of EM, at most
    tolerance: float = 1e-4  # gain of a round, in nats a row, below which EM has converged
    rows_per_component: int = 10  # at least, and at least one for each numeric column
    # Numbers in the covariances of all components, at most; the time of a round is proportional.
    max_parameters: int = 200_000
    tail_weight: float = 0.01  # of the tail in the majority
    tail_scale: float = 2.0  # deviations of the tail, relative to those of the rows that EM starts from
    # Share of the values that each box of the background leaves out on either side of a column.
    boxes: tuple[float, ...] = (0.0, 0.01, 0.03)
    # Of the background's Gaussians, in deviations of each column by its quartiles.
    robust_widths: tuple[float, ...] = (3.0,)
    widths: tuple[float, ...] = ()  # of further ones, in standard deviations
    first_share: float = 0.05  # of the background at the start; components would take contamination if it were 0
    max_share: float = 0.5  # of the background; with more, the majority would be the minority
    near: float = 0.75  # share of the rows, those with the nearest neighbours, that components start from
    pseudo_rows: float = 0.5  # times sqrt(d): rows of the pooled covariance added to each component's own
    to_diagonal: float = 0.5  # times d / n: share of the diagonal in the pooled covariance
    ridge: float = 1e-6  # share of each column's variance that is added to every covariance
    smoothing: float = 2.0  # rows with a column's overall shares that are added to each table of categories
    # Least variance of a column in which half of the cells share one value; without it any other value would cost any
    # number of nats.
    spiked_variance: float = 1.0


@dataclass(frozen=True)
class Frame:
    """What EM does not change."""

    settings: MixtureSettings  # of the fit
    tail: TableMixture  # one broad Gaussian around the majority
    background: Background | None  # densities of contamination, or None
    log_shares: Tensor  # log of the shares of the categories among all rows, `(L_1 + ...,)`
    floor: Tensor  # least variance of the numeric columns, `(d,)`

    def majority(self, components: TableMixture) -> TableMixture:
        """Components and tail."""
        return join([(1 - self.settings.tail_weight, components), (self.settings.tail_weight, self.tail)])

    def log_background(self, block: Block) -> Tensor:
        """Log of each density of the background at the rows of a block, `(n, kinds)`."""
        if self.background is None:
            return block.z.new_empty(len(block.z), 0)
        numbers = self.background.log_prob(block.z)
        if not block.codes.shape[1]:
            return numbers
        codes = self.background.log_tables[block.codes.clamp(min=0) + self.tail.table_starts]
        return numbers + codes.masked_fill(block.codes < 0, 0.0).sum(1, keepdim=True)


@dataclass
class Statistics:
    """Sums over the rows, weighted by responsibilities; `add` adds those of a block in place."""

    count: Tensor  # rows of each component, `(K,)`
    first: Tensor  # sum of the rows, `(K, d)`
    second: Tensor  # sum of their outer products, `(K, d, d)`
    tables: Tensor  # cells of each category, `(K, L_1 + ...)`

    @classmethod
    def zeros(cls, k: int, levels: Tensor) -> "Statistics":
        """Statistics of no rows."""
        d = int((levels == 0).sum())
        shapes = ((k,), (k, d), (k, d, d), (k, int(levels.sum())))
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    def add(self, block: Block, share: Tensor, model: TableMixture, filled: Filled | None = None) -> None:
        """Add rows with responsibilities `(n, K)`; `filled` has their missing numbers under the first K components."""
        count, (k, d) = share.sum(0), self.first.shape
        self.count += count
        if filled is None:
            self.first += share.T @ block.z
            if d <= k:
                self.second += (share.T @ (block.z[:, :, None] * block.z[:, None, :]).flatten(1)).view(k, d, d)
            else:
                self.second += (share.T[:, None, :] * block.z.T) @ block.z
        else:
            whole = filled.apart[:k] + model.means[:k, None]
            weighted = whole * share.T[:, :, None]
            self.first += weighted.sum(1)
            self.second += weighted.mT @ whole
            filled.add_conditional_covariances(self.second, share)
        for c, start in enumerate(model.table_starts.tolist()):
            known = block.codes[:, c] >= 0
            self.tables.index_add_(1, block.codes[known, c] + start, share[known].T)


def run_em(
    components: TableMixture, share: Tensor, x: Tensor, frame: Frame, rounds: int | None = None
) -> tuple[TableMixture, Tensor]:
    """Run EM until the mean log density converges."""
    settings, last = frame.settings, -math.inf
    blocks = list(components.blocks(x))
    spread = [frame.log_background(block) for block in blocks]
    for i in range(settings.rounds if rounds is None else rounds):
        statistics, taken, score = expect(components, share, blocks, spread, frame)
        components = maximise(statistics, components.levels, frame)
        if len(share):
            share = taken.clamp(min=1e-6)
            share = share * (settings.max_share / share.sum()).clamp(max=1)
        if i > 3 and abs(score - last) < settings.tolerance:
            break
        last = score
    return components, share


def expect(
    components: TableMixture, share: Tensor, blocks: list[Block], spread: list[Tensor], frame: Frame
) -> tuple[Statistics, Tensor, float]:
    """The E-step: statistics of the components, shares of the background's densities, mean log density."""
    majority, k = frame.majority(components), len(components.weights)
    statistics = Statistics.zeros(k, components.levels)
    taken, score, n = torch.zeros_like(share), 0.0, 0
    clean = torch.log1p(-share.sum())
    for block, log_background in zip(blocks, spread, strict=True):
        filled = majority.fill(block) if block.holes else None
        inner = majority.block_parts(block) if filled is None else majority.log_parts(filled, block.codes)
        parts = torch.cat([inner + clean, log_background + share.log()], 1)
        total = parts.logsumexp(1, keepdim=True)
        responsibility = (parts - total).exp()
        taken += responsibility[:, k + 1 :].sum(0)
        score += float(total.sum())
        n += len(parts)
        statistics.add(block, responsibility[:, :k], majority, filled)
    return statistics, taken / n, score / n


def maximise(s: Statistics, levels: Tensor, frame: Frame) -> TableMixture:
    """The M-step: covariances shrunk towards the pooled one, tables towards the shares among all rows."""
    count = s.count + 1e-8
    means = s.first / count[:, None]
    scatter = s.second - count[:, None, None] * means[:, :, None] * means[:, None, :]
    factors = torch.linalg.cholesky(shrunk(scatter, count, frame))
    sizes = levels[levels > 0].tolist()
    logs = []
    for part, overall in zip(s.tables.split(sizes, 1), frame.log_shares.exp().split(sizes), strict=True):
        smooth = part + frame.settings.smoothing * overall + 1e-12
        logs.append((smooth / smooth.sum(1, keepdim=True)).log())
    return TableMixture(count / count.sum(), means, factors, torch.cat(logs, 1) if logs else None, levels)


def shrunk(scatter: Tensor, count: Tensor, frame: Frame) -> Tensor:
    """Covariances `(K, d, d)` from scatter matrices of so many rows, `(K,)`, shrunk towards the pooled one."""
    # Towards the pooled one and not the diagonal: columns may nearly be functions of each other.
    settings, d = frame.settings, scatter.shape[1]
    if d == 0:
        return scatter
    total = float(count.sum())
    pooled = scatter.sum(0) / total
    part = min(1.0, settings.to_diagonal * d / total)
    pooled = (1 - part) * pooled + part * torch.diag(pooled.diagonal())
    extra = settings.pseudo_rows * d**0.5
    covariances = (scatter + extra * pooled) / (count + extra)[:, None, None]
    lacking = (frame.floor - torch.diagonal(covariances, dim1=1, dim2=2)).clamp(min=0.0)
    return covariances + torch.diag_embed(lacking + settings.ridge * pooled.diagonal() + 1e-12)
