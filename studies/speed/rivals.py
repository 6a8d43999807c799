"""What this library is compared with: a plain PyTorch loop, torchebm and ebmkit, each as its readers would use it.

All train the very same module on the same rows, with the same batch, chains, Langevin steps and Adam. The plain loop
is what a careful user writes: weights out of the graph while chains run, one forward pass for both phases, no averaged
weights, no guard and no statistics, which this library's update has. The others follow their own documentation:
torchebm's loop with `ContrastiveDivergence(persistent=True)`, ebmkit's `Trainer`. They have contrastive divergence
only, so PS-CD is compared with the plain loop alone.
"""

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor, nn

from studies.timing import LR, Case

PEERS = {"torchebm": "torchebm", "ebmkit": "ebm"}  # by the name to install, the name to import
RESTART = 0.05


def missing_peers() -> list[str]:
    """Names of those that are not installed."""
    return [name for name, module in PEERS.items() if importlib.util.find_spec(module) is None]


def network(case: Case) -> nn.Module:
    torch.manual_seed(0)
    return case.energy.build(case.shape)


# --- the plain loop ---


class PlainLoop:
    """Persistent contrastive divergence, or PS-CD, in plain PyTorch."""

    def __init__(
        self, energy: nn.Module, data: Tensor, case: Case, gamma: float = 0.0, *, restart: float = RESTART
    ) -> None:
        self.energy, self.data, self.gamma, self.restart = energy, data, gamma, restart
        self.batch_size, self.sampler = case.batch_size, case.sampler
        self.fresh: Callable[..., Tensor] = torch.rand if case.is_image else torch.randn
        self.buffer = self.fresh(case.buffer_size, *case.shape)
        self.optimizer = torch.optim.Adam(energy.parameters(), lr=LR)

    def update(self) -> Tensor:
        x_pos = self.data[torch.randint(len(self.data), (self.batch_size,))]
        index = torch.randint(len(self.buffer), (self.batch_size,))
        x_neg = self.buffer[index]
        again = torch.rand(len(x_neg)) < self.restart
        x_neg[again] = self.fresh(int(again.sum()), *x_neg.shape[1:])
        x_neg = self.chains(x_neg)
        self.buffer[index] = x_neg
        e_pos, e_neg = self.energy(torch.cat([x_pos, x_neg])).chunk(2)
        loss = plain_loss(e_pos, e_neg, self.gamma)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def chains(self, x: Tensor) -> Tensor:
        settings = self.sampler
        noise = settings.noise_scale or (2 * settings.step_size) ** 0.5
        self.energy.requires_grad_(False)
        for _ in range(settings.n_steps):
            x.requires_grad_(True)
            (grad,) = torch.autograd.grad(self.energy(x).sum(), x)
            x = x.detach() - settings.step_size * grad + noise * torch.randn_like(x)
            if settings.low is not None:
                x.clamp_(settings.low, settings.high)
        self.energy.requires_grad_(True)
        return x


def plain_loss(e_pos: Tensor, e_neg: Tensor, gamma: float) -> Tensor:
    """Eq. by eq.: log mean exp over the data, and samples with their weights held constant."""
    if gamma == 0:
        return e_pos.mean() - e_neg.mean()
    weights = torch.softmax(-gamma * e_neg.detach(), 0)
    log_mean = torch.logsumexp(-gamma * e_pos, 0) - torch.log(torch.tensor(float(len(e_pos))))
    return -log_mean / gamma - (weights * e_neg).sum()


# --- torchebm ---


def torchebm_update(
    energy: nn.Module, data: Tensor, case: Case, *, lr: float = LR, init_steps: int = 0
) -> tuple[Callable[[], None], object]:
    """An update as in torchebm's README, and its loss, which holds sampler and buffer.

    `init_steps` move the whole buffer once, before the first update; timings of single updates do without.
    """
    from torchebm.core import BaseModel
    from torchebm.losses import ContrastiveDivergence
    from torchebm.samplers import LangevinDynamics

    class Energy(BaseModel):
        def __init__(self) -> None:
            super().__init__()
            self.net = energy

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

    settings = case.sampler
    # Its noise is relative to sqrt(2 step).
    relative = 1.0 if settings.noise_scale is None else settings.noise_scale / (2 * settings.step_size) ** 0.5
    model = Energy()
    box = (settings.low, settings.high) if settings.low is not None else None
    sampler = LangevinDynamics(model=model, step_size=settings.step_size, noise_scale=relative, clamp=box)
    cd = ContrastiveDivergence(
        model=model,
        sampler=sampler,
        k_steps=settings.n_steps,
        persistent=True,
        buffer_size=case.buffer_size,
        init_steps=init_steps,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def update() -> None:
        loss, _ = cd(data[torch.randint(len(data), (case.batch_size,))])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return update, cd


# --- ebmkit ---


def ebmkit_trainer(energy: nn.Module, data: Tensor, case: Case, *, lr: float = LR) -> tuple[Callable[[], None], object]:
    """An update by ebmkit's `Trainer`, and its loss, which holds sampler and buffer."""
    import ebm

    settings = case.sampler
    box = (settings.low, settings.high) if settings.low is not None else None
    sampler = ebm.LangevinDynamics(
        step_size=settings.step_size, steps=settings.n_steps, noise_scale=settings.noise_scale, clamp=box
    )
    start = torch.rand if case.is_image else None
    buffer = ebm.ReplayBuffer(case.buffer_size, case.shape, reinit_prob=RESTART, init_fn=start)
    loss = ebm.ContrastiveDivergence(sampler, buffer=buffer)
    trainer = ebm.Trainer(energy, loss, lr=lr)

    def update() -> None:
        trainer.fit(data, steps=1, batch_size=case.batch_size, verbose=False)

    return update, loss
