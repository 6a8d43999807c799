"""Batches of streamed rows: the place of each update, junk left out, the same in every process."""

import numpy as np
import pytest
import torch

from pscd.data.chunks import ArrayChunks
from pscd.data.streams import ChunkedSource
from pscd.errors import UserError
from pscd.recipes.configs import RECIPES
from pscd.recipes.tables import prepare
from pscd.rng import generator
from pscd.training import batches
from pscd.training.batches import Batches

CPU = torch.device("cpu")


def of(x, config, window=50, label=None):
    chunks = ArrayChunks(x, label)
    chunks.rows, chunks.window = 8, window
    chunks.sizes = np.array([8] * (len(x) // 8))
    return Batches(ChunkedSource(chunks), prepare(x, config)[0], config, CPU)


@pytest.fixture
def plain(small):
    return small.changed({"batch_size": 5, "rows.standardise": "none"})


def test_every_row_comes_once_in_an_epoch_and_any_update_is_found_again(plain):
    x = torch.arange(400.0).view(200, 2)
    with of(x, plain) as rows:
        found = [rows.batch(step)[0] for step in range(80)]
        assert (
            sorted(torch.cat(found[:40])[:, 0].tolist())
            == sorted(torch.cat(found[40:])[:, 0].tolist())
            == x[:, 0].tolist()
        )
        again = {step: rows.batch(step)[0] for step in (70, 3, 40, 39)}  # back, as after a divergence
    with of(x, plain) as other:
        again |= {step: other.batch(step)[0] for step in (17, 18, 79)}
    assert all(torch.equal(batch, found[step]) for step, batch in again.items())


def test_labels_go_with_their_rows_and_are_checked(plain):
    x = torch.arange(400.0).view(200, 2)
    config = plain.changed({"energy.name": "conv", "energy.classes": 3})
    with of(x, config, label=(x[:, 0] % 3).long()) as rows:
        z, label = rows.batch(7)
        assert torch.equal(label, (z[:, 0] % 3).long())
    with of(x, config) as rows, pytest.raises(UserError, match="needs a label for each row"):
        rows.batch(0)
    with (
        of(x, config, label=torch.full((200,), 3)) as rows,
        pytest.raises(UserError, match="labels must lie between 0 and 2"),
    ):
        rows.batch(0)


def test_junk_is_as_rare_as_it_is_in_memory():
    """Among rows that are read, each is kept with the probability with which it would be drawn in memory."""
    rng = generator(0)
    x = torch.randn(4000, 3, generator=rng).double()
    x[:800] = 24 * torch.rand(800, 3, generator=rng).double() - 12
    config = RECIPES["table"].changed({"objective.gamma": 0.3, "batch_size": 64})
    rows = of(x, config, window=1000)
    prepared = rows.prepared
    far = prepared.z.abs().amax(1) > 5
    expected = float(prepared.clean[far].sum() / prepared.clean.sum())
    with rows:
        z = torch.cat([rows.batch(step)[0] for step in range(160)])
    share = float((z.abs().amax(1) > 5).double().mean())
    assert expected < 0.25 * float(far.double().mean())  # there is junk, and most of it is known as such
    # Five standard errors of a share, were rows drawn independently; without replacement they vary less.
    assert abs(share - expected) < 5 * (expected / len(z)) ** 0.5 + 1e-9
    assert len(z.unique(dim=0)) > 3000
    assert rows.n_read < 1.4 * batches.BLOCK * 64


def test_ties_are_spread_anew_whenever_a_row_comes():
    x = torch.randint(4, (2000, 2), generator=generator(0)).double()
    x[:, 1] += torch.rand(2000, generator=generator(1)).double()
    config = RECIPES["table"].changed({"objective.gamma": 0.0, "batch_size": 50, "rows.standardise": "none"})
    with of(x, config, window=500) as rows:
        z = torch.cat([rows.batch(step)[0] for step in range(80)])
    assert len(z[:, 0].unique()) == len(z)
    assert (z[:, 0] - z[:, 0].round()).abs().max() <= 0.5
    assert sorted(z[:2000, 0].round().tolist()) == sorted(x[:, 0].tolist())


def test_a_row_that_cannot_be_read_is_told_when_it_is_needed(plain):
    x = torch.arange(400.0).view(200, 2)
    rows = of(x, plain)
    rows.source.chunks.array = x.clone()
    rows.source.chunks.array[100, 1] = torch.nan

    def read_all():
        for step in range(40):
            rows.batch(step)

    with rows, pytest.raises(UserError, match="the data: row 101 is missing"):
        read_all()
