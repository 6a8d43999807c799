"""Where chains of a trained model start: at draws of a density fitted to the data, or at the chains of training."""

import torch
from torch import Tensor, nn

from pscd.data.pixels import to_unit
from pscd.errors import UserError
from pscd.mixtures import Mixture


class Chains(nn.Module):
    """The chains of a training run as starting points: in many dimensions a rough density of the data is a bad start.

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
        """Indices of `n` chains, different ones if there are enough; with a label, only chains of that class."""
        chains = torch.arange(len(self.points)) if label is None else (self.label.cpu() == label).nonzero().flatten()
        if not len(chains):
            raise UserError(f"no chain of the model has the label {label}")
        device = generator.device if generator is not None else torch.device("cpu")
        rounds = -(-n // len(chains))
        orders = [torch.randperm(len(chains), generator=generator, device=device).cpu() for _ in range(rounds)]
        return chains[torch.cat(orders)[:n]].to(self.points.device)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """The points of chosen chains, `(n, *shape)` in [0, 1]."""
        return self.at(self.choose(n, generator))

    def at(self, index: Tensor) -> Tensor:
        """The points of the chains with these indices, in [0, 1]."""
        return to_unit(self.points[index])

    def log_prob(self, x: Tensor) -> Tensor:
        """Not defined: jumps are for low dimensions."""
        raise UserError("images have no density to draw jumps from; set jump_every of the sampler to 0")

    def tensors(self) -> dict[str, Tensor]:
        """The arguments of `Chains(**tensors)`, for saving."""
        return {"points": self.points, "label": self.label}


def from_tensors(tensors: dict[str, Tensor]) -> Mixture | Chains:
    """The proposal that `tensors()` was called on, of either kind."""
    return Chains(**tensors) if "points" in tensors else Mixture(**tensors)
