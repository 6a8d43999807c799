"""Everything that the library reads: small right files of each format, what reads them, and ways to change them."""

import copy
import functools
import gzip
import io
import json
import pickle
import random
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from scipy.io import savemat

from pscd import EnergyDetector, Model, TrainConfig, fit, read_table, runs
from pscd.config import ChainSettings
from pscd.data.pictures import read_pictures
from pscd.energies import Architecture
from pscd.files import read_tensors, sealed, unsealed, write_tensors
from pscd.run_folder import RunFolder
from pscd.sampling import Mala
from pscd.tables import open_table
from pscd.training import checkpoint
from pscd.training.finish import load_stopped
from pscd.training.guard import diagnose
from pscd.training.state import init_state
from studies.fuzz.mutate import inside_gzip, inside_json_text, inside_zip, json_value, mutate
from studies.images import formats as image_files
from studies.reliability import MEMORY_DISK

Change = Callable[[bytes, list[bytes], random.Random], bytes]
ROWS = np.arange(24.0).reshape(8, 3) / 7


@dataclass(frozen=True)
class Format:
    """A kind of file.

    Args:
        suffix: the end of the file's name, or all of it.
        right: contents without a mistake.
        read: what is called with the path; a value or a `UserError` is what it may give.
        changes: ways to change a file inside its structure; half of the inputs are made by them.
    """

    suffix: str
    right: list[bytes]
    read: Callable[[Path], object]
    changes: list[Change] = field(default_factory=list)

    def wrong(self, rng: random.Random) -> bytes:
        """A file with mistakes."""
        content = rng.choice(self.right)
        if self.changes and rng.random() < 0.5:
            return rng.choice(self.changes)(content, self.right, rng)
        return mutate(content, self.right, rng)


def formats() -> dict[str, Format]:
    """All formats by name, the quick ones first; a model, a detector and a training state are made for them."""
    return {**dict(_images()), **dict(_tables()), **dict(_runs())}


def _tables() -> Iterator[tuple[str, Format]]:
    arrays = [_written(np.save, x) for x in (ROWS, ROWS.astype(np.int16), ROWS.T[0], np.asfortranarray(ROWS) > 1)]
    yield "npy", Format(".npy", arrays, read_table)
    yield "npy, in blocks", Format(".npy", arrays, _read_blocks)
    named = [_written(np.savez, X=ROWS, other=ROWS), _written(np.savez_compressed, ROWS)]
    yield "npz", Format(".npz", named, read_table, [inside_zip])
    frame = pd.DataFrame(ROWS[:5, :2], columns=["a", "b"])
    texts = [frame.to_csv(index=False), frame.to_csv(index=False, header=False), frame.astype(int).to_csv(), 'a\n"1"\n']
    yield "csv", Format(".csv", [text.encode() for text in texts], read_table)
    yield "csv, in blocks", Format(".csv", [text.encode() for text in texts], _read_blocks)
    packed = [gzip.compress(text.encode(), mtime=0) for text in texts]
    yield "csv, gzipped", Format(".csv.gz", packed, read_table, [inside_gzip])
    book = _written(lambda file: frame.to_excel(file, index=False))
    yield "xlsx", Format(".xlsx", [book], read_table, [inside_zip])
    other = frame.assign(c=list("abcde"), d=pd.date_range("2020", periods=5))
    tables = [
        _written(lambda file, f=f, c=c: f.to_parquet(file, compression=c))
        for f in (frame, other)
        for c in (None, "snappy")
    ]
    yield "parquet", Format(".parquet", tables, read_table)
    yield "parquet, in blocks", Format(".parquet", tables, _read_blocks)


def _read_blocks(path: Path) -> object:
    return [len(block) for block in open_table(path).blocks(size=2)]


def _runs() -> Iterator[tuple[str, Format]]:
    config = TrainConfig(
        updates=3,
        batch_size=8,
        sampler=Mala(n_steps=2),
        energy=Architecture(width=4, depth=1, fourier=2),
        chains=ChainSettings(buffer_size=10, jump_components=2),
    )
    text = json.dumps(sealed({**config.to_dict(), "fingerprint": "0"})).encode()
    yield (
        "config.json",
        Format(
            "config.json",
            [text],
            lambda path: runs._check_same_run(RunFolder(path.parent), config, "0"),
            [_resealed_json],
        ),
    )
    rows = [
        sealed({"step": 10 * i, "loss": 0.5 * i, "ess_neg": 0.9, "e_pos": 1.0, "e_neg": 1.1, "retries": 0})
        for i in range(1, 5)
    ]
    log = "".join(json.dumps(row) + "\n" for row in rows).encode()
    yield "metrics.jsonl", Format("metrics.jsonl", [log], _read_log, [_resealed_lines])
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = fit(x, config=config, folder=folder)
        model.save(folder / "model.safetensors", step=3)
        EnergyDetector(updates=2).fit(x.numpy()).save(folder)
        weights, state, network, detector = (
            (folder / name).read_bytes()
            for name in ("model.safetensors", "state.pt", "network.safetensors", "detector.safetensors")
        )
    yield (
        "safetensors",
        Format(".safetensors", [weights], lambda path: Model.load(path).energy(x[:2]), [_resealed("config")]),
    )

    def read_detector(path: Path) -> object:
        (path.parent / "network.safetensors").write_bytes(network)
        return EnergyDetector.load(path.parent).score_samples(x[:2].numpy())

    yield "detector", Format("detector.safetensors", [detector], read_detector, [_resealed("facts")])
    fresh = init_state(x, config, None, torch.device("cpu"))

    def read_state(path: Path) -> None:
        checkpoint.load(path.parent)  # seven of eight end here, so that the copy of a state is seldom made
        load_stopped(path.parent)
        checkpoint.resume(copy.deepcopy(fresh), path.parent)

    yield "state.pt", Format("state.pt", [state], read_state, [inside_zip])


def _read_log(path: Path) -> object:
    rows = RunFolder(path.parent).read_metrics()
    return diagnose(rows, retries=int(rows[-1].get("retries", 0))) if rows else None


def _images() -> Iterator[tuple[str, Format]]:
    bytes_ = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    idx = bytes([0, 0, 8, 3]) + struct.pack(">3I", *bytes_.shape) + bytes_.tobytes()
    yield "IDX", Format("-idx3-ubyte", [idx], lambda path: image_files.read_idx(path, 3))
    yield (
        "IDX, gzipped",
        Format(".gz", [gzip.compress(idx, mtime=0)], lambda path: image_files.read_idx(path, 3), [inside_gzip]),
    )
    record = bytes(range(256)) * 12
    yield "CIFAR, binary", Format(".bin", [b"\1" + record, (b"\2" + record) * 2], image_files.read_cifar_binary)
    batch = {"data": np.frombuffer(record * 2, np.uint8).reshape(2, -1), "labels": [3, 4], "filenames": ["a", "b"]}
    yield (
        "CIFAR, pickled",
        Format("_batch", [pickle.dumps(batch, p) for p in range(6)], image_files.read_cifar_pickle),
    )
    digits = {"X": np.zeros((4, 4, 3, 2), np.uint8), "y": np.array([[1], [10]], np.uint8)}
    mats = [_written(lambda file, c=c: savemat(file, digits, do_compression=c)) for c in (False, True)]
    yield "mat", Format(".mat", mats, image_files.read_svhn)
    kinds = {
        "png": ".png",
        "jpeg": ".jpg",
        "bmp": ".bmp",
        "gif": ".gif",
        "tiff": ".tif",
        "webp": ".webp",
        "ppm": ".ppm",
    }
    # Pillow looks at the content and not at the name, so one name does for all.
    pictures = [
        _written(lambda file, k=k, m=m: Image.new(m, (9, 7), 3).save(file, k)) for k in kinds for m in ("L", "RGB")
    ]
    pictures.append(_written(lambda file: Image.new("RGBA", (5, 5), (1, 2, 3, 4)).save(file, "png")))
    yield "pictures", Format(".png", pictures, lambda path: read_pictures([path], size=4))


def _written(write: Callable[..., object], *args: object, **named: object) -> bytes:
    file = io.BytesIO()
    file.close = lambda: None  # type: ignore[method-assign]  # some writers would
    write(file, *args, **named)
    return file.getvalue()


def _resealed(name: str) -> Change:
    """Change the JSON in a safetensors file's metadata, or a tensor, and write it with the right checksum."""

    def change(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
        tensors, metadata = map(dict, _tensors(content))
        if rng.random() < 0.6:
            metadata[name] = inside_json_text(metadata[name], rng)
        else:
            chosen = rng.choice(list(tensors))
            tensors[chosen] = _other_tensor(tensors[chosen], rng)
        with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as folder:
            path = Path(folder) / "x"
            write_tensors(path, tensors, metadata)
            return path.read_bytes()

    return change


@functools.cache
def _tensors(content: bytes) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """What a safetensors file holds; not to be changed."""
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as folder:
        path = Path(folder) / "x"
        path.write_bytes(content)
        return read_tensors(path)


def _other_tensor(t: torch.Tensor, rng: random.Random) -> torch.Tensor:
    choices: list[Callable[[], torch.Tensor]] = [
        t.flatten,
        lambda: t[None],
        lambda: t.double() * float("nan"),
        lambda: t.double() * 1e300,
        t.long,
        t.bool,
        lambda: torch.zeros(0),
        lambda: torch.zeros(0, 2**40),
        lambda: torch.zeros_like(t),
        lambda: torch.cat([t.flatten()] * 3),
        lambda: t.to(torch.bfloat16),
        lambda: t.to(torch.complex64),
    ]
    return rng.choice(choices)()


def _resealed_json(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    changed = json_value(unsealed(json.loads(content)), rng)
    return json.dumps(sealed(changed) if isinstance(changed, dict) else changed).encode()


def _resealed_lines(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    lines = content.splitlines()
    at = rng.randrange(len(lines))
    return b"\n".join([*lines[:at], _resealed_json(lines[at], others, rng), *lines[at + 1 :]])
