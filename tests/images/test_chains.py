import pytest
import torch

import pscd
from pscd.errors import UserError
from pscd.images.chains import chain_frames
from pscd.recipes.configs import recipe


@pytest.fixture(scope="module")
def model():
    changes = {
        "rows.data": "",
        "updates": 2,
        "batch_size": 4,
        "chains.buffer_size": 8,
        "energy.width": 4,
        "sampler.n_steps": 2,
    }
    x = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return pscd.fit(x, config=recipe("digits").changed(changes))


def test_a_strip_goes_from_noise_to_the_last_step(model):
    frames = chain_frames(model, 3, 30, seed=1)
    assert frames.shape[:1] + frames.shape[2:] == (3, 1, 8, 8)
    assert torch.equal(frames[:, -1], model.sample(3, seed=1, n_steps=30, start=frames[:, 0]).float())


def test_a_strip_needs_chains_and_steps(model):
    with pytest.raises(UserError, match="must be at least 1"):
        chain_frames(model, 0, 3)
