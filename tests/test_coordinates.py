import torch

from pscd.coordinates import Coordinates
from pscd.rng import generator


def test_standardisation_is_mean_and_deviation_of_clean_columns_and_one_slip_changes_nothing():
    x = torch.randn(1000, 2, generator=generator(0)) * torch.tensor([1.0, 50.0]) + 7
    found = Coordinates.standard(x)
    shift, scale = found.shift, found.scale
    torch.testing.assert_close(shift, x.double().mean(0))
    torch.testing.assert_close(scale, x.double().std(0))
    x[3, 1] = 1e12
    dirty = Coordinates.standard(x)
    dirty_shift, dirty_scale = dirty.shift, dirty.scale
    torch.testing.assert_close(dirty_shift, shift, rtol=0.02, atol=0.2)
    torch.testing.assert_close(dirty_scale, scale, rtol=0.01, atol=0)


def test_there_and_back_in_float64():
    x = 1.7e9 + torch.arange(6.0).double().view(3, 2)  # time stamps, whose seconds float32 would lose
    found = Coordinates.standard(x)
    assert torch.allclose(found.inverse(found.forward(x, torch.float64)), x, rtol=0, atol=1e-6)
    assert found.forward(x).dtype == torch.float32
    assert torch.equal(Coordinates.identity((2,)).forward(x, torch.float64), x)
