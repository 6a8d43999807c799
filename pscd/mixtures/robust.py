"""A robust mixture: Gaussians for the majority, and a background for rows spread thinly over the columns' ranges.

    p(z) = (1 - sum_b junk_b) [(1 - t) sum_k w_k N_k(z) + t N_tail(z)] + sum_b junk_b B_b(z)

is fitted to all rows by EM, and the background is then dropped. Its weight estimates how much junk there is, and its
responsibility for a row is the probability that the row is junk. Trimming, the usual remedy, has to be told how much to
trim, and trims the tails of clean data too; here the fit decides. Components start at rows with close neighbours, so
that none starts at junk.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pscd.coordinates import Coordinates
from pscd.mixtures.background import PLANE, Background
from pscd.mixtures.mixture import Mixture
from pscd.mixtures.neighbours import NEIGHBOUR_ROWS, isolation
from pscd.rng import Stream, generator

COMPONENTS = (1, 2, 4, 8, 16, 32, 64)  # tried in turn, until two in a row are no better
CHOOSING_ROWS = 8_000  # that choose their number, at most; all of them in the plane, where fine structure can be seen
BETTER = 1e-3  # nats a held-out row by which more components must be better
MOST_ROWS = 20_000  # that the mixture is fitted to
ROWS_PER_COMPONENT = 10  # at least, and at least one for each column
HELD_OUT = 0.2  # share of the rows that choose the number of components
KEPT, KEPT_IN_THE_PLANE = 0.9, 0.8  # share of rows, the least isolated, that components start from
FIRST_JUNK, MOST_JUNK = 0.05, 0.5  # share of the background at the start of EM, and at most
FULL = 0.98  # of what it may have: a background that has more is full
TAIL, TAIL_SCALE = 0.01, 2.0  # weight and relative width of the component that makes the mixture's tails heavier
TRACE = 0.005  # weight that the background keeps in the majority's density, in more columns than two
PSEUDO_ROWS = 0.5  # times sqrt(d): rows of the pooled covariance that are added to each component's own
TO_DIAGONAL = 0.5  # times d / n: share of the diagonal in the pooled covariance
RIDGE = 1e-6  # of each column's variance, added to every covariance
ROUNDS, LAST_ROUNDS, SETTLED = 60, 20, 2e-3  # of EM; and nats a row below which it has settled
CLUSTER_ROUNDS = 10  # of k-means
MOST_PRODUCTS = 16_000_000  # numbers that products of columns may take


@dataclass(frozen=True)
class RobustMixture:
    """Gaussians for the majority, a broad tail around them, and a background for junk.

    Args:
        components: the Gaussians of the majority.
        tail: one broad Gaussian around them.
        junk: weights of the background's densities, `(kinds,)`; empty without a background.
        background: the densities of junk, or None.
        held_out: mean log density of held-out rows in nats, background included.
        tail_weight: share of the tail in the majority.
    """

    components: Mixture
    tail: Mixture
    junk: Tensor
    background: Background | None
    held_out: float = -math.inf
    tail_weight: float = TAIL

    @property
    def share_of_junk(self) -> float:
        """The weight of the background: the estimated share of junk among the rows."""
        return float(self.junk.sum())

    @property
    def density(self) -> Mixture:
        """The density of the majority: components and tail, and in many columns a trace of the background."""
        parts = [(1 - self.tail_weight, self.components), (self.tail_weight, self.tail)]
        # Of many columns the background takes some rows that are data; without a trace of it they seem impossible.
        if self.background is not None and self.tail.means.shape[1] > PLANE:
            parts = [((1 - TRACE) * weight, part) for weight, part in parts]
            parts.append((TRACE, self.background.gaussians(self.junk / self.junk.sum())))
        weights = torch.cat([weight * part.weights for weight, part in parts])
        return Mixture(weights, *(torch.cat([getattr(p, name) for _, p in parts]) for name in ("means", "factors")))

    def log_parts(self, z: Tensor) -> Tensor:
        """Log of weight times density of components, tail and each background at rows `(n, d)`: `(n, 2 + kinds)`."""
        inner, tail = math.log(1 - self.tail_weight), math.log(self.tail_weight)
        clean = torch.stack([self.components.log_prob(z) + inner, self.tail.log_prob(z) + tail], 1)
        if self.background is None:
            return clean
        return torch.cat([clean + (1 - self.junk.sum()).log(), self.background.log_prob(z) + self.junk.log()], 1)

    def clean(self, z: Tensor) -> Tensor:
        """The probability that each of the rows `(n, d)` belongs to the majority: `(n,)`."""
        return torch.softmax(self.log_parts(z), 1)[:, :2].sum(1)


def fit_robust_mixture(
    z: Tensor,
    *,
    robust: bool,
    seed: int,
    components: Sequence[int] = COMPONENTS,
    max_rows: int = MOST_ROWS,
    coordinates: Coordinates | None = None,
) -> RobustMixture:
    """Fit the mixture to rows `(n, d)`.

    The number of components is chosen by the mean log density of held-out rows, background included. While the
    background has as much as it may have, it stands in for components that are missing, and more of them are tried. The
    last rounds of EM then use all rows.

    Args:
        z: the rows, in coordinates in which columns have comparable scales.
        robust: whether there is a background; without one this is a mixture of maximum likelihood.
        seed: the same number gives the same mixture.
        components: numbers of components to try, in turn, until two in a row are no better.
        max_rows: so many rows are looked at, at most; a part of them chooses the number of components.
        coordinates: that the rows are in, for a background that is even in the units of the data.

    Returns:
        The mixture, in float64.
    """
    rng = generator(seed, Stream.ROBUST_MIXTURE)
    rows = z[torch.randperm(len(z), generator=rng)[:max_rows]].double()
    some = rows[: CHOOSING_ROWS if z.shape[1] > PLANE else max_rows]
    n_held = int(HELD_OUT * len(some))
    held, train = some[:n_held], some[n_held:]
    background = Background.of(rows, coordinates) if robust else None
    start = near_rows(train) if robust else train
    best, best_score, worse = None, -math.inf, 0
    for k in (k for k in components if k == components[0] or len(train) >= k * max(ROWS_PER_COMPONENT, z.shape[1])):
        found = em(first(start, min(k, len(start)), background, rng), train, ROUNDS)
        score = float(found.log_parts(held).logsumexp(1).mean()) if n_held else 0.0
        if best is None or score > best_score + BETTER:
            best, best_score, worse = found, score, 0
        elif not (is_full(found) or is_full(best)) and (worse := worse + 1) == 2:
            break
    assert best is not None
    return replace(em(best, rows, LAST_ROUNDS), held_out=best_score)


def refit(found: RobustMixture, z: Tensor, *, coordinates: Coordinates | None = None) -> RobustMixture:
    """Fit a mixture to other rows, starting from the components that were found before.

    Args:
        found: where EM starts; its background, if it has one, is made anew.
        z: the rows, `(n, d)`.
        coordinates: that the rows are in, for the background.

    Returns:
        The mixture, in float64.
    """
    background = None if found.background is None else Background.of(z, coordinates)
    return em(replace(found, junk=little_junk(background, z), background=background), z, ROUNDS)


def little_junk(background: Background | None, z: Tensor) -> Tensor:
    """The weights of the background's densities at the start of EM."""
    kinds = 0 if background is None else background.kinds
    return z.new_full((kinds,), FIRST_JUNK / max(1, kinds))


def is_full(found: RobustMixture) -> bool:
    """Whether the background has as much as it may have: then it stands in for components that are missing."""
    return found.share_of_junk > FULL * MOST_JUNK


def near_rows(z: Tensor) -> Tensor:
    """The least isolated of the first `NEIGHBOUR_ROWS` rows."""
    some = z[:NEIGHBOUR_ROWS]
    away = isolation(some / (some.std(0) + 1e-12))
    return some[away <= away.quantile(KEPT if z.shape[1] > PLANE else KEPT_IN_THE_PLANE)]


def first(z: Tensor, k: int, background: Background | None, generator: torch.Generator) -> RobustMixture:
    """The start of EM: a component for each cluster of the rows, a tail around all of them, and little junk.

    Args:
        z: rows without junk, as far as is known, `(n, d)` in float64.
        k: number of components.
        background: the densities of junk, or None.
        generator: of the start of k-means.

    Returns:
        The mixture before the first round.
    """
    group = k_means(z / (z.std(0) + 1e-12), k, generator)
    d = z.shape[1]
    covariance = torch.cov(z.T, correction=0).reshape(d, d)
    ridge = torch.diag((d / (d + len(z)) + RIDGE) * covariance.diagonal() + 1e-12)
    tail = gaussians(z.new_ones(1), z.mean(0, keepdim=True), TAIL_SCALE**2 * (covariance + ridge)[None])
    components = _maximise(z, one_hot(group, k).to(z.dtype))
    return RobustMixture(components, tail, little_junk(background, z), background)


def em(found: RobustMixture, z: Tensor, rounds: int, settled: float = SETTLED) -> RobustMixture:
    """Run EM until the mean log density settles; the tail is not fitted.

    Args:
        found: where it starts.
        z: the rows, `(n, d)` in float64.
        rounds: at most.
        settled: nats a row; a round that gains less is the last.

    Returns:
        The mixture after the last round.
    """
    spread = found.background.log_prob(z) if found.background is not None else z.new_empty(len(z), 0)
    tail, last = found.tail.log_prob(z)[:, None] + math.log(found.tail_weight), -math.inf
    k, products = len(found.components.weights), _products(z)
    for i in range(rounds):
        inner = found.components.parts(z) + math.log(1 - found.tail_weight)
        clean = torch.cat([inner, tail], 1) + (1 - found.junk.sum()).log()
        parts = torch.cat([clean, spread + found.junk.log()], 1)
        total = parts.logsumexp(1, keepdim=True)
        share = (parts - total).exp()
        junk = share[:, k + 1 :].mean(0).clamp(min=1e-6)
        junk = junk * (MOST_JUNK / junk.sum()).clamp(max=1) if len(junk) else junk
        found = replace(found, components=_maximise(z, share[:, :k], products), junk=junk, held_out=-math.inf)
        score = float(total.mean())
        if i > 5 and abs(score - last) < settled:
            break
        last = score
    return found


def _maximise(z: Tensor, share: Tensor, products: Tensor | None = None) -> Mixture:
    """The components for responsibilities `(n, K)`, with covariances shrunk towards the pooled one."""
    # Towards the pooled one and not the diagonal: columns may nearly be functions of each other.
    d = z.shape[1]
    count = share.sum(0) + 1e-8
    means = share.T @ z / count[:, None]
    scatter = _scatter(z, share, means, count, products)
    pooled = scatter.sum(0) / count.sum()
    part = min(1.0, TO_DIAGONAL * d / float(count.sum()))
    pooled = (1 - part) * pooled + part * torch.diag(pooled.diagonal())
    extra = PSEUDO_ROWS * d**0.5
    ridge = RIDGE * torch.diag(z.var(0, correction=0)) + 1e-12 * torch.eye(d, dtype=z.dtype)
    covariances = (scatter + extra * pooled) / (count + extra)[:, None, None] + ridge
    return gaussians(count / count.sum(), means, covariances)


def _products(z: Tensor) -> Tensor | None:
    """Products of all pairs of columns, `(n, d d)`: with them the scatter of all components is one matrix product."""
    n, d = z.shape
    return (z[:, :, None] * z[:, None, :]).view(n, d * d) if n * d * d <= MOST_PRODUCTS else None


def _scatter(z: Tensor, share: Tensor, means: Tensor, count: Tensor, products: Tensor | None) -> Tensor:
    """Sums over the rows of share times (z - mean)(z - mean)^T, `(K, d, d)`."""
    if products is None:
        centred = (z - mean for mean in means)
        return torch.stack([(c * s[:, None]).T @ c for c, s in zip(centred, share.T, strict=True)])
    d = z.shape[1]
    raw = (share.T @ products).view(-1, d, d)
    return raw - count[:, None, None] * means[:, :, None] * means[:, None, :]


def gaussians(weights: Tensor, means: Tensor, covariances: Tensor) -> Mixture:
    """A mixture by its covariances.

    Args:
        weights: `(K,)`, summing to one.
        means: `(K, d)`.
        covariances: `(K, d, d)`.

    Returns:
        The mixture.
    """
    return Mixture(weights, means, torch.linalg.cholesky(covariances))


def k_means(z: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Cluster rows by k-means, started by k-means++.

    scikit-learn has it too, but takes twenty times as long to import as this takes to run.

    Args:
        z: rows, `(n, d)`.
        k: number of clusters.
        generator: source of randomness.

    Returns:
        The cluster of each row, `(n,)`.
    """
    centres = z[torch.randint(len(z), (1,), generator=generator)]
    for _ in range(k - 1):
        squared = torch.cdist(z, centres).square().amin(1).clamp(min=1e-12)
        centres = torch.cat([centres, z[torch.multinomial(squared, 1, generator=generator)]])
    for _ in range(CLUSTER_ROUNDS):
        group = torch.cdist(z, centres).argmin(1)
        count = torch.bincount(group, minlength=k).to(z.dtype)[:, None]
        means = torch.zeros_like(centres).index_add_(0, group, z) / count.clamp(min=1)
        centres = torch.where(count > 0, means, centres)
    return torch.cdist(z, centres).argmin(1)
