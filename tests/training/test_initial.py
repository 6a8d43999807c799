import pytest
import torch

from pscd.config import TrainConfig
from pscd.errors import UserError
from pscd.mixtures import Mixture
from pscd.presets import PRESETS
from pscd.rng import generator
from pscd.sampling import Chains
from pscd.training.initial import check_label, init_state

SMALL = {"energy.width": 2, "buffer_size": 50}
CPU = torch.device("cpu")


def test_chains_in_the_box_start_evenly_and_take_a_byte_each():
    x = torch.rand(30, 1, 8, 8, generator=generator(0))
    config = PRESETS["digits"].changed(SMALL)
    state = init_state(x, config, None, CPU)
    assert state.buffer.x.dtype == torch.uint8
    assert state.buffer.x.float().mean() == pytest.approx(127.5, abs=5 * 73.9 / (50 * 64) ** 0.5)  # sd of a byte
    assert isinstance(state.proposal, Chains)
    assert state.buffer.label is None
    assert torch.equal(state.coordinates.scale, torch.ones(1, 8, 8).double())


def test_labelled_chains_keep_to_the_classes():
    x = torch.rand(30, 1, 8, 8, generator=generator(0))
    config = PRESETS["digits"].changed({**SMALL, "energy.classes": 3})
    label = init_state(x, config, None, CPU).buffer.label
    assert set(label.tolist()) == {0, 1, 2}


def test_rows_of_numbers_get_a_mixture():
    state = init_state(torch.randn(50, 2, generator=generator(0)), TrainConfig(buffer_size=10), None, CPU)
    assert isinstance(state.proposal, Mixture)
    assert state.buffer.x.dtype == torch.float32


def test_data_outside_the_box_are_told():
    with pytest.raises(UserError, match=r"\[0, 1\]"):
        init_state(2 * torch.ones(30, 1, 8, 8), PRESETS["digits"].changed(SMALL), None, CPU)


def test_labels_are_checked():
    config = PRESETS["digits"].changed({"energy.classes": 3})
    assert check_label(torch.tensor([5, 6]), 2, TrainConfig(), CPU) is None
    assert check_label(torch.tensor([0, 2]), 2, config, CPU).tolist() == [0, 2]
    with pytest.raises(UserError, match="label for each row"):
        check_label(None, 2, config, CPU)
    with pytest.raises(UserError, match="between 0 and 2"):
        check_label(torch.tensor([0, 3]), 2, config, CPU)
