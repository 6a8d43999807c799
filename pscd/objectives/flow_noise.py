"""A normalising flow as noise: close to the data, sampled in one pass, with an exact density. Needs zuko."""

import math
import sys
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from pscd import rng
from pscd.files import needs
from pscd.progress import progress_bar


@dataclass(frozen=True)
class FlowSettings:
    """Size and training of the flow: a fit takes seconds, and noise need not be an exact model."""

    transforms: int = 3
    width: int = 64
    steps: int = 300
    batch_size: int = 512
    lr: float = 5e-3
    max_rows: int = 10_000  # of the data to fit to
    broad_weight: float = 0.1
    broad_scale: float = 3.0  # deviation of the broad Gaussian, in those of the data


def zuko_flows() -> Any:
    """The module `zuko.flows`; a `UserError` that says how to install it where it is missing."""
    return needs("zuko", "flow", "noise flow").flows


class FlowNoise(nn.Module):
    """A neural spline flow (Durkan et al. 2019) fitted by maximum likelihood, and a broad Gaussian."""

    # The broad component keeps the noise from vanishing at data that the flow was not fitted to. The flow consists of
    # coupling layers, so that both directions take one pass whatever the dimension.

    centre: Tensor
    spread: Tensor

    def __init__(self, centre: Tensor, spread: Tensor, settings: FlowSettings | None = None) -> None:
        super().__init__()
        settings = self.settings = settings or FlowSettings()
        dim = len(centre)
        # A coupling layer transforms one part of the columns given the other, so it needs two columns.
        coupling = {"passes": 2} if dim > 1 else {}
        self.flow = zuko_flows().NSF(
            dim, transforms=settings.transforms, hidden_features=[settings.width, settings.width], **coupling
        )
        self.register_buffer("centre", centre)
        self.register_buffer("spread", spread)

    @classmethod
    def fit(cls, x: Tensor, *, seed: int, settings: FlowSettings | None = None) -> Self:
        """Fit a flow to rows of about unit scale, in a few seconds; deterministic for a seed."""
        settings = settings or FlowSettings()
        x = x.flatten(1)[: settings.max_rows]
        batch = min(settings.batch_size, len(x))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            noise = cls(x.mean(0).cpu(), x.std(0, correction=0).cpu() + 1e-3, settings).to(x.device)
        optimiser = torch.optim.Adam(noise.flow.parameters(), lr=settings.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps)
        generator = rng.generator(seed, rng.Stream.FLOW, device=x.device)
        with (
            torch.enable_grad(),
            progress_bar(settings.steps, show=sys.stderr.isatty(), unit="step of the noise") as bar,
        ):
            for _ in range(settings.steps):
                rows = x[torch.randint(len(x), (batch,), generator=generator, device=x.device)]
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
        broad = torch.rand(n, 1, generator=generator, device=z.device) < self.settings.broad_weight
        # Inverted here, since zuko's `sample` takes no generator.
        with torch.no_grad():
            white = torch.where(broad, self.settings.broad_scale * z, self.flow().transform.inv(z))
        return self.centre + self.spread * white

    def log_prob(self, x: Tensor) -> Tensor:
        """Log density of rows, `(n, *shape)` to `(n,)`."""
        white = (x.flatten(1) - self.centre) / self.spread
        dim = white.shape[1]
        scale, weight = self.settings.broad_scale, self.settings.broad_weight
        broad = -0.5 * (white / scale).square().sum(1) - dim * math.log(scale * math.sqrt(2 * math.pi))
        broad = broad - self.spread.log().sum()
        return torch.logaddexp(self._flow_log_prob(x) + math.log(1 - weight), broad + math.log(weight))

    def _flow_log_prob(self, x: Tensor) -> Tensor:
        white = (x.flatten(1) - self.centre) / self.spread
        return self.flow().log_prob(white) - self.spread.log().sum()
