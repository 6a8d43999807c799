"""What changes during training."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pscd.coordinates import Coordinates
from pscd.mixtures import Mixture
from pscd.sampling import Chains, ReplayBuffer
from pscd.sampling.starts import Start


@dataclass
class Best:
    """The averaged weights that were best so far by the held-out rows.

    Args:
        gain: nats by which they improve on the start.
        weights: the averaged network's state.
        step: updates after which they were found.
    """

    gain: float
    weights: dict[str, Tensor]
    step: int = 0


@dataclass
class TrainState:
    """All that a checkpoint holds.

    Args:
        energy: the network that is trained.
        averaged: the exponential moving average of its weights, which becomes the model.
        aux: what the objective trains beside the energy (a critic, a log Z), or None.
        optimizer: of both.
        buffer: chains that persist from one update to the next.
        step_size: of the sampler, as adapted so far.
        coordinates: the network's coordinates.
        proposal: what jumps draw from.
        start: where fresh chains start.
        rows: checksum of the data, so that a checkpoint is not resumed with other rows.
        chances: cumulative probabilities with which rows are drawn, `(n,)`; None: uniform.
        best: the best weights so far by the held-out rows, if there are any.
        about: what `pscd.model.describe` says of the model, so that a checkpoint can be read as one.
        step: updates so far.
        retries: roll-backs so far; each halves the learning rate and changes the randomness.
    """

    energy: nn.Module
    averaged: nn.Module
    aux: nn.Module | None
    optimizer: torch.optim.Optimizer
    buffer: ReplayBuffer
    step_size: Tensor
    coordinates: Coordinates
    proposal: Mixture | Chains
    start: Start
    rows: str = ""
    chances: Tensor | None = None
    best: Best | None = None
    about: dict[str, str] = field(default_factory=dict)
    step: int = 0
    retries: int = 0

    def is_done(self, end: int, idle_steps: int) -> bool:
        """Whether all `end` updates are made, or none of the last `idle_steps` was the best; 0: all are made."""
        is_late = idle_steps > 0 and self.best is not None and self.step - self.best.step >= idle_steps
        return self.step >= end or is_late
