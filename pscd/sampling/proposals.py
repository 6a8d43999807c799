"""What a model's chains go on from: a rough density of the data, which is also for jumps, or chains that ran before."""

import torch
from torch import Tensor, nn

from pscd.data.pixels import to_unit
from pscd.errors import UserError
from pscd.mixtures import Mixture


class Chains(nn.Module):
    """The chains that a model was trained with, to go on from: in a thousand dimensions no rough density is near.

    Args:
        points: `(n, *shape)` in [0, 1], a byte each.
        label: `(n,)`, for a conditional model.
    """

    points: Tensor
    label: Tensor

    def __init__(self, points: Tensor, label: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("points", points)
        # Without labels all chains are of class 0, so that there is one kind of file.
        self.register_buffer("label", torch.zeros(len(points), dtype=torch.long) if label is None else label)

    def choose(self, n: int, generator: torch.Generator | None = None, label: int | None = None) -> Tensor:
        """The numbers of `n` chains, all different while there are enough of them."""
        found = torch.arange(len(self.points)) if label is None else (self.label.cpu() == label).nonzero().flatten()
        if not len(found):
            raise UserError(f"no chain of the model has the label {label}")
        device = generator.device if generator is not None else torch.device("cpu")
        rounds = -(-n // len(found))
        orders = [torch.randperm(len(found), generator=generator, device=device).cpu() for _ in range(rounds)]
        return found[torch.cat(orders)[:n]].to(self.points.device)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """`(n, *shape)` chains as they are now."""
        return self.at(self.choose(n, generator))

    def at(self, index: Tensor) -> Tensor:
        """The chains of these numbers."""
        return to_unit(self.points[index])

    def log_prob(self, x: Tensor) -> Tensor:
        """Not known; jumps are for low dimensions."""
        raise UserError("jumps need a density to jump by; images have none: set --sampler-jump-every 0")

    def tensors(self) -> dict[str, Tensor]:
        """What `Chains(**tensors)` needs, for saving."""
        return {"points": self.points, "label": self.label}


def from_tensors(tensors: dict[str, Tensor]) -> Mixture | Chains:
    """What `tensors()` of either kind came from."""
    return Chains(**tensors) if "points" in tensors else Mixture(**tensors)
