"""Large text files: read once, block by block, into an array on disk that is read in any order afterwards."""

import gzip
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from pscd import distributed
from pscd.data.chunks import ParquetChunks
from pscd.data.tables import read_table
from pscd.errors import UserError
from pscd.files import cache_folder, one_line, replacing, suffix_of, write_json, writing_to
from pscd.progress import progress_bar

BLOCK_BYTES = 2**24  # of text that are parsed at a time
BLOCK_ROWS = 2**17  # of a Parquet file with a huge row group
HEAD_BYTES = 2**20  # that tell whether there is a header


def as_array_file(
    path: Path, columns: Sequence[str] | None, chunks: ParquetChunks | None = None, *, show: bool = True
) -> tuple[Path, tuple[str, ...]]:
    """The numbers of a file as a `.npy` file in the cache folder, which is made if it is not there yet.

    In float64, as `read_table` gives them: time stamps need all their digits until they are standardised. The first of
    several processes makes it.

    Args:
        path: a text file, or a Parquet file whose row groups are too large to be read at once.
        columns: to take, by name; None: all.
        chunks: the Parquet file.
        show: a progress line.

    Returns:
        The `.npy` file, and the names of its columns.

    Raises:
        UserError: the text is no table of numbers, or there is no room for the file.
    """
    there = path.stat()
    key = json.dumps([str(path.resolve()), there.st_size, there.st_mtime_ns, columns and list(columns)])
    home = cache_folder() / "tables"
    made = home / f"{path.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy"
    names = made.with_suffix(".json")

    def make() -> None:
        if not (made.is_file() and names.is_file()):
            _make(path, made, names, columns, chunks, show)

    distributed.on_first(make)
    return made, tuple(json.loads(names.read_text(encoding="utf-8")))


def _make(
    path: Path, made: Path, names: Path, columns: Sequence[str] | None, chunks: ParquetChunks | None, show: bool
) -> None:
    with writing_to(made):
        made.parent.mkdir(parents=True, exist_ok=True)
        with (
            replacing(made) as temporary,
            temporary.open("wb") as out,
            progress_bar(
                path.stat().st_size, show=show, unit="B", in_thousands=True, about=f"{path.name}, once"
            ) as bar,
        ):
            n, found = 0, tuple[str, ...]()
            for block, known, done in _parquet_blocks(chunks) if chunks else _text_blocks(path, columns):
                if n == 0:
                    _write_header(out, 0, block.shape[1])
                elif known != found:
                    raise UserError(f"{path}: columns change from {', '.join(found)} to {', '.join(known)}")
                found, n = known, n + len(block)
                out.write(np.ascontiguousarray(block, np.float64).data)
                bar.update(done - bar.n)
            if n == 0:
                raise UserError(f"{path}: there are no rows in it")
            out.seek(0)
            _write_header(out, n, len(found))  # numpy leaves room for a longer number
            out.flush()
            os.fsync(out.fileno())
        write_json(names, list(found))


def _write_header(out: IO[bytes], n: int, width: int) -> None:
    about = {"descr": "<f8", "fortran_order": False, "shape": (n, width)}
    np.lib.format.write_array_header_1_0(out, about)


def _text_blocks(path: Path, columns: Sequence[str] | None) -> Iterator[tuple[np.ndarray, tuple[str, ...], int]]:
    """Numbers of consecutive rows, names of the columns, and how many bytes of the file are done."""
    # Each block is read as a file of its own, with the header of the whole: what is a number is what `read_table` says.
    with path.open("rb") as raw, tempfile.TemporaryDirectory() as folder:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        text: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        rest, header, first = b"", None, 1
        part = Path(folder) / f"part{suffix_of(path)}"
        while True:
            try:
                more = text.read(BLOCK_BYTES)
            except (OSError, EOFError) as error:
                raise UserError(f"{path}: damaged ({one_line(error)})") from None
            whole, _, rest = (rest + more).rpartition(b"\n") if more else (rest, b"", b"")
            if more and not whole:
                continue
            if header is None:
                header = _header(path, whole)
                whole = (whole + b"\n").removeprefix(header)
            if whole.strip():
                part.write_bytes(header + whole + b"\n")
                try:
                    table = read_table(part, columns)
                except UserError as error:
                    counted = f" (rows counted from row {first:,})" if first > 1 else ""
                    raise UserError(str(error).replace(str(part), str(path)) + counted) from None
                first += len(table.x)
                assert table.columns is not None
                yield table.x.numpy(), table.columns, raw.tell()
            if not more:
                return


def _header(path: Path, text: bytes) -> bytes:
    """The lines before the first row, as they stand in the file."""
    from pscd.tables.layout import infer_layout
    from pscd.tables.text import records

    if text[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UserError(f"{path}: is written in UTF-16; a file of this size must be in UTF-8")
    head = text[:HEAD_BYTES].decode("utf-8-sig", errors="replace")
    layout, _ = infer_layout(lambda mark: [record for record, _, _ in records(head, mark)][:200], "utf-8")
    lines = text.split(b"\n", layout.skip + 1)
    return b"".join(line + b"\n" for line in lines[: layout.skip + layout.header])


def _parquet_blocks(chunks: ParquetChunks) -> Iterator[tuple[np.ndarray, tuple[str, ...], int]]:
    import pyarrow.parquet as pq

    done, names = 0, list(chunks.columns or ())
    for file in chunks.files:
        size, rows = file.stat().st_size, pq.read_metadata(file).num_rows
        for batch in pq.ParquetFile(file).iter_batches(BLOCK_ROWS, columns=names, use_threads=False):
            values = [column.to_numpy(zero_copy_only=False) for column in batch.select(names).columns]
            done += round(size * batch.num_rows / rows)
            yield np.stack(values, 1).astype(np.float64), tuple(names), done
