import math

import pytest
import torch
from torch.nn.functional import interpolate

from pscd.config import RowSettings, TrainConfig
from pscd.data import to_bytes
from pscd.data.looks import COLUMNS, numbers_of
from pscd.errors import UserError
from pscd.recipes.images import _edge, copies, find_majority, weigh_images
from pscd.recipes.tables import prepare
from pscd.rng import generator
from pscd.training.fit import fit
from studies.images.contamination import near_duplicates, shifted
from studies.presets import PRESETS

ROBUST = PRESETS["mnist-robust"]


def blobs(n=2000, side=16, seed=0):
    """Grey images of one soft blob near the middle, of several sizes and shades, among clouds."""
    rng = generator(seed)
    centre = side / 2 + 0.5 * torch.randn(n, 2, 1, 1, generator=rng)
    width = 2 * torch.exp(0.2 * torch.randn(n, 2, 1, 1, generator=rng))
    shade = 0.6 + 0.3 * torch.rand(n, 1, 1, generator=rng)
    grid = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij"))
    squared = ((grid - centre) / width).square().sum(1)
    clouds = interpolate(0.2 * torch.rand(n, 1, 4, 4, generator=rng), side, mode="bilinear")
    return (shade * torch.exp(-squared / 2))[:, None] + clouds


def with_junk(make, share=0.1, **settings):
    """Blobs of which the first are junk made of them, and how many."""
    x = to_bytes(blobs(**settings))
    k = int(share * len(x))
    return torch.cat([make(x, k, generator(7)), x[k:]]).float() / 255, k


def test_every_clean_image_counts():
    for seed in (0, 1):
        assert weigh_images(blobs(seed=seed), 0.3) == (None, None, ("gamma 0.3: every image counts",))


def test_images_out_of_place_are_ignored():
    x, k = with_junk(shifted)
    clean, majority, notes = weigh_images(x, 0.3)
    assert clean.unique().tolist() == [0, 1]
    assert clean[:k].mean() < 0.02
    assert clean[k:].mean() > 0.99
    (note,) = notes
    assert note.startswith("gamma 0.3: ")
    assert "of the images look unlike the others (layout) and are ignored" in note
    torch.testing.assert_close(majority.holds(x).double(), clean)
    assert majority.holds(blobs(500, seed=3)).double().mean() > 0.98  # images that come later


def test_copies_count_once():
    x, k = with_junk(near_duplicates)
    clean, majority, notes = weigh_images(x, 0.3)
    assert majority is None
    assert float(clean[:k].sum()) == pytest.approx(10, abs=1)  # of ten images, some of which are still there themselves
    assert clean[k:].min() < 1
    assert (clean[k:] == 1).double().mean() > 0.99
    assert notes == (f"gamma 0.3: {(k + int((clean[k:] < 1).sum())) / len(x):.1%} of the images are near-copies of "
                     "others, and copies of one count as one",)  # fmt: skip


def test_copies_are_counted_across_blocks(monkeypatch):
    x = blobs(300)
    x[200:] = x[:100] + 0.001  # a quarter of a level brighter
    x[250:260] = x[7]
    expected = torch.ones(300, dtype=torch.long)
    expected[:100], expected[200:] = 2, 2
    expected[50:60] = 1
    expected[[7, 207, *range(250, 260)]] = 12
    for block in (1024, 32):
        monkeypatch.setattr("pscd.recipes.images.BLOCK", block)
        assert torch.equal(copies(x), expected)


def test_a_darker_copy_is_an_image_of_its_own():
    x = blobs(1)
    assert copies(torch.cat([x, x - 0.004])).tolist() == [2, 2]
    assert copies(torch.cat([x, x - 0.006])).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("count", "edge"),
    [
        ([100, 90, 50, 20, 5, 1], math.inf),  # a tail
        ([1000, 90, 5, 50, 60, 3], 2.125),  # the valley is in the third bin beyond 1.5
        ([1000, 90, 0, 0, 0, 60, 3], 2.375),  # the middle of an empty valley
        ([1000, 90, 20, 38, 3], math.inf),  # 18 more than 20, of a standard deviation of 7.6
        ([1000, 90, 5, 1500, 1500, 3], math.inf),  # too many to be junk
    ],
)
def test_the_edge_is_the_valley_before_a_group(count, edge):
    """Bins of a quarter, the first from 1.5 on; nearer ones, with a valley of their own, do not matter."""
    near = torch.cat([torch.full((n,), -1 + 0.25 * i) for i, n in enumerate((9, 2000, 1, 1500))])
    far = torch.cat([torch.full((n,), 1.5 + 0.25 * i) for i, n in enumerate(count)])
    assert _edge(torch.cat([near, far]) + 0.1) == edge


def test_few_images_and_images_that_are_all_alike_count():
    assert find_majority(numbers_of(blobs(99))) is None
    assert find_majority(numbers_of(blobs(100))).edge == math.inf
    assert find_majority(torch.zeros(200, len(COLUMNS), dtype=torch.float64)) is None


def test_training_draws_images_by_their_weights():
    x, _ = with_junk(shifted, n=1000)
    small = {
        "guard.max_gap": 1e9,
        "updates": 3,
        "energy.width": 2,
        "energy.depth": 2,
        "chains.buffer_size": 64,
        "chains.sample_steps": 2,
    }
    prepared, _ = prepare(x, ROBUST)
    torch.testing.assert_close(prepared.clean, weigh_images(x, 0.3)[0])
    z, chances = prepared.transform(x, generator(0))
    assert torch.equal(z, x)
    torch.testing.assert_close(chances, prepared.clean)  # a stream has no copies here
    model = fit(x, config=ROBUST.changed(small))
    assert model.notes == prepared.notes


def test_at_gamma_0_every_image_counts():
    x, _ = with_junk(shifted)
    prepared, _ = prepare(x, ROBUST.changed({"objective.gamma": 0.0}))
    assert prepared.clean is None
    assert prepared.notes == ()


def test_a_glance_is_for_images_and_needs_a_number_for_gamma():
    with pytest.raises(UserError, match="needs images, not a table"):
        prepare(torch.randn(200, 3), TrainConfig(rows=RowSettings(start="glance")))
    with pytest.raises(UserError, match="give gamma a number"):
        prepare(blobs(100), ROBUST.changed({"objective.gamma": "auto"}))
