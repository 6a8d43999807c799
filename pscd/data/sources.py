"""Large files as sources of batches, and whatever Python objects hold rows."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from pscd import distributed
from pscd.data.batches import BatchSource
from pscd.data.chunks import ArrayChunks, DatasetChunks, ParquetChunks
from pscd.data.streams import ChunkedSource, Source
from pscd.errors import UserError
from pscd.files import cache_folder, parquet_files, read_json, replacing, suffix_of, write_json, writing_to
from pscd.progress import progress_bar

if TYPE_CHECKING:
    from pscd.tables import ReadOptions, Schema, TableFile

StreamChoice = Literal["auto", "yes", "no"]
STREAM_BYTES = 2**28  # that the rows take in float32; larger data are streamed unless stated otherwise


def is_parquet_folder(path: Path) -> bool:
    """Whether a folder holds Parquet files, and not images."""
    return path.is_dir() and bool(parquet_files(path))


def streams_file(path: Path, stream: StreamChoice) -> bool:
    """Whether a file or a folder of Parquet files is streamed: the same on all machines, whatever their memory."""
    if path.is_dir():
        if stream == "no":
            raise UserError(f"{path}: a folder of Parquet files is always streamed; leave stream out")
        return True
    if stream == "no" or not path.exists():
        return False
    suffix = suffix_of(path)
    if suffix not in (".npy", ".parquet", ".csv", ".tsv", ".txt"):
        if stream == "yes":
            raise UserError(f"{path}: {suffix} cannot be streamed; write it as .npy or .parquet, or leave stream out")
        return False
    return stream == "yes" or _is_large(path, suffix)


def _is_large(path: Path, suffix: str) -> bool:
    size = path.stat().st_size
    if suffix in (".csv", ".tsv", ".txt"):  # some eight characters for a number of four bytes, packed to a fourth
        return size > (STREAM_BYTES // 2 if path.suffix.lower() == ".gz" else 2 * STREAM_BYTES)
    if size < STREAM_BYTES // 64:  # no need to look into it: Parquet packs no more tightly
        return False
    if suffix == ".npy":
        return 4 * np.load(path, mmap_mode="r", allow_pickle=False).size > STREAM_BYTES
    try:
        import pyarrow.parquet as pq

        about = pq.read_metadata(path)
    except Exception:  # reading it reports what is wrong
        return False
    return 4 * about.num_rows * about.num_columns > STREAM_BYTES


def open_source(
    path: Path, columns: Sequence[str] | None = None, *, options: "ReadOptions | None" = None, show: bool = True
) -> ChunkedSource:
    """A file, or a folder of Parquet files, as a source; `show` a progress line where it has to be encoded once."""
    from pscd.tables import numeric_schema, open_table

    table = open_table(path, options)
    if suffix_of(path) == ".npy":
        if columns is not None:
            raise UserError(f"{path}: has no column names, so columns cannot be chosen; leave columns out")
        return ChunkedSource(ArrayChunks(np.load(path, mmap_mode="r", allow_pickle=False), path=path, name=str(path)))
    if path.is_dir() or suffix_of(path) == ".parquet":
        schema, notes = numeric_schema(table, columns)
        chunks = ParquetChunks(table, schema, (*table.notes, *notes))
        if chunks.is_readable():
            return ChunkedSource(chunks)
    encoded, schema, notes = encoded_file(table, columns, show=show)
    array = np.load(encoded, mmap_mode="r", allow_pickle=False)
    return ChunkedSource(ArrayChunks(array, path=encoded, name=str(path), schema=schema, notes=notes))


def encoded_file(
    table: "TableFile", columns: Sequence[str] | None, *, show: bool = True
) -> "tuple[Path, Schema, tuple[str, ...]]":
    """The encoded rows of a table as a `.npy` file in the cache folder, made by one process if it is not there yet."""
    # In float64: time stamps need all their digits until they are standardised.
    from pscd.tables import Schema

    key = json.dumps([table.fingerprint(), columns and list(columns)])
    home = cache_folder() / "tables"
    encoded = home / f"{table.path.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy"
    about = encoded.with_suffix(".json")

    def make() -> None:
        if not (encoded.is_file() and about.is_file()):
            _encode_file(table, encoded, about, columns, show)

    distributed.on_first(make)
    values = read_json(about)
    return encoded, Schema.from_json(values["schema"]), tuple(values["notes"])


def _encode_file(table: "TableFile", encoded: Path, about: Path, columns: Sequence[str] | None, show: bool) -> None:
    from pscd.tables import encode, numeric_schema

    schema, notes = numeric_schema(table, columns)
    wanted = [column.name for column in schema.learnt()]
    with writing_to(encoded):
        encoded.parent.mkdir(parents=True, exist_ok=True)
        total = table.n_rows_estimate
        bar = progress_bar(total, show=show, unit=" rows", in_thousands=True, about=f"{table.path.name}, once")
        with replacing(encoded) as temporary, temporary.open("wb") as out, bar:
            n = 0
            _write_header(out, 0, len(schema.parts))
            for block in table.blocks(columns=wanted):
                x = encode(block, schema).x
                n += len(x)
                out.write(np.ascontiguousarray(x).data)
                bar.update(len(x))
            out.seek(0)
            _write_header(out, n, len(schema.parts))  # numpy leaves room for a longer number
            out.flush()
            os.fsync(out.fileno())
        write_json(about, {"schema": schema.to_json(), "notes": [*table.notes, *notes]})


def _write_header(out: IO[bytes], n: int, width: int) -> None:
    about = {"descr": "<f8", "fortran_order": False, "shape": (n, width)}
    np.lib.format.write_array_header_1_0(out, about)


def as_source(x: Any, stream: StreamChoice, *, label: Tensor | None, labelled: bool) -> Source | None:
    """What streams rows: large arrays, tensors and memory maps, any data set or iterable; None: hold them in memory."""
    if isinstance(x, ChunkedSource | BatchSource):
        return x
    if isinstance(x, str | Path):
        raise UserError(f"a path is not rows; pscd.read_table({str(x)!r}) reads a file")
    if isinstance(x, TensorDataset) and not (labelled and len(x.tensors) > 1 and label is None):
        x = x.tensors[0]
    if isinstance(x, np.ndarray | Tensor):
        return _of_array(x, stream, label)
    if isinstance(x, IterableDataset):
        data = x
        return BatchSource(lambda: DataLoader(data, batch_size=256), labelled=labelled)
    if isinstance(x, Dataset):
        return ChunkedSource(DatasetChunks(x, labelled=labelled))
    if isinstance(x, DataLoader) or _gives_batches(x):
        return BatchSource(x, labelled=labelled)
    return None


def _of_array(x: np.ndarray | Tensor, stream: StreamChoice, label: Tensor | None) -> Source | None:
    is_table = x.ndim == 2 or isinstance(x, np.memmap)
    large = is_table and 4 * int(np.prod(x.shape)) > STREAM_BYTES
    if stream == "no" or (stream == "auto" and not large) or x.ndim < 2 or 0 in x.shape:
        return None
    if isinstance(x, np.ndarray) and (x.dtype.kind not in "biuf" or not x.dtype.isnative):
        raise UserError(f"the rows must be numbers of this machine, not {x.dtype}")
    return ChunkedSource(ArrayChunks(x, label))


def _gives_batches(x: Iterable[Any] | Callable[[], Iterable[Any]]) -> bool:
    """Whether this is an iterable of batches, or a function that returns one, and not rows."""
    if isinstance(x, list | tuple):
        first = x[0] if x else None
        first = first[0] if isinstance(first, list | tuple) and first else first
        return (isinstance(first, np.ndarray | Tensor) and first.ndim == 2) or _is_labelled_batch(x)
    from pscd.tables import is_frame  # imports pandas

    rows = hasattr(x, "__array__") or is_frame(x)
    return not rows and (callable(x) or isinstance(x, Iterable))


def _is_labelled_batch(x: Sequence[Any]) -> bool:
    first = x[0] if x else None
    return isinstance(first, tuple) and isinstance(first[0], np.ndarray | torch.Tensor) and first[0].ndim > 1
