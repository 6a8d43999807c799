import pytest
import torch

from pscd.errors import UserError
from pscd.images.features import Pixels, Scripted
from studies.images.cache import cached_features
from tests.images.test_features import OfBytes, images, scripted


def test_features_of_a_network_are_computed_once_and_kept(tmp_path, monkeypatch):
    features, x = Scripted(scripted(OfBytes(), tmp_path / "net.pt")), images(5)
    first = cached_features(features, x, cache=tmp_path / "kept")
    torch.testing.assert_close(first, features(x))
    inner = features.module
    features.module = None  # from now on it must not be asked
    assert torch.equal(cached_features(features, x, cache=tmp_path / "kept"), first)
    features.module, other = inner, images(5, seed=1)
    assert torch.equal(cached_features(features, other, cache=tmp_path / "kept"), features(other))
    (tmp_path / "net2").mkdir()
    renamed = Scripted(scripted(OfBytes(), tmp_path / "net2" / "another.pt"))
    cached_features(renamed, x, cache=tmp_path / "kept")
    assert len(list((tmp_path / "kept").iterdir())) == 3  # one for each set and network
    for path in (tmp_path / "kept").iterdir():
        path.write_bytes(b"damaged")
    assert torch.equal(cached_features(features, x, cache=tmp_path / "kept"), first)
    monkeypatch.setenv("PSCD_DATA", str(tmp_path / "sets"))
    cached_features(features, x)
    assert len(list((tmp_path / "sets" / "features").iterdir())) == 1
    assert torch.equal(cached_features(Pixels(), x), Pixels()(x))
    assert len(list((tmp_path / "sets" / "features").iterdir())) == 1  # pixels are faster than a file
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write to"):
        cached_features(features, x, cache=tmp_path / "file" / "below")
