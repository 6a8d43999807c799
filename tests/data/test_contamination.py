import pytest
import torch

from pscd.data import contaminate
from pscd.rng import generator


def uniform(n, g):
    return 10 + torch.rand(n, 2, generator=g)


@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.3])
def test_exactly_the_marked_rows_are_noise(ratio):
    x = torch.randn(1000, 2, generator=generator(0))
    dirty = contaminate(x, ratio, uniform, generator(1))
    assert int(dirty.is_noise.sum()) == round(1000 * ratio)
    assert torch.equal(dirty.x[~dirty.is_noise], x[~dirty.is_noise])
    assert (dirty.x[dirty.is_noise] >= 10).all()
    assert (x < 10).all()  # the clean rows are not changed in place
    again = contaminate(x, ratio, uniform, generator(1))
    assert torch.equal(again.x, dirty.x)


def test_noise_may_be_rows():
    dirty = contaminate(torch.zeros(10, 3), 0.5, torch.tensor([[1.0, 2.0, 3.0]]))
    assert dirty.x.sum().item() == 30.0


def test_bad_input():
    with pytest.raises(ValueError, match="ratio"):
        contaminate(torch.zeros(10, 2), 1.0, uniform)
    with pytest.raises(ValueError, match="noise has rows of shape"):
        contaminate(torch.zeros(10, 2), 0.5, torch.zeros(4, 3))


def test_no_row_and_nearly_every_row_may_be_noise():
    x = torch.zeros(10, 2)
    assert contaminate(x, 0.0, torch.ones(1, 2)).x.sum() == 0
    assert contaminate(x, 0.99, torch.ones(1, 2)).is_noise.all()
    for bad in (-0.01, 1.0, float("nan")):
        with pytest.raises(ValueError, match="ratio must lie in"):
            contaminate(x, bad, torch.ones(1, 2))


def test_rows_of_noise_are_drawn_with_replacement_and_from_all_of_them():
    """100 rows of 2 kinds: a kind is missed once in 2^99; and the places are drawn by the generator alone."""
    noise = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    first, again, other = (contaminate(torch.zeros(200, 1), 0.5, noise, generator(seed)) for seed in (0, 0, 1))
    assert set(first.x[first.is_noise].flatten().tolist()) == {1.0, 2.0}
    assert first.x.dtype == torch.float32
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.is_noise, other.is_noise)
