"""A robust model of a table: a mixture for the majority beside a background for contamination.

    p(x) = (1 - s) [(1 - t) m(x) + t tail(x)] + sum_b s_b background_b(x),    s = sum_b s_b

is fitted to all rows by EM, with missing cells integrated out. The background is then dropped: s estimates the share of
contamination, and the responsibility of the rest for a row is the probability that the row is clean. Components start
at rows with close neighbours, so that none starts at contamination. Their number is chosen by the log density of
held-out rows. Single wrong cells, which would spoil entire rows, can be treated as missing, as Raymaekers and
Rousseeuw (2024) do for one Gaussian.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pscd.coordinates import Coordinates
from pscd.mixtures.background import Background
from pscd.mixtures.em import Frame, MixtureSettings, Statistics, maximise, run_em
from pscd.mixtures.missing import Block
from pscd.mixtures.mixture import Mixture
from pscd.mixtures.neighbours import NEIGHBOUR_ROWS, isolation
from pscd.mixtures.table_mixture import TableMixture, split_columns
from pscd.mixtures.trust import calibrated, likely_cells, only
from pscd.rng import Stream, generator


@dataclass(frozen=True)
class RobustMixture:
    """A mixture for the majority of the rows and a background for contamination.

    Args:
        components: the mixture of the majority.
        frame: tail and background, and how they were fitted.
        shares: weights of the background's densities, `(kinds,)`; empty without a background.
        held_out: mean log density of held-out rows in nats, background included.
    """

    components: TableMixture
    frame: Frame
    shares: Tensor
    held_out: float = -math.inf

    @property
    def contamination(self) -> float:
        """The weight of the background: the estimated share of contamination."""
        return float(self.shares.sum())

    @cached_property
    def majority(self) -> TableMixture:
        """Components and tail: the density of clean rows."""
        return self.frame.majority(self.components)

    @property
    def density(self) -> Mixture:
        """The density of the numbers of clean rows."""
        return self.majority.numbers

    @property
    def is_full(self) -> bool:
        """Whether the background has the largest allowed share: then it replaces components that are missing."""
        return len(self.shares) > 0 and self.contamination > 0.98 * self.frame.settings.max_share

    def log_parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log of weight times density of the majority, `(n,)`, and of each background, `(n, kinds)`."""
        clean, spread = x.new_empty(len(x)).double(), x.new_empty(len(x), len(self.shares)).double()
        for block in self.majority.blocks(x):
            clean[block.rows] = self.majority.block_parts(block).logsumexp(1) + torch.log1p(-self.shares.sum())
            spread[block.rows] = self.frame.log_background(block) + self.shares.log()
        return clean, spread

    def log_density(self, x: Tensor) -> Tensor:
        """Log density of rows `(n, D)`, background included: `(n,)`."""
        clean, spread = self.log_parts(x)
        return torch.cat([clean[:, None], spread], 1).logsumexp(1)

    def p_clean(self, x: Tensor) -> Tensor:
        """The probability that each of the rows `(n, D)` belongs to the majority: `(n,)`."""
        clean, spread = self.log_parts(x)
        return torch.cat([clean[:, None], spread], 1).softmax(1)[:, 0]

    def completed(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Rows `(n, D)` with their missing cells drawn given the others; rows without missing cells as they are."""
        return self.majority.complete(x, generator) if x.isnan().any() else x

    def refitted(self, x: Tensor) -> "RobustMixture":
        """EM goes on with other rows `(n, D)` of the same table."""
        return converged(self, x)


def fit_mixture(
    x: Tensor,
    levels: Sequence[int] | Tensor | None = None,
    *,
    seed: int,
    settings: MixtureSettings | None = None,
    coordinates: Coordinates | None = None,
) -> RobustMixture:
    """Fit the mixture to rows with contamination, missing values and categories.

    Args:
        x: rows `(n, D)`: numbers in coordinates in which columns have comparable scales, codes of categories, NaN where
            missing.
        levels: for each column the number of its categories, 0 for a numeric one; by default all are numeric.
        seed: the same number gives the same mixture.
        settings: of the fit.
        coordinates: of the numbers, for a background that is even in the units of the data.

    Returns:
        The mixture, in float64.

    Raises:
        ValueError: a column without any value, or codes that are not 0, 1, ... below their number.

    >>> rng = torch.Generator().manual_seed(0)
    >>> clean, contamination = torch.randn(900, 2, generator=rng), 20 * torch.rand(100, 2, generator=rng) - 10
    >>> mixture = fit_mixture(torch.cat([clean, contamination]), seed=0)
    >>> round(mixture.contamination, 1)
    0.1
    """
    settings = settings or MixtureSettings()
    sizes = torch.zeros(x.shape[1]).long() if levels is None else torch.as_tensor(levels).long()
    split_columns(x, sizes)  # refuses invalid codes
    if x.isnan().all(0).any():
        raise ValueError("a column has no values at all; leave it out")
    rng = generator(seed, Stream.ROBUST_MIXTURE)
    rows = x[torch.randperm(len(x), generator=rng)[: settings.max_rows]].double()
    choosing = rows[: settings.choosing_rows]
    held, train = choosing.split([n := int(settings.held_out * len(choosing)), len(choosing) - n])
    first = first_component(rows, sizes, settings, coordinates)
    if settings.wrong_cells:
        first = without_wrong_cells(first, choosing, settings.first_false_alarms)
        held, likely = (
            only(part, likely_cells(first.components, part, settings.first_false_alarms)) for part in (held, train)
        )
    else:
        likely = train
    best, candidate, worse, d = first, first, 0, int((sizes == 0).sum())
    for k in settings.components:
        is_large = len(train) < k * max(settings.rows_per_component, d) or k * d**2 > settings.max_parameters
        if is_large and best.held_out > -math.inf:
            break
        # Components split from settled ones are better placed than those that all start at once.
        is_split = d > 0 and k > settings.clusters and k == 2 * len(candidate.components.weights)
        candidate = converged(split(candidate) if is_split else start(first, likely, k, rng), train)
        score = float(candidate.log_density(held).mean()) if len(held) else 0.0
        if score > best.held_out + settings.min_gain:
            best, worse = replace(candidate, held_out=score), 0
        elif not (candidate.is_full or best.is_full) and (worse := worse + 1) == 2:
            break
    k = len(best.components.weights)
    if k > settings.clusters and len(held):
        again = converged(start(first, likely, k, rng), train)
        score = float(again.log_density(held).mean())
        best = replace(again, held_out=score) if score > best.held_out else best
    if best.is_full and not settings.wrong_cells:  # what is as large as the majority is no contamination
        return fit_mixture(x, sizes, seed=seed, settings=replace(settings, background=False), coordinates=coordinates)
    final = replace(converged(best, rows), held_out=best.held_out)
    if not settings.wrong_cells:
        return final
    return replace(final, components=calibrated(final.components, best.components, held, rows))


def first_component(
    x: Tensor, levels: Tensor, settings: MixtureSettings, coordinates: Coordinates | None, winsor: float = 2.5
) -> RobustMixture:
    """One Gaussian of the rows, winsorised, the tail around it, and the background."""
    z, codes = split_columns(x, levels)
    sizes = levels[levels > 0].tolist()
    counts = [torch.bincount(c[c >= 0], minlength=size).double() for c, size in zip(codes.T, sizes, strict=True)]
    shares = [(c + settings.smoothing / len(c)) / (c.sum() + settings.smoothing) for c in counts]
    table = torch.cat(shares) if shares else z.new_empty(0)
    flat = torch.cat([torch.full_like(s, 1 / len(s)) for s in shares]) if shares else table
    middle = z.nanmedian(0).values if z.shape[1] else z.new_empty(0)
    drawn = (z - middle).clamp(-winsor, winsor).nan_to_num(nan=0.0) + middle
    spiked = (z == middle).sum(0) >= 0.5 * (~z.isnan()).sum(0)
    background = None
    if settings.background:
        background = Background.of(
            z,
            boxes=settings.boxes,
            robust_widths=settings.robust_widths,
            widths=settings.widths,
            log_tables=((table + flat) / 2).log(),
            coordinates=coordinates,
        )
    k, d = 1, z.shape[1]
    blank = TableMixture(z.new_ones(k), z.new_zeros(k, d), torch.eye(d)[None], table.log()[None], levels)
    floor = torch.where(spiked, settings.spiked_variance, 0.0).double()
    frame = Frame(settings, blank, background, table.log(), floor)
    statistics = Statistics.zeros(k, levels)
    statistics.add(Block(torch.arange(len(z)), drawn, codes, []), z.new_ones(len(z), k), blank)
    components = maximise(statistics, levels, frame)
    factors = settings.tail_scale * components.factors
    tail = TableMixture(components.weights, components.means, factors, components.log_tables, levels)
    kinds = 0 if background is None else background.kinds
    start = z.new_full((kinds,), settings.first_share / max(1, kinds))
    return RobustMixture(components, replace(frame, tail=tail), start)


def start(first: RobustMixture, x: Tensor, k: int, rng: torch.Generator) -> RobustMixture:
    """A component for each of k clusters of rows with near neighbours; missing cells as the first component expects."""
    model, settings = first.components, first.frame.settings
    whole = model.expected(x[:NEIGHBOUR_ROWS])
    z = whole[:, model.numeric]
    places = [(z - z.mean(0)) / (z.square().mean(0).sqrt() + 1e-12)]
    for column, size in zip(model.categorical.tolist(), model.levels[model.categorical].tolist(), strict=True):
        places.append(one_hot(whole[:, column].long(), size).to(z.dtype))
    place = torch.cat(places, 1)
    if settings.background and len(place) > 20:
        away = isolation(place)
        is_near = away <= away.quantile(settings.near)
        whole, place = whole[is_near], place[is_near]
    k = min(k, len(whole))
    share = one_hot(k_means(place, k, rng), k).to(z.dtype)
    statistics = Statistics.zeros(k, model.levels)
    for block in model.blocks(whole):
        statistics.add(block, share[block.rows], model)
    return replace(first, components=maximise(statistics, model.levels, first.frame))


def split(model: RobustMixture, apart: float = 0.5) -> RobustMixture:
    """Every component in two halves, `apart` deviations to either side along its longest axis, with its moments."""
    old = model.components
    axes = torch.linalg.eigh(old.covariances)
    step = apart * axes.eigenvalues[:, -1:].sqrt() * axes.eigenvectors[:, :, -1]
    factors = torch.linalg.cholesky(old.covariances - step[:, :, None] * step[:, None, :])
    halves = TableMixture(
        torch.cat([old.weights, old.weights]) / 2,
        torch.cat([old.means - step, old.means + step]),
        torch.cat([factors, factors]),
        torch.cat([old.log_tables, old.log_tables]),
        old.levels,
    )
    return replace(model, components=halves)


def converged(model: RobustMixture, x: Tensor) -> RobustMixture:
    """The mixture after EM on rows `(n, D)`."""
    if model.frame.settings.wrong_cells:
        return without_wrong_cells(model, x, model.frame.settings.false_alarms)
    components, shares = run_em(model.components, model.shares, x, model.frame)
    return replace(model, components=components, shares=shares)


def without_wrong_cells(model: RobustMixture, x: Tensor, false_alarms: float) -> RobustMixture:
    """Fit to the cells that the model trusts, and once more to those that it trusts then."""
    for _ in range(2):
        trusted = only(x, likely_cells(model.components, x, false_alarms))
        components, shares = run_em(model.components, model.shares, trusted, model.frame)
        model = replace(model, components=components, shares=shares)
    return model


def k_means(z: Tensor, k: int, generator: torch.Generator, rounds: int = 10) -> Tensor:
    """Cluster of each of n rows `(n, d)` by k-means, started by k-means++: `(n,)`."""
    # scikit-learn's takes twenty times as long to import as this takes to run.
    centres = z[torch.randint(len(z), (1,), generator=generator)]
    for _ in range(k - 1):
        squared = torch.cdist(z, centres).square().amin(1).clamp(min=1e-12)
        centres = torch.cat([centres, z[torch.multinomial(squared, 1, generator=generator)]])
    for _ in range(rounds):
        group = torch.cdist(z, centres).argmin(1)
        count = torch.bincount(group, minlength=k).to(z.dtype)[:, None]
        means = torch.zeros_like(centres).index_add_(0, group, z) / count.clamp(min=1)
        centres = torch.where(count > 0, means, centres)
    return torch.cdist(z, centres).argmin(1)
