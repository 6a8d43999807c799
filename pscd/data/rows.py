"""Rows to train on: from arrays, data frames and torch datasets, or by the name of a toy, a file or a folder."""

import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pscd.data.pictures import DIGITS, has_parts, load_images
from pscd.data.pixels import to_unit
from pscd.data.sources import StreamChoice, is_parquet_folder, open_source, streams_file
from pscd.data.streams import ChunkedSource, Sample, Source, fingerprint, sample_size
from pscd.data.toys import TOYS, find_toy
from pscd.errors import UserError
from pscd.files import suffix_of
from pscd.rng import Stream, generator

if TYPE_CHECKING:
    import pandas as pd

    from pscd.tables import ReadOptions, Schema, TableFile

# A DataFrame, too, which numpy takes for an array.
Rows = Tensor | np.ndarray | Sequence[Any] | torch.utils.data.Dataset[Any]
# Rows, or what gives them piece by piece: a DataLoader, batches, or a function that returns them.
RowsOrStream = Rows | Source | Iterable[Any] | Callable[[], Iterable[Any]]
N_HELD_OUT = 10_000


def as_rows(x: Rows, *, missing: bool = False) -> Tensor:
    """Rows `(n, *shape)` as a float tensor; images of bytes become floats in [0, 1].

    Args:
        x: a tensor, an array, nested lists, a DataFrame, or a `TensorDataset` of one tensor.
        missing: whether NaN is allowed, which stands for a missing value.

    Returns:
        Rows `(n, *shape)`; a floating-point tensor keeps its type.

    Raises:
        UserError: these are no rows, or not finite numbers.

    >>> as_rows([[1, 2], [3, 4], [5, 6]]).shape
    torch.Size([3, 2])
    """
    if isinstance(x, torch.utils.data.Dataset):
        x = _rows_of_dataset(x)
    try:
        x = x.detach() if isinstance(x, Tensor) else _as_tensor(x)
    except (TypeError, ValueError):
        raise UserError("the rows must be numbers, as a tensor, an array or a DataFrame") from None
    if x.dtype == torch.uint8 and x.ndim == 4:  # images, a byte for each number
        x = to_unit(x)
    x = x if x.is_floating_point() else x.float()
    if x.ndim < 2 or x.numel() == 0:
        raise UserError(f"give rows, shape (n, columns), not {tuple(x.shape)}; one column is x[:, None]")
    refused = torch.isinf if missing else lambda part: ~torch.isfinite(part)
    bad = sum(int(refused(part).flatten(1).any(1).sum()) for part in x.split(2**16))
    if bad:
        are = "infinite" if missing else "missing or infinite"
        raise UserError(f"{bad} of {len(x)} rows are {are}; fill or remove them")
    return x


def _as_tensor(x: Any) -> Tensor:
    """Bytes and floats as they are, without a copy, and all else in float64."""
    if isinstance(x, np.ndarray) and x.dtype in (np.uint8, np.float32, np.float64) and x.dtype.isnative:
        with warnings.catch_warnings(), suppress(ValueError):  # negative strides, which torch does not have
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.from_numpy(x)
    return torch.from_numpy(np.array(x, dtype=np.float64))


def _rows_of_dataset(data: torch.utils.data.Dataset[Any]) -> Tensor:
    """The rows of a torch dataset that holds nothing else."""
    if not isinstance(data, torch.utils.data.TensorDataset):
        raise UserError(
            f"a {type(data).__name__} may give anything; give its rows as one tensor, "
            "for example torch.stack([x for x, *_ in dataset])"
        )
    if len(data.tensors) != 1:
        raise UserError(
            f"the TensorDataset has {len(data.tensors)} tensors; give that of the rows, such as dataset.tensors[0], "
            "and labels, if there are any, as label="
        )
    return data.tensors[0]


def check_enough(n: int, path: Path | None = None, fewest: int = 20) -> None:
    """Refuse so few rows that nothing can be learnt from them."""
    if n < fewest:
        where = "" if path is None else f"{path}: "
        rows = "1 row is" if n == 1 else f"{n} rows are"
        raise UserError(f"{where}{rows} too few to learn from; at least {fewest} are needed")


@dataclass(frozen=True)
class Dataset:
    """Rows to train on, and rows held out for measuring.

    Args:
        train: `(n, *shape)`; images are bytes `(n, channels, height, width)`; NaN is a missing value.
        held_out: the same, never trained on, without missing values.
        columns: the columns' names, if the file has any.
        train_labels: `(n,)`, if images have labels.
        held_out_labels: the same for `held_out`.
        stream: all rows to train on, where they are too many to hold; `train` is a sample of them then.
        schema: of a table, what its columns are; `encode(frame, schema)` makes rows of another table.
        notes: what was assumed about a file, and which columns are left out.
        numbers: of the rows of `train` and of `held_out` in their file, from 0.
    """

    train: Tensor
    held_out: Tensor
    columns: tuple[str, ...] | None = None
    train_labels: Tensor | None = None
    held_out_labels: Tensor | None = None
    stream: ChunkedSource | None = None
    schema: "Schema | None" = None
    notes: tuple[str, ...] = ()
    numbers: tuple[Tensor, Tensor] | None = None

    @property
    def fingerprint(self) -> str:
        """A checksum to notice that a file has changed under a run: of all rows and labels, or of sampled ones."""
        if self.stream is not None:
            nowhere = np.empty(0, np.int64)
            return fingerprint(self.stream, Sample(self.held_out, nowhere), Sample(self.train, nowhere))
        total = 0
        for part in (self.train, self.held_out, self.train_labels, self.held_out_labels):
            if part is not None:
                total = zlib.crc32(np.ascontiguousarray(part.numpy()).data, total)
        return f"{total:08x}"


def load_dataset(
    name: str,
    *,
    seed: int,
    n: int = 50_000,
    columns: Sequence[str] | None = None,
    image_size: int | None = None,
    stream: StreamChoice = "auto",
    options: "ReadOptions | None" = None,
) -> Dataset:
    """Rows to train on and rows held out, of a toy, a set of images, or your own file or folder.

    Args:
        name: a toy (a key of `TOYS`, or the import path `package.module:toy` of a `Toy` in a module that is imported
            already), scikit-learn's "digits", a file (.csv, .parquet, .xlsx, .npy, .npz), a folder of images or one of
            Parquet files.
        seed: of the draws of a toy, and of the choice of the rows held out.
        n: training rows to draw from a toy.
        columns: columns of a file to take, by name; None: all of numbers, flags and dates, without identifiers.
        image_size: side to scale images to.
        stream: whether a file is too large to be held in memory: `yes`, `no`, or `auto`, by its size.
        options: how to read a table.

    Returns:
        Of a toy 10,000 fresh rows are held out, of a set of images, or of a folder with parts `train` and `test`, the
        test images; of other files and folders a tenth, at most 10,000.

    Raises:
        UserError: there are no such data, or they cannot be used; the message says what to do.

    >>> load_dataset("moon", seed=0, n=1000).train.shape
    torch.Size([1000, 2])
    """
    from pscd.tables.read import SUFFIXES

    if not name:
        raise UserError("no data are named: rows in memory are not kept with a model; give them again")
    path, toy = Path(name), find_toy(name)
    is_image = name == DIGITS or (toy is None and path.is_dir() and not is_parquet_folder(path))
    if columns is not None and (is_image or toy is not None):
        raise UserError(f"{name} is {'images' if is_image else 'a toy'} without column names; leave columns out")
    if stream == "yes" and (is_image or toy is not None):
        raise UserError(f"{name} is {'images' if is_image else 'a toy'}, held in memory; leave stream out")
    if is_image:
        return _load_image_dataset(name, seed, image_size)
    if image_size is not None:
        raise UserError(f"{name} is not a set of images; leave the image size out")
    if toy is not None:
        return Dataset(toy(n, generator(seed, Stream.TOY_TRAIN)), toy(N_HELD_OUT, generator(seed, Stream.TOY_HELD_OUT)))
    if suffix_of(path) not in SUFFIXES and not path.exists():
        choices = f"a toy ({', '.join(sorted(TOYS))}) or {DIGITS}"
        raise UserError(f"unknown data {name!r}; give a file ({', '.join(SUFFIXES)}), a folder of images, {choices}")
    if streams_file(path, stream):
        return _stream_dataset(path, seed, columns, options)
    return _load_table(path, seed, columns, options)


def _load_table(path: Path, seed: int, columns: Sequence[str] | None, options: "ReadOptions | None") -> Dataset:
    from pscd.tables import encode, numeric_schema, open_table
    from pscd.tables.numbers import LARGEST

    table = open_table(path, options)
    schema, notes = None, table.notes
    if table.shape is not None:
        if columns is not None:
            raise UserError(f"{path}: has no column names, so columns cannot be chosen; leave columns out")
        values = table.frame().to_numpy(np.float64).reshape(-1, *table.shape)
        values = np.where(np.abs(values) < LARGEST, values, np.nan)
    else:
        schema, left_out = numeric_schema(table, columns)
        encoded = encode(table.frame(), schema)
        values, notes = encoded.x, (*table.notes, *left_out, *_about_cells(encoded.invalid, encoded.missing, schema))
    x = torch.from_numpy(values)
    check_enough(len(x), path)
    is_whole = ~x.isnan().flatten(1).any(1)
    held_out, train = split_rows(len(x), seed)
    moved = held_out[~is_whole[held_out]]  # a row with missing values cannot measure a model
    held_out, train = held_out[is_whole[held_out]], torch.cat([train, moved])
    names = schema.names_out if schema is not None else None
    return Dataset(x[train], x[held_out], names, schema=schema, notes=notes, numbers=(train, held_out))


def _about_cells(invalid: np.ndarray, missing: np.ndarray, schema: "Schema") -> tuple[str, ...]:
    """A note on missing and on invalid cells of the columns that are learnt from."""
    notes = []
    for cells, what in ((missing, "missing"), (invalid, "invalid, treated as missing")):
        counts = {
            column.name: int(cells[:, i].sum())
            for i, column in enumerate(schema.columns)
            if column.is_learnt and cells[:, i].any()
        }
        if counts:
            shown = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:4])
            notes.append(f"cells that are {what}: {shown}" + ", ..." * (len(counts) > 4))
    return tuple(notes)


def _stream_dataset(path: Path, seed: int, columns: Sequence[str] | None, options: "ReadOptions | None") -> Dataset:
    """A sample of a large file, and the file itself without the rows held out."""
    source = open_source(path, columns, options=options)
    check_enough(source.n_rows, path)
    held_out = source.sample(min(source.n_rows // 10, N_HELD_OUT), seed, Stream.SPLIT)
    source = source.leaving_out(held_out.position)
    sample = source.sample(sample_size(source.shape), seed)
    chunks = source.chunks
    return Dataset(sample.x, held_out.x, source.columns, stream=source, schema=chunks.schema, notes=chunks.notes)


def _load_image_dataset(name: str, seed: int, size: int | None) -> Dataset:
    images = load_images(name, size=size)
    if name == DIGITS or has_parts(Path(name)):
        test = load_images(name, train=False, size=size)
        if images.x.shape[1:] != test.x.shape[1:]:
            shapes = " and ".join(" x ".join(map(str, part.x.shape[1:])) for part in (images, test))
            raise UserError(f"{name}: training and test images differ in shape, {shapes}; make them alike")
        return Dataset(images.x, test.x, None, images.label, test.label)
    check_enough(len(images.x), Path(name))
    held_out, train = split_rows(len(images.x), seed)
    labels = (None, None) if images.label is None else (images.label[train], images.label[held_out])
    return Dataset(images.x[train], images.x[held_out], None, *labels)


def split_rows(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """The indices of a tenth of n rows, at most 10,000, to hold out, and of the rest."""
    order = torch.randperm(n, generator=generator(seed, Stream.SPLIT))
    n_held_out = min(n // 10, N_HELD_OUT)
    return order[:n_held_out], order[n_held_out:]


def rows_of(
    table: "TableFile",
    names: Sequence[str] | None = None,
    ids: Sequence[str] = (),
    schema: "Schema | None" = None,
) -> Tensor:
    """The rows of a table for a model of numbers, NaN for missing values.

    Args:
        table: the file.
        names: of the columns to take; None: all but the ids.
        ids: columns that name a row.
        schema: of the table that the model was trained on, if it has one; `names` are not looked at then.

    Returns:
        `(n, columns)` in float64, `(n, *shape)` of arrays.

    Raises:
        UserError: a column is not there, or holds no numbers.
    """
    from pscd.tables import adapted, encode, numeric_schema

    if table.shape is not None:
        if ids:
            raise UserError(f"{table.path}: has no column names, so none can be an id")
        return torch.from_numpy(np.array(table.frame(), np.float64).reshape(-1, *table.shape))
    names = [name for name in table.names if name not in ids] if names is None else names
    frame = table.frame()
    schema = numeric_schema(table, names)[0] if schema is None else adapted(frame, schema, table.options)
    return torch.from_numpy(encode(frame, schema).x)


def read_table(path: Path | str, options: "ReadOptions | None" = None) -> "pd.DataFrame":
    """Read a table as a data frame; `pscd.tables.open_table` reads it in blocks and has notes on it.

    Args:
        path: `.csv`, `.tsv` or `.txt` (gzipped or not), `.parquet`, `.xlsx`, `.npy` or `.npz`, or a folder of Parquet
            files.
        options: how to read it; None: all is inferred.

    Returns:
        Text cells as they stand for text files, typed columns for others.

    Raises:
        UserError: the file cannot be read as a table; the message says what to do.

    >>> import pandas, pscd, tempfile
    >>> rooms = pandas.DataFrame({"room": ["a", "b"], "width": [3.5, 4.0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rooms.to_csv(f"{folder}/rooms.csv", index=False)
    ...     pscd.read_table(f"{folder}/rooms.csv")
      room width
    0    a   3.5
    1    b   4.0
    """
    from pscd.tables import open_table

    return open_table(path, options).frame()
