import numpy as np
import pytest
import torch
from torch import nn

from pscd.errors import UserError
from pscd.images.features import (
    Pixels,
    Scripted,
    load_feature_map,
    scale_as_tensorflow,
)
from pscd.rng import generator
from studies.images.noise import uniform_noise


def images(n, channels=3, size=8, seed=0):
    return uniform_noise(n, (channels, size, size), generator(seed))


def test_pixels_are_numbers_from_0_to_1():
    features = load_feature_map("pixels")
    x = images(5)
    assert features.name == "raw pixels"
    torch.testing.assert_close(features(x), x.view(5, -1) / 255)
    assert features(x).dtype == torch.float32


@pytest.mark.parametrize("x", [torch.zeros(2, 3, 8, 8), images(2)[0], images(2).view(2, 6, 4, 8)])
def test_only_images_of_bytes_have_features(x):
    with pytest.raises(ValueError, match="give bytes"):
        Pixels()(x)


# --- TorchScript ---


class OfBytes(nn.Module):
    """Takes bytes of any size, gives two outputs, the first with surplus dimensions."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.float()
        return x.mean((2, 3), keepdim=True), x.flatten(1)


class OfInception(nn.Module):
    """Like the FID's Inception: numbers of one size only."""

    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool2d(299)
        self.scale = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(self.pool(x).flatten(1))


class OnRequest(nn.Module):
    """Gives classes unless it is asked for features."""

    def forward(self, x: torch.Tensor, return_features: bool = False) -> torch.Tensor:
        return x.float().amax((2, 3)) if return_features else x.float().mean((2, 3))


def scripted(module, path):
    torch.jit.script(module).save(path)
    return str(path)


def test_a_network_of_bytes_gets_them_in_batches(tmp_path):
    features = Scripted(scripted(OfBytes(), tmp_path / "net.pt"), batch_size=3)
    x = images(7)
    torch.testing.assert_close(features(x), x.float().mean((2, 3)))
    assert features.takes_bytes
    assert features.name.startswith("net.pt (")
    assert features.name.endswith("), bytes")


def test_a_network_is_asked_for_features_if_it_can_be(tmp_path):
    x = images(4)
    features = Scripted(scripted(OnRequest(), tmp_path / "net.pt"))(x)
    torch.testing.assert_close(features, x.float().amax((2, 3)))


def test_grey_is_repeated_to_three_channels(tmp_path):
    features = load_feature_map(scripted(OfBytes(), tmp_path / "net.pt"))
    x = images(4, channels=1)
    torch.testing.assert_close(features(x), x.float().mean((2, 3)).expand(4, 3))


def test_any_other_network_gets_what_the_fid_is_defined_by(tmp_path):
    module = OfInception()
    features = Scripted(scripted(module, tmp_path / "net.pt"), batch_size=2)
    x = images(3)
    scaled = (scale_as_tensorflow(x.float(), 299) - 128) / 128
    with torch.no_grad():
        torch.testing.assert_close(features(x), module(scaled))
    assert not features.takes_bytes
    assert "299 x 299" in features.name
    assert not features(x).requires_grad


def test_in_bfloat16_the_network_computes_so_and_the_name_says_so(tmp_path):
    module = OfInception()
    path = scripted(module, tmp_path / "net.pt")
    x = images(3)
    scaled = ((scale_as_tensorflow(x.float(), 299) - 128) / 128).bfloat16()
    found = load_feature_map(f"{path}@bfloat16")
    with torch.no_grad():
        torch.testing.assert_close(found(x), module.bfloat16()(scaled).float())
    assert found(x).dtype == torch.float32
    assert found.name == f"{load_feature_map(path).name}, in bfloat16"
    assert not torch.equal(found(x), load_feature_map(path)(x))


def test_the_name_tells_networks_apart(tmp_path):
    names = {Scripted(scripted(OfInception(), tmp_path / "net.pt")).name for _ in range(2)}
    assert len(names) == 2  # their weights differ


def test_threads_are_what_they_were_afterwards(tmp_path):
    seen = []
    features = Scripted(scripted(OfBytes(), tmp_path / "net.pt"), threads=2)
    inner, before = features.module, torch.get_num_threads()
    features.module = lambda x, **_: (seen.append(torch.get_num_threads()), inner(x))[1]
    features(images(3))
    assert seen == [2]
    assert torch.get_num_threads() == before != 2


def test_files_that_are_no_feature_maps(tmp_path):
    (tmp_path / "garbage.pt").write_bytes(b"garbage")
    with pytest.raises(UserError, match="not a readable TorchScript file"):
        load_feature_map(str(tmp_path / "garbage.pt"))
    with pytest.raises(UserError, match="takes neither bytes"):
        load_feature_map(scripted(nn.Linear(3, 4), tmp_path / "linear.pt"))
    with pytest.raises(UserError, match="unknown features 'inception'"):
        load_feature_map("inception")


@pytest.mark.parametrize("old", [5, 32, 400])
def test_scaling_puts_pixels_where_tensorflow_1_did(old):
    """Pixel i at i * old / new, between its neighbours, the last of them repeated: with loops."""
    new = 13 if old < 100 else 299
    x = torch.rand(old, generator=generator(0), dtype=torch.float64)
    expected = np.interp(np.arange(new) * old / new, np.arange(old), x)  # repeats the last one, too
    wide = scale_as_tensorflow(x.expand(1, 1, old, old), new)
    tall = scale_as_tensorflow(x[:, None].expand(1, 1, old, old), new)
    for i in (0, new - 1):
        np.testing.assert_allclose(wide[0, 0, i], expected, atol=1e-12)
        np.testing.assert_allclose(tall[0, 0, :, i], expected, atol=1e-12)


def test_scaling_to_the_same_size_changes_nothing():
    x = images(2).float()
    torch.testing.assert_close(scale_as_tensorflow(x, 8), x)
