"""Work on a large table block by block, for several commands: all cores, constant memory, and resumable."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.output import say
from pscd.errors import UserError
from pscd.run_folder import RunFolder

if TYPE_CHECKING:
    import argparse

    import numpy as np

    from pscd.parts import Summary
    from pscd.tables.blocks import BlockSource


@dataclass(frozen=True)
class Part:
    """What became of a block.

    Args:
        columns: for a file with names.
        array: for a `.npy` file.
        summary: plain values to be put together at the end; `rows` is how many there are.
        beside: what a second file gets; its own summary is not looked at.
    """

    columns: Mapping[str, Any]
    array: "np.ndarray"
    summary: "Summary"
    beside: "Part | None" = None


OUTPUTS = (".npy", ".csv", ".parquet", "")  # endings of what is written in parts; without one it is a folder


def source_of(
    args: "argparse.Namespace", path: Path, *, always: bool = False, most: int | None = None
) -> "BlockSource | None":
    """The table of a command, if it is to be read in blocks.

    Args:
        args: the flags.
        path: the file, or a folder of Parquet files.
        always: whether small files, too, are read in blocks.
        most: rows of a block; None: as many as scoring has.

    Returns:
        The table; None if it is small, or of a kind that is read at once.

    Raises:
        UserError: it cannot be read.
    """
    from pscd.files import suffix_of
    from pscd.tables.blocks import BLOCK_ROWS, open_blocks
    from pscd.tables.reading import about_unused

    most = BLOCK_ROWS if most is None else min(most, BLOCK_ROWS)
    told = {"delimiter": args.delimiter, "encoding": args.encoding, "header": args.header}
    source = open_blocks(path, size=most if always else None, most=most, **told)
    if source is None and always and path.is_file():
        raise UserError(f"{path}: cannot be read in blocks, which --out and --reasons as they are ask for")
    if source is None:
        return None
    unused = about_unused(".parquet" if path.is_dir() else suffix_of(path), {**told, "sheet": args.sheet})
    return replace(source, notes=(*unused, *source.notes))


def in_parts(
    out: Path,
    job: Mapping[str, Any],
    blocks: Callable[[int], Iterator[Any]],
    work: Callable[[int, Any], Part],
    *,
    total: int,
    threads: int | None = None,
    one_by_one: bool = False,
    beside: Path | None = None,
    at_end: Callable[[Sequence[Path]], None] = lambda parts: None,
) -> "list[Summary]":
    """Work on blocks and write what becomes of them, in their order, to one file, or to two.

    A command that is killed goes on at the first block whose part is not there.

    Args:
        out: the file, or a folder of Parquet files.
        job: plain values: all that decides the result.
        blocks: gives the blocks from a given one on.
        work: makes a part of a block and its number; called from several threads.
        total: rows in all, about.
        threads: blocks at a time; None: as many as torch may use.
        one_by_one: for work that uses all threads by itself.
        beside: the second file, which gets what `Part.beside` holds.
        at_end: what else there is to do with the parts of the file, before they are joined; if it is stopped, it is
            done again.

    Returns:
        The summaries of all parts, in order.

    Raises:
        UserError: the file cannot be written, or a block cannot be read.
    """
    from pscd import fast
    from pscd.parts import Parts
    from pscd.progress import progress_bar

    parts = Parts(out, job)
    seconds = [Parts(beside, job)] if beside is not None else []
    with parts.open(), ExitStack() as stack:
        for second in seconds:
            stack.enter_context(second.open())

        def is_done(i: int) -> bool:
            return all(i in some.done for some in (parts, *seconds))

        first = next(i for i in range(len(parts.done) + 1) if not is_done(i))
        there = sum(summary["rows"] for i, summary in parts.done.items() if i < first)
        if first:
            say(f"going on after row {there:,}, where this command was stopped before")

        def write(numbered: tuple[int, Any]) -> int:
            i, block = numbered
            if not is_done(i):
                part = work(i, block)
                for some, made in zip((parts, *seconds), (part, part.beside), strict=False):
                    if made is not None:
                        some.write(i, made.columns, made.array, made.summary)
            return int(parts.done[i]["rows"])

        with progress_bar(total, done=there, unit=" rows", in_thousands=True) as bar:
            numbered = enumerate(blocks(first), first)
            for n in map(write, numbered) if one_by_one else fast.in_order(write, numbered, threads=threads):
                bar.update(n)
        at_end(parts.paths)
        for some in (*seconds, parts):
            some.join()
    return [parts.done[i] for i in sorted(parts.done)]


def job_of(
    command: str, args: "argparse.Namespace", run: Path | None, names: Sequence[str], files: Sequence[Path]
) -> Any:
    """All that decides what a command writes: its flags, the model, and the files that it reads.

    Args:
        command: its name.
        args: its flags.
        run: the run folder; None if there is none.
        names: of the flags that matter.
        files: that are read; a file of the same name, size and time is taken for the same.

    Returns:
        Plain values.
    """
    from pscd.files import file_digest
    from pscd.version import __version__

    folders = [] if run is None else [RunFolder(run)]
    models = [run] if run is not None and run.is_file() else []  # what `Model.save` wrote
    models += [path for f in folders for path in (f.model, f.detector, f.network) if path.is_file()]
    # Without a model it is a run that was stopped.
    models = models or [path for f in folders for path in (f.state, f.previous_state) if path.is_file()]
    return {
        "command": command,
        "version": __version__,
        "flags": {name: getattr(args, name) for name in names},
        "run": [file_digest(path) for path in models],
        "files": [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files],
    }
