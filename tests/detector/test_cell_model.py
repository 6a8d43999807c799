import pytest
import torch

from pscd.detector.cell_model import SETTINGS, CellModel, Drawn
from pscd.mixtures import fit_mixture

LEVELS = torch.tensor([0, 3, 0, 0, 2])


@pytest.fixture(scope="module")
def rows():
    """A number, a category that depends on it, a constant, another number, and a category with one value."""
    g = torch.Generator().manual_seed(0)
    a = torch.randn(300, generator=g).double()
    code = (a > 0.5).double() + (a > -0.5).double()
    b = 100 + 5 * a + torch.randn(300, generator=g).double()
    x = torch.stack([a, code, torch.full_like(a, 7.0), b, torch.ones_like(a)], 1)
    x[0, 0] = x[1, 1] = x[2, 2] = x[3, 3] = torch.nan
    return x


@pytest.fixture(scope="module")
def model(rows):
    return CellModel.fit(rows, LEVELS, seed=0)


def test_columns_that_never_vary_are_left_out_and_come_back(model, rows):
    assert model.varies.tolist() == [True, True, False, True, False]
    back = model.inverse(model.forward(rows))
    there = ~rows.isnan()
    torch.testing.assert_close(back[there], rows[there])
    assert back[2, 2] == 7


def test_a_new_value_in_a_constant_column_is_news(model, rows):
    changed = rows.clone()
    changed[5, 2] = 8.0
    changed[6, 4] = 0.0
    assert model.is_new(changed).nonzero().tolist() == [[5, 2], [6, 4]]
    assert not model.is_new(rows).any()


def test_categories_cost_what_they_cost_given_the_numbers(model, rows):
    """-log m(category | numbers), and the probabilities of all categories sum to one."""
    z = model.forward(rows[10:20])
    log_probs = []
    for code in range(3):
        changed = z.clone()
        changed[:, 1] = code
        torch.testing.assert_close(model.category_energy(changed), -model.category_log_prob(changed))
        log_probs.append(model.category_log_prob(changed))
    torch.testing.assert_close(torch.stack(log_probs).exp().sum(0), torch.ones(10).double())
    wrong = z.clone()
    wrong[:, 1] = torch.where(z[:, 1] == 0, 2.0, 0.0)
    assert (model.category_energy(wrong) > model.category_energy(z)).all()


def test_a_missing_category_costs_what_is_to_be_expected(model, rows):
    z = model.forward(rows[10:11])
    gap = z.clone()
    gap[:, 1] = torch.nan
    mean = 0.0
    for code in range(3):
        z[:, 1] = code
        log_prob = model.category_log_prob(z)
        mean += float(log_prob.exp() * -log_prob)
    assert float(model.category_energy(gap)) == pytest.approx(mean, abs=0.15)  # Jensen: at most log K too high
    assert float(model.category_log_prob(gap)) == pytest.approx(0.0, abs=1e-9)


def test_tables_of_categories_alone(rows):
    model = CellModel.fit(rows[:, [1, 4]], LEVELS[[1, 4]], seed=0)
    assert model.columns is None
    z = model.forward(rows[10:20, [1, 4]])
    torch.testing.assert_close(model.category_energy(z), -model.mixture.log_prob(z))
    torch.testing.assert_close(model.inverse(z), rows[10:20, [1, 4]])


def test_nothing_to_learn():
    with pytest.raises(ValueError, match="constant"):
        CellModel.fit(torch.ones(5, 2).double(), torch.tensor([0, 2]), seed=0)


def test_the_mixture_is_fitted_when_it_is_first_asked_for(rows):
    """To rows that are drawn from the table, since fitting takes as long for each of them."""
    model = CellModel.fit(rows, LEVELS, seed=3)
    assert "mixture" not in vars(model)
    expected = fit_mixture(model.source.rows, [0, 3, 0], seed=3, settings=SETTINGS).components
    assert all(torch.equal(t, expected.tensors()[name]) for name, t in model.mixture.tensors().items())
    assert model.mixture is model.mixture
    many = torch.randn(SETTINGS.max_rows + 50, 1, generator=torch.Generator().manual_seed(0)).double()
    large = CellModel.fit(many, torch.tensor([0]), seed=3)
    assert isinstance(large.source, Drawn)
    assert large.source.rows.shape == (SETTINGS.max_rows, 1)
    assert torch.isin(large.source.rows, large.forward(many)).all()
    assert len(large.source.rows.unique()) == SETTINGS.max_rows


def test_energies_of_numbers_need_no_mixture():
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).double()
    model = CellModel.fit(x, torch.tensor([0, 0]), seed=0)
    z = model.forward(x)
    assert torch.equal(model.category_energy(z), torch.zeros(50).double())
    assert torch.equal(model.category_log_prob(z), torch.zeros(50).double())
    assert "mixture" not in vars(model)


def test_values_of_the_mixture_s_columns_for_all_columns(model):
    values = torch.tensor([[1.0, 2.0, 3.0]]).double()
    assert model.spread(values).tolist() == [[1, 2, 0, 3, 0]]


def test_which_columns_are_numbers_and_which_the_mixture_sees(model, rows):
    assert model.numbers.tolist() == [True, False, True]
    assert (model.all_vary, model.only_numbers) == (False, False)
    numbers = CellModel.fit(rows[:, [0, 3]], LEVELS[[0, 3]], seed=0)
    assert (numbers.all_vary, numbers.only_numbers) == (True, True)
    categories = CellModel.fit(rows[:, [1]], LEVELS[[1]], seed=0)
    assert (categories.all_vary, categories.only_numbers, categories.columns) == (True, False, None)
    z = categories.forward(rows[:, [1]])
    torch.testing.assert_close(categories.category_energy(z), categories.mixture.energy(z))
    there = ~z.isnan().any(1)
    torch.testing.assert_close(categories.category_log_prob(z), categories.mixture.log_prob(z))
    assert there.sum() == 299


def test_numbers_beside_constant_categories_have_no_categories_to_pay_for(rows):
    model = CellModel.fit(rows[:, [0, 3, 4]], LEVELS[[0, 3, 4]], seed=0)
    z = model.forward(rows[:, [0, 3, 4]])
    assert not model.only_numbers
    assert torch.equal(model.category_energy(z), torch.zeros(300).double())
    assert torch.equal(model.category_log_prob(z), torch.zeros(300).double())


def test_constants_are_of_columns_that_never_vary(model, rows):
    assert model.constants.isnan().tolist()[:1] == [True]
    assert model.constants[[2, 4]].tolist() == [7, 1]
    gone = rows.clone()
    gone[:, 2] = torch.nan
    empty = CellModel.fit(gone, LEVELS, seed=0)
    assert empty.varies.tolist() == [True, True, False, True, False]
    assert empty.constants[2].isnan()
    assert empty.inverse(empty.forward(rows))[:, 2].isnan().all()


def test_what_is_saved_of_the_cells(model):
    saved = model.tensors()
    assert {"levels", "varies", "constants", "mixture.weights", "mixture.means"} <= saved.keys()
    assert torch.equal(saved["levels"], LEVELS)
    assert torch.equal(saved["mixture.weights"], model.mixture.weights)
