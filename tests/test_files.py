import os
import stat

import pytest
import torch

from pscd.errors import UserError
from pscd.files import cache_folder, read_json, read_tensors, replacing, tensors_digest, write_json, write_tensors


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_files_have_the_permissions_that_the_umask_gives(tmp_path):
    write_tensors(tmp_path / "a.safetensors", {"a": torch.zeros(2)}, {})
    write_json(tmp_path / "a.json", {})
    assert mode(tmp_path / "a.safetensors") == mode(tmp_path / "a.json") == 0o644
    os.umask(0o077)
    write_tensors(tmp_path / "b.safetensors", {"a": torch.zeros(2)}, {})
    assert mode(tmp_path / "b.safetensors") == 0o600


def test_an_error_while_writing_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})

    def fail():
        with replacing(path) as temporary:
            temporary.write_text("half of")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert read_json(path) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_written_is_on_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    done = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (done.append("fsync"), sync(file)))
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("replace"), replace(*paths)))
    write_tensors(tmp_path / "a.safetensors", {"a": torch.zeros(2)}, {})
    assert done == ["fsync", "replace"]


def test_tensors_come_back_with_their_metadata(tmp_path):
    tensors = {"a": torch.arange(6).view(2, 3).T, "b": torch.tensor(0.5, dtype=torch.bfloat16)}
    write_tensors(tmp_path / "a.safetensors", tensors, {"kind": "test"})
    found, metadata = read_tensors(tmp_path / "a.safetensors")
    assert metadata == {"kind": "test"}
    assert all(torch.equal(found[name], t) for name, t in tensors.items())
    assert tensors_digest(found) == tensors_digest(dict(reversed(tensors.items())))


@pytest.mark.parametrize(
    "other",
    [
        {"b": torch.zeros(4)},
        {"a": torch.zeros(2, 2)},
        {"a": torch.zeros(4, dtype=torch.float64)},
        {"a": torch.tensor([0, 0, 0, 1e-30])},
    ],
    ids=["name", "shape", "type", "value"],
)
def test_a_digest_tells_tensors_apart(other):
    assert tensors_digest(other) != tensors_digest({"a": torch.zeros(4)})


def test_a_file_that_is_no_json_is_named(tmp_path):
    with pytest.raises(UserError, match=r"a\.json: cannot be read \(No such file"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(UserError, match=r"a\.json: damaged"):
        read_json(tmp_path / "a.json")


def test_the_cache_is_where_the_operating_system_has_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "pscd"
