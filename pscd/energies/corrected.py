"""An energy that starts as a robust density of the data and is corrected by a network."""

import torch
from torch import Tensor, nn

from pscd import fast
from pscd.energies.dense import zero_started
from pscd.fast import Evaluator, Sequence
from pscd.mixtures import Mixture


class BoundedNetwork(nn.Module):
    """f(z) = bound tanh(net(z) / bound), 0 at the start.

    Args:
        dim: number of columns.
        width: hidden units per layer.
        depth: hidden layers.
        bound: |f| stays below it, so that importance weights between model and mixture are bounded.
        frequencies: `(dim, waves)`; the network also sees sine and cosine of the rows times these.
    """

    frequencies: Tensor

    def __init__(self, dim: int, *, width: int, depth: int, bound: float, frequencies: Tensor) -> None:
        super().__init__()
        self.bound = bound
        self.register_buffer("frequencies", frequencies)
        self.net = zero_started(dim + 2 * frequencies.shape[1], width, depth)

    def forward(self, z: Tensor) -> Tensor:
        """`(B, dim)` to `(B,)`."""
        phase = z @ self.frequencies
        features = torch.cat([z, phase.sin(), phase.cos()], 1) if self.frequencies.shape[1] else z
        return self.bound * torch.tanh(self.net(features).squeeze(1) / self.bound)

    def as_sequence(self) -> Sequence:
        """See `pscd.fast`."""
        return Sequence(self.net, frequencies=self.frequencies if self.frequencies.shape[1] else None, bound=self.bound)


class CorrectedEnergy(nn.Module):
    """E(z) = -log m(z) + f(z): a mixture fitted to the majority, corrected by a bounded network.

    At the start f = 0, and the model is the mixture. It stays within a factor exp(2 bound) of the mixture, so that
    jumps to draws of the mixture are accepted in any dimension. Z is the mean of exp(-f) over such draws, whose
    weights are bounded for the same reason.

    Args:
        mixture: m; it is not trained.
        network: f.
    """

    def __init__(self, mixture: Mixture, network: BoundedNetwork) -> None:
        super().__init__()
        self.mixture, self.network = mixture, network

    def forward(self, z: Tensor) -> Tensor:
        """`(B, dim)` to `(B,)`."""
        return self.network(z) - self.mixture.log_prob(z)

    def corrected_density(self, power: float) -> Mixture:
        """The mixture that is corrected; `power` is ignored: powers of a mixture cannot be sampled."""
        return self.mixture

    def input_gradient(self) -> Evaluator | None:
        """The gradient of m by its responsibilities, that of f by `pscd.fast`; None if f is left to autograd."""
        inner = fast.by_hand(self.network)
        if inner is None:
            return None

        def evaluate(z: Tensor) -> tuple[Tensor, Tensor]:
            f, slope = inner(z)
            log_m, rise = self.mixture.log_prob_and_gradient(z)
            return f - log_m, slope - rise

        def alone(z: Tensor) -> Tensor:
            return inner.energy(z) - self.mixture.log_prob(z)

        return Evaluator(evaluate, inner.how, alone=alone)


def local_waves(mixture: Mixture, n: int, generator: torch.Generator) -> Tensor:
    """Random frequencies at the scales of the mixture: |N(0, 1)| radians per standard deviation of a random component.

    With one scale for all, the network would not see thin structure, which is where a mixture needs a correction.
    """
    dim = mixture.means.shape[1]
    if n == 0:
        return torch.empty(dim, 0)
    k = torch.multinomial(mixture.weights, n, replacement=True, generator=generator)
    direction = torch.randn(n, dim, 1, generator=generator, dtype=mixture.means.dtype)
    direction = direction / direction.norm(dim=1, keepdim=True)
    length = torch.randn(n, 1, 1, generator=generator, dtype=direction.dtype).abs()
    waves = torch.linalg.solve_triangular(mixture.factors[k].mT, direction * length, upper=True)
    return waves.squeeze(2).T.float().contiguous()
