"""Where chains start: a rough density of the data, from which jumps are drawn too, or chains that ran before."""

import math
import warnings
from typing import Self

import torch
from torch import Tensor, nn

from pscd.data.pixels import to_unit
from pscd.errors import UserError
from pscd.rng import generator, integer_seed

BROAD_WEIGHT = 0.1
BROAD_SCALE = 3.0
WIDEST = 4096  # components times columns: covariances cost columns cubed, and in wide data few jumps are accepted
NARROW = 8  # columns up to which a batch of small matrix products is faster than a loop over components
FAR = 10.0  # standard deviations beyond which a row is ignored


class MixtureProposal(nn.Module):
    """A Gaussian mixture fitted to the data, with a broad Gaussian as one tenth of it.

    The broad component keeps the tails heavier than those of the model; otherwise an independence sampler gets stuck
    where the proposal is too thin.

    Args:
        weights: `(K,)`, summing to one.
        means: `(K, d)`.
        factors: `(K, d, d)`, lower Cholesky factors of the covariances.
    """

    weights: Tensor
    means: Tensor
    factors: Tensor
    whiten: Tensor
    log_scale: Tensor
    offset: Tensor
    radii: Tensor

    def __init__(self, weights: Tensor, means: Tensor, factors: Tensor) -> None:
        super().__init__()
        diagonals = torch.diagonal(factors, dim1=1, dim2=2)
        log_det = diagonals.log().sum(1)
        log_scale = weights.log() - log_det - 0.5 * means.shape[1] * math.log(2 * math.pi)
        for name, value in (("weights", weights), ("means", means), ("factors", factors)):
            self.register_buffer(name, value)
        # Isotropic components of many columns need no matrices, which would be most of the work.
        same = diagonals[:, :1].expand_as(diagonals)
        self.is_round = means.shape[1] > NARROW and torch.equal(factors, torch.diag_embed(same))
        inverse = factors[:, :0] if self.is_round else torch.linalg.inv(factors)
        # Rows are whitened for all components by one matrix product, whose columns are d blocks of K.
        whiten = inverse.permute(2, 1, 0).flatten(1)
        offset = -torch.einsum("kij,kj->ik", inverse, means).flatten()
        radii = diagonals[:, 0]
        for name, value in (("whiten", whiten), ("offset", offset), ("log_scale", log_scale), ("radii", radii)):
            self.register_buffer(name, value.contiguous(), persistent=False)

    @classmethod
    def fit(cls, x: Tensor, *, components: int, seed: int, max_rows: int = 10_000) -> Self:
        """Fit a mixture to rows of unit scale; rows far out are ignored.

        Args:
            x: `(n, *shape)`.
            components: number of Gaussians beside the broad one; fewer for few rows or many columns.
            seed: of the initialisation.
            max_rows: the most rows to use.

        Returns:
            The mixture.
        """
        from sklearn import config_context
        from sklearn.mixture import GaussianMixture

        x = _near(x[:max_rows])
        rows = x.numpy()
        k = max(1, min(components, len(rows) // 10, WIDEST // rows.shape[1]))
        random_state = integer_seed(generator(seed, 17))
        mixture = GaussianMixture(k, reg_covar=1e-3, max_iter=50, tol=1e-2, random_state=random_state)
        # The rows are numpy arrays, even if the caller has switched on array API dispatch.
        with warnings.catch_warnings(), config_context(array_api_dispatch=False):
            # A proposal need not be converged, and duplicated rows may leave fewer clusters than asked for.
            warnings.simplefilter("ignore")
            mixture.fit(rows)
        spread = x.var(0, correction=0) + 1e-3
        weights = torch.cat([torch.from_numpy(mixture.weights_) * (1 - BROAD_WEIGHT), torch.tensor([BROAD_WEIGHT])])
        means = torch.cat([torch.from_numpy(mixture.means_), x.mean(0, keepdim=True)])
        covariances = torch.cat([torch.from_numpy(mixture.covariances_), torch.diag(BROAD_SCALE**2 * spread)[None]])
        return cls(weights.float(), means.float(), torch.linalg.cholesky(covariances).float())

    @classmethod
    def gaussian(cls, x: Tensor) -> Self:
        """One Gaussian with the mean and covariance of rows `(n, *shape)` of unit scale; rows far out are ignored."""
        x = _near(x)
        centred = x - x.mean(0)
        covariance = centred.T @ centred / len(x) + 1e-6 * torch.eye(x.shape[1]).double()
        factor = torch.linalg.cholesky(covariance).float()
        return cls(torch.ones(1), x.mean(0, keepdim=True).float(), factor[None])

    @classmethod
    def standard(cls, dim: int) -> Self:
        """A standard Gaussian with a broad tenth, for whitened rows of `dim` columns."""
        weights, eye = torch.tensor([1 - BROAD_WEIGHT, BROAD_WEIGHT]), torch.eye(dim)
        return cls(weights, torch.zeros(2, dim), torch.stack([eye, BROAD_SCALE * eye]))

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw rows.

        Args:
            n: number of rows.
            generator: source of randomness; torch's global one by default.

        Returns:
            `(n, d)`.
        """
        k = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        means = self.means
        z = torch.randn(n, means.shape[1], 1, generator=generator, device=means.device, dtype=means.dtype)
        if self.is_round:
            return means[k] + self.radii[k, None] * z.squeeze(2)
        if means.shape[1] <= NARROW:
            return means[k] + (self.factors[k] @ z).squeeze(2)
        x = means[k]
        for j, factor in enumerate(self.factors):  # a factor for every row would take n d^2 numbers
            x[k == j] += z[k == j].squeeze(2) @ factor.T
        return x

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of rows, `(n, *shape)` to `(n,)`."""
        x = x.flatten(1)
        if self.is_round:
            squared = torch.stack([(x - mean).square().sum(1) for mean in self.means], 1) / self.radii.square()
        else:
            white = torch.addmm(self.offset, x, self.whiten)
            squared = white.square().view(len(x), -1, len(self.weights)).sum(1)
        parts = torch.add(self.log_scale, squared, alpha=-0.5)
        top = parts.amax(1, keepdim=True)
        # A term below exp(-80) of the largest does not count, and an exponential that underflows is slow.
        return (parts - top).clamp(min=-80).exp().sum(1).log() + top.squeeze(1)

    def tensors(self) -> dict[str, Tensor]:
        """The arguments of `MixtureProposal(**tensors)`, for saving."""
        return {"weights": self.weights, "means": self.means, "factors": self.factors}


class Chains(nn.Module):
    """The chains of a training run, to continue from: in a thousand dimensions a rough density of the data is no start.

    Args:
        points: `(n, *shape)` in [0, 1], stored as bytes.
        label: `(n,)`, for a conditional model.
    """

    points: Tensor
    label: Tensor

    def __init__(self, points: Tensor, label: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("points", points)
        # Without labels all chains are of class 0, so that files have one format.
        self.register_buffer("label", torch.zeros(len(points), dtype=torch.long) if label is None else label)

    def choose(self, n: int, generator: torch.Generator | None = None, label: int | None = None) -> Tensor:
        """Choose chains, all different as long as there are enough.

        Args:
            n: number of chains.
            generator: source of randomness; torch's global one by default.
            label: only chains with this label.

        Returns:
            Their indices, `(n,)`.

        Raises:
            UserError: no chain has the label.
        """
        found = torch.arange(len(self.points)) if label is None else (self.label.cpu() == label).nonzero().flatten()
        if not len(found):
            raise UserError(f"no chain of the model has the label {label}")
        device = generator.device if generator is not None else torch.device("cpu")
        rounds = -(-n // len(found))
        orders = [torch.randperm(len(found), generator=generator, device=device).cpu() for _ in range(rounds)]
        return found[torch.cat(orders)[:n]].to(self.points.device)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Choose chains and return where they are.

        Args:
            n: number of chains.
            generator: source of randomness; torch's global one by default.

        Returns:
            `(n, *shape)` in [0, 1].
        """
        return self.at(self.choose(n, generator))

    def at(self, index: Tensor) -> Tensor:
        """The points of the chains with these indices, in [0, 1]."""
        return to_unit(self.points[index])

    def log_prob(self, x: Tensor) -> Tensor:
        """Not defined: jumps are for low dimensions.

        Raises:
            UserError: always.
        """
        raise UserError("jumps need a density to jump by; images have none: set --sampler-jump-every 0")

    def tensors(self) -> dict[str, Tensor]:
        """The arguments of `Chains(**tensors)`, for saving."""
        return {"points": self.points, "label": self.label}


def from_tensors(tensors: dict[str, Tensor]) -> "MixtureProposal | Chains":
    """The proposal that `tensors()` was called on, of either kind."""
    return Chains(**tensors) if "points" in tensors else MixtureProposal(**tensors)


def _near(x: Tensor) -> Tensor:
    """The rows without those far out, `(n, d)` in float64; all rows if most are far out."""
    x = x.flatten(1).double().cpu()
    near = (x.abs() < FAR).all(1)
    return x[near] if near.sum() > len(x) // 2 else x
