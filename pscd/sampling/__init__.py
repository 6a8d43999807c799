"""Markov chains that sample from q(x) proportional to exp(-E(x)), their starting points, and the replay buffer.

A sampler is a plain function of an energy and starting points, `langevin` and `mala`. Each step costs one forward and
one backward pass; parameters stay out of the graph, and nothing in the loop waits for the device. The frozen dataclass
that goes with each function holds its settings for training.
"""

from pscd.sampling.buffer import ReplayBuffer
from pscd.sampling.jumps import Jumps, jumps
from pscd.sampling.langevin import Langevin, langevin
from pscd.sampling.mala import Mala, adapt_step_size, mala
from pscd.sampling.normalizing import LogZ, log_z
from pscd.sampling.proposals import Chains
from pscd.sampling.protocol import ChainCallback, Proposal, Sampler
from pscd.sampling.spectrum import Spectrum, spectrum
from pscd.sampling.starts import STARTS, BoxStart, GaussianStart, MixtureStart, PlainStart, Start

# By name; a custom sampler is named by its import path, `package.module:Name`.
SAMPLERS: dict[str, type[Sampler]] = {"mala": Mala, "langevin": Langevin, "jumps": Jumps}

__all__ = [
    "SAMPLERS",
    "STARTS",
    "BoxStart",
    "ChainCallback",
    "Chains",
    "GaussianStart",
    "Jumps",
    "Langevin",
    "LogZ",
    "Mala",
    "MixtureStart",
    "PlainStart",
    "Proposal",
    "ReplayBuffer",
    "Sampler",
    "Spectrum",
    "Start",
    "adapt_step_size",
    "jumps",
    "langevin",
    "log_z",
    "mala",
    "spectrum",
]
