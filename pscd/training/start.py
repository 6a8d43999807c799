"""The state that training starts from: coordinates, network, chains."""

import copy

import torch
from torch import Tensor, nn

from pscd import distributed
from pscd.config import TrainConfig
from pscd.errors import UserError
from pscd.fast import frozen, prefer_channels_last
from pscd.rng import generator, integer_seed
from pscd.sampling import buffer as buffers
from pscd.sampling.buffer import ReplayBuffer
from pscd.sampling.proposals import Chains, MixtureProposal
from pscd.training.checkpoint import TrainState

BASE_SCALE = 2.0  # width of the Gaussian that chains restart from, in standard deviations of the data
GROSS = 10.0  # interquartile ranges


def init_state(
    x: Tensor,
    config: TrainConfig,
    energy: nn.Module | None,
    device: torch.device,
    columns: tuple[str, ...] | None = None,
    proposal: MixtureProposal | Chains | None = None,
) -> TrainState:
    """A fresh state: random weights, coordinates and proposal from the data, chains from the base."""
    shape = tuple(x.shape[1:])
    shift, scale = torch.zeros(shape).double(), torch.ones(shape).double()
    if config.standardise == "std":
        shift, scale = standardisation(x)
        _check_varies(scale, columns)
    z = in_coordinates(x, shift, scale, config)
    start, proposal = _starting_points(z, config, proposal, device)
    if energy is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            energy = config.energy.build(shape)
    energy = prefer_channels_last(energy.to(device))
    _check_energy(energy, z[:2].to(device))
    shift, scale = shift.to(device), scale.to(device)
    distributed.broadcast([*energy.state_dict().values(), shift, scale, *proposal.tensors().values()])
    classes = config.energy.classes

    def label_base(n: int, rng: torch.Generator | None) -> Tensor:
        return torch.randint(classes, (n,), generator=rng, device=device)

    rng = generator(config.seed, 5, distributed.rank(), device=device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer_seed(generator(config.seed, 18)))
        aux = config.objective.init(energy, z.to(device))
    if aux is not None:
        distributed.broadcast([t.detach() for t in (*aux.parameters(), *aux.buffers())])
    parameters = [*energy.parameters(), *(aux.parameters() if aux is not None else [])]
    return TrainState(
        energy=energy,
        averaged=copy.deepcopy(energy).requires_grad_(False),
        aux=aux,
        optimizer=torch.optim.Adam(
            parameters, lr=config.lr, betas=(config.beta1, 0.999), fused=device.type in ("cpu", "cuda")
        ),
        buffer=ReplayBuffer(
            config.buffer_size // distributed.world_size(),
            start,
            label_base=label_base if classes else None,
            uint8=config.base == "box",
            generator=rng,
        ),
        step_size=torch.tensor(config.sampler.step_size, device=device),
        shift=shift,
        scale=scale,
        proposal=proposal,
    )


def in_coordinates(x: Tensor, shift: Tensor, scale: Tensor, config: TrainConfig) -> Tensor:
    """Rows as the network sees them."""
    return ((x - shift) / scale).float() if config.standardise == "std" else x.float()


def _starting_points(
    z: Tensor, config: TrainConfig, proposal: MixtureProposal | Chains | None, device: torch.device
) -> tuple[buffers.Base, MixtureProposal | Chains]:
    """What draws fresh chains, and where jumps come from: nowhere, for chains in a box."""
    shape = tuple(z.shape[1:])
    if config.base == "box":
        if z.min() < 0 or z.max() > 1:
            raise UserError("chains that start in the box need data in [0, 1], or images as bytes; use base gaussian")

        def uniform(n: int, rng: torch.Generator | None) -> Tensor:
            return torch.rand(n, *shape, generator=rng, device=device)

        return uniform, Chains(torch.empty(0, *shape, dtype=torch.uint8)).to(device)
    proposal = proposal or MixtureProposal.fit(z, components=config.jump_components, seed=config.seed)
    centre, spread = (t.float().to(device) for t in standardisation(z))

    def broad(n: int, rng: torch.Generator | None) -> Tensor:
        return centre + BASE_SCALE * spread * torch.randn(n, *shape, generator=rng, device=device)

    return broad, proposal.to(device)


def check_label(label: Tensor | None, n: int, config: TrainConfig, device: torch.device) -> Tensor | None:
    """The labels that the energy is conditional on, or none if it is not."""
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


def standardisation(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column, in float64, without its grossest outliers.

    A value further than `GROSS` interquartile ranges outside the quartiles does not count: a single slip of
    the pen would otherwise squeeze all other rows into a point. Clean data have no such values.
    """
    x = x.double()
    rows = x[torch.linspace(0, len(x) - 1, min(len(x), 100_000)).long()].flatten(1)
    low, high = (torch.quantile(rows, q, dim=0).view(x.shape[1:]) for q in (0.25, 0.75))
    reach = GROSS * (high - low)
    kept = ((x >= low - reach) & (x <= high + reach)) | (reach == 0)
    count = kept.sum(0)
    mean = (x * kept).sum(0) / count
    variance = ((x - mean).square() * kept).sum(0) / (count - 1)
    return mean, variance.sqrt()


def _check_varies(scale: Tensor, columns: tuple[str, ...] | None) -> None:
    constant = (scale.flatten() == 0).nonzero().flatten().tolist()
    if constant:
        name = columns[constant[0]] if columns is not None else str(constant[0])
        more = f" and {len(constant) - 1} more" if len(constant) > 1 else ""
        raise UserError(f"column {name}{more} is constant; leave it out, or use standardise none")
