import pytest
import torch

from pscd.energies import MLP
from pscd.errors import UserError
from pscd.losses import contrastive_divergence, free_energy, pseudo_spherical
from pscd.objectives import OBJECTIVES, PseudoSpherical, phase_stats, weighted_median
from pscd.rng import generator


@pytest.fixture
def batch():
    torch.manual_seed(0)
    return MLP((2,), width=8), torch.randn(6, 2, generator=generator(0)), torch.randn(6, 2, generator=generator(1))


def test_binds_the_loss_and_adds_the_l2_term(batch):
    energy, x_pos, x_neg = batch
    e_pos, e_neg = energy(x_pos), energy(x_neg)
    loss, stats = PseudoSpherical(gamma=0.5, l2=0.1)(energy, None, x_pos, x_neg, generator(0))
    expected = pseudo_spherical(e_pos, e_neg, 0.5) + 0.1 * (e_pos.square().mean() + e_neg.square().mean())
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(stats["e_pos"], e_pos.mean().detach())
    assert 1 / 6 <= stats["ess_neg"] <= 1


def test_contrastive_divergence_is_the_member_gamma_zero(batch):
    energy, x_pos, x_neg = batch
    loss, stats = OBJECTIVES["cd"](energy, None, x_pos, x_neg, generator(0))
    torch.testing.assert_close(loss, contrastive_divergence(energy(x_pos), energy(x_neg)))
    assert stats["ess_pos"] == 1


@pytest.mark.parametrize(
    ("warmup", "progress", "gamma"), [(0.5, 0.0, 0.0), (0.5, 0.25, 1.0), (0.5, 0.9, 2.0), (0, 0, 2)]
)
def test_gamma_warms_up_from_zero(warmup, progress, gamma):
    assert PseudoSpherical(gamma=2.0, warmup=warmup).at(progress).gamma == pytest.approx(gamma)


def test_negatives_drawn_from_r_are_not_weighted_again(batch):
    energy, x_pos, x_neg = batch
    objective = PseudoSpherical(gamma=1.0, warmup=0.5, negatives="direct")
    assert objective.sampling_power == 2
    assert objective.at(0.25).sampling_power == 1.5
    assert PseudoSpherical(gamma=1.0).sampling_power == 1
    loss, _ = objective(energy, None, x_pos, x_neg, generator(0))
    torch.testing.assert_close(loss, free_energy(energy(x_pos), 1.0) - energy(x_neg).mean())
    with pytest.raises(UserError, match="flat"):
        PseudoSpherical(gamma=-1.0, negatives="direct")
    with pytest.raises(UserError, match="negatives must be"):
        PseudoSpherical(negatives="none")


@pytest.mark.parametrize(("gamma", "power"), [(1.0, 1.0), (0.0, 1.0), (-0.5, 0.5), (-1.0, 1.0)])
def test_below_zero_negatives_are_drawn_from_r_unless_it_is_flat(gamma, power):
    assert PseudoSpherical(gamma=gamma).sampling_power == power
    assert PseudoSpherical(gamma=gamma, negatives="weighted").sampling_power == 1


def test_weighted_median_by_hand():
    values = torch.tensor([3.0, 1.0, 2.0])
    assert weighted_median(values, torch.full((3,), 1 / 3)) == values.median()
    assert weighted_median(values, torch.tensor([0.6, 0.3, 0.1])) == 3
    assert weighted_median(values, torch.tensor([0.2, 0.7, 0.1])) == 1


@pytest.mark.parametrize("gamma", [-0.5, 0.5])
def test_the_gap_of_the_true_model_is_nothing_in_either_way_of_drawing(gamma):
    # Energies of a standard Gaussian: data from it, negatives from it or from r = N(0, 1 / (1 + gamma)).
    z = torch.randn(200_000, 2, generator=generator(0))
    other = torch.randn(200_000, 2, generator=generator(1))
    e_pos = 0.5 * z.square().sum(1)
    from_q = phase_stats(e_pos, 0.5 * other.square().sum(1), gamma)
    from_r = phase_stats(e_pos, 0.5 * other.square().sum(1) / (1 + gamma), gamma, drawn_from_r=True)
    # A median of an exponential energy has standard error 1 / sqrt(n); weights enlarge it at most threefold.
    assert abs(from_q["gap"]) < 5 * 3 * 2**0.5 / 200_000**0.5
    assert abs(from_r["gap"]) < 5 * 3 * 2**0.5 / 200_000**0.5 / (1 + gamma)
    assert from_r["ess_neg"] == pytest.approx(1.0, rel=1e-4)
