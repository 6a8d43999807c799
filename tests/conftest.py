from dataclasses import replace

import pytest
import torch

from pscd.config import TrainConfig
from pscd.energies import Architecture
from pscd.sampling import Mala

torch.set_num_threads(1)  # the networks of the tests are too small for more to help


@pytest.fixture
def small():
    """A configuration that trains in a second."""
    return TrainConfig(
        data="moon",
        n_data=1000,
        steps=60,
        batch_size=32,
        buffer_size=200,
        jump_components=4,
        checkpoint_every=20,
        log_every=10,
        sample_steps=10,
        sampler=Mala(n_steps=3),
        energy=Architecture(width=16, depth=2, fourier=4),
    )


@pytest.fixture
def trained(small, tmp_path):
    """A run folder of that configuration, trained for a few steps."""
    from pscd.runs import train

    return train(replace(small, steps=20), tmp_path / "run", progress=False)
