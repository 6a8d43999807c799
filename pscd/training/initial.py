"""The state that training starts from: coordinates, network, chains."""

import copy
import zlib

import numpy as np
import torch
from torch import Tensor, nn

from pscd import distributed
from pscd.config import TrainConfig
from pscd.coordinates import Coordinates
from pscd.errors import UserError
from pscd.fast import frozen, prefer_channels_last
from pscd.rng import Stream, generator, integer_seed, seeded
from pscd.sampling import Chains, MixtureProposal, ReplayBuffer
from pscd.sampling.starts import STARTS
from pscd.training.state import TrainState


def init_state(
    x: Tensor,
    config: TrainConfig,
    energy: nn.Module | None,
    device: torch.device,
    columns: tuple[str, ...] | None = None,
    proposal: MixtureProposal | Chains | None = None,
) -> TrainState:
    """The initial state: random weights, coordinates and proposal from the data, fresh chains.

    Args:
        x: rows `(n, *shape)` in the units of the data.
        config: of the run.
        energy: a network of your own; by default the one that `config.energy` describes.
        device: where to train.
        columns: their names, for messages.
        proposal: what jumps draw from, in the network's coordinates; by default fitted to the rows.

    Returns:
        The state before the first update, the same in all processes except for their chains.
    """
    shape = tuple(x.shape[1:])
    coordinates = coordinates_of(x, config, columns)
    z = coordinates.forward(x)
    start = STARTS[config.base].fit(z, device)
    proposal = (proposal or start.proposal(z, components=config.jump_components, seed=config.seed)).to(device)
    energy = seeded(lambda: config.energy.build(shape), config.seed) if energy is None else energy
    energy = prefer_channels_last(energy.to(device))
    _check_energy(energy, z[:2].to(device))
    coordinates = coordinates.to(device)
    shared = [*energy.state_dict().values(), coordinates.shift, coordinates.scale, *proposal.tensors().values()]
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
            parameters, lr=config.lr, betas=(config.beta1, 0.999), fused=device.type in ("cpu", "cuda")
        ),
        buffer=ReplayBuffer(
            config.buffer_size // distributed.world_size(),
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
    )


def _init_aux(energy: nn.Module, z: Tensor, config: TrainConfig) -> nn.Module | None:
    """What the objective trains beside the energy, the same in all processes."""
    seed = integer_seed(generator(config.seed, Stream.OBJECTIVE_INIT))
    aux = seeded(lambda: config.objective.init(energy, z), seed)
    if aux is not None:
        distributed.broadcast([t.detach() for t in (*aux.parameters(), *aux.buffers())])
    return aux


def coordinates_of(x: Tensor, config: TrainConfig, columns: tuple[str, ...] | None = None) -> Coordinates:
    """The network's coordinates that a configuration asks for.

    Args:
        x: rows `(n, *shape)`.
        config: of the run.
        columns: their names, for messages.

    Returns:
        Shift and scale.

    Raises:
        UserError: a column is constant and cannot be standardised.
    """
    if config.standardise == "none":
        return Coordinates.identity(tuple(x.shape[1:]))
    found = Coordinates.standard(x)
    constant = (found.scale.flatten() == 0).nonzero().flatten().tolist()
    if constant:
        name = columns[constant[0]] if columns is not None else str(constant[0])
        more = f" and {len(constant) - 1} more" if len(constant) > 1 else ""
        raise UserError(f"column {name}{more} is constant; leave it out, or use standardise none")
    return found


def checksum(x: Tensor) -> str:
    """A short checksum of rows, to notice that they have changed."""
    return f"{zlib.crc32(np.ascontiguousarray(x.cpu().numpy()).data):08x}"


def check_label(label: Tensor | None, n: int, config: TrainConfig, device: torch.device) -> Tensor | None:
    """The labels for a conditional energy.

    Args:
        label: `(n,)` integers, or None.
        n: number of rows.
        config: of the run.
        device: where to train.

    Returns:
        The labels on the device; None for an energy without classes.

    Raises:
        UserError: labels are missing or out of range.
    """
    classes = config.energy.classes
    if not classes:
        return None
    if label is None or label.shape != (n,):
        raise UserError(f"an energy with {classes} classes needs a label for each row; without any, set --classes 0")
    if label.min() < 0 or label.max() >= classes:
        raise UserError(f"labels must lie between 0 and {classes - 1}, and one is {int(label.max())}; set --classes")
    return label.long().to(device)


def _check_energy(energy: nn.Module, x: Tensor) -> None:
    with torch.no_grad(), frozen(energy):
        shape = tuple(energy(x).shape)
    if shape != (len(x),):
        hint = "; end it with nn.Flatten(0)" if shape == (len(x), 1) else ""
        raise UserError(f"the energy must map {tuple(x.shape)} to {(len(x),)}, one number a row; it gave {shape}{hint}")
