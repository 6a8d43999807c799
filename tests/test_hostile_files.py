"""A run folder from an untrusted source: reading it and resuming in it do no harm. See SECURITY.md."""

import io
import json
import os
import pickle
import shutil
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

import pscd
from pscd.data import read_table
from pscd.errors import UserError
from pscd.files import read_tensors, sealed, write_tensors
from pscd.runs import train
from pscd.training import checkpoint


class Harm:
    """What runs code when it is unpickled the usual way."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def run(small, tmp_path):
    return train(replace(small, updates=20), tmp_path / "run", progress=False)


@pytest.fixture
def config(small):
    return replace(small, updates=20)


@pytest.mark.parametrize("kind", ["torch", "old torch", "pickle", "within"])
def test_a_pickle_in_the_state_runs_nothing(run, config, tmp_path, kind):
    harm, path = Harm(tmp_path / "harm"), run / "state.pt"
    assert pickle.loads(pickle.dumps(Harm(tmp_path / "works"))) is None  # it would have
    (run / "model.safetensors").unlink()
    if kind == "pickle":
        path.write_bytes(pickle.dumps({"step": harm}))
    elif kind == "within":
        rewrite(path, lambda name, content: pickle.dumps({"step": harm}) if name.endswith(".pkl") else content)
    else:
        torch.save({"step": harm}, path, _use_new_zipfile_serialization=kind == "torch")
    for use in (lambda: train(config, run, progress=False), lambda: pscd.load(run)):
        with pytest.raises(UserError, match=r"state\.pt: damaged"):
            use()
    assert not (tmp_path / "harm").exists()


def rewrite(path, change, **options):
    with zipfile.ZipFile(path) as archive:
        members = {name: change(name, archive.read(name)) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_a_state_that_unpacks_to_more_than_it_is_is_refused(run):
    rewrite(run / "state.pt", lambda name, content: content + bytes(10**5), compression=zipfile.ZIP_DEFLATED)
    assert (run / "state.pt").stat().st_size < 10**6
    with pytest.raises(UserError, match="members are larger than the file"):
        checkpoint.load(run)


@pytest.mark.parametrize("name", ["exp_avg", "exp_avg_sq"])
def test_moments_of_another_shape_are_refused(run, config, name):
    """The fused optimiser would read and write outside of them."""
    values = torch.load(run / "state.pt", weights_only=True)
    values["optimizer"]["state"][0][name] = torch.zeros(1, 1)
    values["step"] = 10
    checkpoint.save(values, run)
    (run / "model.safetensors").unlink()
    with pytest.raises(UserError, match=f"{name} of the optimiser has the shape"):
        train(config, run, progress=False)


@pytest.mark.parametrize("values", [{"step": 3}, {"step": "x"}, [1], {"step": 3, "energy": {}, "retries": 0}])
def test_a_state_of_something_else_is_refused(run, config, values):
    torch.save(values, run / "state.pt")
    (run / "model.safetensors").unlink()
    for use in (lambda: train(config, run, progress=False), lambda: pscd.load(run)):
        with pytest.raises(UserError, match=r"state\.pt: damaged"):
            use()


def changed_model(run, change):
    tensors, metadata = read_tensors(run / "model.safetensors")
    settings = json.loads(metadata["config"])
    change(settings, tensors)
    write_tensors(run / "model.safetensors", tensors, {**metadata, "config": json.dumps(settings)})


@pytest.mark.parametrize("kind", ["os:system", "builtins:eval", "subprocess:Popen", "pathlib:Path", "pscd.runs:train"])
def test_import_paths_in_a_configuration_call_nothing(run, tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def change(settings, tensors):
        settings["objective"] = {"kind": kind, "command": "touch harm", "args": "touch harm", "source": "1"}

    changed_model(run, change)
    with pytest.raises(UserError, match="not a dataclass of settings"):
        pscd.load(run)
    assert not (tmp_path / "harm").exists()


def test_a_module_named_in_a_configuration_is_not_imported(run, tmp_path, monkeypatch):
    (tmp_path / "strangers_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    changed_model(run, lambda settings, tensors: settings.update(objective={"kind": "strangers_module:Loss"}))
    assert pscd.load(run).config.objective.kind == "strangers_module:Loss"


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("width", 10**9, "its weights are those of MLP"),  # of 4 million gigabytes
        ("depth", 10**9, "depth must be at most"),
        ("width", "8", "damaged"),
        ("width", 16.5, "width must be int"),
    ],
)
def test_sizes_in_a_configuration_take_no_memory(run, setting, value, message):
    changed_model(run, lambda settings, tensors: settings["energy"].update({setting: value}))
    with pytest.raises(UserError, match=message):
        pscd.load(run)


def test_words_of_a_file_do_not_reach_the_terminal_as_they_are(run):
    changed_model(run, lambda settings, tensors: settings.update(stop="\x1b]0;owned\x07\n" * 1000))
    with pytest.raises(UserError) as caught:
        pscd.load(run)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 2100


def test_links_are_not_written_through(run, config, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("model.safetensors", "state.pt", "state-previous.pt", "metrics.jsonl"):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(victim)
    for pid in (os.getpid(), 1):
        (run / f"state.pt.{pid}.tmp").symlink_to(tmp_path / "nowhere")
        (run / f"model.safetensors.{pid}.tmp").symlink_to(victim)
    with pytest.raises(UserError, match=r"state\.pt: damaged"):
        train(config, run, progress=False)
    for name in ("state.pt", "state-previous.pt"):
        (run / name).unlink()
    train(config, run, progress=False)
    assert victim.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_link_to_nowhere_in_place_of_the_log_is_told(run, config, tmp_path):
    for name in ("model.safetensors", "state.pt", "metrics.jsonl"):
        (run / name).unlink()
    (run / "metrics.jsonl").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"cannot write to .*metrics\.jsonl"):
        train(config, run, progress=False)
    assert not (tmp_path / "nowhere").exists()


def test_pipes_are_not_waited_for(run, config):
    for name in ("model.safetensors", "state.pt", "metrics.jsonl"):
        (run / name).unlink()
        os.mkfifo(run / name)
    with pytest.raises(UserError):
        pscd.load(run)
    assert checkpoint.load(run) is None
    shutil.copy(run / "config.json", run / "copy")
    (run / "config.json").unlink()
    os.mkfifo(run / "config.json")
    with pytest.raises(UserError, match="holds other files"):
        train(config, run, progress=False)


def test_a_compressed_table_that_lies_about_its_size_is_refused(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**5)})
    (tmp_path / "x.npy").write_bytes(header.getvalue())
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("../../X.npy", header.getvalue())
    for name in ("x.npy", "x.npz"):
        with pytest.raises(UserError, match="bytes where its header promises 800000000000"):
            read_table(tmp_path / name)


def test_settings_that_were_sealed_by_a_stranger_are_still_checked(run, config):
    (run / "config.json").write_text(json.dumps(sealed({"objective": {"kind": "os:system"}, "fingerprint": ""})))
    with pytest.raises(UserError, match="is damaged, or of another version"):
        train(config, run, progress=False)
