"""What happens to the rows before the first update: coordinates, ties, a robust mixture, the choice of gamma."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from pscd.config import TrainConfig
from pscd.coordinates import Coordinates
from pscd.data.streams import SAMPLE_ROWS, distinct
from pscd.errors import UserError
from pscd.mixtures import Mixture, RobustMixture, Ties, edge_of_reach, fit_robust_mixture, refit, stands_out
from pscd.mixtures.background import PLANE
from pscd.mixtures.refine import refine, settle
from pscd.mixtures.robust import MOST_ROWS
from pscd.recipes.images import Majority, weigh_images
from pscd.recipes.notes import notes_of
from pscd.rng import Stream, generator

CLEAN_SHARE, CLEAN_FEW = 0.03, 1.0  # n clean rows have a background of up to CLEAN_SHARE + CLEAN_FEW / sqrt(n)
AUTO_GAMMA = 0.1  # per spread, where there is junk; with rows weighed already, a larger gamma cuts off tails
MOST_JUNK = 0.4  # a larger background is not junk, but a broad majority
MARGIN, MARGIN_IN_THE_PLANE = 0.05, -0.05  # nats per held-out row that the background must gain
LONG_TAIL = 2.0  # outer eighths of a column, one so many times as long as the other; of an exponential one, 4.5
MARGIN_OF_A_TAIL, NATS_OF_A_TAIL = 0.002, 30.0  # that the background must gain where they are bent: a row, and in all
FEWEST_ROWS = 4  # per column; with fewer, nothing can be said about junk
BLOCK = 16_384  # rows at a time
CHOOSING_ROWS = 4_000  # that choose the coordinates, at most


@dataclass(frozen=True)
class Prepared:
    """Rows as the network sees them, and what a robust mixture says about them.

    Args:
        z: the rows in the network's coordinates, `(n, *shape)` in float32.
        coordinates: the map from the units of the data to `z`.
        mixture: fitted to `z`, if the configuration asks for one.
        clean: `(n,)`, the probability that a row belongs to the majority; None if all rows count alike.
        notes: sentences that tell the user what was found.
        ties: values of the columns that are spread over cells, where there is a mixture.
        edge: log density of the proposal below which rows are out of its reach.
        judged: the majority's density fitted to `z` without the rows that are held out, if `mixture` has seen them.
        majority: of images, if some of them do not look like it.
    """

    z: Tensor
    coordinates: Coordinates
    mixture: RobustMixture | None = None
    clean: Tensor | None = None
    notes: tuple[str, ...] = ()
    ties: Ties | None = None
    edge: float = -math.inf
    judged: Mixture | None = None
    majority: Majority | None = None

    @property
    def learnt_from(self) -> Mixture:
        """The density that a network learns to correct: rows that it was fitted to would be no fair judges of that."""
        assert self.mixture is not None
        return self.mixture.density if self.judged is None else self.judged

    def chances(self, z: Tensor) -> Tensor | None:
        """The probability that rows `(n, d)` belong to the majority, 0 out of reach; None if all count alike."""
        if self.mixture is None:
            return None
        found = None if self.mixture.background is None else self.mixture.clean(z)
        beyond = self.beyond(z)
        if not beyond.any():
            return found
        return torch.where(beyond, 0.0, torch.ones_like(z[:, 0]) if found is None else found)

    def beyond(self, z: Tensor) -> Tensor:
        """Which of the rows `(n, d)` lie where no chain comes, so that nothing would hold their energy up: `(n,)`."""
        if self.mixture is None or self.edge == -math.inf:
            return torch.zeros(len(z), dtype=torch.bool)
        return self._proposal.log_prob(z) < self.edge

    @cached_property
    def _proposal(self) -> Mixture:
        """What tells rows out of reach: made once, since a stream asks for every batch."""
        assert self.mixture is not None
        return proposal_of(self.mixture)

    def transform(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Bring other rows of the same data into the same form.

        Args:
            x: rows `(n, *shape)` in the units of the data.
            generator: of the noise that spreads ties.

        Returns:
            The rows in the network's coordinates, in float32, and the probability of each that it belongs to the
            majority, `(n,)`; None if all rows count alike.
        """
        if self.ties is None:
            return self.coordinates.forward(x), None if self.majority is None else self.majority.holds(x).double()
        z = self.coordinates.forward(self.ties.spread(x.double(), generator), torch.float64)
        return z.float(), self.chances(z)


def prepare(x: Tensor, config: TrainConfig, columns: tuple[str, ...] | None = None) -> tuple[Prepared, TrainConfig]:
    """Bring rows into the form that training needs, and choose gamma where it is `auto`.

    Args:
        x: rows `(n, *shape)` in the units of the data.
        config: of the run.
        columns: names of the columns, for messages.

    Returns:
        The prepared rows, and the configuration with a number for gamma.

    Raises:
        UserError: a column is constant, gamma cannot be chosen, or the start is for tables and these are images, or the
            other way round.
    """
    if config.rows.start == "glance":
        return _prepare_images(x, config), config
    if x.ndim == 2 and len(x) > SAMPLE_ROWS:
        return _prepare_large(x, config, columns)
    if config.rows.start == "none":
        if is_auto(config):
            raise UserError("gamma auto is read off a robust mixture; set start to mixture, or give gamma a number")
        coordinates = coordinates_of(x, config, columns)
        return Prepared(coordinates.forward(x), coordinates), config
    if x.ndim != 2:
        raise UserError("a mixture to start from needs a table, not images; set start to glance or none")
    exact = x.double()
    ties = Ties.of(exact)
    rows = ties.spread(exact, generator(config.seed, Stream.DEQUANTISE))
    robust = is_auto(config) or getattr(config.objective, "gamma", 0.0) > 0
    coordinates = _best_coordinates(rows, _candidates(x, config, columns), robust=robust, seed=config.seed)
    z = coordinates.forward(rows, torch.float64)
    mixture = fit_robust_mixture(z, robust=robust, seed=config.seed, coordinates=coordinates)
    if is_auto(config):
        plain = _plain(mixture, z, seed=config.seed)
        if z.shape[1] <= PLANE and _has_long_tail(rows):
            dirty = _has_junk_beside_a_tail(rows, seed=config.seed)
        else:
            dirty = has_junk(mixture, plain, z, seed=config.seed, coordinates=coordinates)
        config = config.changed({"objective.gamma": AUTO_GAMMA if dirty else 0.0})
        mixture = mixture if dirty else plain
    judged = None
    if config.rows.hold_out:
        rest, held = split_rows(len(z), config)
        seen = z[rest[:MOST_ROWS]]
        if z.shape[1] <= PLANE:
            without = refine(mixture, seen, z[held], seed=config.seed, coordinates=coordinates)
            mixture = settle(without, z[torch.cat([held, rest])[:MOST_ROWS]], coordinates=coordinates)
        else:
            without = refit(mixture, seen, coordinates=coordinates)
        judged = without.density
    # A bounded network cannot sink where no chain comes; and a mixture of many columns is too rough to say where.
    is_free = config.energy.name != "corrected" and z.shape[1] <= PLANE
    edge = edge_of_reach(proposal_of(mixture), seed=config.seed) if is_free else -math.inf
    found = Prepared(z.float(), coordinates, mixture, None, (), ties, edge, judged)
    parts = [found.chances(part) for part in z.split(BLOCK)]
    clean = None if all(part is None for part in parts) else _joined(parts, len(z))
    is_weighed = mixture.background is not None
    notes = notes_of(
        x,
        z,
        clean if is_weighed else None,
        coordinates,
        junk=mixture.share_of_junk,
        gamma=getattr(config.objective, "gamma", 0.0),
        columns=columns,
        beyond=None if is_weighed or clean is None else clean == 0,  # where nothing else weighs rows
    )
    return replace(found, clean=clean, notes=notes), config


def _prepare_images(x: Tensor, config: TrainConfig) -> Prepared:
    """Images, of which those that look unlike the majority do not count, and copies once; at gamma 0 all count."""
    if x.ndim != 4:
        raise UserError("a glance needs images, not a table; set start to mixture or none")
    if is_auto(config):
        raise UserError("gamma auto is read off a robust mixture, which images have not; give gamma a number")
    coordinates = coordinates_of(x, config)
    gamma = float(getattr(config.objective, "gamma", 0.0))
    if gamma <= 0:
        return Prepared(coordinates.forward(x), coordinates)
    clean, majority, notes = weigh_images(x, gamma)
    return Prepared(coordinates.forward(x), coordinates, clean=clean, notes=notes, majority=majority)


def split_rows(n: int, config: TrainConfig) -> tuple[Tensor, Tensor]:
    """Divide rows in memory.

    Args:
        n: number of rows.
        config: of the run, with the share to hold out.

    Returns:
        The numbers of the rows to train on, and of those held out to choose the update to keep.
    """
    order = torch.randperm(n, generator=generator(config.seed, Stream.HOLD_OUT))
    n_held = int(config.rows.hold_out * n)
    return order[n_held:], order[:n_held]


def _plain(robust: RobustMixture, z: Tensor, *, seed: int) -> RobustMixture:
    """The mixture without a background, for which it may have twice as many components."""
    k = len(robust.components.weights)
    return fit_robust_mixture(z, robust=False, seed=seed, components=(k, 2 * k))


def _has_long_tail(x: Tensor) -> bool:
    """Whether a column has a long tail on one side."""
    # Not the quartiles about the median, which may lie anywhere between two modes.
    eighths = torch.quantile(x, x.new_tensor([0.125, 0.25, 0.75, 0.875]), 0)
    left, right = eighths[1] - eighths[0], eighths[3] - eighths[2]
    return bool((torch.maximum(left, right) > LONG_TAIL * torch.minimum(left, right)).any())


def _has_junk_beside_a_tail(x: Tensor, *, seed: int) -> bool:
    """Whether rows with long tails, which look like junk themselves, hold junk where the tails are bent."""
    bent = Coordinates.robust(x).unskewed(x)
    z = bent.forward(x, torch.float64)
    robust = fit_robust_mixture(z, robust=True, seed=seed, coordinates=bent)
    plain = _plain(robust, z, seed=seed)
    gain = robust.held_out - plain.held_out
    if gain <= MARGIN_OF_A_TAIL + NATS_OF_A_TAIL / len(z):
        return False
    return has_junk(robust, plain, z, seed=seed, coordinates=bent)


def proposal_of(mixture: RobustMixture) -> Mixture:
    """What the chains of a free network start from and jump to: the majority, with broad tails."""
    return mixture.density.broadened()


def _joined(parts: Sequence[Tensor | None], n: int) -> Tensor:
    """The chances of all blocks; those of a block in which all rows count alike are 1."""
    filled = torch.ones(n, dtype=torch.float64)
    for i, part in enumerate(parts):
        if part is not None:
            filled[i * BLOCK : i * BLOCK + len(part)] = part
    return filled


def _prepare_large(x: Tensor, config: TrainConfig, columns: tuple[str, ...] | None) -> tuple[Prepared, TrainConfig]:
    """Everything from a sample of the rows; then all rows in blocks, so that there is one copy of them and no more."""
    some = distinct(len(x), SAMPLE_ROWS, generator(config.seed, Stream.STREAM_SAMPLE))
    found, config = prepare(x[some], config, columns)
    z = torch.empty(len(x), *found.z.shape[1:])
    parts = []
    for i, part in enumerate(x.split(BLOCK)):
        at = slice(i * BLOCK, i * BLOCK + len(part))
        z[at], chances = found.transform(part, generator(config.seed, Stream.DEQUANTISE, i))
        parts.append(chances)
    clean = None if all(part is None for part in parts) else _joined(parts, len(x)).float()
    return replace(found, z=z, clean=clean, notes=(*found.notes, sampled_note(SAMPLE_ROWS, len(x)))), config


def sampled_note(n: int, of: int | None) -> str:
    """What is told about rows that were prepared from a sample."""
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


def _best_coordinates(x: Tensor, candidates: list[Coordinates], *, robust: bool, seed: int) -> Coordinates:
    """The coordinates in which held-out rows are likeliest, in the units of the data, by a mixture of four."""
    if len(candidates) == 1:
        return candidates[0]

    def score(coordinates: Coordinates) -> float:
        z = coordinates.forward(x, torch.float64)
        found = fit_robust_mixture(
            z, robust=robust, seed=seed, components=(4,), max_rows=CHOOSING_ROWS, coordinates=coordinates
        )
        # The median: the slopes of junk far out are no argument.
        return found.held_out + float(coordinates.log_slope(x).median())

    return max(candidates, key=score)


def coordinates_of(x: Tensor, config: TrainConfig, columns: tuple[str, ...] | None = None) -> Coordinates:
    """The coordinates that a configuration asks for.

    Args:
        x: rows `(n, *shape)`.
        config: of the run.
        columns: names of the columns, for messages.

    Returns:
        Coordinates; robust ones leave constant columns out.

    Raises:
        UserError: a column is constant and cannot be standardised, or all are.
    """
    if config.rows.standardise == "none":
        return Coordinates.identity(tuple(x.shape[1:]))
    if config.rows.standardise == "robust":
        try:
            return Coordinates.robust(x.double())
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
    return getattr(config.objective, "gamma", None) == "auto"


def has_junk(
    robust: RobustMixture, plain: RobustMixture, z: Tensor, *, seed: int, coordinates: Coordinates | None = None
) -> bool:
    """Whether a table holds more junk than clean tables seem to.

    Three conditions: held-out rows have a higher density with the background than without it, its share is not close to
    half of the rows, and it is larger than in clean tables. What that means is known from many tables; in the plane,
    where an even background fits the middle of any mode, it is found out for the rows at hand.

    Args:
        robust: the mixture with a background.
        plain: the mixture without one.
        z: the rows, `(n, d)`.
        seed: of what is drawn to find out.
        coordinates: that the rows are in.

    Returns:
        True if training should be robust.
    """
    n, d = z.shape
    share = robust.share_of_junk
    margin = MARGIN if d > PLANE else MARGIN_IN_THE_PLANE
    gain = robust.held_out - plain.held_out
    if share >= MOST_JUNK or n < FEWEST_ROWS * d or gain <= margin:
        return False
    if d > PLANE:
        return share > CLEAN_SHARE + CLEAN_FEW / math.sqrt(n)
    return stands_out(robust, z, gain=gain, seed=seed, coordinates=coordinates)
