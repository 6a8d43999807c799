"""When rows are streamed, and what streams them: files by their kind, and whatever Python objects hold rows."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from pscd.data.batches import BatchSource
from pscd.data.chunks import ArrayChunks, DatasetChunks, ParquetChunks
from pscd.data.streams import ChunkedSource, Source
from pscd.data.tables import check_array, open_array
from pscd.data.text_blocks import as_array_file
from pscd.errors import UserError
from pscd.files import parquet_files, suffix_of

STREAM_BYTES = 2**28  # that the rows would take in float32; larger ones are streamed unless told otherwise
TEXT_BYTES, PACKED_BYTES = 2**29, 2**27  # the same for text files, and for gzipped ones
TEXT = (".csv", ".tsv", ".txt")
STREAMED = (".npy", ".parquet", *TEXT)
LOADED_TOGETHER = 256  # items of an iterable dataset

StreamChoice = Literal["auto", "yes", "no"]


def is_parquet_folder(path: Path) -> bool:
    """Whether a folder holds Parquet files, and not images."""
    return path.is_dir() and bool(parquet_files(path))


def streams_file(path: Path, stream: StreamChoice) -> bool:
    """Whether a file or a folder of Parquet files is streamed.

    It depends on the file alone and not on the memory of the machine, so that a run is the same everywhere.

    Args:
        path: the file or folder.
        stream: what was asked for.

    Returns:
        True if it is.

    Raises:
        UserError: files of this kind cannot be streamed, or cannot but be.
    """
    if path.is_dir():
        if stream == "no":
            raise UserError(f"{path}: a folder of Parquet files is always streamed; leave --stream out")
        return True
    if stream == "no" or not path.exists():
        return False
    suffix = suffix_of(path)
    if suffix not in STREAMED:
        if stream == "yes":
            raise UserError(f"{path}: {suffix} cannot be streamed; write it as .npy or .parquet, or leave --stream out")
        return False
    return stream == "yes" or _is_large(path, suffix)


def _is_large(path: Path, suffix: str) -> bool:
    size = path.stat().st_size
    if suffix in TEXT:
        return size > (PACKED_BYTES if path.suffix.lower() == ".gz" else TEXT_BYTES)
    if size < STREAM_BYTES // 64:  # no need to look into it: Parquet packs no more tightly
        return False
    if suffix == ".npy":
        array = open_array(path)
        return 4 * array.size > STREAM_BYTES
    try:
        import pyarrow.parquet as pq

        about = pq.read_metadata(path)
    except Exception:  # whatever is wrong with it is told when it is read
        return False
    return 4 * about.num_rows * about.num_columns > STREAM_BYTES


def open_source(path: Path, columns: Sequence[str] | None = None, *, show: bool = True) -> ChunkedSource:
    """A file, or a folder of Parquet files, as a source.

    Args:
        path: `.npy`, `.parquet`, text, or a folder of `.parquet` files.
        columns: columns to take, by name; None: all.
        show: a progress line while a text file is read for the first time.

    Returns:
        The source.

    Raises:
        UserError: it cannot be used; the message names the file and what to do.
    """
    names: tuple[str, ...] | None = None
    if path.is_dir() or suffix_of(path) == ".parquet":
        parquet = ParquetChunks(path, columns)
        if parquet.is_readable:
            return ChunkedSource(parquet)
        made, names = as_array_file(path, columns, parquet, show=show)
    elif suffix_of(path) == ".npy":
        if columns is not None:
            raise UserError(f"{path}: has no column names, so columns cannot be chosen; leave --columns out")
        made = path
    else:
        made, names = as_array_file(path, columns, show=show)
    array = check_array(made, open_array(made))
    if array.ndim == 0 or array.size == 0:
        raise UserError(f"{path}: there are no rows in it")
    return ChunkedSource(ArrayChunks(array, path=made, columns=names, name=str(path)))


def as_source(x: Any, stream: StreamChoice, *, label: Tensor | None, labelled: bool) -> Source | None:
    """What streams rows given in Python; None if they are to be held in memory.

    Arrays, tensors and memory maps are streamed where they are large, datasets and iterables of batches always.

    Args:
        x: rows, or what gives them.
        stream: what was asked for.
        label: `(n,)`, of an array.
        labelled: whether items and batches come with labels.

    Returns:
        A source, or None.

    Raises:
        UserError: it cannot be streamed, or gives no rows.
    """
    if isinstance(x, ChunkedSource | BatchSource):
        return x
    if isinstance(x, TensorDataset) and not (labelled and len(x.tensors) > 1 and label is None):
        x = x.tensors[0]
    if isinstance(x, np.ndarray | Tensor):
        return _of_array(x, stream, label)
    if isinstance(x, IterableDataset):
        data = x
        return BatchSource(lambda: DataLoader(data, batch_size=LOADED_TOGETHER), labelled=labelled)
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
    frame = hasattr(x, "__array__") or hasattr(x, "__dataframe__")
    return not frame and (callable(x) or isinstance(x, Iterable))


def _is_labelled_batch(x: Sequence[Any]) -> bool:
    first = x[0] if x else None
    return isinstance(first, tuple) and isinstance(first[0], np.ndarray | torch.Tensor) and first[0].ndim > 1
