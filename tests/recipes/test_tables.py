from dataclasses import replace

import pytest
import torch

import pscd
import pscd.recipes.tables as tables
from pscd.config import TrainConfig
from pscd.coordinates import LINEAR
from pscd.data.streams import distinct
from pscd.errors import UserError
from pscd.recipes.configs import RECIPES, for_rows
from pscd.recipes.tables import TableSettings, auto_gamma, coordinates_of, prepare, sampled_note, split_rows
from pscd.rng import Stream, generator
from pscd.training.held_out import hold_out


def clean_rows(n=600, d=4, seed=0):
    """Correlated columns and one mode."""
    rng = generator(seed)
    x = torch.randn(n, d, generator=rng, dtype=torch.float64)
    x[:, 1] += 0.8 * x[:, 0]
    return 10 + 3 * x


def dirty_rows(share=0.15, **settings):
    x = clean_rows(**settings)
    k = int(share * len(x))
    low, high = x.amin(0), x.amax(0)
    x[:k] = low + (high - low) * torch.rand(k, x.shape[1], generator=generator(9), dtype=torch.float64) * 1.5
    return x, k


def two_modes(n, seed):
    x = clean_rows(n, 3, seed)
    x[::2, 0] += 40
    return x


def heavy(n, seed):
    """Long tails on both sides."""
    return clean_rows(n, 6, seed).sub(10).div(3).sinh()


def even(n, seed):
    return torch.rand(n, 3, generator=generator(seed), dtype=torch.float64)


def skewed(n, seed):
    """Log-normal."""
    return clean_rows(n, 6, seed).sub(10).div(3).exp()


def squares(n, seed):
    """A long tail on one side, and an end with many rows on the other."""
    return clean_rows(n, 5, seed).sub(10).square()


def plane(n, seed):
    return clean_rows(n, 2, seed)


@pytest.mark.parametrize("table", [two_modes, even, plane, skewed])
def test_on_clean_tables_gamma_is_small_and_hardly_any_row_is_ignored(table):
    prepared, config = prepare(table(800, 0), RECIPES["table"])
    assert config.objective.gamma < 0.08
    assert prepared.clean is None or prepared.clean.mean() > 0.92


@pytest.mark.parametrize("table", [heavy, squares])
def test_on_tables_with_long_tails_some_rows_are_ignored(table):
    prepared, _ = prepare(table(800, 0), RECIPES["table"])
    assert prepared.clean.mean() > 0.8


@pytest.mark.parametrize("name", ["plane", "table"])
@pytest.mark.parametrize("d", [2, 6])
def test_a_tenth_of_uniform_contamination(name, d):
    for seed in range(2):
        x = clean_rows(1000, d, seed)
        k = 100
        x[:k] = 10 + 60 * (torch.rand(k, d, generator=generator(seed, 7), dtype=torch.float64) - 0.5)
        prepared, config = prepare(x, RECIPES[name])
        assert config.objective.gamma == pytest.approx(0.1, abs=0.05)
        assert prepared.mixture.contamination == pytest.approx(0.1, abs=5 * (0.09 / 1000) ** 0.5)
        # Contamination evenly in a box of 60 lies within 3 deviations, 18 wide, with a chance of .3^d: .09 in 2-D.
        assert (prepared.clean[:k] < 0.5).double().mean() > 0.8
        assert (prepared.clean[k:] > 0.5).double().mean() > 0.97
        assert "of the rows look like contamination" in prepared.notes[0]


def test_broad_contamination_of_fine_structure_is_recognised():
    """Ten per cent of a broad Gaussian around three thin lines: a mixture could take it for one more component."""
    rng = generator(0)
    x = torch.randn(4000, 2, generator=rng, dtype=torch.float64) * torch.tensor([2.0, 0.05])
    x[:, 1] += torch.arange(4000) % 3 - 1.0
    x[:400] = 4 * torch.randn(400, 2, generator=rng, dtype=torch.float64)
    prepared, _ = prepare(x, RECIPES["plane"])
    assert prepared.mixture.contamination == pytest.approx(0.1, abs=5 * (0.09 / 4000) ** 0.5 + 0.01)


def test_a_far_group_is_kept_as_data_and_named():
    """As dense as everything else: nothing says that it is contamination, so it stays and the notes name it."""
    x = clean_rows(1000, 2)
    x[:150] = torch.tensor([80.0, 70.0]) + 0.5 * torch.randn(150, 2, generator=generator(3), dtype=torch.float64)
    prepared, _ = prepare(x, RECIPES["plane"], ("width", "height"))
    assert prepared.clean[:150].mean() > 0.9
    assert prepared.notes[1].startswith("a group of 15.0% of the rows, around width = 80, height = 7")


def test_skewed_columns_are_unskewed_and_even_contamination_among_them_is_still_seen():
    """Evenly spread contamination crowds at the far end of a logarithm, where a component would take it for a group."""
    x = skewed(1800, 0)
    k = 180
    x[:k] = x.amin(0) + (x.amax(0) - x.amin(0)) * torch.rand(k, 6, generator=generator(9), dtype=torch.float64)
    prepared, _ = prepare(x, RECIPES["table"])
    assert prepared.coordinates.skew is not None
    assert (prepared.clean[:k] < 0.5).double().mean() > 0.8
    assert (prepared.clean[k:] < 0.5).double().mean() < 0.05


def test_gamma_auto_is_the_share_of_contamination_less_two_standard_errors_per_spread():
    for k in (0, 600):
        x = clean_rows(3000, 6)
        x[:k] = 10 + 60 * (torch.rand(k, 6, generator=generator(7), dtype=torch.float64) - 0.5)
        prepared, config = prepare(x, RECIPES["table"])
        assert config.objective.unit == "spread"
        assert config.objective.gamma == pytest.approx(k / 3000, abs=5 * (0.16 / 3000) ** 0.5)
        assert config.objective.gamma <= prepared.mixture.contamination


def test_gamma_auto_takes_less_off_the_clearer_the_contamination_is():
    n, share = 1000, 0.1
    clear = (torch.arange(n) >= share * n).double()
    assert auto_gamma(share, clear) == pytest.approx(share - 2 * (share * (1 - share) / n) ** 0.5, abs=1e-3)
    assert 0 < auto_gamma(share, 1 - share + 0.5 * (clear - clear.mean())) < auto_gamma(share, clear)
    assert auto_gamma(share, torch.full((n,), 1 - share).double()) == 0  # background and tails overlap
    assert auto_gamma(0.0, clear) == auto_gamma(share, None) == 0


def test_missing_values_are_completed_by_draws():
    x = clean_rows(800, 4)
    gappy = x.masked_fill(torch.rand(x.shape, generator=generator(1)) < 0.1, torch.nan)
    gappy[:, 3] = gappy[:, 3].round()  # with ties
    prepared, _ = prepare(gappy, RECIPES["table"])
    assert prepared.z.isfinite().all()
    back = prepared.coordinates.inverse(prepared.z.double())
    there = ~gappy.isnan()
    torch.testing.assert_close(back[:, :3][there[:, :3]], gappy[:, :3][there[:, :3]], rtol=1e-4, atol=1e-4)
    # The correlation of .8 / sqrt(1.64) is kept: to five standard errors.
    lost = gappy[:, 1].isnan() | gappy[:, 0].isnan()
    correlation = torch.corrcoef(back[lost, :2].T)[0, 1].item()
    assert correlation == pytest.approx(0.625, abs=5 * 0.61 / int(lost.sum()) ** 0.5)
    z, clean = prepared.transform(gappy[:50], generator(0))
    assert z.isfinite().all()
    assert clean.isfinite().all()
    with pytest.raises(UserError, match="missing values need a table and a mixture"):
        prepare(gappy, TrainConfig())


@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("d", [2, 5])
def test_a_gamma_of_ones_own_trains_on_dirty_rows(gamma, d):
    x, k = dirty_rows(d=d)
    config = for_rows((d,)).changed(
        {"updates": 40, "objective.gamma": gamma, "guard.log_every": 10, "guard.max_retries": 0}
    )
    rows = []
    model = pscd.fit(x, config=config, callbacks=[lambda at: rows.append(at["stats"])])
    assert rows[-1]["gamma"] == gamma
    assert model.energy(x[:k]).median() > model.energy(x[k:]).median()


def test_images_have_no_mixture():
    config = RECIPES["table"]
    with pytest.raises(UserError, match="needs a table, not images"):
        prepare(torch.rand(10, 1, 4, 4), config)


def test_heavy_tails_are_drawn_in_and_straight_columns_stay_straight():
    """By the log density of held-out rows in the units of the data."""
    straight, _ = prepare(torch.rand(800, 3, generator=generator(0), dtype=torch.float64), RECIPES["table"])
    wild = torch.randn(800, 3, generator=generator(0), dtype=torch.float64).mul(3).sinh()
    drawn_in, _ = prepare(wild, RECIPES["table"])
    assert straight.coordinates.linear is None
    assert drawn_in.coordinates.linear is not None


def test_a_column_of_two_values_has_no_tail_to_draw_in():
    """Beside heavy tails, which are: the rarer value stays as far out as it is."""
    wild = torch.randn(800, 3, generator=generator(0), dtype=torch.float64).mul(3).sinh()
    x = torch.cat([wild, (torch.arange(800) % 20 == 0).double()[:, None]], 1)
    coordinates = prepare(x, RECIPES["table"])[0].coordinates
    assert (coordinates.linear[:3] == LINEAR).all()
    assert coordinates.linear[3] > 1e5


def test_rows_are_prepared_the_same_way_twice_and_the_global_generator_is_left_alone():
    x = clean_rows(300).round()
    state = torch.get_rng_state()
    (first, _), (again, _), (other, _) = (prepare(x, replace(RECIPES["table"], seed=s)) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.z, again.z)
    assert not torch.equal(first.z, other.z)


def test_an_explicit_gamma_is_kept():
    x, _ = dirty_rows()
    for gamma in (0.0, 1.0):
        prepared, config = prepare(x, RECIPES["table"].changed({"objective.gamma": gamma}))
        assert config.objective.gamma == gamma
        assert (prepared.clean is None) == (gamma == 0)


def test_gamma_auto_needs_a_mixture_to_be_read_off():
    config = replace(TrainConfig(), objective=pscd.PseudoSpherical(gamma="auto"))
    with pytest.raises(UserError, match="set start to mixture"):
        prepare(clean_rows(), config)
    with pytest.raises(UserError, match="becomes a number when training starts"):
        _ = config.objective.number


def test_constant_and_integer_columns_are_taken_as_they_come():
    x = clean_rows()
    x[:, 2] = 7.0
    x[:, 3] = x[:, 3].round()
    prepared, _ = prepare(x, RECIPES["table"])
    assert prepared.z.shape == (600, 3)
    assert len(prepared.z[:, 2].unique()) == 600  # ties are spread
    model = pscd.fit(x, config=RECIPES["table"].changed({"updates": 20}))
    assert model.shape == (4,)
    assert (model.sample(10)[:, 2] == 7.0).all()
    assert torch.isfinite(model.log_density(x)).all()


def test_rows_without_a_configuration_get_a_robust_one():
    assert for_rows((2,)) == RECIPES["plane"]
    assert for_rows((3,)) == RECIPES["table"]
    assert for_rows((3, 32, 32)).energy.name == "cnn"
    assert for_rows((5,), own=True) == RECIPES["free"]


def test_a_network_of_ones_own_needs_no_configuration_in_any_number_of_columns(monkeypatch):
    short = RECIPES["free"].changed({"updates": 20, "chains.buffer_size": 200})
    monkeypatch.setitem(RECIPES, "free", short)
    x = clean_rows(200, 4)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.SiLU(), torch.nn.Linear(8, 1), torch.nn.Flatten(0))
    model = pscd.fit(x, energy=net)
    assert model.sample(3).shape == (3, 4)
    assert model.config.objective.gamma < 0.3


def test_constant_columns_are_told_by_name_or_number():
    x = torch.randn(30, 4, generator=generator(0))
    x[:, 2] = 1.0
    config = TrainConfig()
    with pytest.raises(UserError, match="column 2 is constant; leave it out"):
        coordinates_of(x, config)
    with pytest.raises(UserError, match="column c is constant; leave it out"):
        coordinates_of(x, config, ("a", "b", "c", "d"))
    x[:, 3] = 1.0
    with pytest.raises(UserError, match="column 2 and 1 more is constant"):
        coordinates_of(x, config)


def test_other_rows_are_brought_into_the_same_form():
    x = clean_rows(200).float()
    x[:, 3] = x[:, 3].round()
    prepared, _ = prepare(x, RECIPES["table"].changed({"objective.gamma": 0.3}))
    z, clean = prepared.transform(x[:20], generator(5))
    spread = prepared.ties.spread(x[:20].double(), generator(5))
    exact = prepared.coordinates.forward(spread, torch.float64)
    assert torch.equal(z, exact.float())
    assert torch.equal(clean, prepared.mixture.p_clean(exact))
    assert z.dtype == torch.float32
    plain, _ = prepare(x, RECIPES["table"].changed({"objective.gamma": 0.0}))
    assert plain.transform(x[:20], generator(5))[1] is None
    without, _ = prepare(x, TrainConfig())
    assert torch.equal(without.transform(x[:20], generator(5))[0], without.coordinates.forward(x[:20]))
    assert (without.mixture, without.clean, without.notes, without.ties) == (None, None, (), None)


def test_a_large_table_is_prepared_from_a_sample_and_then_in_blocks(monkeypatch):
    for name, value in (("SAMPLE_ROWS", 100), ("BLOCK", 64)):
        monkeypatch.setattr(f"pscd.recipes.tables.{name}", value)
    x = clean_rows(250)
    config = replace(RECIPES["table"].changed({"objective.gamma": 0.3}), seed=2)
    large, _ = prepare(x, config)
    some = distinct(250, 100, generator(2, Stream.STREAM_SAMPLE))
    small, _ = prepare(x[some], config)
    assert torch.equal(large.mixture.components.means, small.mixture.components.means)
    assert large.notes == (*small.notes, sampled_note(100, 250))
    parts = [small.transform(part, generator(2, Stream.DEQUANTISE, i)) for i, part in enumerate(x.split(64))]
    assert torch.equal(large.z, torch.cat([z for z, _ in parts]))
    torch.testing.assert_close(large.clean, torch.cat([clean for _, clean in parts]).float())
    every, _ = prepare(x, config.changed({"objective.gamma": 0.0}))
    assert every.clean is None
    assert len(prepare(x[:100], config)[0].notes) == len(small.notes)  # so many are no sample


def test_a_row_that_no_chain_reaches_is_left_out():
    """Nothing would hold its energy up: it would become the likeliest of all."""
    x = torch.cat([5 + 2 * torch.randn(500, 1, generator=generator(1), dtype=torch.float64), torch.tensor([[60.0]])])
    for gamma in ("auto", 0.0):
        prepared, _ = prepare(x, RECIPES["free"].changed({"objective.gamma": gamma}), ("height",))
        assert prepared.clean[-1] < 1e-3
        assert prepared.clean[:-1].mean() > 0.92
    assert prepared.notes == ("gamma 0: 1 of the rows lie too far from the others and are ignored",)
    others = torch.tensor([[5.0], [60.0], [9.0]], dtype=torch.float64)  # of the same data, as a stream brings them
    assert prepared.transform(others, generator(0))[1].tolist() == [1, 0, 1]
    assert prepared.transform(others[[0, 2]], generator(0))[1] is None


def test_a_bounded_network_leaves_no_row_out():
    x = clean_rows(400, 4)
    x[0] = 1e4
    prepared, _ = prepare(x, RECIPES["table"].changed({"objective.gamma": 0.0}))
    assert prepared.clean is None
    assert not prepared.beyond(prepared.z.double()).any()


@pytest.mark.parametrize("d", [2, 3])
def test_the_density_to_correct_has_not_seen_the_rows_that_are_held_out(d):
    """Rows held out are 6 deviations off: the mixture of all rows knows them, the one to correct does not."""
    x = clean_rows(400, d)
    config = RECIPES["table"].changed({"objective.gamma": 0.0, "rows.hold_out": 0.1})
    rest, held = split_rows(400, config)
    assert (len(rest), len(held)) == (360, 40)
    assert torch.equal(torch.cat([rest, held]).sort().values, torch.arange(400))
    x[held] += 60
    prepared, config = prepare(x, config)
    z = prepared.z[held].double()
    assert prepared.learnt_from.log_prob(z).median() < prepared.mixture.density.log_prob(z).median() - 1
    train, judges, index = hold_out(prepared, config)
    assert torch.equal(index, held)
    assert torch.equal(judges.z, prepared.z[held])
    assert torch.equal(train.z, prepared.z[rest])
    whole, _ = prepare(x, config.changed({"rows.hold_out": 0.0}))
    assert whole.judged is None
    assert torch.equal(whole.learnt_from.means, whole.mixture.density.means)


def test_rows_out_of_reach_are_few_draws_of_the_proposal():
    prepared, _ = prepare(clean_rows(500, 2), RECIPES["free"].changed({"objective.gamma": 0.0}))
    draws = tables.proposal_of(prepared.mixture).sample(50_000, generator(3))
    beyond = prepared.beyond(draws).double().mean().item()
    # Five standard errors of a share of two in ten thousand among 50,000, of either sample.
    assert beyond == pytest.approx(TableSettings().reach_share, abs=5 * (2 * 2e-4 / 50_000) ** 0.5)


def test_a_model_of_rows_with_missing_values_knows_their_energies():
    x = clean_rows(400, 3)
    gappy = x.masked_fill(torch.rand(x.shape, generator=generator(1)) < 0.1, torch.nan)
    model = pscd.fit(gappy, config=RECIPES["table"].changed({"updates": 20}))
    energy = model.energy(gappy)
    assert energy.isfinite().all()
    whole = ~gappy.isnan().any(1)
    torch.testing.assert_close(energy[whole], model.energy(x[whole]))
    completed = model.completed(gappy)
    torch.testing.assert_close(completed[~gappy.isnan()], gappy[~gappy.isnan()])
    # Given the first column, the second is .8 times it and noise of 3; unconditionally its deviation is 3.8.
    error = (completed - x)[gappy[:, 1].isnan() & ~gappy[:, 0].isnan(), 1]
    assert error.std() < 3.5
    with pytest.raises(UserError, match="infinite"):
        model.energy(x / 0)
