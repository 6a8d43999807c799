"""Files that are written part by part: a killed command resumes where it was, and no incomplete file is visible.

Parts are kept in a folder beside the output, `NAME.partial`, each under its final name only once it is on the disk.
When all are there they are joined, the output gets its name, and the folder goes away. Parts of another job, of other
rows or another model, are never used.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.files import file_digest, locked, needs, replacing, sealed, unsealed, write_json, writing_to

if TYPE_CHECKING:
    import numpy as np

Summary = dict[str, Any]


class Parts:
    """The parts of one output."""

    def __init__(self, out: Path, job: Mapping[str, Any]) -> None:
        self.out = out
        self.suffix = out.suffix or ".parquet"
        self.folder = out.with_name(f"{out.name}.partial")
        self._job = json.loads(json.dumps(dict(job)))
        self.done: dict[int, Summary] = {}
        if self.suffix == ".parquet":
            needs("pyarrow", "parquet", f"{out}: writing parquet")

    @contextmanager
    def open(self) -> Iterator[None]:
        """Claim the folder, and find out which parts are there already."""
        with writing_to(self.out):
            self._data.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / ".lock"):
            if self._read(self.folder / "job.json") != self._job:
                shutil.rmtree(self._data)
                for path in self.folder.glob("*.json"):
                    path.unlink()
                self._data.mkdir()
                write_json(self.folder / "job.json", sealed({"job": self._job}))
            for note in self.folder.glob("part-*.json"):
                if not note.stem.removeprefix("part-").isdecimal():  # none of ours
                    continue
                i = int(note.stem.removeprefix("part-"))
                if (summary := self._read(note, self._part(i))) is not None:
                    self.done[i] = summary
            yield

    def _read(self, path: Path, part: Path | None = None) -> Any:
        """What a note of ours says; None if it, or the part that it is about, is not there or damaged."""
        try:
            note = unsealed(json.loads(path.read_text(encoding="utf-8")))
            return note["job"] if part is None or note["content"] == file_digest(part) else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _part(self, i: int) -> Path:
        return self._data / f"part-{i:06d}{self.suffix}"

    @property
    def paths(self) -> list[Path]:
        """The parts that are there, in their order."""
        return [self._part(i) for i in sorted(self.done)]

    def write(self, i: int, columns: Mapping[str, Any], array: "np.ndarray", summary: Summary) -> None:
        """Write a part; it may be called from several threads."""
        with writing_to(self.out), replacing(self._part(i)) as temporary:
            if self.suffix == ".npy":
                import numpy as np

                with temporary.open("wb") as file:
                    np.save(file, np.ascontiguousarray(array))  # parts are put behind each other, row by row
            else:
                import pandas as pd

                frame = pd.DataFrame(columns)
                if self.suffix == ".csv":
                    frame.to_csv(temporary, index=False, header=i == 0, float_format="%.9g")
                else:
                    frame.to_parquet(temporary, index=False)
        with writing_to(self.out):
            note = sealed({"job": summary, "content": file_digest(self._part(i))})
            write_json(self.folder / f"part-{i:06d}.json", note, indent=None)
        self.done[i] = summary

    def join(self) -> None:
        """Make the output of the parts, and remove them."""
        with writing_to(self.out):
            if not self.out.suffix:
                os.replace(self._data, self.out)
            else:
                with replacing(self.out) as temporary:
                    joined = {".csv": _join_csv, ".npy": _join_npy, ".parquet": _join_parquet}
                    joined[self.suffix](self.paths, temporary)
            shutil.rmtree(self.folder)


def _join_csv(parts: list[Path], out: Path) -> None:
    with out.open("wb") as file:
        for part in parts:
            with part.open("rb") as content:
                shutil.copyfileobj(content, file)


def _join_npy(parts: list[Path], out: Path) -> None:
    import numpy as np

    shapes = [np.load(part, mmap_mode="r").shape for part in parts]
    first = np.load(parts[0], mmap_mode="r")
    head = np.lib.format.header_data_from_array_1_0(first) | {"shape": (sum(s[0] for s in shapes), *shapes[0][1:])}
    with out.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, head)
        for part in parts:
            np.load(part).tofile(file)


def _join_parquet(parts: list[Path], out: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # A column of ids may be whole numbers in one part, and have gaps in another.
    schemas = [pq.read_schema(part).remove_metadata() for part in parts]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    with pq.ParquetWriter(out, schema) as writer:
        for part in parts:
            writer.write_table(pq.read_table(part).cast(schema))
