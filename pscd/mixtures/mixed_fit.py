"""Fit a mixture to a table with missing cells, strange rows and single wrong cells.

Three things are done at once. Missing cells are marginalised, by EM. Strange rows are taken by a background beside the
mixture, as in `pscd.mixtures.robust`. Single wrong cells would spoil whole rows, so cells that do not fit the others of
their row are found with the model so far, treated as missing, and the model is fitted again, as CellMCD does with one
Gaussian (Raymaekers and Rousseeuw 2024).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pscd.mixtures.background import Background
from pscd.mixtures.missing import Block
from pscd.mixtures.mixed import MixedMixture, split_columns
from pscd.mixtures.robust import k_means
from pscd.rng import Stream, generator

COMPONENTS = (1, 2, 4, 8, 16, 32)  # tried in turn, until two in a row are no better
MOST_ROWS = 10_000  # that the mixture is fitted to
CHOOSING_ROWS = 4_000  # of them that choose the number of components
HELD_OUT = 0.25  # share of these that are predicted
BETTER = 1e-3  # nats a cell by which more components must predict better
WORST = -10.0  # log density below which a held-out cell that is not predicted counts no more
ROWS_PER_COMPONENT = 10  # at least, and at least one for each numeric column
WINSOR = 2.5  # deviations to which cells are drawn in at the very start
ROUNDS, LAST_ROUNDS, SETTLED = 40, 15, 1e-3  # of EM; and nats a row below which it has settled
FLAGGING_ROUNDS = 2  # of distrusting cells and fitting again
FALSE_ALARMS = 1e-3  # share of right cells distrusted in the fit: more would make the variances too small
MOST_WRONG = 0.3  # share of a column's cells that the fit may distrust
MOST_OF_LEVEL = 0.2  # share of the cells with one category beyond which it is a category and no mistake
FIRST_JUNK, MOST_JUNK = 0.02, 0.5  # share of the background at the start of EM, and at most
PSEUDO_ROWS = 0.5  # times sqrt(d): rows of the pooled covariance that are added to each component's own
TO_DIAGONAL = 0.5  # times d / n: share of the diagonal in the pooled covariance
RIDGE = 1e-4  # of a column's variance, added to every covariance
SMOOTHING = 2.0  # rows with the column's overall shares that are added to each table
CATEGORY_SCALE = 1.0  # of categories beside numbers, in the clusters that EM starts from


@dataclass(frozen=True)
class Shrinkage:
    """What is added to the components' own statistics.

    Args:
        pseudo_rows: rows of the pooled covariance, in units of sqrt(d).
        to_diagonal: share of the diagonal in the pooled covariance, in units of d / n.
        ridge: share of a column's variance that is added to it.
        smoothing: rows with the overall shares of the categories.
    """

    pseudo_rows: float = PSEUDO_ROWS
    to_diagonal: float = TO_DIAGONAL
    ridge: float = RIDGE
    smoothing: float = SMOOTHING


@dataclass(frozen=True)
class Fit:
    """A mixture in the making: beside it a background that takes strange rows.

    Args:
        model: the mixture.
        background: what strange rows look like in the numeric columns; None: there are none.
        junk: weights of the background's densities, `(kinds,)`.
        log_shares: log of what the background says of categories, `(L_1 + ...,)`.
        shares: of the categories among all rows, `(L_1 + ...,)`.
    """

    model: MixedMixture
    background: Background | None
    junk: Tensor
    log_shares: Tensor
    shares: Tensor

    def log_background(self, x: Tensor) -> Tensor:
        """Log of weight times density of each kind of junk at rows `(n, D)`: `(n, kinds)`."""
        if self.background is None:
            return x.new_empty(len(x), 0)
        codes = x[:, self.model.categorical].nan_to_num(nan=-1.0).long()
        found = self.log_shares[codes.clamp(min=0) + self.model.table_starts].masked_fill(codes < 0, 0.0).sum(1)
        return self.background.log_prob(x[:, self.model.numeric]) + found[:, None] + self.junk.log()


def fit_mixed(
    x: Tensor,
    levels: Sequence[int],
    *,
    seed: int,
    components: int | Sequence[int] | str = "auto",
    robust: bool = True,
    max_rows: int = MOST_ROWS,
) -> MixedMixture:
    """Fit a robust mixture to rows with missing cells, strange rows and wrong cells.

    Args:
        x: rows `(n, D)`: numbers in robust coordinates (median 0, deviation 1), codes of categories, NaN where missing.
        levels: for each column the number of its categories, 0 for a numeric one.
        seed: the same number gives the same mixture.
        components: their number, numbers to choose from, or "auto"; chosen by how well held-out cells are predicted.
        robust: whether to expect strange rows and wrong cells; if not, this is maximum likelihood with shrinkage.
        max_rows: so many rows are looked at, at most.

    Returns:
        The mixture, in float64.

    Raises:
        ValueError: no rows, or a column without any cell.

    >>> x = torch.randn(200, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> x = torch.cat([x, x, (x > 0).double()], 1)
    >>> x[3, 1] = 9.0  # wrong
    >>> x[4, 1] = float("nan")
    >>> model = fit_mixed(x, [0, 0, 2], seed=0)
    >>> model.trusted(x)[3].tolist()
    [True, False, True]
    """
    sizes = torch.tensor(list(levels), dtype=torch.long)
    split_columns(x, sizes)  # refuses what does not fit
    if x.isnan().all(0).any():
        raise ValueError("a column without any value says nothing; leave it out")
    rng = generator(seed, Stream.MIXED_MIXTURE)
    x = x[torch.randperm(len(x), generator=rng)[:max_rows]].double()
    counts = COMPONENTS if components == "auto" else (components,) if isinstance(components, int) else components
    first = _start(x, sizes, robust)
    trusted = ~x.isnan()
    if robust:
        trusted = _trusted(first.model, x)
    first = _em(first, _only(x, trusted), ROUNDS)
    for _ in range(FLAGGING_ROUNDS if robust else 0):
        trusted = _trusted(first.model, x)
        first = _em(first, _only(x, trusted), ROUNDS)
    best = _choose(first, x, trusted, [int(k) for k in counts], rng)
    for i in range(FLAGGING_ROUNDS if robust and len(best.model.weights) > 1 else 0):
        trusted = _trusted(best.model, x)
        best = _em(best, _only(x, trusted), LAST_ROUNDS if i == 0 else LAST_ROUNDS // 2)
    return best.model


def _only(x: Tensor, trusted: Tensor) -> Tensor:
    return torch.where(trusted, x, torch.nan)


def _trusted(model: MixedMixture, x: Tensor) -> Tensor:
    """Trusted cells, at least 1 - `MOST_WRONG` of the cells of each column, and of each common category."""
    trusted = model.trusted(x, FALSE_ALARMS)
    for column, size in zip(model.categorical.tolist(), model.levels[model.categorical].tolist(), strict=True):
        for code in range(size):
            # The background, or the other components, may have taken all rows of a category away from it.
            own = x[:, column] == code
            if (own & ~trusted[:, column]).sum() > MOST_OF_LEVEL * own.sum():
                trusted[own, column] = True
    there = ~x.isnan()
    distrusted = there & ~trusted
    over = (distrusted.sum(0) > MOST_WRONG * there.sum(0)).nonzero().flatten()
    if len(over):
        surprise = model.cells(x, trusted).surprise
        for j in over.tolist():
            rows = there[:, j].nonzero().flatten()
            order = (surprise[rows, j] * distrusted[rows, j]).argsort()
            trusted[rows[order[: math.ceil((1 - MOST_WRONG) * len(rows))]], j] = True
    return trusted


def _start(x: Tensor, levels: Tensor, robust: bool) -> Fit:
    """One Gaussian of rows whose cells are drawn in, and the columns' shares of categories."""
    z, codes = split_columns(x, levels)
    shares = []
    for column, size in zip(codes.T, levels[levels > 0].tolist(), strict=True):
        count = torch.bincount(column[column >= 0], minlength=size).double()
        shares.append((count + SMOOTHING / len(count)) / (count.sum() + SMOOTHING))
    table = torch.cat(shares) if shares else x.new_empty(0)
    flat = torch.cat([torch.full_like(s, 1 / len(s)) for s in shares]) if shares else x.new_empty(0)
    middle = z.nanmedian(0).values if len(z.T) else x.new_zeros(0)
    drawn = (z.nan_to_num(nan=torch.nan) - middle).clamp(-WINSOR, WINSOR).nan_to_num(nan=0.0) + middle
    share = z.new_ones(len(z), 1)
    covariance = _shrunk(
        torch.cov(drawn.T, correction=0).reshape(1, len(z.T), len(z.T)) * len(z), share.sum(0), Shrinkage()
    )
    model = MixedMixture(z.new_ones(1), drawn.mean(0, keepdim=True), covariance, table.log()[None], levels)
    background = Background.of(z) if robust and len(z.T) else None
    kinds = 0 if background is None else background.kinds
    return Fit(model, background, z.new_full((kinds,), FIRST_JUNK / max(1, kinds)), ((table + flat) / 2).log(), table)


def _choose(first: Fit, x: Tensor, trusted: Tensor, counts: list[int], rng: torch.Generator) -> Fit:
    """The number of components that predicts held-out cells best, fitted to all rows."""
    n_some = min(len(x), CHOOSING_ROWS)
    n_held = int(HELD_OUT * n_some)
    held, held_trusted, train = x[:n_held], trusted[:n_held], _only(x, trusted)[n_held:n_some]
    d = len(first.model.numeric)
    best, best_score, worse = first, -math.inf, 0
    if counts == [1] or n_held == 0:
        return first
    for k in counts:
        if k > counts[0] and len(train) < k * max(ROWS_PER_COMPONENT, d):
            break
        found = _em(_split(first, train, k, rng), train, ROUNDS)
        score = _held_out_score(found.model, held, held_trusted)
        if score > best_score + BETTER:
            best, best_score, worse = found, score, 0
        elif (worse := worse + 1) == 2:
            break
    return _em(best, _only(x, trusted), LAST_ROUNDS)


def _held_out_score(model: MixedMixture, x: Tensor, trusted: Tensor) -> float:
    """Mean log density of trusted cells given the others of their row; one that is quite wrong counts little."""
    log_prob = model.cells(x, trusted).log_prob.clamp(min=WORST)
    return float(log_prob[trusted].mean())


def _split(first: Fit, x: Tensor, k: int, rng: torch.Generator) -> Fit:
    """The start of EM: a component for each cluster of the rows, filled by the one-component model."""
    if k == 1:
        return first
    model = first.model
    whole = model.expected(x)
    z = whole[:, model.numeric]
    centred = z - z.mean(0)
    places = [centred / (centred.square().mean(0).sqrt() + 1e-12)]
    for column, size in zip(model.categorical.tolist(), model.levels[model.categorical].tolist(), strict=True):
        places.append(CATEGORY_SCALE * one_hot(whole[:, column].long(), size).to(z.dtype))
    group = k_means(torch.cat(places, 1), k, rng)
    share = one_hot(group, k).to(z.dtype)
    return replace(first, model=_maximise(_statistics(first, x, list(model.blocks(x)), share), first, Shrinkage()))


def _em(found: Fit, x: Tensor, rounds: int, shrinkage: Shrinkage | None = None) -> Fit:
    """Run EM until the mean log density settles."""
    shrinkage, last = shrinkage or Shrinkage(), -math.inf
    blocks = list(found.model.blocks(x))
    for i in range(rounds):
        statistics = _statistics(found, x, blocks)
        found = replace(found, model=_maximise(statistics, found, shrinkage), junk=statistics.junk)
        if i > 2 and abs(statistics.score - last) < SETTLED:
            break
        last = statistics.score
    return found


@dataclass(frozen=True)
class Statistics:
    """What EM needs of the rows.

    Args:
        count: rows of each component, `(K,)`.
        means: `(K, d)`.
        scatter: around these means, `(K, d, d)`.
        tables: cells of each category, `(K, L_1 + ...)`.
        junk: shares of the background's densities, `(kinds,)`.
        score: mean log density of the rows.
    """

    count: Tensor
    means: Tensor
    scatter: Tensor
    tables: Tensor
    junk: Tensor
    score: float


def _statistics(found: Fit, x: Tensor, blocks: list[Block], given: Tensor | None = None) -> Statistics:
    """The E-step; `given` are responsibilities `(n, K')` of a start with other components than the model has."""
    model = found.model
    k = len(model.weights) if given is None else given.shape[1]
    d, sizes = len(model.numeric), model.levels[model.categorical]
    count, first, second = x.new_full((k,), 1e-8), x.new_zeros(k, d), x.new_zeros(k, d, d)
    tables, junk, score = x.new_zeros(k, int(sizes.sum())), torch.zeros_like(found.junk), 0.0
    clean = (1 - found.junk.sum()).log()
    centre = model.means if given is None else model.means.expand(k, -1)
    for block in blocks:
        filled = model.fill(block)
        parts = torch.cat([model.log_parts(filled, block.codes) + clean, found.log_background(x[block.rows])], 1)
        total = parts.logsumexp(1, keepdim=True)
        score += float(total.sum())
        both = (parts - total).exp()
        junk += both[:, len(model.weights) :].sum(0)
        share = both[:, :k] if given is None else given[block.rows] * both[:, :1]
        if given is not None:  # the start: one component filled the rows for all
            filled = replace(
                filled,
                apart=filled.apart.expand(k, -1, -1),
                blocks=[(gap, inverse.expand(k, -1, -1, -1)) for gap, inverse in filled.blocks],
            )
        count += share.sum(0)
        weighted = filled.apart * share.T[:, :, None]
        first += weighted.sum(1)
        second += weighted.mT @ filled.apart
        filled.add_conditional_covariances(second, share)
        tables += _table_counts(model, block.codes, share)
    moved = first / count[:, None]
    second -= count[:, None, None] * moved[:, :, None] * moved[:, None, :]
    junk = (junk / len(x)).clamp(min=1e-6)
    junk = junk * (MOST_JUNK / junk.sum()).clamp(max=1) if len(junk) else junk
    return Statistics(count, centre + moved, second, tables, junk, score / len(x))


def _table_counts(model: MixedMixture, codes: Tensor, share: Tensor) -> Tensor:
    """Responsibility for each category of each column, summed over rows, `(K, L_1 + ...)`."""
    result = share.new_zeros(share.shape[1], int(model.levels.sum()))
    for c, start in enumerate(model.table_starts.tolist()):
        known = codes[:, c] >= 0
        result.index_add_(1, codes[known, c] + start, share[known].T)
    return result


def _maximise(s: Statistics, found: Fit, shrinkage: Shrinkage) -> MixedMixture:
    """The M-step, with covariances shrunk towards the pooled one and tables towards the shares among all rows."""
    model = found.model
    covariances = _shrunk(s.scatter, s.count, shrinkage)
    logs = []
    sizes = model.levels[model.categorical].tolist()
    for part, overall in zip(s.tables.split(sizes, 1), found.shares.split(sizes), strict=True):
        smooth = part + shrinkage.smoothing * overall + 1e-12
        logs.append((smooth / smooth.sum(1, keepdim=True)).log())
    table = torch.cat(logs, 1) if logs else s.tables
    return MixedMixture(s.count / s.count.sum(), s.means, covariances, table, model.levels)


def _shrunk(scatter: Tensor, count: Tensor, shrinkage: Shrinkage) -> Tensor:
    """Covariances from scatter matrices `(K, d, d)` of so many rows, `(K,)`."""
    d = scatter.shape[1]
    if d == 0:
        return scatter
    total = float(count.sum())
    pooled = scatter.sum(0) / total
    diagonal = torch.diag(pooled.diagonal())
    part = min(1.0, shrinkage.to_diagonal * d / total)
    pooled = (1 - part) * pooled + part * diagonal
    extra = shrinkage.pseudo_rows * d**0.5
    covariances = (scatter + extra * pooled) / (count + extra)[:, None, None]
    return covariances + shrinkage.ridge * diagonal + 1e-10 * torch.eye(d, dtype=scatter.dtype)
