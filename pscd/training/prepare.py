"""What happens to the rows before the first update: coordinates, ties, a robust mixture, the choice of gamma."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pscd.config import TrainConfig
from pscd.coordinates import Coordinates
from pscd.data.streams import SAMPLE_ROWS, distinct
from pscd.errors import UserError
from pscd.mixtures import RobustMixture, Ties, fit_robust_mixture
from pscd.objectives import PseudoSpherical
from pscd.rng import Stream, generator
from pscd.training.notes import notes_of

CLEAN_SHARE, CLEAN_FEW = 0.03, 1.0  # n clean rows have a background of up to CLEAN_SHARE + CLEAN_FEW / sqrt(n)
AUTO_GAMMA = 0.1  # per spread, where there is junk; with rows weighed already, a larger gamma cuts off tails
MOST_JUNK = 0.4  # a larger background is not junk, but a broad majority
MARGIN, MARGIN_IN_THE_PLANE = 0.05, -0.05  # nats per held-out row that the background must gain
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
    """

    z: Tensor
    coordinates: Coordinates
    mixture: RobustMixture | None = None
    clean: Tensor | None = None
    notes: tuple[str, ...] = ()
    ties: Ties | None = None

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
            return self.coordinates.forward(x), None
        z = self.coordinates.forward(self.ties.spread(x.double(), generator), torch.float64)
        return z.float(), None if self.clean is None or self.mixture is None else self.mixture.clean(z)


def prepare(x: Tensor, config: TrainConfig, columns: tuple[str, ...] | None = None) -> tuple[Prepared, TrainConfig]:
    """Bring rows into the form that training needs, and choose gamma where it is `auto`.

    Args:
        x: rows `(n, *shape)` in the units of the data.
        config: of the run.
        columns: names of the columns, for messages.

    Returns:
        The prepared rows, and the configuration with a number for gamma.

    Raises:
        UserError: a column is constant, gamma cannot be chosen, or there is no mixture for images.
    """
    if x.ndim == 2 and len(x) > SAMPLE_ROWS:
        return _prepare_large(x, config, columns)
    if config.start == "none":
        if is_auto(config):
            raise UserError("gamma auto is read off a robust mixture; set start to mixture, or give gamma a number")
        coordinates = coordinates_of(x, config, columns)
        return Prepared(coordinates.forward(x), coordinates), config
    if x.ndim != 2:
        raise UserError("a mixture to start from needs a table, not images; set start to none")
    exact = x.double()
    ties = Ties.of(exact)
    rows = ties.spread(exact, generator(config.seed, Stream.DEQUANTISE))
    robust = is_auto(config) or getattr(config.objective, "gamma", 0.0) > 0
    coordinates = _best_coordinates(rows, _candidates(x, config, columns), robust=robust, seed=config.seed)
    z = coordinates.forward(rows, torch.float64)
    mixture = fit_robust_mixture(z, robust=robust, seed=config.seed, coordinates=coordinates)
    objective = config.objective
    if isinstance(objective, PseudoSpherical) and objective.gamma == "auto":
        k = len(mixture.components.weights)
        plain = fit_robust_mixture(z, robust=False, seed=config.seed, components=(k, 2 * k))
        dirty = has_junk(mixture, plain, len(z))
        config = replace(config, objective=replace(objective, gamma=AUTO_GAMMA if dirty else 0.0))
        mixture = mixture if dirty else plain
    if mixture.background is None:
        notes = notes_of(x, z, None, coordinates, columns=columns)
        return Prepared(z.float(), coordinates, mixture, None, notes, ties), config
    clean = torch.cat([mixture.clean(part) for part in z.split(BLOCK)])
    gamma = getattr(config.objective, "gamma", 0.0)
    notes = notes_of(x, z, clean, coordinates, junk=mixture.share_of_junk, gamma=gamma, columns=columns)
    return Prepared(z.float(), coordinates, mixture, clean, notes, ties), config


def _prepare_large(x: Tensor, config: TrainConfig, columns: tuple[str, ...] | None) -> tuple[Prepared, TrainConfig]:
    """Everything from a sample of the rows; then all rows in blocks, so that there is one copy of them and no more."""
    some = distinct(len(x), SAMPLE_ROWS, generator(config.seed, Stream.STREAM_SAMPLE))
    found, config = prepare(x[some], config, columns)
    z = torch.empty(len(x), *found.z.shape[1:])
    clean = None if found.clean is None else torch.empty(len(x))
    for i, part in enumerate(x.split(BLOCK)):
        at = slice(i * BLOCK, i * BLOCK + len(part))
        z[at], chances = found.transform(part, generator(config.seed, Stream.DEQUANTISE, i))
        if clean is not None and chances is not None:
            clean[at] = chances
    return replace(found, z=z, clean=clean, notes=(*found.notes, sampled_note(SAMPLE_ROWS, len(x)))), config


def sampled_note(n: int, of: int | None) -> str:
    """What is told about rows that were prepared from a sample."""
    many = "" if of is None else f" of {of:,}"
    return f"scales, robust start and gamma come from a sample of {n:,}{many} rows"


def _candidates(x: Tensor, config: TrainConfig, columns: tuple[str, ...] | None) -> list[Coordinates]:
    """Coordinates to choose from: those of the configuration; robust ones also linear, and with skew taken out."""
    found = coordinates_of(x, config, columns)
    if config.standardise != "robust":
        return [found]
    bent = found.bent(x.double())
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
    if config.standardise == "none":
        return Coordinates.identity(tuple(x.shape[1:]))
    if config.standardise == "robust":
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
    return isinstance(config.objective, PseudoSpherical) and config.objective.gamma == "auto"


def has_junk(robust: RobustMixture, plain: RobustMixture, n: int) -> bool:
    """Whether a table holds more junk than clean tables seem to.

    Three conditions: the background has a larger share than in clean tables, it is not close to half of the rows, and
    held-out rows have a higher density with it than without it.

    Args:
        robust: the mixture with a background.
        plain: the mixture without one.
        n: number of rows.

    Returns:
        True if training should be robust.
    """
    d = robust.components.means.shape[1]
    share = robust.share_of_junk
    margin = MARGIN if d > 2 else MARGIN_IN_THE_PLANE
    is_there = CLEAN_SHARE + CLEAN_FEW / math.sqrt(n) < share < MOST_JUNK
    return is_there and n >= FEWEST_ROWS * d and robust.held_out > plain.held_out + margin
