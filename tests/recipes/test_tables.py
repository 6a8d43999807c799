from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import pscd
import pscd.recipes.tables as prepare_module
from pscd.config import TrainConfig
from pscd.coordinates import LINEAR, Coordinates
from pscd.data.streams import distinct
from pscd.errors import UserError
from pscd.mixtures import fit_robust_mixture, refit
from pscd.mixtures.refine import refine, settle
from pscd.presets import PRESETS, for_rows
from pscd.recipes.notes import notes_of
from pscd.recipes.tables import (
    AUTO_GAMMA,
    _best_coordinates,
    _has_long_tail,
    coordinates_of,
    has_junk,
    prepare,
    sampled_note,
    split_rows,
)
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


@pytest.mark.parametrize("seed", [0, 1])
def test_gamma_auto_is_0_where_there_is_nothing_to_be_robust_against(seed):
    prepared, config = prepare(clean_rows(seed=seed), PRESETS["table"])
    assert config.objective.gamma == 0
    assert prepared.clean is None
    assert prepared.notes == ("gamma 0: every row counts",)


def test_gamma_auto_sees_junk_and_says_how_much():
    x, k = dirty_rows()
    prepared, config = prepare(x, PRESETS["table"])
    assert config.objective.gamma == AUTO_GAMMA
    assert prepared.clean is not None
    assert prepared.clean[k:].mean() > 0.9
    assert prepared.clean[:k].mean() < 0.5
    assert "of the rows look like junk" in prepared.notes[0]


def test_the_share_of_junk_in_the_plane():
    x = 10 + 3 * torch.randn(2000, 2, generator=generator(0), dtype=torch.float64)
    x[:400] = 120 * torch.rand(400, 2, generator=generator(1), dtype=torch.float64) - 50
    prepared, config = prepare(x, PRESETS["plane"])
    assert config.objective.gamma == AUTO_GAMMA
    junk = 1 - prepared.clean.mean().item()
    # Binomial error of the share of junk, and what of it lies inside the majority: 14^2 of 120^2, .3 % of the rows.
    assert junk == pytest.approx(0.2, abs=5 * (0.16 / 2000) ** 0.5)


def test_a_far_group_is_kept_as_data_and_named():
    """As dense as everything else: nothing says that it is junk, so gamma stays 0 and a person is told."""
    x = clean_rows(1000, 2)
    x[:150] = torch.tensor([80.0, 70.0]) + 0.5 * torch.randn(150, 2, generator=generator(3), dtype=torch.float64)
    prepared, config = prepare(x, PRESETS["plane"], ("width", "height"))
    assert config.objective.gamma == 0
    assert prepared.notes[0] == "gamma 0: every row counts"
    assert prepared.notes[1].startswith("a group of 15.0% of the rows, around width = 80, height = 7")


def test_skewed_columns_are_bent_and_even_junk_among_them_is_still_seen():
    """Evenly spread junk crowds at the far end of a logarithm, where a component would learn it as a group."""
    x = skewed(1800, 0)
    k = 180
    x[:k] = x.amin(0) + (x.amax(0) - x.amin(0)) * torch.rand(k, 6, generator=generator(9), dtype=torch.float64)
    prepared, config = prepare(x, PRESETS["table"])
    assert prepared.coordinates.skew is not None
    assert config.objective.gamma == AUTO_GAMMA
    assert (prepared.clean[:k] < 0.5).double().mean() > 0.8
    assert (prepared.clean[k:] < 0.5).double().mean() < 0.05


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


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("table", [two_modes, heavy, even, plane, skewed, squares])
def test_gamma_auto_is_0_on_clean_tables_of_other_kinds(table, seed):
    x = table(800, seed)
    _, config = prepare(x, PRESETS["table"])
    assert config.objective.gamma == 0


@pytest.mark.parametrize("name", ["plane", "table"])
@pytest.mark.parametrize("d", [2, 6])
def test_gamma_auto_sees_a_tenth_of_uniform_junk(name, d):
    for seed in range(2):
        x = clean_rows(1000, d, seed)
        k = 100
        x[:k] = 10 + 60 * (torch.rand(k, d, generator=generator(seed, 7), dtype=torch.float64) - 0.5)
        prepared, config = prepare(x, PRESETS[name])
        assert config.objective.gamma == AUTO_GAMMA
        assert prepared.mixture.share_of_junk == pytest.approx(0.1, abs=5 * (0.09 / 1000) ** 0.5)
        # Junk evenly in a box of 60 lies within 3 deviations, 18 wide, with a chance of .3^d: .09 in the plane.
        assert (prepared.clean[:k] < 0.5).double().mean() > 0.8
        assert (prepared.clean[k:] > 0.5).double().mean() > 0.97


@pytest.mark.parametrize("gamma", [0.0, 1.0])
@pytest.mark.parametrize("d", [2, 5])
def test_a_gamma_of_ones_own_trains_on_dirty_rows(gamma, d):
    x, k = dirty_rows(d=d)
    config = for_rows((d,)).changed(
        {"updates": 40, "objective.gamma": gamma, "guard.log_every": 10, "guard.max_retries": 0}
    )
    rows = []
    model = pscd.fit(x, config, log=rows.append)
    assert rows[-1]["gamma"] == gamma
    assert model.energies(x[:k]).median() > model.energies(x[k:]).median()


def test_images_have_no_mixture():
    config = PRESETS["table"]
    with pytest.raises(UserError, match="needs a table, not images"):
        prepare(torch.rand(10, 1, 4, 4), config)


def test_heavy_tails_are_drawn_in_and_straight_columns_stay_straight():
    """By the log density of held-out rows in the units of the data."""
    straight, _ = prepare(torch.rand(800, 3, generator=generator(0), dtype=torch.float64), PRESETS["table"])
    wild = torch.randn(800, 3, generator=generator(0), dtype=torch.float64).mul(3).sinh()
    drawn_in, _ = prepare(wild, PRESETS["table"])
    assert straight.coordinates.linear is None
    assert drawn_in.coordinates.linear is not None


def test_a_column_of_two_values_has_no_tail_to_draw_in():
    """Beside heavy tails, which are: the rarer value stays as far out as it is."""
    wild = torch.randn(800, 3, generator=generator(0), dtype=torch.float64).mul(3).sinh()
    x = torch.cat([wild, (torch.arange(800) % 20 == 0).double()[:, None]], 1)
    coordinates = prepare(x, PRESETS["table"])[0].coordinates
    assert (coordinates.linear[:3] == LINEAR).all()
    assert coordinates.linear[3] > 1e5


def test_rows_are_prepared_the_same_way_twice_and_the_global_generator_is_left_alone():
    x = clean_rows(300).round()
    state = torch.get_rng_state()
    (first, _), (again, _), (other, _) = (prepare(x, replace(PRESETS["table"], seed=s)) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.z, again.z)
    assert not torch.equal(first.z, other.z)


def test_an_explicit_gamma_is_kept():
    x, _ = dirty_rows()
    for gamma in (0.0, 1.0):
        prepared, config = prepare(x, PRESETS["table"].changed({"objective.gamma": gamma}))
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
    prepared, _ = prepare(x, PRESETS["table"])
    assert prepared.z.shape == (600, 3)
    assert len(prepared.z[:, 2].unique()) == 600  # ties are spread
    model = pscd.fit(x, PRESETS["table"].changed({"updates": 20}))
    assert model.shape == (4,)
    assert (model.sample(10)[:, 2] == 7.0).all()
    assert torch.isfinite(model.log_prob(x)).all()


def test_rows_without_a_configuration_get_a_robust_one():
    assert for_rows((2,)) == PRESETS["plane"]
    assert for_rows((3,)) == PRESETS["table"]
    assert for_rows((3, 32, 32)).energy.name == "cnn"
    assert for_rows((5,), own=True) == PRESETS["free"]


def test_a_network_of_ones_own_needs_no_configuration_in_any_number_of_columns(monkeypatch):
    short = PRESETS["free"].changed({"updates": 20, "chains.buffer_size": 200})
    monkeypatch.setitem(PRESETS, "free", short)
    x = clean_rows(200, 4)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.SiLU(), torch.nn.Linear(8, 1), torch.nn.Flatten(0))
    model = pscd.fit(x, energy=net)
    assert model.sample(3).shape == (3, 4)
    assert model.config.objective.gamma == 0


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


def test_gamma_auto_is_the_one_that_the_documentation_names():
    assert AUTO_GAMMA == 0.1


def test_coordinates_are_compared_by_mixtures_of_four(monkeypatch):
    """In the units of the data: the one with the larger sum of held-out density and slope wins."""
    asked = []

    def fit(z, **settings):
        asked.append((settings["components"], settings["coordinates"].scale[0].item()))
        return SimpleNamespace(held_out=-float(z.std()))

    monkeypatch.setattr("pscd.recipes.tables.fit_robust_mixture", fit)
    x = clean_rows(50)
    narrow, wide = (Coordinates(torch.zeros(4).double(), torch.full((4,), by).double()) for by in (0.5, 8.0))
    assert _best_coordinates(x, [wide, narrow], robust=True, seed=0) is narrow  # by its slope, for all that is wider
    assert asked == [((4,), 8.0), ((4,), 0.5)]


@pytest.mark.parametrize(
    ("n", "d", "share", "gain", "dirty"),
    [
        (100, 4, 0.14, 0.06, True),
        (100, 4, 0.12, 0.06, False),  # a clean table has up to .03 + 1 / sqrt(100)
        (10_000, 4, 0.05, 0.06, True),
        (10_000, 4, 0.035, 0.06, False),
        (100, 4, 0.5, 0.06, False),  # half of the rows: the fit has broken down
        (100, 4, 0.14, 0.04, False),  # the background must gain .05 nats a row
        (100, 2, 0.14, 0.04, True),  # in the plane it may even lose as much
        (100, 2, 0.14, -0.06, False),
        (100, 3, 0.14, 0.04, False),
        (100, 25, 0.14, 0.06, True),  # four rows a column
        (100, 26, 0.14, 0.06, False),
    ],
)
def test_three_conditions_make_a_table_dirty(n, d, share, gain, dirty, monkeypatch):
    def mixture(held_out, junk):
        return SimpleNamespace(share_of_junk=junk, held_out=held_out)

    monkeypatch.setattr(prepare_module, "stands_out", lambda *rows, **settings: True)
    assert has_junk(mixture(1 + gain, share), mixture(1.0, 0.0), torch.zeros(n, d), seed=0) is dirty


def test_other_rows_are_brought_into_the_same_form():
    x = clean_rows(200).float()
    x[:, 3] = x[:, 3].round()
    prepared, _ = prepare(x, PRESETS["table"].changed({"objective.gamma": 0.3}))
    z, clean = prepared.transform(x[:20], generator(5))
    spread = prepared.ties.spread(x[:20].double(), generator(5))
    exact = prepared.coordinates.forward(spread, torch.float64)
    assert torch.equal(z, exact.float())
    assert torch.equal(clean, prepared.mixture.clean(exact))
    assert z.dtype == torch.float32
    plain, _ = prepare(x, PRESETS["table"].changed({"objective.gamma": 0.0}))
    assert plain.transform(x[:20], generator(5))[1] is None
    without, _ = prepare(x, TrainConfig())
    assert torch.equal(without.transform(x[:20], generator(5))[0], without.coordinates.forward(x[:20]))
    assert (without.mixture, without.clean, without.notes, without.ties) == (None, None, (), None)


def test_the_prepared_rows_by_hand():
    """Ties spread by their own stream, the best coordinates of them, and the mixture of the objective."""
    x = clean_rows(150).round()
    config = replace(PRESETS["table"].changed({"objective.gamma": 0.3}), seed=3)
    names = ("a", "b", "c", "d")
    x[:30] = torch.tensor([40.0, 30.0, 20.0, 60.0])  # a far group, so that columns are named
    x[30:60] = 60 * torch.rand(30, 4, generator=generator(1), dtype=torch.float64)
    prepared, found = prepare(x, config, names)
    rows = prepared.ties.spread(x, generator(3, Stream.DEQUANTISE))
    z = prepared.coordinates.forward(rows, torch.float64)
    assert torch.equal(prepared.z, z.float())
    mixture = fit_robust_mixture(z, robust=True, seed=3, coordinates=prepared.coordinates)
    assert torch.equal(prepared.mixture.components.means, mixture.components.means)
    assert torch.equal(prepared.clean, mixture.clean(z))
    assert found == config
    junk = mixture.share_of_junk
    told = notes_of(x, z, prepared.clean, prepared.coordinates, junk=junk, gamma=0.3, columns=names)
    assert prepared.notes == told
    assert len(told) > 1
    assert junk > 0.05


def test_a_large_table_is_prepared_from_a_sample_and_then_in_blocks(monkeypatch):
    for name, value in (("SAMPLE_ROWS", 100), ("BLOCK", 64)):
        monkeypatch.setattr(f"pscd.recipes.tables.{name}", value)
    x = clean_rows(250)
    config = replace(PRESETS["table"].changed({"objective.gamma": 0.3}), seed=2)
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


@pytest.mark.parametrize(
    ("n", "d", "share", "gain", "dirty"),
    [
        (10_000, 4, 0.0401, 0.06, True),  # .03 + 1 / sqrt(10,000)
        (10_000, 4, 0.0399, 0.06, False),
        (10_000, 4, 0.3999, 0.06, True),
        (10_000, 4, 0.4, 0.06, False),
        (10_000, 4, 0.2, 0.0501, True),
        (10_000, 4, 0.2, 0.0499, False),
        (10_000, 2, 0.2, -0.0499, True),
        (10_000, 2, 0.2, -0.0501, False),
        (12, 3, 0.35, 0.06, True),
        (11, 3, 0.35, 0.06, False),
    ],
)
def test_the_three_conditions_have_their_thresholds(n, d, share, gain, dirty, monkeypatch):
    def mixture(held_out, junk):
        return SimpleNamespace(share_of_junk=junk, held_out=held_out)

    monkeypatch.setattr(prepare_module, "stands_out", lambda *rows, **settings: True)
    assert has_junk(mixture(gain, share), mixture(0.0, 0.0), torch.zeros(n, d), seed=0) is dirty


@pytest.mark.parametrize("d", [1, 2, 3])
def test_in_the_plane_the_rows_themselves_say_what_clean_rows_look_like(d, monkeypatch):
    """With three columns a share of .2 is enough; with fewer, what is drawn from the majority has the last word."""
    asked = []

    def stands_out(mixture, z, *, gain, seed, coordinates):
        asked.append((tuple(z.shape), gain, seed, coordinates))
        return False

    monkeypatch.setattr(prepare_module, "stands_out", stands_out)
    robust, plain = (SimpleNamespace(share_of_junk=0.2, held_out=held_out) for held_out in (1.0, 0.75))
    assert has_junk(robust, plain, torch.zeros(50, d), seed=3, coordinates="those") is (d == 3)
    assert asked == ([] if d == 3 else [((50, d), 0.25, 3, "those")])


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("d", [1, 2])
def test_a_clean_gaussian_is_not_taken_for_a_dirty_one(d, seed):
    x = 5 + 2 * torch.randn(500, d, generator=generator(seed), dtype=torch.float64)
    prepared, config = prepare(x, PRESETS["plane"])
    assert config.objective.gamma == 0
    assert prepared.clean is None


def lognormal(n, d, junk, seed):
    """Long tails on one side; the first `junk` rows lie evenly between 0 and 30 in every column."""
    x = torch.randn(n, d, generator=generator(seed), dtype=torch.float64).exp()
    x[:junk] = 30 * torch.rand(junk, d, generator=generator(seed, 1), dtype=torch.float64)
    return x


@pytest.mark.parametrize(("d", "junk", "gamma"), [(1, 0, 0.0), (2, 0, 0.0), (1, 100, 0.1), (2, 100, 0.1)])
def test_a_long_tail_on_one_side_is_no_junk_and_hides_none(d, junk, gamma):
    x = lognormal(1000, d, junk, seed=0)
    _, config = prepare(x, PRESETS["plane"])
    assert config.objective.gamma == gamma


@pytest.mark.parametrize(
    ("stretch", "side", "long"), [(2.1, 1, True), (2.1, -1, True), (1.9, 1, False), (1.9, -1, False)]
)
def test_a_tail_is_long_if_one_outer_eighth_is_twice_as_long_as_the_other(stretch, side, long):
    """Those next to the outermost eighths, of either column; where the median lies does not matter."""
    even = torch.linspace(-4, 4, 1000, dtype=torch.float64)
    tailed = side * torch.where(even > 2, 2 + stretch * (even - 2), even)
    assert _has_long_tail(torch.stack([even, tailed], 1)) is long
    assert _has_long_tail(torch.stack([tailed, even], 1)) is long
    assert not _has_long_tail(torch.where(even > 0.3, 10.0, -10.0)[:, None] + even[:, None])


@pytest.mark.parametrize(
    ("gain", "seems_dirty", "dirty"), [(0.031, True, False), (0.033, True, True), (0.033, False, False)]
)
def test_beside_a_tail_a_background_must_gain_thirty_nats_in_all(gain, seems_dirty, dirty, monkeypatch):
    """And .002 for each of 1,000 rows, in bent coordinates, in which they must look dirty too."""
    bent = SimpleNamespace(forward=lambda x, dtype: x + 1)
    monkeypatch.setattr(prepare_module.Coordinates, "robust", lambda x: SimpleNamespace(unskewed=lambda x: bent))
    robust, plain, asked = SimpleNamespace(held_out=gain), SimpleNamespace(held_out=0.0), []

    def fit(z, *, robust, seed, coordinates):
        asked.append((float(z.sum()), robust, seed, coordinates))
        return found

    def look(*mixtures, seed, coordinates):
        asked.append((mixtures[:2], float(mixtures[2].sum()), seed, coordinates))
        return seems_dirty

    found = robust
    monkeypatch.setattr(prepare_module, "fit_robust_mixture", fit)
    monkeypatch.setattr(prepare_module, "_plain", lambda robust, z, *, seed: plain)
    monkeypatch.setattr(prepare_module, "has_junk", look)
    assert prepare_module._has_junk_beside_a_tail(torch.zeros(1000, 2), seed=5) is dirty
    assert asked == [(2000.0, True, 5, bent), ((robust, plain), 2000.0, 5, bent)][: 1 + (gain > 0.032)]


def test_a_row_that_no_chain_reaches_is_left_out_and_told():
    """Nothing would hold its energy up: it would become the likeliest of all."""
    x = torch.cat([5 + 2 * torch.randn(500, 1, generator=generator(1), dtype=torch.float64), torch.tensor([[60.0]])])
    prepared, config = prepare(x, PRESETS["free"], ("height",))
    assert config.objective.gamma == 0
    assert prepared.clean.tolist() == [1.0] * 500 + [0.0]
    assert prepared.notes == (
        "gamma 0: every row counts but 1, which lies too far from the others to be learnt from, at height = 60",
    )
    x = torch.cat([x, torch.tensor([[-70.0], [90.0]])])
    prepared, _ = prepare(x, PRESETS["free"], ("height",))
    assert prepared.clean.sum() == 500
    assert prepared.notes[0].startswith("gamma 0: every row counts but 3 (0.6%), which lie too far from the others")
    assert prepared.notes[0].endswith("to be learnt from, the farthest at height = 90")
    others = torch.tensor([[5.0], [60.0], [9.0]], dtype=torch.float64)  # of the same data, as a stream brings them
    assert prepared.transform(others, generator(0))[1].tolist() == [1, 0, 1]
    assert prepared.transform(others[[0, 2]], generator(0))[1] is None


def test_a_bounded_network_leaves_no_row_out():
    x = clean_rows(400, 4)
    x[0] = 1e4
    prepared, config = prepare(x, PRESETS["table"])
    assert config.objective.gamma == 0
    assert prepared.clean is None
    assert not prepared.beyond(prepared.z.double()).any()


def test_rows_out_of_reach_of_a_large_table_are_left_out_too(monkeypatch):
    monkeypatch.setattr(prepare_module, "SAMPLE_ROWS", 500)
    monkeypatch.setattr(prepare_module, "BLOCK", 300)
    x = torch.randn(1200, 1, generator=generator(0), dtype=torch.float64)
    x[1100] = 80
    prepared, _ = prepare(x, PRESETS["free"])
    assert (prepared.clean == 0).nonzero().flatten().tolist() == [1100]
    assert prepared.clean.sum() == 1199


@pytest.mark.parametrize(("d", "gamma"), [(2, 0.0), (1, 0.3), (2, 0.3), (3, 0.0), (3, 0.3)])
def test_the_density_to_correct_has_not_seen_the_rows_that_are_held_out(d, gamma, monkeypatch):
    seen = {}

    def refitted(mixture, z, *, coordinates):
        seen.update(z=z, whole=mixture, mixture=refit(mixture, z, coordinates=coordinates))
        return seen["mixture"]

    def refined(mixture, z, held, *, seed, coordinates):
        seen.update(z=z, held=held, mixture=refine(mixture, z, held, seed=seed, coordinates=coordinates))
        return seen["mixture"]

    def settled(mixture, z, *, coordinates):
        assert mixture is seen["mixture"]
        seen.update(all=z, whole=settle(mixture, z, coordinates=coordinates))
        return seen["whole"]

    for name, function in (("refit", refitted), ("refine", refined), ("settle", settled)):
        monkeypatch.setattr(prepare_module, name, function)
    x = dirty_rows(n=400, d=3)[0][:, :d]
    config = PRESETS["plane"].changed({"objective.gamma": gamma})
    prepared, config = prepare(x, config)
    rest, held = split_rows(400, config)
    assert (len(rest), len(held)) == (360, 40)
    assert torch.equal(torch.cat([rest, held]).sort().values, torch.arange(400))
    torch.testing.assert_close(seen["z"].float(), prepared.z[rest])
    if d <= 2:
        torch.testing.assert_close(seen["held"].float(), prepared.z[held])
        torch.testing.assert_close(seen["all"].float(), prepared.z[torch.cat([held, rest])])
    assert prepared.mixture is seen["whole"]
    assert torch.equal(prepared.learnt_from.means, seen["mixture"].density.means)
    assert (seen["mixture"].background is None) == (gamma == 0)
    train, judges, index = hold_out(prepared, config)
    assert torch.equal(index, held)
    assert torch.equal(judges.z, prepared.z[held])
    assert torch.equal(train.z, prepared.z[rest])


def test_where_no_row_is_held_out_there_is_one_mixture(monkeypatch):
    monkeypatch.setattr(prepare_module, "refit", None)
    prepared, _ = prepare(clean_rows(100, 3), PRESETS["table"].changed({"rows.hold_out": 0.0}))
    assert prepared.judged is None
    assert torch.equal(prepared.learnt_from.means, prepared.mixture.density.means)


def test_the_density_to_correct_is_fitted_to_no_more_rows_than_the_mixture(monkeypatch):
    seen = []
    monkeypatch.setattr(prepare_module, "MOST_ROWS", 50)
    monkeypatch.setattr(prepare_module, "refit", lambda m, z, *, coordinates: (seen.append(z), m)[1])
    prepared, config = prepare(clean_rows(100, 3), PRESETS["table"])
    torch.testing.assert_close(seen[0].float(), prepared.z[split_rows(100, config)[0][:50]])
