"""Chains of a configuration's sampler on an energy, in the network's coordinates."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pscd import fast
from pscd.config import TrainConfig
from pscd.energies import as_function
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.sampling import ChainCallback, Chains, Proposal, Sampler


def run_chains(
    energy: nn.Module,
    x: Tensor,
    config: TrainConfig,
    *,
    step_size: Tensor,
    n_steps: int | None = None,
    label: Tensor | None = None,
    seen_as: Callable[[nn.Module], nn.Module] | None = None,
    sampler: Sampler | None = None,
    proposal: Proposal | None = None,
    generator: torch.Generator | None = None,
    callback: ChainCallback | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run a configuration's sampler on an energy: the one place where the two meet.

    Labels, precision and the way gradients are computed belong to the energy, for chains in training as for those that
    sample, inpaint or denoise. `seen_as` wraps all that, for example in a `MaskedEnergy`; `sampler` and `n_steps`
    replace those of the configuration. Returns the points at the end, and the sampler's statistics.
    """
    sampler = config.sampler if sampler is None else sampler
    function = as_function(energy, config.compute.precision, label)
    with fast.using(config.compute.gradients):
        return sampler.run(
            function if seen_as is None else seen_as(function),
            x,
            step_size=step_size,
            n_steps=sampler.n_steps if n_steps is None else n_steps,
            proposal=proposal,
            generator=generator,
            callback=callback,
        )


def sample_chains(
    network: nn.Module,
    z: Tensor,
    config: TrainConfig,
    *,
    label: Tensor | None,
    step_size: Tensor,
    n_steps: int,
    proposal: Proposal,
    generator: torch.Generator,
    callback: ChainCallback | None,
) -> Tensor:
    """Where chains of a trained network that start at `z` end: with levels of noise, all of them in turn."""
    objective = config.objective
    if objective.uses_levels:
        with fast.using(config.compute.gradients):
            return objective.sample(network, z, n_steps=n_steps, generator=generator, callback=callback)
    moved, _ = run_chains(
        network,
        z,
        config,
        label=label,
        step_size=step_size,
        n_steps=n_steps,
        proposal=proposal,
        generator=generator,
        callback=callback,
    )
    return moved


def starts(
    proposal: Mixture | Chains,
    n: int,
    config: TrainConfig,
    shape: torch.Size,
    *,
    generator: torch.Generator,
    label: int | None,
) -> tuple[Tensor, Tensor | None]:
    """Where chains that sample a model start, `(n, *shape)`, and their labels, if any."""
    classes = config.energy.classes
    if label is not None and not 0 <= label < classes:
        hint = f"between 0 and {classes - 1}" if classes else "left out: the model is not conditional"
        raise UserError(f"the label must be {hint}, got {label}")
    if isinstance(proposal, Chains):
        index = proposal.choose(n, generator, label)
        return proposal.at(index), proposal.label[index] if classes else None
    return proposal.sample(n, generator).view(n, *shape), None
