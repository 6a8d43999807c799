import numpy as np
import pytest
import torch
from scipy import stats

from pscd.rng import generator
from pscd.sampling import ReplayBuffer
from pscd.sampling.buffer import _different


def numbered(n, g=None):
    """Rows that say which they are: all distinct, none negative."""
    return torch.arange(n, dtype=torch.float32)[:, None].repeat(1, 2)


def marked(n, g=None):
    return torch.full((n, 2), -1.0)


def test_a_drawn_row_is_the_row_written_back():
    buffer = ReplayBuffer(100, numbered)
    rows = buffer.draw(30, 0.0, generator(0))
    assert torch.equal(rows.x[:, 0].long(), rows.index)
    assert len(set(rows.index.tolist())) == 30
    buffer.write(rows, rows.x + 1000)
    changed = buffer.x[:, 0] >= 1000
    assert torch.equal(changed.nonzero()[:, 0], rows.index.sort().values)
    assert torch.equal(buffer.x[rows.index], rows.x + 1000)


@pytest.mark.parametrize("rate", [0.0, 0.05, 1.0])
def test_restarts_are_fresh_points_at_the_stated_rate(rate):
    buffer = ReplayBuffer(10_000, numbered)
    buffer.fresh = marked
    fresh = (buffer.draw(10_000, rate, generator(0)).x < 0).all(1).float().mean().item()
    assert fresh == pytest.approx(rate, abs=5 * (rate * (1 - rate) / 10_000) ** 0.5)


def test_a_chain_keeps_its_label_until_it_restarts():
    buffer = ReplayBuffer(50, numbered, draw_label=lambda n, g: torch.arange(n))
    rows = buffer.draw(20, 0.0, generator(0))
    assert torch.equal(rows.label, rows.index)
    buffer.draw_label = lambda n, g: torch.full((n,), 99)
    rows = buffer.draw(20, 1.0, generator(1))
    buffer.write(rows, rows.x)
    assert (buffer.label[rows.index] == 99).all()
    assert (buffer.label == 99).sum() == 20


def test_bytes_hold_images_to_half_a_grey_level():
    image = torch.rand(8, 1, 4, 4, generator=generator(0))
    buffer = ReplayBuffer(8, lambda n, g: image, uint8=True)
    assert buffer.x.dtype == torch.uint8
    rows = buffer.draw(8, 0.0, generator(1))
    assert (rows.x - image[rows.index]).abs().max() <= 0.5 / 255 + 1e-6


def test_a_batch_may_be_larger_than_the_buffer():
    buffer = ReplayBuffer(4, numbered)
    rows = buffer.draw(10, 0.0, generator(0))
    assert rows.x.shape == (10, 2)
    buffer.write(rows, rows.x)
    assert torch.equal(buffer.x, numbered(4))


@pytest.mark.parametrize(("n", "size"), [(3, 7), (7, 7), (1, 5), (64, 100)])
def test_drawn_rows_differ_and_are_equally_likely(n, size):
    buffer, g = ReplayBuffer(size, numbered), generator(0)
    draws = [buffer.draw(n, 0.0, g).index for _ in range(4000)]
    assert all(len(index.unique()) == n for index in draws)
    share = torch.bincount(torch.cat(draws), minlength=size) / 4000
    # A row is in a draw or not: 4,000 coins of chance n / size, and the largest of `size` deviations.
    chance = n / size
    assert (share - chance).abs().max() <= 5 * (chance * (1 - chance) / 4000) ** 0.5


def test_rows_of_a_draw_are_not_a_fixed_distance_apart():
    """Two of six: one from each half of a circle, so a step of 1 to 5 with chances 1, 2, 3, 2, 1 of 9.

    A chi-square with 4 degrees of freedom, false once in 10^4; rows always half a circle apart would give 8,000.
    """
    buffer, g = ReplayBuffer(6, numbered), generator(0)
    pairs = torch.stack([buffer.draw(2, 0.0, g).index for _ in range(4000)])
    steps = torch.bincount((pairs[:, 1] - pairs[:, 0]) % 6, minlength=6)[1:]
    assert stats.chisquare(steps.numpy(), 4000 / 9 * np.array([1, 2, 3, 2, 1])).pvalue > 1e-4


@pytest.mark.parametrize("n", [5, 20])
def test_the_generator_decides_alone(n):
    def draw_label(n, g):
        return torch.randint(1000, (n,), generator=g)

    def fresh(n, g):
        return torch.randn(n, 2, generator=g)

    state = torch.get_rng_state()
    result = []
    for seed in (0, 0, 1):
        buffer = ReplayBuffer(10, fresh, draw_label=draw_label, generator=generator(seed))
        result.append(buffer.draw(n, 0.5, generator(seed, 1)))
        assert len(buffer) == 10
    first, again, other = result
    assert torch.equal(torch.get_rng_state(), state)
    for name in ("index", "x", "label"):
        assert torch.equal(getattr(first, name), getattr(again, name))
        assert not torch.equal(getattr(first, name), getattr(other, name))


@pytest.mark.parametrize("uint8", [False, True])
def test_what_is_kept_has_no_history(uint8):
    x = torch.rand(4, 2, generator=generator(0)).requires_grad_()
    buffer = ReplayBuffer(4, lambda n, g: x * 1, uint8=uint8)
    rows = buffer.draw(4, 0.0, generator(1))
    buffer.write(rows, x * 0.5)
    assert not buffer.x.requires_grad


def test_a_restart_takes_point_and_label_together_and_only_there():
    buffer = ReplayBuffer(400, numbered, draw_label=lambda n, g: torch.arange(n))
    buffer.fresh, buffer.draw_label = marked, lambda n, g: torch.full((n,), -1)
    rows = buffer.draw(400, 0.4, generator(0))
    restarted = rows.label == -1
    assert 0 < restarted.sum() < 400
    assert torch.equal((rows.x == -1).all(1), restarted)
    assert torch.equal(rows.label[~restarted], rows.index[~restarted])
    assert torch.equal(rows.x[~restarted, 0].long(), rows.index[~restarted])


def test_images_restart_whole():
    images = ReplayBuffer(50, lambda n, g: torch.zeros(n, 1, 2, 2))
    images.fresh = lambda n, g: torch.ones(n, 1, 2, 2)
    x = images.draw(50, 0.5, generator(0)).x
    assert x.shape == (50, 1, 2, 2)
    assert set(x.flatten(1).sum(1).tolist()) == {0.0, 4.0}


def test_rows_far_apart_in_a_huge_buffer_are_drawn_to_the_last_bit():
    """Of 2^41 rows two are drawn, each from a half: with 24 random bits, their distance would be a multiple of 2^16."""
    g = generator(0)
    pairs = [_different(2, 2**41, g, torch.device("cpu")) for _ in range(5)]
    assert len({int(b - a) % 2**16 for a, b in pairs}) == 5
