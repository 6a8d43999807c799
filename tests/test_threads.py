import pytest
import torch
from torch import nn

from pscd.energies import MLP
from pscd.threads import enough_threads


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("energy", "threads"), [(MLP((2,), width=64), 1), (MLP((2,), width=2000), 3), (nn.Conv2d(1, 1, 3), 3)]
)
def test_small_networks_get_one_thread_and_the_setting_comes_back(three_threads, energy, threads):
    with enough_threads(energy, 256):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 3
