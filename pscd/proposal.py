"""A rough density of the data, for jumps between modes and for the start of new chains."""

import math
from typing import Self

import torch
from torch import Tensor

BROAD_WEIGHT = 0.1
BROAD_SCALE = 3.0


class MixtureProposal:
    """A Gaussian mixture fitted to the data, a tenth of it a broad Gaussian.

    The broad part keeps the tails heavier than those of the model, without which an independence
    sampler gets stuck where the proposal is too thin.
    """

    def __init__(self, weights: Tensor, means: Tensor, factors: Tensor) -> None:
        self.weights = weights  # (K,)
        self.means = means  # (K, d)
        self.factors = factors  # (K, d, d) lower Cholesky factors of the covariances
        self._whiten = torch.linalg.inv(factors)
        log_det = torch.diagonal(factors, dim1=1, dim2=2).log().sum(1)
        self._log_scale = weights.log() - log_det - 0.5 * means.shape[1] * math.log(2 * math.pi)
        self._offset = torch.einsum("kij,kj->ki", self._whiten, means)

    @classmethod
    def fit(cls, x: Tensor, *, components: int, seed: int, max_rows: int = 10_000) -> Self:
        """Fit to rows `(n, d)`; at most `max_rows` of them are looked at."""
        from sklearn.mixture import GaussianMixture

        x = x.flatten(1).double().cpu()
        rows = x[:max_rows].numpy()
        k = max(1, min(components, len(rows) // 10))
        mixture = GaussianMixture(k, reg_covar=1e-3, max_iter=50, tol=1e-2, random_state=seed)
        import warnings

        with warnings.catch_warnings():
            # A proposal need not be converged, and duplicated rows may leave fewer clusters than asked for.
            warnings.simplefilter("ignore")
            mixture.fit(rows)
        dim = x.shape[1]
        spread = x.var(0, correction=0) + 1e-3
        weights = torch.cat([torch.from_numpy(mixture.weights_) * (1 - BROAD_WEIGHT), torch.tensor([BROAD_WEIGHT])])
        means = torch.cat([torch.from_numpy(mixture.means_), x.mean(0, keepdim=True)])
        covariances = torch.cat([torch.from_numpy(mixture.covariances_), torch.diag(BROAD_SCALE**2 * spread)[None]])
        assert covariances.shape[1:] == (dim, dim)
        return cls(weights.float(), means.float(), torch.linalg.cholesky(covariances).float())

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """`(n, d)` draws."""
        k = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        z = torch.randn(n, self.means.shape[1], 1, generator=generator, device=self.means.device)
        return self.means[k] + (self.factors[k] @ z).squeeze(2)

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of rows `(n, d)`."""
        white = torch.einsum("kij,nj->nki", self._whiten, x.flatten(1)) - self._offset
        return torch.logsumexp(self._log_scale - 0.5 * white.square().sum(2), 1)

    def tensors(self) -> dict[str, Tensor]:
        """What `MixtureProposal(**tensors)` needs, for saving."""
        return {"weights": self.weights, "means": self.means, "factors": self.factors}

    def to(self, device: torch.device) -> Self:
        """The same density on another device."""
        return type(self)(**{name: t.to(device) for name, t in self.tensors().items()})
