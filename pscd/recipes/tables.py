"""The recipe for a table: coordinates, ties, missing values, a robust mixture that weighs rows, and gamma.

Every table gets a mixture with a background for contamination. A row is drawn for training in proportion to its
probability of being clean, so where nothing looks like contamination, all rows count, and nothing has to be decided.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from pscd.config import TrainConfig
from pscd.coordinates import Coordinates
from pscd.data.streams import SAMPLE_ROWS, distinct
from pscd.errors import UserError
from pscd.mixtures import Mixture, MixtureSettings, RobustMixture, Ties, fit_mixture
from pscd.recipes.images import Majority, weigh_images
from pscd.recipes.notes import notes_of
from pscd.rng import Stream, generator

BLOCK = 16_384  # rows at a time


@dataclass(frozen=True)
class TableSettings:
    """How tables are prepared."""

    few_columns: int = 2  # up to so many, densities are fitted in detail; with more, noise would be
    choosing_rows: int = 4_000  # that choose the coordinates, at most
    choosing_components: int = 4  # of the mixtures that choose them; few, since tails matter and not details
    reach_draws: int = 50_000  # draws of the proposal that tell how far chains come
    reach_share: float = 2e-4  # of these draws beyond which a row is out of reach

    def mixture(self, n: int, d: int) -> MixtureSettings:
        """How a mixture of n rows of d columns is fitted."""
        if d > self.few_columns:
            return MixtureSettings(choosing_rows=8_000)
        # In one or two columns there are rows enough for fine structure, and for a background as fine.
        return MixtureSettings(
            robust_widths=(1.5, 2.0, 3.0),
            widths=(1.5, 2.0, 3.0),
            tail_weight=min(0.01, 0.3 / math.sqrt(n)),
        )


@dataclass(frozen=True)
class Prepared:
    """Rows as the network sees them, and what a robust mixture says about them."""

    z: Tensor  # `(n, *shape)` in float32, missing values drawn from the mixture
    coordinates: Coordinates  # from the units of the data to `z`
    mixture: RobustMixture | None = None  # fitted to `z`, if the configuration asks for one
    clean: Tensor | None = None  # `(n,)`, probability of the majority; None: all count alike
    notes: tuple[str, ...] = ()  # sentences for the user
    ties: Ties | None = None  # values of the columns that are dequantised, where there is a mixture
    edge: float = -math.inf  # log density of the proposal below which rows are out of its reach
    judged: Mixture | None = None  # the majority without held-out rows, if `mixture` has seen them
    majority: Majority | None = None  # of images, if some of them do not look like it

    @property
    def learnt_from(self) -> Mixture:
        """The density that a network learns to correct, fitted without the rows that are held out."""
        assert self.mixture is not None
        return self.mixture.density if self.judged is None else self.judged

    def chances(self, z: Tensor) -> Tensor | None:
        """The probability that rows `(n, d)` belong to the majority, 0 out of reach; None if all count alike."""
        if self.mixture is None:
            return None
        is_beyond = self.beyond(z)
        if not len(self.mixture.shares) and not is_beyond.any():
            return None
        return torch.where(is_beyond, 0.0, self.mixture.p_clean(z))

    def beyond(self, z: Tensor) -> Tensor:
        """Which of the rows `(n, d)` no chain reaches, so that nothing would hold their energy up: `(n,)`."""
        if self.mixture is None or self.edge == -math.inf:
            return torch.zeros(len(z), dtype=torch.bool)
        return self._proposal.log_prob(z) < self.edge

    @cached_property
    def _proposal(self) -> Mixture:
        assert self.mixture is not None
        return proposal_of(self.mixture)

    def transform(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Bring other rows of the same data into the same form."""
        if self.ties is None or self.mixture is None:
            return self.coordinates.forward(x), None if self.majority is None else self.majority.holds(x).double()
        z = self.coordinates.forward(self.ties.spread(x.double(), generator), torch.float64)
        clean = self.chances(z)
        return self.mixture.completed(z, generator).float(), clean


def prepare(x: Tensor, config: TrainConfig, columns: tuple[str, ...] | None = None) -> tuple[Prepared, TrainConfig]:
    """Bring rows `(n, *shape)`, with NaN as missing, into the form that training needs; gamma `auto` gets a number."""
    if x.isnan().any() and not (config.rows.start == "mixture" and x.ndim == 2):
        raise UserError("missing values need a table and a mixture that completes them; set rows.start to mixture")
    if config.rows.start == "glance":
        return _prepare_images(x, config), config
    if x.ndim == 2 and len(x) > SAMPLE_ROWS:
        return _prepare_large(x, config, columns)
    if config.rows.start == "none":
        if is_auto(config):
            raise UserError("gamma auto follows from a robust mixture; set start to mixture, or give gamma a number")
        coordinates = coordinates_of(x, config, columns)
        return Prepared(coordinates.forward(x), coordinates), config
    if x.ndim != 2:
        raise UserError("a mixture to start from needs a table, not images; set start to glance or none")
    return _prepare_table(x, config, columns)


def _prepare_table(x: Tensor, config: TrainConfig, columns: tuple[str, ...] | None) -> tuple[Prepared, TrainConfig]:
    settings = TableSettings()
    ties = Ties.of(x.double())
    rng = generator(config.seed, Stream.DEQUANTISE)
    rows = ties.spread(x.double(), rng)
    is_robust = is_auto(config) or float(config.objective.gamma) > 0
    fitting = replace(settings.mixture(*x.shape), background=is_robust)
    coordinates = _best_coordinates(rows, _candidates(x, config, columns), fitting, settings, config.seed)
    z = coordinates.forward(rows, torch.float64)
    mixture = fit_mixture(z, seed=config.seed, settings=fitting, coordinates=coordinates)
    judged = None
    if config.rows.hold_out:
        rest, _ = split_rows(len(z), config)
        judged = mixture.refitted(z[rest[: fitting.max_rows]]).density
    # A bounded network cannot sink where no chain comes; and a mixture of many columns is too rough to say where.
    is_free = config.energy.name != "corrected" and z.shape[1] <= settings.few_columns
    edge = edge_of_reach(proposal_of(mixture), settings, config.seed) if is_free else -math.inf
    prepared = Prepared(z, coordinates, mixture, None, (), ties, edge, judged)
    clean = prepared.chances(z)
    if is_auto(config):
        config = config.changed(
            {"objective.gamma": auto_gamma(mixture.contamination, clean), "objective.unit": "spread"}
        )
    whole = mixture.completed(z, rng)
    notes = notes_of(
        x,
        whole,
        clean,
        coordinates,
        contamination=mixture.contamination,
        gamma=float(config.objective.gamma),
        columns=columns,
    )
    return replace(prepared, z=whole.float(), clean=clean, notes=notes), config


def auto_gamma(share: float, clean: Tensor | None) -> float:
    """Gamma auto: the estimated share of contamination less two standard errors, per spread of the energies."""
    # Rows are weighed by their probability of being clean, and gamma takes care of what that has missed: nothing where
    # nothing looks like contamination for certain. A larger gamma would cut off tails. The standard error of the share,
    # from its information, is large where background and tails overlap: small clean tables have shares of up to 0.1.
    if clean is None:
        return 0.0
    certain = share - 2 * share * (1 - share) / max(float((1 - clean - share).norm()), 1e-12)
    return float(f"{certain:.2g}") if certain >= 0.005 else 0.0


def edge_of_reach(proposal: Mixture, settings: TableSettings, seed: int) -> float:
    """The log density below which next to none of a proposal's draws lie: rows beyond are out of its reach."""
    draws = proposal.sample(settings.reach_draws, generator(seed, Stream.REACH))
    return float(proposal.log_prob(draws).kthvalue(int(settings.reach_share * len(draws))).values)


def _prepare_images(x: Tensor, config: TrainConfig) -> Prepared:
    """Images, of which those that look unlike the majority do not count, and copies once; at gamma 0 all count."""
    if x.ndim != 4:
        raise UserError("a glance needs images, not a table; set start to mixture or none")
    if is_auto(config):
        raise UserError("gamma auto follows from a robust mixture, which images do not have; give gamma a number")
    coordinates = coordinates_of(x, config)
    gamma = float(config.objective.gamma)
    if gamma <= 0:
        return Prepared(coordinates.forward(x), coordinates)
    clean, majority, notes = weigh_images(x, gamma)
    return Prepared(coordinates.forward(x), coordinates, clean=clean, notes=notes, majority=majority)


def split_rows(n: int, config: TrainConfig) -> tuple[Tensor, Tensor]:
    """Indices of the rows to train on, and of those held out to choose the update to keep."""
    order = torch.randperm(n, generator=generator(config.seed, Stream.HOLD_OUT))
    n_held = int(config.rows.hold_out * n)
    return order[n_held:], order[:n_held]


def proposal_of(mixture: RobustMixture) -> Mixture:
    """What the chains of a free network start from and jump to: the majority, with broad tails."""
    return mixture.density.broadened()


def _prepare_large(x: Tensor, config: TrainConfig, columns: tuple[str, ...] | None) -> tuple[Prepared, TrainConfig]:
    """Everything from a sample of the rows; then all rows in blocks, so that there is one copy of them and no more."""
    sample = distinct(len(x), SAMPLE_ROWS, generator(config.seed, Stream.STREAM_SAMPLE))
    prepared, config = prepare(x[sample], config, columns)
    z, clean = torch.empty(len(x), *prepared.z.shape[1:]), torch.ones(len(x))
    for i, part in enumerate(x.split(BLOCK)):
        at = slice(i * BLOCK, i * BLOCK + len(part))
        z[at], chances = prepared.transform(part, generator(config.seed, Stream.DEQUANTISE, i))
        if chances is not None:
            clean[at] = chances.float()
    notes = (*prepared.notes, sampled_note(SAMPLE_ROWS, len(x)))
    return replace(prepared, z=z, clean=None if (clean == 1).all() else clean, notes=notes), config


def sampled_note(n: int, of: int | None) -> str:
    """The note about rows that were prepared from a sample."""
    many = "" if of is None else f" of {of:,}"
    return f"scales, robust start and gamma come from a sample of {n:,}{many} rows"


def _candidates(x: Tensor, config: TrainConfig, columns: tuple[str, ...] | None) -> list[Coordinates]:
    """Coordinates to choose from: those of the configuration; robust ones also linear, and with skew taken out."""
    found = coordinates_of(x, config, columns)
    if config.rows.standardise != "robust":
        return [found]
    found = found.linear_if_binary(x)
    bent = found.unskewed(x.double())
    return [found, replace(found, linear=None), *([bent] if bent is not found else [])]


def _best_coordinates(
    x: Tensor, candidates: list[Coordinates], fitting: MixtureSettings, settings: TableSettings, seed: int
) -> Coordinates:
    """The coordinates in which held-out rows are likeliest, in the units of the data, by a small mixture."""
    if len(candidates) == 1:
        return candidates[0]
    small = replace(fitting, components=(settings.choosing_components,), max_rows=settings.choosing_rows)

    def score(coordinates: Coordinates) -> float:
        z = coordinates.forward(x, torch.float64)
        mixture = fit_mixture(z, seed=seed, settings=small, coordinates=coordinates)
        # The median: the slopes of contamination far out are no argument.
        return mixture.held_out + float(coordinates.log_slope(x).median())

    return max(candidates, key=score)


def coordinates_of(x: Tensor, config: TrainConfig, columns: tuple[str, ...] | None = None) -> Coordinates:
    """The coordinates that a configuration asks for; robust ones leave constant columns out."""
    if config.rows.standardise == "none":
        return Coordinates.identity(tuple(x.shape[1:]))
    if config.rows.standardise == "robust" or x.isnan().any():
        try:
            return Coordinates.robust(x.double(), tails=config.rows.standardise == "robust")
        except ValueError as error:
            raise UserError(str(error)) from None
    found = Coordinates.standard(x)
    constant = (found.scale.flatten() == 0).nonzero().flatten().tolist()
    if constant:
        name = columns[constant[0]] if columns is not None else str(constant[0])
        more = f" and {len(constant) - 1} more" if len(constant) > 1 else ""
        raise UserError(f"column {name}{more} is constant; leave it out, or use standardise robust")
    return found


def is_auto(config: TrainConfig) -> bool:
    """Whether gamma is to be chosen from the rows."""
    return config.objective.gamma == "auto"
