"""Mixtures of Gaussians: the proposal of jumps, and the density that a robust energy starts from."""

import math
import warnings
from typing import Any, Self

import torch
from torch import Tensor, nn

from pscd.rng import Stream, generator, integer_seed


class Mixture(nn.Module):
    """A mixture of K Gaussians on d columns, evaluated by one matrix product for all components.

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
        for name, value in (("weights", weights), ("means", means), ("factors", factors)):
            self.register_buffer(name, value)
        self._derive()

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self._derive()

    def _derive(self) -> None:
        """Compute what a density needs of weights, means and factors."""
        weights, means, factors = self.weights, self.means, self.factors
        diagonals = torch.diagonal(factors, dim1=1, dim2=2)
        log_det = diagonals.log().sum(1)
        log_scale = weights.log() - log_det - 0.5 * means.shape[1] * math.log(2 * math.pi)
        # Many columns and spherical components: no matrix product is needed, which would be most of the work.
        same = diagonals[:, :1].expand_as(diagonals)
        self.is_round = means.shape[1] > 8 and torch.equal(factors, torch.diag_embed(same))
        inverse = factors[:, :0] if self.is_round else torch.linalg.inv(factors)
        # One matrix product whitens rows for all components; its columns are d blocks of K.
        whiten = inverse.permute(2, 1, 0).flatten(1)
        offset = -torch.einsum("kij,kj->ik", inverse, means).flatten()
        radii = diagonals[:, 0] if diagonals.shape[1] else weights
        for name, value in (("whiten", whiten), ("offset", offset), ("log_scale", log_scale), ("radii", radii)):
            self.register_buffer(name, value.contiguous(), persistent=False)

    @classmethod
    def fit(
        cls, x: Tensor, *, components: int, seed: int, max_rows: int = 10_000, max_size: int = 4096, broad: float = 0.1
    ) -> Self:
        """A rough proposal for jumps, fitted to rows of unit scale, with a broad Gaussian around it.

        The broad part makes the tails heavier than those of the model. Otherwise an independence sampler gets stuck
        where the density of the proposal is too low.
        """
        from sklearn import config_context
        from sklearn.mixture import GaussianMixture

        x = _near(x[:max_rows])
        rows = x.numpy()
        k = max(1, min(components, len(rows) // 10, max_size // rows.shape[1]))
        random_state = integer_seed(generator(seed, Stream.PROPOSAL))
        mixture = GaussianMixture(k, reg_covar=1e-3, max_iter=50, tol=1e-2, random_state=random_state)
        # The rows are numpy arrays, even if the caller has turned on scikit-learn's array API.
        with warnings.catch_warnings(), config_context(array_api_dispatch=False):
            # A proposal need not be converged, and duplicated rows may leave fewer clusters than asked for.
            warnings.simplefilter("ignore")
            mixture.fit(rows)
        spread = x.var(0, correction=0) + 1e-3
        weights = torch.cat([torch.from_numpy(mixture.weights_) * (1 - broad), torch.tensor([broad])])
        means = torch.cat([torch.from_numpy(mixture.means_), x.mean(0, keepdim=True)])
        covariances = torch.cat([torch.from_numpy(mixture.covariances_), torch.diag(3.0**2 * spread)[None]])
        return cls(weights.float(), means.float(), torch.linalg.cholesky(covariances).float())

    @classmethod
    def gaussian(cls, x: Tensor) -> Self:
        """One Gaussian with the mean and covariance of rows `(n, d)` of unit scale, leaving out those far out."""
        x = _near(x)
        centred = x - x.mean(0)
        covariance = centred.T @ centred / len(x) + 1e-6 * torch.eye(x.shape[1]).double()
        factor = torch.linalg.cholesky(covariance).float()
        return cls(torch.ones(1), x.mean(0, keepdim=True).float(), factor[None])

    @classmethod
    def standard(cls, dim: int, *, broad: float = 0.1, scale: float = 3.0) -> Self:
        """A standard Gaussian with a share of a broad one, for rows that are whitened already."""
        weights, eye = torch.tensor([1 - broad, broad]), torch.eye(dim)
        return cls(weights, torch.zeros(2, dim), torch.stack([eye, scale * eye]))

    @classmethod
    def isotropic(cls, dim: int, deviation: float = 1.0) -> Self:
        """A Gaussian around 0 with the same deviation in every direction."""
        return cls(torch.ones(1), torch.zeros(1, dim), deviation * torch.eye(dim)[None])

    def broadened(self, *, broad: float = 0.1, scale: float = 3.0) -> Self:
        """The mixture with a share of a broad Gaussian around all of it: a proposal for jumps."""
        mean = self.weights @ self.means
        apart = self.means - mean
        variance = self.weights @ (self.factors.square().sum(2) + apart.square())
        around = torch.diag(scale * variance.sqrt())
        weights = torch.cat([(1 - broad) * self.weights, self.weights.new_full((1,), broad)])
        return type(self)(weights, torch.cat([self.means, mean[None]]), torch.cat([self.factors, around[None]]))

    def sample(self, n: int, generator: torch.Generator | None = None, *, max_gathered: int = 4_000_000) -> Tensor:
        """`(n, d)` draws; more than `max_gathered` numbers in the factors of all rows are not held at once."""
        k = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        means = self.means
        z = torch.randn(n, means.shape[1], 1, generator=generator, device=means.device, dtype=means.dtype)
        if self.is_round:
            return means[k] + self.radii[k, None] * z.squeeze(2)
        if n * means.shape[1] ** 2 <= max_gathered:
            return means[k] + (self.factors[k] @ z).squeeze(2)
        x = means[k]
        for j, factor in enumerate(self.factors):
            x[k == j] += z[k == j].squeeze(2) @ factor.T
        return x

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of rows `(n, d)`."""
        parts = self.parts(x.flatten(1))
        top = parts.amax(1, keepdim=True)
        # Terms below exp(-80) of the largest do not matter, and exponentials that underflow are slow.
        return (parts - top).clamp(min=-80).exp().sum(1).log() + top.squeeze(1)

    def parts(self, x: Tensor, *, block: int = 1024) -> Tensor:
        """Log of weight times density of each component at rows `(n, d)`, `(n, K)`."""
        if len(x) > block:  # a few rows at a time stay in the cache
            return torch.cat([self.parts(part) for part in x.split(block)])
        if self.is_round:
            squared = torch.stack([(x - mean).square().sum(1) for mean in self.means], 1) / self.radii.square()
        else:
            white = torch.addmm(self.offset, x, self.whiten)
            squared = white.square().view(len(x), x.shape[1], len(self.weights)).sum(1)
        return torch.add(self.log_scale, squared, alpha=-0.5)

    def single(self) -> Self:
        """The same in float32, as a file of it would be read again."""
        return type(self)(**{name: t.float() for name, t in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """What `Mixture(**tensors)` needs, for saving."""
        return {"weights": self.weights, "means": self.means, "factors": self.factors}

    def log_prob_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log density of rows and its gradient, -sum_k r_k(x) P_k (x - mean_k).

        P_k are the precision matrices, r_k(x) the responsibilities of the components for the row.
        """
        if self.is_round:
            parts, apart = self.parts(x), x[:, None] - self.means
            share = parts.softmax(1) / self.radii.square()
            return parts.logsumexp(1), -torch.einsum("nk,nkd->nd", share, apart)
        white = torch.addmm(self.offset, x, self.whiten).view(len(x), -1, len(self.weights))
        parts = torch.add(self.log_scale, white.square().sum(1), alpha=-0.5)
        pull = white * parts.softmax(1)[:, None, :]
        return parts.logsumexp(1), -(pull.flatten(1) @ self.whiten.T)


def _near(x: Tensor, far: float = 10.0) -> Tensor:
    """The rows without those `far` deviations out, in float64; all rows if at least half of them are far out."""
    x = x.flatten(1).double().cpu()
    near = (x.abs() < far).all(1)
    return x[near] if near.sum() > len(x) // 2 else x
