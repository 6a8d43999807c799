import numpy as np
import pytest
import torch

from pscd import EnergyDetector
from pscd.detector.cells import CellModel
from pscd.detector.neighbours import N_ROWS, NEAREST, REACH, Neighbours
from pscd.files import read_tensors, write_tensors
from pscd.mixtures.mixed import MixedMixture
from tests.detector.tables import people, with_gaps

NAN = float("nan")


def numbers(n=120, d=3, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d))
    x[:, 1] += x[:, 0]
    return x


@pytest.fixture(scope="module")
def cells():
    return CellModel.fit(torch.from_numpy(numbers()), torch.zeros(3, dtype=torch.long), seed=0)


@pytest.fixture(scope="module")
def fitted():
    x = numbers()
    x[np.random.default_rng(1).random(x.shape) < 0.2] = NAN
    return EnergyDetector(n_updates=5).fit(x), x


def test_the_distance_is_the_mean_over_the_nearest_rows(cells):
    rows = torch.tensor([[1.0, 0, 0], [2, 0, 0], [3, 0, 0], [4, 0, 0], [5, 0, 0]] * 2).double()
    near = Neighbours(rows, torch.zeros(4))
    assert round(NEAREST * len(rows)) == 2
    z = torch.tensor([[0.0, 0, 0], [4.5, 0, 0], [1e6, 0, 0]]).double()
    torch.testing.assert_close(near.distance(cells, z), torch.tensor([1.0, 0.5, REACH - 5]).double())


def test_gaps_are_drawn_in_mirrored_pairs(cells):
    """In one column far away from all rows distances are linear, so that noise and its mirror image cancel."""
    rows = torch.tensor([[-REACH, 0.0, 0.0]] * 5).double()
    near = Neighbours(rows, torch.zeros(4))
    covariance = torch.diag(torch.tensor([0.1, 1e-6, 1e-6]))
    model = MixedMixture(
        torch.ones(1), torch.zeros(1, 3), covariance[None], torch.zeros(1, 0), torch.zeros(3, dtype=torch.long)
    )
    one = CellModel(cells.columns, model, cells.levels, cells.varies, cells.constants)
    z = torch.tensor([[NAN, 0.0, 0.0]]).double()
    torch.testing.assert_close(near.distance(one, z), torch.tensor([REACH]).double())


def test_the_energy_counts_as_much_as_pairs_of_cells_are_there(cells):
    """By hand: a third of the cells missing, so (2 / 3)^2 for the energy, and the rest for the distance."""
    near = Neighbours(torch.zeros(5, 3).double(), torch.tensor([2.0, 0.5, 1.0, 0.25]).double())
    z = torch.tensor([[0.0, 3.0, NAN], [0.1, 0.2, 0.3]]).double()
    energy = torch.tensor([7.0, 5.0]).double()
    found = near.blended(energy, cells, z)
    distance = near.distance(cells, z[:1])[0]
    part = 4 / 9 * np.arcsinh((7 - 2) / 0.5) + 5 / 9 * np.arcsinh((float(distance) - 1) / 0.25)
    assert found[0] == pytest.approx(2 + 0.5 * np.sinh(part))
    assert found[1] == energy[1]
    assert energy[0] == 7  # what was given is as it was


def test_rows_without_gaps_have_their_energy_to_the_last_digit(fitted):
    detector, x = fitted
    whole = x[~np.isnan(x).any(1)]
    energy = detector.numbers_.energy(detector.cells_.forward(torch.from_numpy(whole)))
    np.testing.assert_array_equal(detector.score_samples(whole), -energy.numpy())


def test_a_score_does_not_depend_on_the_rows_beside_it(fitted):
    detector, x = fitted
    alone = np.concatenate([detector.score_samples(row[None]) for row in x])
    np.testing.assert_allclose(alone, detector.score_samples(x), rtol=1e-6)


def test_a_row_without_anything_is_ordinary(fitted):
    detector, x = fitted
    nothing = detector.score_samples(np.full((1, 3), NAN))[0]
    assert np.quantile(detector.score_samples(x), 0.2) < nothing < np.quantile(detector.score_samples(x), 0.8)


def test_few_rows_are_kept_and_none_has_a_gap(fitted):
    detector, _ = fitted
    assert not detector.neighbours_.rows.isnan().any()
    many = EnergyDetector(n_updates=1).fit(numbers(400))
    assert many.neighbours_.rows.shape == (N_ROWS, 3)


def test_categories_cost_what_they_cost_beside_the_neighbours():
    """Only the energy of the numbers is blended: the cost of a rare category stays whole."""
    frame = with_gaps(people(200), 0.1)
    detector = EnergyDetector(n_updates=5).fit(frame)
    rows = detector._read(frame)
    z = detector.cells_.forward(rows.x)
    blended = detector.neighbours_.blended(detector.numbers_.energy(z[:, detector.cells_.numbers]), detector.cells_, z)
    expected = -(detector.cells_.category_energy(z) + blended)
    np.testing.assert_allclose(detector._score_of(z), expected)


def test_a_detector_saved_without_neighbours_goes_by_the_energy(fitted, tmp_path):
    detector, x = fitted
    detector.save(tmp_path)
    np.testing.assert_array_equal(EnergyDetector.load(tmp_path).score_samples(x), detector.score_samples(x))
    path = tmp_path / "detector.safetensors"
    tensors, metadata = read_tensors(path)
    write_tensors(path, {name: t for name, t in tensors.items() if not name.startswith("neighbours.")}, metadata)
    energy = detector.numbers_.energy(detector.cells_.forward(torch.from_numpy(x)))
    np.testing.assert_array_equal(EnergyDetector.load(tmp_path).score_samples(x), -energy.numpy())
