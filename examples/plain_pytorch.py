"""Pseudo-spherical contrastive divergence in plain PyTorch, on one screen, without the library.

Trains an energy on two moons with 10 % outliers by contrastive divergence (CD, gamma 0) and by its pseudo-spherical
version (PS-CD, gamma 1), and prints which share of each model's samples lies where only outliers are.
`python examples/plain_pytorch.py` takes well under a minute.

What the library adds: a Metropolis step with independence proposals between modes, an adapted step size, averaged
weights, a guard that rolls back, run folders, exact resumes, several processes, and chains in C++.
"""

import math

import torch
from sklearn.datasets import make_moons
from torch import Tensor, nn

BATCH, CHAINS, RESTART, STEPS, STEP_SIZE = 256, 5000, 0.05, 20, 0.01


def gamma_loss(e_pos: Tensor, e_neg: Tensor, gamma: float) -> Tensor:
    """-1/gamma log E_p[exp(-gamma E)] - E_r[E], with r proportional to q^(gamma+1); CD at gamma = 0."""
    weights = torch.softmax(-gamma * e_neg.detach(), 0)  # turn samples of q into samples of r
    centre = e_pos.detach().mean()  # a constant added to all energies cancels but would cost digits
    e_pos, e_neg = e_pos - centre, e_neg - centre
    if gamma == 0:
        return e_pos.mean() - e_neg.mean()
    base = (e_pos.min() if gamma > 0 else e_pos.max()).detach()  # so that no exponent is positive
    exponent = -gamma * (e_pos - base)
    mean = torch.expm1(exponent).mean()
    log_mean = torch.log1p(mean) if mean > -0.5 else torch.logsumexp(exponent, 0) - math.log(len(e_pos))
    return base - log_mean / gamma - (weights * e_neg).sum()


def langevin(energy: nn.Module, x: Tensor) -> Tensor:
    """Eq. 2 of the paper: x <- x - eps/2 grad E(x) + sqrt(eps) z, with eps = 2 STEP_SIZE."""
    for _ in range(STEPS):
        x = x.detach().requires_grad_(True)
        (grad,) = torch.autograd.grad(energy(x).sum(), x)
        x = x.detach() - STEP_SIZE * grad.clamp(-10, 10) + (2 * STEP_SIZE) ** 0.5 * torch.randn_like(x)
    return x


def train(data: Tensor, gamma: float, updates: int = 600) -> tuple[nn.Module, Tensor]:
    """The energy, and the chains that it was trained with: samples of the model."""
    network = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1), nn.Flatten(0))
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    chains = 2 * torch.randn(CHAINS, 2)
    for _ in range(updates):
        x_pos = data[torch.randint(len(data), (BATCH,))]
        index = torch.randperm(CHAINS)[:BATCH]  # persistent chains: each continues from its last point
        start = torch.where(torch.rand(BATCH, 1) < RESTART, 2 * torch.randn(BATCH, 2), chains[index])
        x_neg = chains[index] = langevin(network, start)
        e_pos, e_neg = network(torch.cat([x_pos, x_neg])).chunk(2)  # one forward pass for both phases
        optimiser.zero_grad()
        gamma_loss(e_pos, e_neg, gamma).backward()
        optimiser.step()
    return network, chains


def main() -> None:
    torch.manual_seed(0)
    clean = 2 * torch.from_numpy(make_moons(9000, noise=0.1, random_state=0)[0]).float() + torch.tensor([-1.0, -0.2])
    data = torch.cat([clean, 12 * torch.rand(1000, 2) - 6])
    samples = {"data": data, "CD": train(data, gamma=0.0)[1], "PS-CD, gamma 1": train(data, gamma=1.0)[1]}
    for name, x in samples.items():
        print(f"{name}: {(x.abs() > 4).any(1).float().mean():.1%} far from the moons")


if __name__ == "__main__":
    main()
