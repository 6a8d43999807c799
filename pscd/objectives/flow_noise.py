"""A normalising flow as noise: close to the data, sampled in one pass, with an exact density. Needs zuko."""

import math
import sys
from typing import Any, Self

import torch
from torch import Tensor, nn

from pscd import rng
from pscd.files import needs
from pscd.progress import progress_bar

TRANSFORMS, WIDTH = 3, 64
STEPS, BATCH, RATE = 300, 512, 5e-3
MAX_ROWS = 10_000  # of the data to fit to, which is enough for noise
BROAD_WEIGHT, BROAD_SCALE = 0.1, 3.0


def zuko_flows() -> Any:
    """The module `zuko.flows`; a `UserError` that says how to install it where it is missing."""
    return needs("zuko", "flow", "--noise flow").flows


class FlowNoise(nn.Module):
    """A neural spline flow (Durkan et al. 2019) fitted by maximum likelihood, with a broad Gaussian as one tenth of it.

    The broad component keeps the noise from vanishing at data that the flow has not seen. The flow consists of coupling
    layers, so that both directions take one pass whatever the dimension.
    """

    centre: Tensor
    spread: Tensor

    def __init__(self, centre: Tensor, spread: Tensor) -> None:
        super().__init__()
        dim = len(centre)
        # A coupling layer transforms some columns given the others, so it needs two.
        coupling = {"passes": 2} if dim > 1 else {}
        self.flow = zuko_flows().NSF(dim, transforms=TRANSFORMS, hidden_features=[WIDTH, WIDTH], **coupling)
        self.register_buffer("centre", centre)
        self.register_buffer("spread", spread)

    @classmethod
    def fit(cls, x: Tensor, *, seed: int) -> Self:
        """Fit a flow to rows of about unit scale, in a few seconds; deterministic given the seed."""
        x = x.flatten(1)[:MAX_ROWS]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            noise = cls(x.mean(0).cpu(), x.std(0, correction=0).cpu() + 1e-3).to(x.device)
        optimiser = torch.optim.Adam(noise.flow.parameters(), lr=RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
        generator = rng.generator(seed, rng.Stream.FLOW, device=x.device)
        with torch.enable_grad(), progress_bar(STEPS, show=sys.stderr.isatty(), unit="step of the noise") as bar:
            for _ in range(STEPS):
                rows = x[torch.randint(len(x), (min(BATCH, len(x)),), generator=generator, device=x.device)]
                loss = -noise._flow_log_prob(rows).mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(noise.flow.parameters(), 5.0)
                optimiser.step()
                schedule.step()
                bar.update()
        return noise.requires_grad_(False).eval()

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw rows."""
        shape = (n, len(self.centre))
        z = torch.randn(shape, generator=generator, device=self.centre.device, dtype=self.centre.dtype)
        broad = torch.rand(n, 1, generator=generator, device=z.device) < BROAD_WEIGHT
        # Inverted by hand, since zuko's `sample` takes no generator.
        with torch.no_grad():
            white = torch.where(broad, BROAD_SCALE * z, self.flow().transform.inv(z))
        return self.centre + self.spread * white

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of rows, `(n, *shape)` to `(n,)`."""
        white = (x.flatten(1) - self.centre) / self.spread
        dim = white.shape[1]
        broad = -0.5 * (white / BROAD_SCALE).square().sum(1) - dim * math.log(BROAD_SCALE * math.sqrt(2 * math.pi))
        broad = broad - self.spread.log().sum()
        return torch.logaddexp(self._flow_log_prob(x) + math.log(1 - BROAD_WEIGHT), broad + math.log(BROAD_WEIGHT))

    def _flow_log_prob(self, x: Tensor) -> Tensor:
        white = (x.flatten(1) - self.centre) / self.spread
        return self.flow().log_prob(white) - self.spread.log().sum()
