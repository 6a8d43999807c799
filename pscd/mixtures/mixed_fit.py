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

from pscd.mixtures.background import LOG_2PI
from pscd.mixtures.cells import Cells
from pscd.mixtures.missing import Block
from pscd.mixtures.mixed import MixedMixture, split_columns
from pscd.mixtures.robust import k_means
from pscd.rng import Stream, generator

COMPONENTS = (1, 2, 4, 8, 16, 32)  # tried in turn, until two in a row are no better
MOST_ROWS = 10_000  # that the mixture is fitted to
CHOOSING_ROWS = 4_000  # of them that choose the number of components
HELD_OUT = 0.25  # share of these that are predicted
BETTER = 1e-3  # nats a cell by which more components must predict better
WORST = -7.0  # log density below which a held-out cell that is not predicted counts no more
ROWS_PER_COMPONENT = 10  # at least, and at least one for each numeric column
MOST_NUMBERS = 200_000  # in the covariances of all components: each round of EM takes so many for every row
WINSOR = 2.5  # deviations to which cells are drawn in at the very start
ROUNDS, LAST_ROUNDS, SETTLED = 40, 15, 1e-4  # of EM; and nats a cell below which it has settled
# Share of right cells distrusted by the first model and by later ones: few, because every fit without the cells that do
# not suit it is narrower than the one before.
FIRST_FALSE_ALARMS, FALSE_ALARMS = 1e-3, 1e-4
GROSS = 4.5  # distance from the median, tails compressed, beyond which the fit never trusts a cell
MOST_WRONG = 0.3  # share of a column's cells that the fit may distrust
MOST_OF_LEVEL = 0.2  # share of the cells with one category beyond which it is a category and no mistake
BROAD = 3.0  # deviation of strange rows, in robust deviations of each column
FIRST_JUNK, MOST_JUNK = 0.02, 0.5  # share of strange rows at the start of EM, and at most
PSEUDO_ROWS = 4.0  # times sqrt(d): rows of the pooled covariance that are added to each component's own
TO_DIAGONAL = 0.5  # times d / n: share of the diagonal in the pooled covariance
# Least variance of a column in which half of the cells share one value: without it, any other would cost any number
# of nats. A value that a share p of the rows has stands at asinh(1 / sqrt(p)) and with variance 1 costs about -log p.
SPIKED_FLOOR = 1.0
RIDGE = 1e-4  # of a column's variance, added to every covariance
SMOOTHING = 2.0  # rows with the column's overall shares that are added to each table
SPREAD_LEVEL = 0.9  # level of the intervals that held-out cells calibrate
SPREAD_ROWS = 30.0  # rows with the spread of all columns that are added to those of each column
NARROWEST, WIDEST = 0.8, 2.0  # spread of a column
OUTERMOST = 0.005  # share of a column's trusted cells on either side beyond which nothing is predicted


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
    """A mixture in the making: beside it a background, broad and with independent columns, that takes strange rows.

    Args:
        model: the mixture.
        junk: weight of the background, a scalar; 0: there are no strange rows.
        log_shares: log of what the background says of categories, `(L_1 + ...,)`.
        shares: of the categories among all rows, `(L_1 + ...,)`.
        floor: least variance of the numeric columns, `(d,)`.
    """

    model: MixedMixture
    junk: Tensor
    log_shares: Tensor
    shares: Tensor
    floor: Tensor

    def log_background(self, block: Block) -> Tensor:
        """Log of weight times density of the background at rows, `(n, 1)`."""
        # The columns are in robust coordinates: median 0 and deviation 1.
        numbers = -0.5 * ((block.z / BROAD).square() + LOG_2PI) - math.log(BROAD)
        codes = self.log_shares[block.codes.clamp(min=0) + self.model.table_starts].masked_fill(block.codes < 0, 0.0)
        return (numbers.nan_to_num(nan=0.0).sum(1) + codes.sum(1) + self.junk.log())[:, None]


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
    index, rng = draw_rows(len(x), seed, max_rows)
    return fit_drawn(x[index].double(), sizes, rng, components=components, robust=robust)


def draw_rows(n: int, seed: int, max_rows: int = MOST_ROWS) -> tuple[Tensor, torch.Generator]:
    """Which rows a mixture is fitted to.

    Args:
        n: number of rows there are.
        seed: of the fit.
        max_rows: so many are looked at, at most.

    Returns:
        Their indices in the order of the fit, and the source of randomness for the rest of it.
    """
    rng = generator(seed, Stream.MIXED_MIXTURE)
    return torch.randperm(n, generator=rng)[:max_rows], rng


def fit_drawn(
    x: Tensor,
    sizes: Tensor,
    rng: torch.Generator,
    *,
    components: int | Sequence[int] | str = "auto",
    robust: bool = True,
) -> MixedMixture:
    """What `fit_mixed` does with the rows that it has drawn.

    Args:
        x: the rows, in float64.
        sizes: number of categories of each column, 0 for a numeric one, `(D,)`.
        rng: as `draw_rows` returned it.
        components: as for `fit_mixed`.
        robust: as for `fit_mixed`.

    Returns:
        The mixture.
    """
    counts = COMPONENTS if components == "auto" else (components,) if isinstance(components, int) else components
    first = _flag_and_fit(_start(x, sizes, robust), x[:CHOOSING_ROWS], FIRST_FALSE_ALARMS, robust)
    best, spread = _choose(first, x, [int(k) for k in counts], robust, rng)
    for _ in range(2 if robust else 1):
        trusted = _trusted(best.model, x, FALSE_ALARMS) if robust else ~x.isnan()
        best = _em(best, _only(x, trusted), LAST_ROUNDS)
    z = _only(x, trusted)[:, sizes == 0]
    return MixedMixture(**{**best.model.tensors(), "spread": spread, "bounds": _bounds(z)})


def _bounds(z: Tensor) -> Tensor:
    """Between which values of each column predictions lie, `(2, d)`, from rows `(n, d)`."""
    if z.shape[1] == 0:
        return z.new_empty(2, 0)
    low, high = torch.nanquantile(z, z.new_tensor([OUTERMOST, 1 - OUTERMOST]), 0)
    return torch.stack([low.nan_to_num(nan=-math.inf), high.nan_to_num(nan=math.inf)])


def _flag_and_fit(found: Fit, x: Tensor, false_alarms: float, robust: bool) -> Fit:
    """Fit to the cells that the model so far trusts, and once more to those that it trusts then."""
    for _ in range(2 if robust else 1):
        trusted = _trusted(found.model, x, false_alarms) if robust else ~x.isnan()
        found = _em(found, _only(x, trusted), ROUNDS)
    return found


def _only(x: Tensor, trusted: Tensor) -> Tensor:
    return torch.where(trusted, x, torch.nan)


def _trusted(model: MixedMixture, x: Tensor, false_alarms: float) -> Tensor:
    """Trusted cells, at least a share of 1 - `MOST_WRONG` of each column, and of each common category."""
    there = ~x.isnan()
    gross = (x.abs() > GROSS) & (model.levels == 0)
    trusted = model.trusted(x.masked_fill(gross, torch.nan), false_alarms)
    for column, size in zip(model.categorical.tolist(), model.levels[model.categorical].tolist(), strict=True):
        for code in range(size):
            # The background, or the other components, may have taken all rows of a category away from it.
            own = x[:, column] == code
            if (own & ~trusted[:, column]).sum() > MOST_OF_LEVEL * own.sum():
                trusted[own, column] = True
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
    middle = z.nanmedian(0).values.nan_to_num(nan=0.0) if len(z.T) else x.new_zeros(0)
    drawn = (z - middle).clamp(-WINSOR, WINSOR).nan_to_num(nan=0.0) + middle
    share = z.new_ones(len(z), 1)
    spiked = (z == middle).sum(0) >= 0.5 * (~z.isnan()).sum(0)
    floor = torch.where(spiked, SPIKED_FLOOR, 0.0).to(z.dtype)
    scatter = torch.cov(drawn.T, correction=0).reshape(1, len(z.T), len(z.T)) * len(z)
    covariance = _shrunk(scatter, share.sum(0), Shrinkage(), floor)
    model = MixedMixture(z.new_ones(1), drawn.mean(0, keepdim=True), covariance, table.log()[None], levels)
    return Fit(model, z.new_tensor(FIRST_JUNK if robust else 0.0), ((table + flat) / 2).log(), table, floor)


def _choose(first: Fit, x: Tensor, counts: list[int], robust: bool, rng: torch.Generator) -> tuple[Fit, Tensor]:
    """The number of components that predicts held-out cells best, and how much wider these lie than it says."""
    n_some = min(len(x), CHOOSING_ROWS)
    n_held = int(HELD_OUT * n_some)
    held, train = x[:n_held], x[n_held:n_some]
    d = len(first.model.numeric)
    best, spread, best_score, worse = first, x.new_ones(d), -math.inf, 0
    if n_held == 0:
        return first, spread
    likely = _trusted(first.model, x[:n_some], FIRST_FALSE_ALARMS) if robust else ~x[:n_some].isnan()
    for k in counts:
        if k > counts[0] and (len(train) < k * max(ROWS_PER_COMPONENT, d) or k * d**2 > MOST_NUMBERS):
            break
        found = _split(first, _only(train, likely[n_held:]), k, rng)
        found = _flag_and_fit(found, train, FALSE_ALARMS, robust)
        trusted = found.model.trusted(held, FALSE_ALARMS) if robust else ~held.isnan()
        cells = found.model.cells(held, trusted)
        score = float(cells.log_prob.clamp(min=WORST)[likely[:n_held]].mean())
        if score > best_score + BETTER:
            best, spread, best_score, worse = found, _spread(cells), score, 0
        elif (worse := worse + 1) == 2:
            break
    return best, spread


def _spread(cells: Cells) -> Tensor:
    """How much wider held-out cells lie than the model says, for each numeric column, `(d,)`; wrong ones left out."""
    numeric = cells.model.numeric
    surprise, there = cells.surprise[:, numeric], (cells.trusted & ~cells.x.isnan())[:, numeric]
    # The deviations of a Gaussian whose two-sided tail is as improbable.
    away = (math.sqrt(2) * torch.special.erfinv(1 - (-surprise).exp())).masked_fill(~there, torch.nan)
    if not there.any():
        return surprise.new_ones(len(numeric))
    usual = math.sqrt(2) * torch.special.erfinv(surprise.new_tensor(SPREAD_LEVEL))
    overall = torch.nanquantile(away.flatten()[: 2**23], SPREAD_LEVEL) / usual
    own = (torch.nanquantile(away, SPREAD_LEVEL, 0) / usual).nan_to_num(nan=1.0)
    count = there.sum(0).to(own.dtype)
    return ((count * own + SPREAD_ROWS * overall) / (count + SPREAD_ROWS)).clamp(NARROWEST, WIDEST)


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
        places.append(one_hot(whole[:, column].long(), size).to(z.dtype))
    group = k_means(torch.cat(places, 1), k, rng)
    share = one_hot(group, k).to(z.dtype)
    return replace(first, model=_maximise(_statistics(first, list(model.blocks(x)), share), first, Shrinkage()))


def _em(found: Fit, x: Tensor, rounds: int, shrinkage: Shrinkage | None = None) -> Fit:
    """Run EM until the mean log density settles."""
    shrinkage, last = shrinkage or Shrinkage(), -math.inf
    blocks = list(found.model.blocks(x))
    for i in range(rounds):
        statistics = _statistics(found, blocks)
        found = replace(found, model=_maximise(statistics, found, shrinkage), junk=statistics.junk)
        if i > 2 and abs(statistics.score - last) < SETTLED * x.shape[1]:
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
        junk: share of the background, a scalar.
        score: mean log density of the rows.
    """

    count: Tensor
    means: Tensor
    scatter: Tensor
    tables: Tensor
    junk: Tensor
    score: float


def _statistics(found: Fit, blocks: list[Block], given: Tensor | None = None) -> Statistics:
    """The E-step; `given` are responsibilities `(n, K')` of a start with other components than the model has."""
    model = found.model
    k = len(model.weights) if given is None else given.shape[1]
    d, sizes = len(model.numeric), model.levels[model.categorical]
    new = found.junk.new_zeros
    count, first, second = new(k) + 1e-8, new(k, d), new(k, d, d)
    tables, junk, score, n = new(k, int(sizes.sum())), 0.0, 0.0, 0
    clean = (1 - found.junk).log()
    centre = model.means if given is None else model.means.expand(k, -1)
    for block in blocks:
        filled = model.fill(block)
        parts = torch.cat([model.log_parts(filled, block.codes) + clean, found.log_background(block)], 1)
        total = parts.logsumexp(1, keepdim=True)
        score += float(total.sum())
        both = (parts - total).exp()
        junk += float(both[:, -1].sum())
        n += len(both)
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
    share_of_junk = found.junk.new_tensor(junk / n).clamp(1e-6, MOST_JUNK) * (found.junk > 0)
    return Statistics(count, centre + moved, second, tables, share_of_junk, score / n)


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
    covariances = _shrunk(s.scatter, s.count, shrinkage, found.floor)
    logs = []
    sizes = model.levels[model.categorical].tolist()
    for part, overall in zip(s.tables.split(sizes, 1), found.shares.split(sizes), strict=True):
        smooth = part + shrinkage.smoothing * overall + 1e-12
        logs.append((smooth / smooth.sum(1, keepdim=True)).log())
    table = torch.cat(logs, 1) if logs else s.tables
    return MixedMixture(s.count / s.count.sum(), s.means, covariances, table, model.levels)


def _shrunk(scatter: Tensor, count: Tensor, shrinkage: Shrinkage, floor: Tensor) -> Tensor:
    """Covariances from scatter matrices `(K, d, d)` of so many rows, `(K,)`, with variances of at least `floor`."""
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
    covariances = covariances + shrinkage.ridge * diagonal + 1e-10 * torch.eye(d, dtype=scatter.dtype)
    lacking = (floor - torch.diagonal(covariances, dim1=1, dim2=2)).clamp(min=0.0)
    return covariances + torch.diag_embed(lacking)
