import zlib

import numpy as np
import pytest
import torch

import pscd
from pscd.data import to_bytes
from pscd.errors import UserError
from pscd.images.scores import MIN_REFERENCE, SCORES, OutlierScore, combined, compressed_bits, gradient_norms, measures
from pscd.recipes.configs import RECIPES
from pscd.rng import generator


def model_of(x, *, classes=0, seed=0):
    small = {"updates": 3, "batch_size": 8, "chains.buffer_size": 20, "energy.width": 4, "sampler.n_steps": 2}
    config = RECIPES["digits"].changed({**small, "energy.classes": classes, "seed": seed})
    return pscd.fit(x, config=config, label=torch.arange(len(x)) % classes if classes else None)


@pytest.fixture(scope="module")
def x():
    return torch.randint(256, (60, 1, 8, 8), generator=generator(0)).to(torch.uint8)


@pytest.fixture(scope="module")
def model(x):
    return model_of(x)


@pytest.fixture(scope="module")
def background(x):
    return model_of(x, seed=1)


def test_the_energy_is_the_energy(model, x):
    assert torch.equal(OutlierScore.fit(model)(x), model.energy(x))


def test_typicality_is_the_distance_from_the_mean_energy_of_known_images(model, x):
    score = OutlierScore.fit(model, x[:30], "typicality")(x[30:])
    assert torch.equal(score, (model.energy(x[30:]) - model.energy(x[:30]).mean()).abs())
    assert (score > 0).all()


@pytest.mark.parametrize("classes", [0, 3])
def test_the_gradient_is_that_of_autograd(x, classes):
    """In the pixels' own units, of the least energy over labels where there are any."""
    model = model_of(x, classes=classes)
    z = (x.float() / 255).requires_grad_(True)
    (gradient,) = torch.autograd.grad(model.eval()(z).sum(), z)
    torch.testing.assert_close(gradient_norms(model, x), gradient.flatten(1).norm(dim=1), rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(gradient_norms(model, x), gradient_norms(model, x.float() / 255), rtol=1e-5, atol=1e-8)


def test_images_are_measured_in_blocks_as_at_once(model, x):
    torch.testing.assert_close(gradient_norms(model, x, block_size=7), gradient_norms(model, x))


def test_bits_are_those_of_the_shorter_of_two_ways_to_compress():
    ramp = torch.arange(64).view(1, 1, 8, 8).to(torch.uint8) * 3  # its differences are all alike
    flat = torch.full((1, 1, 8, 8), 7, dtype=torch.uint8)
    noise = torch.randint(256, (1, 1, 8, 8), generator=generator(1)).to(torch.uint8)
    bits = compressed_bits(torch.cat([ramp, flat, noise]))
    rows = np.diff(ramp[0, 0].numpy(), axis=1, prepend=np.uint8(0))
    assert bits[0] == 8 * len(zlib.compress(rows.tobytes(), 9))
    assert bits[1] == 8 * len(zlib.compress(bytes([7] * 64), 9))
    assert bits[1] < bits[0] < 8 * 64 < bits[2]
    unit = torch.cat([ramp, flat, noise]).float() / 255
    assert torch.equal(to_bytes(unit), torch.cat([ramp, flat, noise]))
    assert torch.equal(compressed_bits(unit), bits)


def test_compressing_leaves_the_images_as_they_were(x):
    before = x.clone()
    compressed_bits(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize(("by", "second"), [("complexity", "bits"), ("background", "background")])
def test_differences_are_in_the_spreads_of_known_images(by, second):
    known = {"energy": torch.tensor([1.0, 2.0, 3.0]), second: torch.tensor([100.0, 300.0, 200.0])}
    found = {"energy": torch.tensor([2.0, 5.0, 2.0]), second: torch.tensor([200.0, 200.0, 0.0])}
    assert combined(by, found, known).tolist() == [0.0, 3.0, 2.0]
    # Neither unit matters: energies in another one, and images in bytes instead of bits.
    scaled = [{"energy": 7 * m["energy"] + 4, second: m[second] / 8} for m in (found, known)]
    torch.testing.assert_close(combined(by, *scaled), combined(by, found, known))


def test_the_joint_score_is_a_mahalanobis_distance():
    rng = generator(0)
    energy = torch.randn(200, generator=rng)
    known = {"energy": 3 * energy + 5, "bits": 100 * (energy + torch.randn(200, generator=rng)) + 900}
    found = {"energy": 10 * torch.randn(20, generator=rng), "bits": 900 + 500 * torch.randn(20, generator=rng)}
    table, rows = (torch.stack([m["energy"], m["bits"]], 1).double() for m in (known, found))
    away = rows - table.mean(0)
    expected = (away @ torch.linalg.inv(table.T.cov()) * away).sum(1).sqrt()
    torch.testing.assert_close(combined("joint", found, known).double(), expected, rtol=1e-4, atol=1e-4)
    same = {"energy": energy, "bits": energy}  # of two measures that are one, no distance is infinite
    assert combined("joint", {"energy": energy, "bits": energy + 1}, same).isfinite().all()


def test_known_images_that_are_all_alike_have_no_spread_to_divide_by():
    alike = {"energy": torch.ones(3), "bits": torch.full((3,), 80.0)}
    found = {"energy": torch.tensor([2.0]), "bits": torch.tensor([80.0])}
    assert combined("complexity", found, alike).tolist() == [1.0]


def test_a_ratio_to_the_model_itself_is_no_score(model, background, x):
    same = OutlierScore.fit(model, x[:30], "background", background=model)
    assert torch.equal(same(x[30:]), torch.zeros(30))
    other = OutlierScore.fit(model, x[:30], "background", background=background)
    expected = measures(model, x[30:], ("energy", "background"), background)
    assert torch.equal(expected["background"], background.energy(x[30:]))
    assert torch.equal(other(x[30:]), combined("background", expected, other.reference))
    assert other(x[30:]).std() > 0


def test_missing_arguments_are_refused(model, x):
    with pytest.raises(UserError, match="unknown score 'beauty'; give one of energy, typicality"):
        OutlierScore.fit(model, x, "beauty")
    for by in ("typicality", "complexity", "joint"):
        for few in (None, x[: MIN_REFERENCE - 1]):
            with pytest.raises(UserError, match="at least 10 reference images"):
                OutlierScore.fit(model, few, by)
    with pytest.raises(UserError, match="second model, trained on noisy images"):
        OutlierScore.fit(model, x, "background")
    table = pscd.fit(torch.randn(50, 2, generator=generator(0)), config=pscd.TrainConfig(updates=2, batch_size=8))
    with pytest.raises(UserError, match="needs a model of images"):
        OutlierScore.fit(table, x, "gradient")
    with pytest.raises(ValueError, match="needs measures of reference images"):
        combined("typicality", {"energy": torch.zeros(1)})


@pytest.mark.parametrize("by", SCORES)
def test_every_score_is_a_number_for_each_image(model, background, x, by):
    score = OutlierScore.fit(model, x[:30], by, background)(x)
    assert score.shape == (60,)
    assert score.isfinite().all()
