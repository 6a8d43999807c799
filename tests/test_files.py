import errno
import json
import os
import stat
import subprocess
import sys
import threading

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save

from pscd import files
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
    result, metadata = read_tensors(tmp_path / "a.safetensors")
    assert metadata == {"kind": "test"}
    assert all(torch.equal(result[name], t) for name, t in tensors.items())
    assert tensors_digest(result) == tensors_digest(dict(reversed(tensors.items())))


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


def test_one_flipped_bit_of_a_tensor_file_is_never_computed_with(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors, metadata = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([True])}, {"about": "a test"}
    files.write_tensors(path, tensors, metadata)
    content = path.read_bytes()
    unnoticed = 0
    for at in range(8 * len(content)):
        changed = bytearray(content)
        changed[at // 8] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            result, about = files.read_tensors(path)
        except SafetensorError:
            continue
        unnoticed += 1  # a blank between two words
        assert result.keys() == tensors.keys()
        assert all(torch.equal(result[name], tensors[name]) for name in tensors)
        assert {name: about[name] for name in metadata} == metadata
    assert unnoticed < 0.1 * 8 * len(content)


def test_files_without_a_checksum_are_damaged(tmp_path):
    (tmp_path / "x").write_bytes(save({"a": torch.ones(2)}, {"about": "another program"}))
    with pytest.raises(SafetensorError, match="checksum"):
        files.read_tensors(tmp_path / "x")
    with pytest.raises(ValueError, match="checksum"):
        files.unsealed({"a": 1})


def test_sealed_values_go_through_json():
    values = {"b": [1.5, float("nan"), "é"], "a": {"c": None}}
    again = files.unsealed(json.loads(json.dumps(files.sealed(values))))
    assert str(again) == str(values)


HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(60)
"""


def test_a_lock_is_told_to_others_and_ends_with_its_process(tmp_path):
    path = tmp_path / ".lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "locked\n"
    with pytest.raises(UserError, match="is in use by another run"), files.locked(path):
        pass
    holder.kill()
    holder.communicate()
    assert path.exists()  # a kill leaves the file, and not the lock
    with files.locked(path), files.locked(path):
        assert path.exists()
    assert not path.exists()


def test_a_lock_is_told_to_another_thread(tmp_path):
    result = []

    def other():
        try:
            with files.locked(tmp_path / ".lock"):
                result.append("taken twice")
        except UserError as error:
            result.append(str(error))

    with files.locked(tmp_path / ".lock"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(result) == 1
    assert "in use" in result[0]


def test_a_lock_that_its_owner_removed_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    """Between opening and locking, the former owner may have removed the file: locking that would lock nothing."""
    path = tmp_path / ".lock"
    flock, calls = files.fcntl.flock, []

    def slow(descriptor, how):
        if not calls:
            path.unlink()
        calls.append(descriptor)
        flock(descriptor, how)

    monkeypatch.setattr(files.fcntl, "flock", slow)
    with files.locked(path):
        assert path.exists()
    assert len(calls) == 2


def test_without_locks_of_the_file_system_nothing_is_locked(tmp_path, monkeypatch):
    def none(descriptor, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", none)
    with files.locked(tmp_path / ".lock"):
        pass


def test_leftovers_of_a_kill_are_swept_and_nothing_else(tmp_path):
    for name in ("state.pt.123.tmp", "config.json.7.tmp", "mine.tmp", "mine.abc.tmp", "state.pt"):
        (tmp_path / name).touch()
    files.remove_temporary(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"mine.tmp", "mine.abc.tmp", "state.pt"}


def test_reading_tells_everything_in_one_line():
    for error, words in ((MemoryError(), "more memory"), (RuntimeError("a\nb"), r"damaged \(a\)"), (KeyError(3), "3")):
        with pytest.raises(UserError, match=rf"^x: .*{words}"), files.reading("x", "damaged"):
            raise error
    with pytest.raises(UserError, match=r"^x: no rows$"), files.reading("x", "damaged"):
        raise UserError("x: no rows")


def test_a_message_is_one_line_that_a_terminal_does_not_obey():
    assert str(UserError("a\nb\x1b[2Jc")) == "a b [2Jc"
    assert len(str(UserError("x" * 10**6))) < 2100


def test_a_limit_on_memory_counts(monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1000, 1000))
    files.check_fits("x", 1000)
    with pytest.raises(UserError, match="more than the memory"):
        files.check_fits("x", 1001)


def test_tensors_that_were_read_do_not_change_with_their_file(tmp_path):
    files.write_tensors(tmp_path / "x", {"a": torch.ones(1000)}, {})
    tensors, _ = files.read_tensors(tmp_path / "x")
    with (tmp_path / "x").open("r+b") as file:
        file.write(b"\xff" * (tmp_path / "x").stat().st_size)
    assert torch.equal(tensors["a"], torch.ones(1000))
