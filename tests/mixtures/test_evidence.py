import math

import pytest
import torch

from pscd.mixtures import Mixture, edge_of_reach, fit_robust_mixture, stands_out
from pscd.mixtures import evidence as module
from pscd.rng import generator


def rows(n, seed):
    return torch.randn(n, 1, generator=generator(seed), dtype=torch.float64)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_clean_rows_do_not_stand_out_though_a_background_explains_a_part_of_them(seed):
    z = rows(500, seed)
    mixture = fit_robust_mixture(z, robust=True, seed=seed)
    assert mixture.share_of_junk > 0.05
    assert not stands_out(mixture, z, gain=0.01, seed=seed)


def test_even_junk_stands_out():
    z = rows(500, 0)
    z[:50] = 16 * torch.rand(50, 1, generator=generator(1), dtype=torch.float64) - 8
    assert stands_out(fit_robust_mixture(z, robust=True, seed=0), z, gain=0.0, seed=0)


class Fitted:
    """Surely takes a share of any rows for junk, has a background of another share, and draws zeros."""

    density = type("Density", (), {"sample": staticmethod(lambda n, rng: torch.zeros(n, 1))})
    components = type("Components", (), {"weights": torch.ones(7)})

    def __init__(self, sure, background=0.0):
        self.sure, self.share_of_junk = sure, background

    def clean(self, z):
        return (torch.arange(len(z)) >= self.sure * len(z)).double() * 0.9 + 0.05


@pytest.fixture
def simulated(monkeypatch):
    """Fits to the simulated tables are taken from a list that the test fills; what was asked for is another."""
    found, asked = [], []

    def fit(z, **settings):
        asked.append((len(z), settings))
        return found[len(asked) - 1]

    monkeypatch.setattr(module, "fit_robust_mixture", fit)
    return found, asked


@pytest.mark.parametrize(
    ("of_rows", "of_clean", "expected"),
    [
        (0.050, [0.0, 0.0, 0.0], True),
        (0.008, [0.0, 0.0, 0.0], False),  # .004 and five rows of 1,000 may be chance: nothing is drawn
        (0.050, [0.0, 0.040, 0.0], True),
        (0.050, [0.0, 0.0, 0.042], False),  # every clean table must have less
    ],
)
def test_every_clean_table_must_have_clearly_less(of_rows, of_clean, expected, simulated):
    found, asked = simulated
    found += map(Fitted, of_clean)
    mixture = Fitted(of_rows)
    assert stands_out(mixture, torch.zeros(1000, 1), gain=0.0, seed=4, coordinates="those") is expected
    settings = {"robust": True, "seed": 4, "components": (7,), "coordinates": "those"}
    assert asked == [(1000, settings)] * (3 if of_rows > 0.01 else 0)


@pytest.mark.parametrize(
    ("background", "of_clean", "gain", "expected"),
    [
        (0.10, [0.0, 0.064, 0.0], 0.0021, True),  # .1 less .015 and 2 / sqrt(10,000)
        (0.10, [0.0, 0.0, 0.066], 0.0021, False),
        (0.10, [0.066, 0.0, 0.0], 0.0021, False),  # and what comes later does not help
        (0.10, [0.0, 0.0, 0.0], 0.0019, False),  # held-out rows do not want it
        (0.034, [0.0, 0.0, 0.0], 0.0021, False),
    ],
)
def test_a_background_that_is_larger_as_a_whole_stands_out_too(background, of_clean, gain, expected, simulated):
    found, asked = simulated
    found += [Fitted(0.0, share) for share in of_clean]
    assert stands_out(Fitted(0.0, background), torch.zeros(10_000, 1), gain=gain, seed=4) is expected
    assert len(asked) <= 3
    assert all(n == 4000 for n, _ in asked)


@pytest.mark.parametrize("clean", [Fitted(0.0, 0.3), Fitted(0.2, 0.0)])
def test_either_kind_of_junk_is_enough(clean, simulated):
    """Clean tables have more background than the rows, but none of it sure; or more that is sure, but less of it."""
    found, _ = simulated
    found += [clean] * 3
    assert stands_out(Fitted(0.05, 0.1), torch.zeros(10_000, 1), gain=0.1, seed=4)


def test_a_simulated_table_whose_background_is_full_is_fitted_again_from_the_components(simulated, monkeypatch):
    """Its start has missed a component, which says nothing about clean tables."""
    found, asked = simulated
    found += [Fitted(0.0), Fitted(0.2, 0.5), Fitted(0.0)]
    mixture, again = Fitted(0.05), []

    def refit(start, rows, *, coordinates):
        again.append((start, len(rows), coordinates))
        return Fitted(0.0)

    monkeypatch.setattr(module, "refit", refit)
    assert stands_out(mixture, torch.zeros(1000, 1), gain=0.0, seed=4, coordinates="those")
    assert (len(asked), again) == (3, [(mixture, 1000, "those")])


def test_the_edge_is_passed_by_two_draws_in_ten_thousand():
    """Log density of a standard Gaussian at 3.72, beyond which 2e-4 of it lie on both sides.

    Ten draws of 50,000 are expected there. Between 2 and 26, a chance of 1e-5 on either side, are 4.07 and 3.47.
    """
    one = Mixture(torch.ones(1).double(), torch.zeros(1, 1).double(), torch.ones(1, 1, 1).double())
    assert one.log_prob(torch.tensor([[4.1]]).double()) < edge_of_reach(one, seed=0)
    assert one.log_prob(torch.tensor([[3.4]]).double()) > edge_of_reach(one, seed=0)
    assert edge_of_reach(one, seed=0) == pytest.approx(-(3.72**2) / 2 - math.log(2 * math.pi) / 2, abs=1.4)
    assert edge_of_reach(one, seed=0) != edge_of_reach(one, seed=1)
