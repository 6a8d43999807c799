"""Unadjusted Langevin dynamics: chains with a fixed step, for images and other high-dimensional data."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pscd import fast
from pscd.errors import UserError
from pscd.sampling.protocol import ChainCallback, Proposal, Sampler, box, check_box, check_positive, langevin_noise
from pscd.sampling.spectrum import spectrum
from pscd.types import Energy, documented, option


def langevin(
    energy: Energy,
    x: Tensor,
    *,
    n_steps: int,
    step_size: float | Tensor,
    noise_scale: float | None = None,
    bounds: tuple[float, float] | None = None,
    max_grad: float | None = None,
    slope: float = 0.0,
    generator: torch.Generator | None = None,
    callback: ChainCallback | None = None,
) -> Tensor:
    """Unadjusted Langevin dynamics (Eq. 2): x <- x - step_size * grad E(x) + noise_scale * z, z standard normal.

    Eq. 2 has `step_size = eps / 2` and `noise_scale = sqrt(eps)`, which is temperature 1. In general the chain runs at
    the temperature `noise_scale**2 / (2 * step_size)`; without noise it is gradient descent.

    With a `slope` it is preconditioned by the spectrum of images, x <- x - step_size * P grad E(x) +
    noise_scale * P^(1/2) z, and has the same temperature; see `pscd.sampling.spectrum`.

    Args:
        energy: maps `(B, *shape)` to `(B,)`.
        x: starting points, `(B, *shape)`; not changed.
        n_steps: number of steps.
        step_size: factor of the gradient, eps / 2.
        noise_scale: standard deviation of the noise; by default sqrt(2 step_size), temperature 1.
        bounds: a box `(low, high)` that points are clamped to after every step.
        max_grad: clamp every component of the gradient to `[-max_grad, max_grad]`; with a slope, of that with respect
            to the coefficients of the spectrum.
        slope: how steeply the amplitude of images falls with the frequency; 0: no preconditioning.
        generator: source of randomness; torch's global one by default.
        callback: called after each step with a dictionary of `step`, `x` and `energy` (before the step).

    Returns:
        The points at the end, `(B, *shape)`.

    >>> def energy(x):
    ...     return x.square().sum(1) / 2
    >>> langevin(energy, torch.ones(1, 2), n_steps=1, step_size=0.1, noise_scale=0.0)
    tensor([[0.9000, 0.9000]])
    """
    x = x.detach().clone() if bounds is None else x.detach().clamp(*bounds)
    noise = langevin_noise(step_size) if noise_scale is None else noise_scale
    z = torch.empty_like(x)
    space = spectrum(tuple(x.shape[1:]), slope, x.device) if slope else None
    with torch.no_grad(), fast.evaluating(energy, x) as evaluate:
        if evaluate.moves is not None and callback is None and space is None:
            return fast.at_once(evaluate.moves, x, n_steps, step_size, noise, bounds, max_grad, generator)
        for step in range(n_steps):
            e, grad = evaluate(x)
            grad = grad if space is None else space.coefficients(grad)
            if max_grad is not None:
                grad = grad.clamp(-max_grad, max_grad)
            start = x if space is None else torch.zeros_like(x)
            moved = start - step_size * grad
            if noise_scale != 0:
                moved += z.normal_(generator=generator).mul_(noise)
            x = moved if space is None else x + space.images(moved)
            if bounds is not None:
                x = x.clamp_(*bounds)
            if callback is not None:
                callback({"step": step, "x": x, "energy": e})
    return x


@documented
@dataclass(frozen=True)
class Langevin(Sampler):
    """Unadjusted Langevin dynamics with a fixed step; for images and other high-dimensional data.

    >>> Langevin(step_size=0.5, noise_scale=0.5).temperature
    0.25
    """

    n_steps: int = option(60, "Langevin steps per update", flag="steps")
    step_size: float = option(0.01, "factor of the energy gradient in each step")
    noise_scale: float | None = option(None, "noise in each step; none: sqrt(2 step), temperature 1")
    max_grad: float | None = option(None, "clamp every component of the gradient to this size")
    low: float | None = option(None, "lower bound of the box that chains stay in, in the network's coordinates")
    high: float | None = option(None, "upper bound of the box that chains stay in, in the network's coordinates")
    slope: float = option(0.0, "images: steps shrink as amplitudes do, as frequency^-slope (photographs: 1.3); 0: none")

    def __post_init__(self) -> None:
        check_positive(n_steps=self.n_steps, step_size=self.step_size)
        check_box(self.low, self.high)
        if self.noise_scale is not None and not 0 <= self.noise_scale < math.inf:
            raise UserError(f"noise_scale must not be negative, got {self.noise_scale}")
        if self.max_grad is not None:
            check_positive(max_grad=self.max_grad)
        if not 0 <= self.slope < math.inf:
            raise UserError(f"slope must not be negative, got {self.slope}")

    @property
    def temperature(self) -> float:
        """The temperature that step and noise imply: samples follow exp(-E / temperature)."""
        return 1.0 if self.noise_scale is None else self.noise_scale**2 / (2 * self.step_size)

    def run(
        self,
        energy: Energy,
        x: Tensor,
        *,
        step_size: Tensor,
        n_steps: int,
        proposal: Proposal | None = None,
        generator: torch.Generator | None = None,
        callback: ChainCallback | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Run chains, see `langevin`."""
        bounds = box(self.low, self.high)
        x = langevin(
            energy,
            x,
            n_steps=n_steps,
            step_size=step_size,
            noise_scale=self.noise_scale,
            bounds=bounds,
            max_grad=self.max_grad,
            slope=self.slope,
            generator=generator,
            callback=callback,
        )
        return x, {"temperature": torch.tensor(self.temperature, device=x.device)}
