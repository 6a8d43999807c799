"""Pictures inside a page: as `data:` addresses, so that the page needs no other file."""

import base64
import csv
import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from pscd.errors import UserError
from pscd.evaluation import load_run_data
from pscd.images import chains, grids
from pscd.model import Model
from pscd.report.blocks import Block, Picture, Section, Table, Text
from pscd.rng import Stream, generator
from pscd.run_folder import RunFolder


def as_address(picture: np.ndarray) -> str:
    """A picture `(H, W, 3)` of bytes as a `data:` address.

    >>> as_address(np.zeros((2, 2, 3), np.uint8))[:22]
    'data:image/png;base64,'
    """
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG", optimize=True)
    return _address(file.getvalue())


def file_address(path: Path, *, most_bytes: int = 1_500_000) -> str | None:
    """A PNG file as a `data:` address, scaled down if it is large; None if it is not readable."""
    from PIL import Image

    try:
        content = path.read_bytes()
        if len(content) <= most_bytes:
            Image.open(io.BytesIO(content)).verify()
            return _address(content)
        with Image.open(path) as picture:
            picture.thumbnail((1600, 1600))
            return as_address(np.array(picture.convert("RGB")))
    except OSError:
        return None


def _address(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def pictures_sections(run: RunFolder, source: Mapping[str, object], *, most: int = 60) -> tuple[str, list[Section]]:
    """A finding and sections on a folder of pictures: outliers, near-duplicates and unreadable files."""
    unreadable = unreadable_section(source.get("unreadable"), most)
    finding, outliers = _outliers(run, str(source.get("data")), most)
    sections = [outliers, near_duplicates_section(run, most)]
    return finding, sections if unreadable is None else [*sections, unreadable]


def _outliers(run: RunFolder, folder: str, most: int) -> tuple[str, Section]:
    """How many pictures are outliers, and those of highest energy as a contact sheet and by name."""
    title = "Pictures with the highest energy"
    rows = _read(run.scores, "energy", "file", "outlier", "because")
    try:
        order = None if rows is None else np.argsort([-float(row[0]) for row in rows], kind="stable")
    except ValueError:
        order = None
    if rows is None or order is None:
        line = f"Scores are not shown: {run.scores} is missing or damaged."
        return line, Section(title, (Text((line,), "warning"),))
    outliers = sum(outlier == "1" for _, _, outlier, _ in rows)
    blocks: list[Block] = []
    sheet = file_address(run.scores.with_suffix(".png"))
    if sheet is not None:
        blocks.append(Picture(sheet, title, "The highest energies first; energy and name of each stand below it."))
    names = tuple(
        (name, f"{float(energy):.4g}", "outlier" if outlier == "1" else "", because)
        for energy, name, outlier, because in (rows[i] for i in order[:most])
    )
    blocks.append(Table(("picture", "energy", "", "because"), names, summary=f"The first {len(names)} by name"))
    return f"{outliers:,} of {len(rows):,} pictures in {folder} are outliers.", Section(title, tuple(blocks))


def near_duplicates_section(run: RunFolder, most: int = 60) -> Section:
    """Groups of pictures that hardly differ."""
    title = "Near-duplicates"
    rows = _read(run.duplicates, "group", "file") if run.duplicates.is_file() else []
    if rows is None:
        return Section(title, (Text((f"They are not shown: {run.duplicates} is damaged.",), "warning"),))
    groups: dict[str, list[str]] = {}
    for group, name in rows:
        groups.setdefault(group, []).append(name)
    if not groups:
        return Section(title, (Text(("No two pictures are near-duplicates of each other.",)),))
    n = sum(len(names) - 1 for names in groups.values())
    line = f"{n:,} picture{'s are near-duplicates' if n > 1 else ' is a near-duplicate'} of another."
    lines = tuple((str(len(names)), ", ".join(names[:most])) for names in groups.values())[:most]
    return Section(title, (Text((line,)), Table(("pictures", "names"), lines, summary="The groups")))


def unreadable_section(unreadable: object, most: int = 60) -> Section | None:
    """Pictures that could not be read: pairs of a name and a reason; None if there are none."""
    if not isinstance(unreadable, list) or not unreadable:
        return None
    rows = tuple((str(pair[0]), str(pair[1])) for pair in unreadable if isinstance(pair, list) and len(pair) == 2)
    line = f"{len(rows):,} {'file was' if len(rows) == 1 else 'files were'} left out."
    return Section("Unreadable pictures", (Text((line,), "warning"), Table(("picture", "reason"), rows[:most])))


def _read(path: Path, *columns: str) -> list[tuple[str, ...]] | None:
    """Columns of a csv file; None if it is missing or damaged."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [tuple(row[name] for name in columns) for row in csv.DictReader(file)]
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return None


def images_sections(
    model: Model, *, seed: int = 0, n_shown: int = 60, n_scored: int = 2_000, n_chains: int = 6, n_steps: int = 300
) -> tuple[Section, ...]:
    """Grids of data and samples of a model of images, the data of highest energy, and chains from noise."""
    samples = model.sample(n_shown, seed=seed)
    blocks: list[Block] = []
    outliers: tuple[Section, ...] = ()
    try:
        data = load_run_data(model).train
    except UserError as error:
        blocks.append(Text((f"Without the training images: {error}.",), "warning"))
    else:
        chosen = data[torch.randperm(len(data), generator=generator(seed, Stream.IMAGES_SHOWN))[:n_scored]]
        energy = model.energy(chosen)
        highest = energy.argsort(descending=True)[:n_shown]
        sampled = "all" if len(chosen) == len(data) else f"{len(chosen):,} random ones of"
        caption = (
            f"The highest energies first, from {energy[highest[0]]:.3g} down, among {sampled} {len(data):,} images."
        )
        outliers = (Section("Images with the highest energy", (_grid(chosen[highest], "Outliers", caption),)),)
        facts = (
            ("training images", f"{len(data):,}"),
            ("their mean energy", f"{energy.mean():.3g}"),
            ("mean energy of samples", f"{float(model.energy(samples).mean()):.3g}"),
        )
        blocks += [Table((), facts), _grid(chosen[:n_shown], "Training images", "Training images.")]
    blocks.append(_grid(samples, "Samples of the model", "Samples of the model."))
    frames = chains.chain_frames(model, n_chains, n_steps, seed=seed)
    caption = f"One chain per row, from noise on the left to step {n_steps} on the right."
    strip = Picture(
        as_address(grids.grid(frames.flatten(0, 1), frames.shape[1])), "Chains from noise to images", caption
    )
    return (Section("Images and samples", tuple(blocks)), *outliers, Section("Chains", (strip,)))


def _grid(x: torch.Tensor, about: str, caption: str) -> Picture:
    return Picture(as_address(grids.grid(x, 12)), about, caption)
