"""What a model needs, after its last update, to be sampled: a step size, and chains that are worth going on with."""

import torch
from torch import Tensor

from pscd import losses
from pscd.mixtures import Mixture
from pscd.model import IMAGE_BLOCK, Model, run_chains
from pscd.rng import Stream, generator
from pscd.sampling import Chains

SETTLE_CHAINS, SETTLE_ROUNDS = 256, 300  # enough for an initial step size off by a factor of a thousand
STRAY = 6.0  # spreads above the median energy of all chains; of clean digits 1 in 100 is one spread above it


def settled(model: Model) -> Model:
    """Make a trained model ready to be sampled.

    Args:
        model: its step size and its chains are changed in place.

    Returns:
        The model.
    """
    has_chains, proposal = model.config.objective.needs_negatives, model.proposal
    if has_chains and isinstance(proposal, Chains):
        model.proposal = _without_strays(model, proposal)
    elif not has_chains and isinstance(proposal, Mixture):
        _adapt_step(model, proposal)
    return model


def _adapt_step(model: Model, proposal: Mixture) -> None:
    """Adapt the sampler's step size to an energy that was trained without chains.

    The chains start at draws of the proposal, as those of `Model.sample` do. All processes do the same.
    """
    config = model.config
    rng = generator(config.seed, Stream.SETTLE_STEP, device=model.shift.device)
    x = proposal.sample(SETTLE_CHAINS, rng).view(-1, *model.shift.shape)
    for _ in range(SETTLE_ROUNDS):
        x, stats = run_chains(
            model.network,
            x,
            config,
            step_size=model.step_size,
            n_steps=2,  # one of them may be a jump
            proposal=proposal,
            generator=rng,
        )
        before, model.step_size = model.step_size, config.sampler.adapt(model.step_size, stats)
        if model.step_size is before:  # a sampler whose step is fixed
            break


def _without_strays(model: Model, chains: Chains) -> Chains:
    """The chains of the training without those that are far above the others."""
    # Some are still on their way from noise. And a robust training stops listening to some: junk that has no weight
    # among the data has none among the samples either, so a chain that came to rest in junk is never driven out.
    if not len(chains.points):
        return chains
    e = _energies(model, chains)
    stay = e <= e.median() + STRAY * losses.energy_spread(e)
    # A label all of whose chains have strayed can still be asked for.
    stay |= ~torch.isin(chains.label, chains.label[stay])
    return Chains(chains.points[stay], chains.label[stay])


@torch.no_grad()
def _energies(model: Model, chains: Chains) -> Tensor:
    """The energy of each chain, given its label if the model is conditional."""
    model.eval()
    labels = chains.label if model.config.energy.classes else None
    parts = torch.arange(len(chains.points), device=chains.points.device).split(IMAGE_BLOCK)
    z = (chains.at(part) for part in parts)
    return torch.cat(
        [
            model.network(x) if labels is None else model.network(x, labels[part])
            for x, part in zip(z, parts, strict=True)
        ]
    )
