import os
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from hypothesis import settings

from pscd.config import ChainSettings, GuardSettings, RowSettings, TrainConfig
from pscd.energies import Architecture
from pscd.fast import sequence
from pscd.sampling import Mala
from tests.fast.helpers import limited

# The same examples in every run and no clock, so that a failure is one of the code; `make test-slow` looks further.
settings.register_profile("quick", derandomize=True, max_examples=25, deadline=None, database=None)
settings.register_profile("thorough", max_examples=500, deadline=None, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A Ray that is started here asks for a token, and processes that find it by its address have to know that.
os.environ.setdefault("RAY_AUTH_MODE", "token")


@pytest.fixture(scope="session", autouse=True)
def slow_legends():
    """Every legend seems to take ten seconds, so that one that warns of it, on a busy machine, does so in any test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.legend.time", SimpleNamespace(perf_counter=count(0, 10).__next__))
        yield


torch.set_num_threads(1)  # the networks of the tests are too small for more to help


@pytest.fixture
def small():
    """A configuration that trains in a second."""
    return TrainConfig(
        updates=60,
        batch_size=32,
        sampler=Mala(n_steps=3),
        energy=Architecture(width=16, depth=2, fourier=4),
        chains=ChainSettings(buffer_size=200, jump_components=4, sample_steps=10),
        guard=GuardSettings(checkpoint_every=20, log_every=10),
        rows=RowSettings(data="moon", n_data=1000),
    )


@pytest.fixture
def trained(small, tmp_path):
    """A run folder of that configuration, trained for a few steps."""
    from pscd.runs import train

    return train(replace(small, updates=20), tmp_path / "run", progress=False)


@pytest.fixture
def any_size():
    """Networks of all sizes learn in C++, though for small ones it is no faster."""
    with limited(sequence.Limits(min_learning_work=0)):
        yield
