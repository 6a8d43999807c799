"""Each diagnose on a run built to provoke it."""

import pickle
from dataclasses import replace

import pytest
import torch

from pscd.data.toys import TOYS
from pscd.energies import Architecture
from pscd.errors import Diverged
from pscd.objectives import NoiseContrastive, PseudoSpherical
from pscd.rng import generator
from pscd.sampling import Langevin, Mala
from pscd.training.fit import fit
from pscd.training.guard import check, diagnose, last_words, mode_shares, summary
from pscd.training.loop import count_modes


def judged(x, config, modes=None):
    rows = []
    counts = [] if modes is None else [count_modes(modes, x)]
    fit(x, config=config, callbacks=[*counts, lambda at: rows.append(at["stats"])])
    return diagnose(rows)


@pytest.fixture
def moon():
    return TOYS["moon"](1000, generator(0))


def test_a_good_run_has_nothing_to_report(small, moon):
    config = replace(small, updates=300, sampler=Mala(), objective=PseudoSpherical(gamma=0.5))
    assert judged(moon, config, TOYS["moon"].mode) == ["no problem found"]


def test_weights_that_collapse(small):
    """In twenty dimensions at gamma 5, next to no row counts."""
    x = torch.randn(1000, 20, generator=generator(0))
    config = replace(small, updates=100, objective=PseudoSpherical(gamma=5.0, warmup=0.0), batch_size=128)
    assert any("weights collapsed" in sentence for sentence in judged(x, config))


def test_negatives_that_lag(small, moon):
    """Chains that mostly start afresh and take one small step never reach the data."""
    sampler = Mala(n_steps=1, jump_every=0, step_size=1e-4, target_acceptance=0.9)
    config = small.changed({"updates": 200, "chains.restart": 0.9, "sampler": sampler, "optimizer.lr": 0.01})
    assert any("negatives lag" in sentence for sentence in judged(moon, config))


def test_samples_that_run_ahead(small, moon):
    """Chains without noise end in the minima of the energy, below all data, if it cannot adapt to them."""
    sampler = Langevin(n_steps=40, step_size=0.02, noise_scale=0.0)
    config = small.changed({"sampler": sampler, "optimizer.lr": 1e-6, "energy": Architecture(width=8, base_scale=0.5)})
    assert any("nats less energy than the data" in sentence for sentence in judged(moon, config))


def test_a_step_that_has_not_settled(small, moon):
    config = replace(small, updates=20, sampler=Mala(n_steps=2, step_size=1e-8, jump_every=0))
    assert any("has not settled (acceptance 1.00)" in sentence for sentence in judged(moon, config))


def test_jumps_that_are_never_accepted(small):
    """One Gaussian as the proposal for small clusters at corners of a cube in eight dimensions."""
    corners = torch.randint(2, (16, 8), generator=generator(0)) * 2.0 - 1
    x = corners.repeat(100, 1) + 0.05 * torch.randn(1600, 8, generator=generator(1))
    energy = Architecture(width=64, depth=2, fourier=0)
    config = small.changed({"updates": 300, "chains.jump_components": 1, "energy": energy, "sampler": Mala(n_steps=10)})
    assert any("jumps are rarely accepted" in sentence for sentence in judged(x, config))


def test_a_mode_that_is_lost(small):
    """Full gamma from the start, no jumps and no restarts: a ring is taken for contamination."""
    x = TOYS["rings"](5000, generator(0))
    objective = PseudoSpherical(gamma=3.0, warmup=0.0)
    config = small.changed(
        {
            "updates": 400,
            "chains.restart": 0.0,
            "objective": objective,
            "sampler": Mala(jump_every=0),
            "optimizer.lr": 0.01,
        }
    )
    assert any("modes hold the wrong mass" in sentence for sentence in judged(x, config, TOYS["rings"].mode))


def test_noise_that_is_too_easy(small):
    """Small clusters at corners of a cube in eight dimensions, and one Gaussian for noise."""
    corners = torch.randint(2, (16, 8), generator=generator(0)) * 2.0 - 1
    x = corners.repeat(100, 1) + 0.02 * torch.randn(1600, 8, generator=generator(1))
    energy = Architecture(width=64, depth=2, fourier=0)
    config = small.changed(
        {"updates": 300, "objective": NoiseContrastive(noise="gaussian"), "optimizer.lr": 0.01, "energy": energy}
    )
    assert any("separated from data too easily" in sentence for sentence in judged(x, config))


def test_roll_backs_are_told():
    rows = [{"gap": 0.0}]
    assert diagnose(rows, retries=1) == ["the run was rolled back once: a lower learning rate would be safer"]
    assert "3 times" in diagnose(rows, retries=3)[0]


def test_mode_shares_sum_to_one():
    for name in ("mog", "rings", "moon"):
        modes = TOYS[name].mode
        x = TOYS[name](5000, generator(0))
        n_modes = int(modes(x).max()) + 1
        shares = mode_shares(x, modes, n_modes)
        assert shares.sum().item() == pytest.approx(1)
        expected = [1 / 9, 3 / 9, 5 / 9] if name == "rings" else [0.5, 0.5]
        assert shares.tolist() == pytest.approx(expected, abs=0.03)


def test_gaps_of_images_are_in_spreads():
    row = {"gap": -0.3, "spread": 0.05, "ess_pos": 0.7, "ess_neg": 0.7}
    assert "6.0 spreads" in diagnose([row])[0]
    assert diagnose([{**row, "gap": -0.1}]) == ["no problem found"]


def log(n=10, **values):
    """A log of that many rows with these values in every row."""
    return [dict(values) for _ in range(n)]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"ess_pos": 0.1}, None),
        ({"ess_pos": 0.099}, "weights collapsed (ESS 0.099)"),
        ({"ess_neg": 0.099, "ess_pos": 0.9}, "weights collapsed (ESS 0.099)"),
        ({"ess_neg": 0.099, "gamma": 0.1}, "weights collapsed (ESS 0.099): lower gamma"),
        ({"ess_neg": 0.099, "gamma": 0.0}, "few draws of the mixture look like data (ESS 0.099)"),
        ({"gap": -1.0}, None),
        ({"gap": -1.01}, "negatives lag behind the data by 1.0 nats"),
        ({"gap": 1.0}, None),
        ({"gap": 1.01}, "samples have 1.0 nats less energy"),
        ({"gap": -0.99, "spread": 0.2}, None),
        ({"gap": -1.01, "spread": 0.2}, "by 5.0 spreads"),
        ({"gap": 1.01, "spread": 0.2}, "have 5.0 spreads"),
        ({"acceptance": 0.2}, None),
        ({"acceptance": 0.19}, "acceptance 0.19"),
        ({"acceptance": 0.95}, None),
        ({"acceptance": 0.96}, "acceptance 0.96"),
        ({"jumps": 0.02}, None),
        ({"jumps": 0.019}, "jumps are rarely accepted"),
        ({"mode_error": 0.1}, None),
        ({"mode_error": 0.101}, "off by 0.10"),
        ({"told_apart": 0.95}, None),
        ({"told_apart": 0.951}, "too easily (95%)"),
    ],
)
def test_each_verdict_has_its_threshold(values, words):
    found = diagnose(log(**values))
    assert len(found) == 1
    assert (found[0] == "no problem found") if words is None else (words in found[0])


def test_the_verdict_is_on_the_last_fifth_of_the_run():
    early, late = log(8, gap=-9.0), log(2, gap=0.0)
    assert diagnose(early + late) == ["no problem found"]
    assert diagnose(log(8, gap=0.0) + log(2, gap=-3.0)) == [
        "negatives lag behind the data by 3.0 nats: more sampling steps or a lower learning rate"
    ]
    assert "by 2.0 nats" in diagnose([*log(8, gap=0.0), {"gap": -1.0}, {"gap": -3.0}])[0]  # their mean
    assert len(diagnose(log(3, gap=-3.0, ess_pos=0.01, acceptance=0.0), retries=2)) == 4
    assert diagnose([{"gap": -3.0}])[0].startswith("negatives lag")  # one row is enough


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["loss", "gradient", "e_pos"])
def test_no_number_that_is_not_finite_passes(small, name, bad):
    stats = {"loss": 1.0, "gradient": 2.0, "e_pos": 3.0, "gap": 0.5} | {name: bad}
    with pytest.raises(Diverged, match=f"{name} is -?(nan|inf)"):
        check({key: torch.tensor(value) for key, value in stats.items()}, small)


def test_a_gap_is_allowed_up_to_its_limit_in_its_unit(small):
    def checked(**stats):
        check(
            {key: torch.tensor(value) for key, value in {"loss": 0.0, **stats}.items()},
            small.changed({"guard.max_gap": 10.0}),
        )

    checked()
    for sign in (1.0, -1.0):
        checked(gap=sign * 10.0)
        checked(gap=sign * 30.0, spread=3.0)
        with pytest.raises(Diverged, match="the energies of data and samples are 11 apart"):
            checked(gap=sign * 11.0)
        with pytest.raises(Diverged, match="are 12 spreads apart"):
            checked(gap=sign * 1.2, spread=0.1)


def test_the_progress_line_shows_what_is_there():
    row = {"step": 5.0, "e_pos": 1.23456, "e_neg": -2.0, "ess_neg": 0.5, "acceptance": 0.61, "loss": 3.0}
    assert summary(row) == "E data 1.23, E samples -2, ESS 0.5, accept 0.61"
    assert summary({"temperature": 1.25e-6}) == "T 1.25e-06"


def test_rows_that_lack_a_number_do_not_count_in_its_mean():
    assert "by 2.0 nats" in diagnose([*log(8), {"gap": -2.0}, {"loss": 0.0}])[0]
    assert diagnose([*log(8, gap=-9.0), *log(2)]) == ["no problem found"]


def test_the_verdict_on_few_rows_is_on_the_last_one():
    assert diagnose([{"gap": -9.0}, {"gap": 0.0}]) == ["no problem found"]
    assert diagnose([*log(6, gap=-9.0), {"gap": 0.0}]) == ["no problem found"]  # a fifth of seven is one
    assert "by 4.5 nats" in diagnose([*log(7, gap=-9.0), {"gap": 0.0}])[0]  # and of eight two


def test_the_last_words_name_what_to_try_and_what_is_kept(small, tmp_path):
    config = small.changed({"guard.max_retries": 2})
    told = last_words("loss is nan", config, 40, None)
    assert str(told).startswith("training diverged 3 times, last at loss is nan; try a smaller lr")
    kept = last_words("loss is nan", config, 40, tmp_path)
    assert f"loss is nan; the model of update 40 is kept in {tmp_path}; try" in str(kept)
    assert told.reason == kept.reason == "training diverged 3 times, last at loss is nan"  # on any machine
    assert (str(Diverged("loss is nan")), Diverged("loss is nan").reason) == ("loss is nan", "loss is nan")
    again = pickle.loads(pickle.dumps(kept))  # as another process hands it on
    assert (str(again), again.reason) == (str(kept), kept.reason)


def test_shares_of_modes_are_counted_with_those_that_hold_nothing():
    x = torch.tensor([[0.0], [2.0], [2.0], [2.0]])
    assert mode_shares(x, lambda x: x[:, 0].long(), 4).tolist() == [0.25, 0, 0.75, 0]


def test_rows_that_sank_where_no_chain_comes_are_told_though_the_medians_agree():
    """Two of 256 rows at -10,000: the mean lies 78 nats below that of the samples, the gap of medians is 0."""
    row = {"step": 1, "e_pos": -78.0, "e_neg": 0.5, "gap": 0.0, "acceptance": 0.6}
    (told,) = diagnose([row])
    assert told.startswith("a few rows lie far below all samples (the mean by 78 nats), where no chain goes")
    assert diagnose([row | {"e_pos": -49.0}]) == ["no problem found"]
    assert diagnose([row | {"e_pos": -49.6}]) != ["no problem found"]
    assert diagnose([row | {"spread": 2.0}]) == ["no problem found"]  # 39 spreads
    assert "negatives lag behind" in diagnose([row | {"gap": -2.0}])[0]
    assert len(diagnose([row | {"gap": -2.0}])) == 1


def test_what_came_after_the_update_that_was_kept_is_no_problem_of_the_model():
    rows = [{"step": 1, "ess_neg": 0.9, "gain": -0.1}, {"step": 2, "ess_neg": 0.8, "gain": 0.2}]
    worse = {"step": 3, "ess_neg": 0.01, "gain": 0.1}
    assert diagnose([*rows, *[worse] * 20]) == ["no problem found"]
    assert diagnose([*rows, {**worse, "gain": 0.3}])[0].startswith("weights collapsed")
    assert diagnose([{**worse, "gain": -1.0}, rows[0]]) == ["no problem found"]
    assert diagnose([{"step": 1, "ess_neg": 0.9}, {"step": 2, "ess_neg": 0.01}])[0].startswith("weights collapsed")
