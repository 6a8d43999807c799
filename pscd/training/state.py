"""What changes during training, and the coordinates it happens in."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pscd.coordinates import Coordinates
from pscd.mixtures import Mixture
from pscd.sampling import Chains, ReplayBuffer
from pscd.sampling.starts import Start


@dataclass
class TrainState:
    """All that a checkpoint holds.

    Args:
        energy: the network that is trained.
        averaged: the exponential moving average of its weights, which is the model that is kept.
        aux: what the objective trains beside the energy (a critic, a log Z), or nothing.
        optimizer: of both.
        buffer: chains that persist from one update to the next.
        step_size: of the sampler, as adapted so far.
        coordinates: in which the network sees the data.
        proposal: where jumps come from.
        start: where fresh chains start.
        rows: checksum of the data, so that a checkpoint is not gone on from with others.
        step: updates so far.
        retries: roll-backs so far; each makes the learning rate smaller and the randomness new.
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
    step: int = 0
    retries: int = 0
