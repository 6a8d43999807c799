"""What changes during training, and its state before the first update."""

import copy
import zlib
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from pscd import distributed
from pscd.config import TrainConfig
from pscd.coordinates import Coordinates
from pscd.energies import local_waves
from pscd.errors import UserError
from pscd.fast import frozen, prefer_channels_last
from pscd.mixtures import Mixture
from pscd.recipes.tables import Prepared, prepare, proposal_of
from pscd.rng import Stream, generator, integer_seed, seeded
from pscd.sampling import Chains, ReplayBuffer
from pscd.sampling.starts import STARTS, MixtureStart, Start


@dataclass
class Best:
    """The averaged weights that were best so far by the held-out rows."""

    gain: float  # nats by which they improve on the start
    weights: dict[str, Tensor]  # the averaged network's state
    step: int = 0  # updates at which they were best


@dataclass
class TrainState:
    """All that a checkpoint holds."""

    energy: nn.Module
    averaged: nn.Module  # moving average of its weights, which becomes the model
    aux: nn.Module | None  # what the objective trains beside it (a critic, a log Z)
    optimizer: torch.optim.Optimizer  # of both
    buffer: ReplayBuffer  # chains that persist from one update to the next
    step_size: Tensor  # of the sampler, as adapted so far
    coordinates: Coordinates
    proposal: Mixture | Chains  # what jumps draw from
    start: Start  # where fresh chains start
    rows: str = ""  # checksum of the data, so that a checkpoint is not resumed with other rows
    cumulative_chances: Tensor | None = (
        None  # cumulative probabilities with which rows are drawn, `(n,)`; None: uniform
    )
    best: Best | None = None  # by the held-out rows, if there are any
    about: dict[str, str] = field(default_factory=dict)  # what `describe` returns for the model
    step: int = 0  # updates so far
    retries: int = 0  # roll-backs so far; each halves the learning rate and changes the randomness

    def is_done(self, end: int, idle_updates: int) -> bool:
        """Whether all `end` updates are made, or none of the last `idle_updates` was the best; 0: all are made."""
        is_late = idle_updates > 0 and self.best is not None and self.step - self.best.step >= idle_updates
        return self.step >= end or is_late


def init_state(
    x: Tensor,
    config: TrainConfig,
    energy: nn.Module | None,
    device: torch.device,
    proposal: Mixture | Chains | None = None,
    prepared: Prepared | None = None,
) -> TrainState:
    """The state before the first update, the same in all processes except for their chains."""
    if prepared is None:
        prepared, config = prepare(x, config)
    z, coordinates = prepared.z, prepared.coordinates
    start, proposal = _start(prepared, config, proposal, device)
    energy = _energy(prepared, config) if energy is None else energy
    energy = prefer_channels_last(energy.to(device))
    _check_energy(energy, z[:2].to(device))
    coordinates = coordinates.to(device)
    shared = [*energy.state_dict().values(), *coordinates.tensors().values(), *proposal.tensors().values()]
    distributed.broadcast(shared)
    aux = _init_aux(energy, z.to(device), config)
    parameters = [*energy.parameters(), *(aux.parameters() if aux is not None else [])]
    classes = config.energy.classes

    def draw_label(n: int, generator: torch.Generator | None) -> Tensor:
        return torch.randint(classes, (n,), generator=generator, device=device)

    return TrainState(
        energy=energy,
        averaged=copy.deepcopy(energy).requires_grad_(False),
        aux=aux,
        optimizer=torch.optim.Adam(
            parameters, lr=config.optimizer.lr, betas=config.optimizer.betas, fused=device.type in ("cpu", "cuda")
        ),
        buffer=ReplayBuffer(
            config.chains.buffer_size // distributed.world_size(),
            start.draw,
            draw_label=draw_label if classes else None,
            uint8=start.in_bytes,
            generator=generator(config.seed, Stream.BUFFER, distributed.rank(), device=device),
        ),
        step_size=torch.tensor(config.sampler.step_size, device=device),
        coordinates=coordinates,
        proposal=proposal,
        start=start,
        rows=checksum(x),
        cumulative_chances=None if prepared.clean is None else prepared.clean.double().cumsum(0).to(device),
    )


def _init_aux(energy: nn.Module, z: Tensor, config: TrainConfig) -> nn.Module | None:
    """What the objective trains beside the energy, the same in all processes."""
    seed = integer_seed(generator(config.seed, Stream.OBJECTIVE_INIT))
    aux = seeded(lambda: config.objective.init(energy, z), seed)
    if aux is not None:
        distributed.broadcast([t.detach() for t in (*aux.parameters(), *aux.buffers())])
    return aux


def _start(
    prepared: Prepared, config: TrainConfig, proposal: Mixture | Chains | None, device: torch.device
) -> tuple[Start, Mixture | Chains]:
    """Where chains start, and where they jump to."""
    if prepared.mixture is None:
        plain = STARTS[config.chains.base].fit(prepared.z, device, slope=config.sampler.slope)
        proposal = proposal or plain.proposal(prepared.z, components=config.chains.jump_components, seed=config.seed)
        return plain, proposal.to(device)
    is_bounded = config.energy.name == "corrected"
    own = (prepared.mixture.density if is_bounded else proposal_of(prepared.mixture)).single()
    jumps = proposal.to(device) if isinstance(proposal, Mixture) else own.to(device)
    return MixtureStart(jumps), jumps


def _energy(prepared: Prepared, config: TrainConfig, *, most_wave_columns: int = 10) -> nn.Module:
    """The network that the configuration describes; in more columns than a few, waves beside the input are noise."""
    shape = tuple(prepared.z.shape[1:])
    if config.energy.name != "corrected" or prepared.mixture is None:
        return seeded(lambda: config.energy.build(shape), config.seed)
    density = prepared.learnt_from
    n_waves = config.energy.fourier if shape[0] <= most_wave_columns else 0
    waves = local_waves(density, n_waves, generator(config.seed, Stream.WAVES))
    return seeded(lambda: config.energy.correct(density, waves), config.seed)


def checksum(x: Tensor) -> str:
    """A short checksum of rows, to notice that they have changed."""
    return f"{zlib.crc32(np.ascontiguousarray(x.cpu().numpy()).data):08x}"


def _check_energy(energy: nn.Module, x: Tensor) -> None:
    with torch.no_grad(), frozen(energy):
        shape = tuple(energy(x).shape)
    if shape != (len(x),):
        hint = "; end it with nn.Flatten(0)" if shape == (len(x), 1) else ""
        raise UserError(f"the energy must map {tuple(x.shape)} to {(len(x),)}, one number a row; it gave {shape}{hint}")
