from dataclasses import replace

import pytest
import torch

import pscd
from pscd.config import TrainConfig
from pscd.errors import UserError
from pscd.presets import PRESETS, for_rows
from pscd.rng import generator
from pscd.training.prepare import AUTO_GAMMA, prepare


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


def test_a_dense_group_that_was_ignored_is_named_with_its_place():
    """Junk all over the range, so that training is robust, and a tight group far from the majority."""
    x, k = dirty_rows(0.2, n=1500)
    x[: k // 2] = torch.tensor([60.0, 5.0, 5.0, 5.0]) + 0.5 * torch.randn(k // 2, 4, generator=generator(3))
    prepared, _ = prepare(x, PRESETS["table"].changed({"objective.gamma": 1.0}), ("height", "b", "c", "d"))
    told = [note for note in prepared.notes if "a group of" in note]
    assert len(told) <= 1
    for note in told:
        assert "height = 60" in note or "height = 59" in note
        assert "gamma 0 keeps it" in note


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
    model = pscd.fit(x, PRESETS["table"].changed({"steps": 20}))
    assert model.shape == (4,)
    assert (model.sample(10)[:, 2] == 7.0).all()
    assert torch.isfinite(model.log_prob(x)).all()


def test_rows_without_a_configuration_get_a_robust_one():
    assert for_rows((2,)) == PRESETS["plane"]
    assert for_rows((3,)) == PRESETS["table"]
    assert for_rows((3, 32, 32)).energy.name == "cnn"
