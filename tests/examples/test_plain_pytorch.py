"""The program on one screen computes what the library computes."""

import importlib.util
from pathlib import Path

import pytest
import torch

from pscd import losses

PROGRAM = Path(__file__).parents[2] / "examples" / "plain_pytorch.py"


@pytest.fixture(scope="module")
def plain():
    spec = importlib.util.spec_from_file_location("plain_pytorch", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def energies(scale, offset, seed):
    generator = torch.Generator().manual_seed(seed)
    e_pos, e_neg = (offset + scale * torch.randn(256, generator=generator) for _ in range(2))
    return e_pos.requires_grad_(True), e_neg.requires_grad_(True)


@pytest.mark.parametrize("gamma", [-1.0, -0.5, 0.0, 1e-6, 0.3, 1.0, 2.0, 10.0])
@pytest.mark.parametrize(("scale", "offset"), [(0.01, 0.0), (1.0, -3.0), (20.0, 1e4)])
def test_loss_and_gradient_are_the_library_s_bit_for_bit(plain, gamma, scale, offset):
    batch = energies(scale, offset, seed=0)
    ours = losses.pseudo_spherical(*batch, gamma)
    theirs = plain.gamma_loss(*batch, gamma)
    assert torch.equal(ours, theirs)
    for a, b in zip(torch.autograd.grad(ours, batch), torch.autograd.grad(theirs, batch), strict=True):
        assert torch.equal(a, b)


def test_a_short_run_learns_where_the_data_are(plain):
    torch.manual_seed(0)
    data = 0.3 * torch.randn(2000, 2) + torch.tensor([1.0, -1.0])
    energy, chains = plain.train(data, gamma=1.0, updates=150)
    with torch.no_grad():
        elsewhere = energy(torch.tensor([[-1.0, 1.0], [3.0, -1.0], [1.0, 2.0]]))
        assert elsewhere.min() > energy(data).mean() + 1
    # Chains start around 0 with deviation 2: within 1 of the data's centre lie about 9 in 100 of them.
    near = (chains - data.mean(0)).norm(dim=1) < 1
    assert near.float().mean() > 0.3


def test_the_program_fits_on_one_screen():
    assert len(PROGRAM.read_text().splitlines()) <= 80
