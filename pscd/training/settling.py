"""The sampler's step size for an energy that was trained without chains."""

from pscd.mixtures import Mixture
from pscd.model import Model, run_chains
from pscd.rng import Stream, generator

SETTLE_CHAINS, SETTLE_ROUNDS = 256, 300  # enough for an initial step size off by a factor of a thousand


def settled(model: Model) -> Model:
    """Adapt the sampler's step size to an energy that was trained without chains, so that the model can be sampled.

    The chains start at draws of the proposal, as those of `Model.sample` do. All processes do the same.

    Args:
        model: its step size is changed in place.

    Returns:
        The model.
    """
    config, proposal = model.config, model.proposal
    if config.objective.needs_negatives or not isinstance(proposal, Mixture):
        return model
    rng = generator(config.seed, Stream.SETTLE_STEP, device=model.shift.device)
    x = proposal.sample(SETTLE_CHAINS, rng).view(-1, *model.shift.shape)
    for _ in range(SETTLE_ROUNDS):
        x, stats = run_chains(
            model.energy,
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
    return model
