import pytest
import torch

from pscd.errors import UserError
from pscd.recipes.configs import recipe
from pscd.rng import generator
from pscd.sampling import Langevin, langevin
from pscd.sampling.spectrum import spectrum
from pscd.sampling.starts import BoxStart
from pscd.training.state import init_state

GREY, COLOUR = (1, 6, 9), (3, 8, 5)
CPU = torch.device("cpu")


@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_the_transform_is_orthogonal(shape):
    """With the amplitude taken out, T T' = 1: `coefficients` of `images` multiplies by s twice."""
    space = spectrum(shape, 1.3)
    c = torch.randn(4, *shape, generator=generator(0))
    torch.testing.assert_close(space.coefficients(space.images(c)), space.amplitude**2 * c)


@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_coefficients_are_the_gradient_with_respect_to_them(shape):
    """The chain rule: d E(images(c)) / dc = coefficients(dE/dx)."""
    space = spectrum(shape, 0.7)
    c = torch.randn(3, *shape, generator=generator(0), requires_grad=True)
    x = space.images(c)
    (slope,) = torch.autograd.grad(x.sin().sum(), c)
    torch.testing.assert_close(slope, space.coefficients(x.detach().cos()))


def test_the_amplitude_falls_with_the_frequency_and_the_colour():
    s = spectrum(COLOUR, 2.0).amplitude
    assert s[0, 0, 0] / s[0, 3, 4] == pytest.approx((1 + 5) ** 2)  # 3 and 4 half waves are a frequency of 5
    assert (s[1] / s[0]).flatten().tolist() == pytest.approx([0.25] * 40)
    assert (s[2] / s[0]).flatten().tolist() == pytest.approx([0.12] * 40)
    assert s.square().mean().sqrt().item() == pytest.approx(0.25)


def test_the_first_coefficients_are_brightness_and_opponent_colours():
    space, s = spectrum(COLOUR, 1.0), spectrum(COLOUR, 1.0).amplitude[:, 0, 0]
    c = torch.zeros(3, *COLOUR)
    c[[0, 1, 2], [0, 1, 2], 0, 0] = 1.0
    brightness, red_or_blue, green = space.images(c)
    size = 40**0.5  # the constant of an orthogonal transform of 40 pixels is 1 / sqrt(40)
    flat = torch.ones(8, 5) / size
    torch.testing.assert_close(brightness, s[0] * torch.stack([flat, flat, flat]) / 3**0.5)
    torch.testing.assert_close(red_or_blue, s[1] * torch.stack([flat, 0 * flat, -flat]) / 2**0.5)
    torch.testing.assert_close(green, s[2] * torch.stack([flat, -2 * flat, flat]) / 6**0.5)


def test_clouds_have_the_spectrum_and_stay_in_the_box():
    space = spectrum((1, 4, 4), 1.3)
    noise = torch.randn(6, 1, 4, 4, generator=generator(3))
    expected = (0.5 + space.images(noise)).clamp(0, 1)
    assert torch.equal(space.draw(6, generator(3)), expected)
    assert torch.equal(BoxStart((1, 4, 4), CPU, slope=1.3).draw(6, generator(3)), expected)
    assert not torch.equal(expected, 0.5 + space.images(noise))


def test_a_preconditioned_step_by_hand():
    """x - step P g + noise P^(1/2) z, with the gradient clamped in the coefficients."""
    x = 0.2 + 0.7 * torch.rand(5, *COLOUR, generator=generator(0))
    weight = torch.randn(COLOUR, generator=generator(1))
    space = spectrum(COLOUR, 1.3)
    pull = space.coefficients(weight[None])
    clamp = float(pull.abs().median())
    z = torch.randn(x.shape, generator=generator(2))
    moved = x + space.images(0.1 * z - 0.5 * pull.clamp(-clamp, clamp))
    sampler = Langevin(1, 0.5, 0.1, max_grad=clamp, low=0.2, high=0.9, slope=1.3)
    result, info = sampler.run(
        lambda x: (weight * x).sum((1, 2, 3)), x, step_size=torch.tensor(0.5), n_steps=1, generator=generator(2)
    )
    torch.testing.assert_close(result, moved.clamp(0.2, 0.9))
    assert info["temperature"].item() == pytest.approx(0.1**2 / (2 * 0.5))


def test_a_preconditioned_chain_has_the_same_target():
    """At temperature 1 the variance of E = x'x / (2 v) is v in every direction, coarse or fine.

    The bias of the unadjusted step is step s^2 / (2 v) of v, 3 % for the largest s; 4,000 chains give a standard error
    of v sqrt(2 / 4000) = 2 %; five of them and the bias make 15 %.
    """
    shape, v = (1, 3, 3), 0.3
    space = spectrum(shape, 1.0)
    step = 0.06 * v / float(space.amplitude.max() ** 2)
    x = v**0.5 * torch.randn(4000, *shape, generator=generator(0))
    x = langevin(
        lambda x: x.square().sum((1, 2, 3)) / (2 * v), x, n_steps=300, step_size=step, slope=1.0, generator=generator(1)
    )
    coefficients = space.coefficients(x) / space.amplitude
    variances = coefficients.flatten(1).var(0)
    assert variances.tolist() == pytest.approx([v] * 9, rel=0.15)


def test_training_hands_the_slope_to_the_start_of_chains():
    x = torch.rand(40, 1, 8, 8, generator=generator(0))
    for slope in (0.0, 1.3):
        state = init_state(x, recipe("digits").changed({"sampler.slope": slope, "chains.buffer_size": 8}), None, CPU)
        assert isinstance(state.start, BoxStart)
        assert state.start.slope == slope


def test_a_slope_is_for_images_and_not_negative():
    with pytest.raises(UserError, match="a slope is for images"):
        langevin(lambda x: x.sum(1), torch.zeros(2, 3), n_steps=1, step_size=0.1, slope=1.0)
    for wrong in (-0.1, float("inf"), float("nan")):
        with pytest.raises(UserError, match="slope must not be negative"):
            Langevin(slope=wrong)
