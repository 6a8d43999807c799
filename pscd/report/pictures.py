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
from pscd.report.blocks import Block, Facts, Picture, Section, Table, Text
from pscd.rng import Stream, generator
from pscd.run_folder import RunFolder

SHOWN = 60  # images of a grid
SCORED = 2_000  # images among which the strangest are looked for
CHAINS, STEPS = 6, 300  # of the strip
LARGEST_FILE = 1_500_000  # bytes of a picture that is taken in as it is


def as_address(picture: np.ndarray) -> str:
    """A picture as a `data:` address.

    Args:
        picture: bytes `(H, W, 3)`.

    Returns:
        A PNG file in base 64.

    >>> as_address(np.zeros((2, 2, 3), np.uint8))[:22]
    'data:image/png;base64,'
    """
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG", optimize=True)
    return _address(file.getvalue())


def file_address(path: Path) -> str | None:
    """A PNG file as a `data:` address, scaled down if it is large.

    Args:
        path: of the file.

    Returns:
        The address, or None if there is no readable picture.
    """
    from PIL import Image

    try:
        content = path.read_bytes()
        if len(content) <= LARGEST_FILE:
            Image.open(io.BytesIO(content)).verify()
            return _address(content)
        with Image.open(path) as picture:
            picture.thumbnail((1600, 1600))
            return as_address(np.array(picture.convert("RGB")))
    except OSError:
        return None


def pictures_sections(run: RunFolder, source: Mapping[str, object]) -> list[Section]:
    """What `pscd detect` found in a folder of pictures.

    Args:
        run: of a detector that learnt from them.
        source: where they were, and what could not be read.

    Returns:
        The strangest pictures, near-duplicates, and pictures that cannot be read, if there are any.
    """
    unreadable = unreadable_section(source.get("unreadable"))
    found = [strange_pictures(run, str(source.get("data"))), near_duplicates_section(run)]
    return found if unreadable is None else [*found, unreadable]


def strange_pictures(run: RunFolder, folder: str) -> Section:
    """The strangest pictures of a folder, as `pscd detect` has left them in its run folder.

    Args:
        run: of a detector that learnt from pictures.
        folder: where they were.

    Returns:
        A contact sheet, and their names, energies and reasons.
    """
    title = "The strangest pictures"
    try:
        with run.scores.open(encoding="utf-8", newline="") as file:
            found = [
                (float(row["energy"]), row["file"], row["outlier"], row["because"]) for row in csv.DictReader(file)
            ]
    except (OSError, ValueError, KeyError, TypeError, csv.Error):  # what a disk or a hand may do to the file
        return Section(title, (Text((f"They are not shown: {run.scores} is not there, or is damaged.",), "warning"),))
    found.sort(key=lambda row: -row[0])
    strange = sum(outlier == "1" for _, _, outlier, _ in found)
    rows = tuple(
        (name, f"{energy:.4g}", "strange" if outlier == "1" else "", because)
        for energy, name, outlier, because in found[:SHOWN]
    )
    said = f"{strange:,} of {len(found):,} pictures in {folder} are strange. The highest energies come first."
    blocks: list[Block] = [Text((said,))]
    sheet = file_address(run.scores.with_suffix(".png"))
    if sheet is not None:
        blocks.append(Picture(sheet, "The strangest pictures", "Energy and name of each stand below it."))
    blocks.append(Table(("picture", "energy", "", "because"), rows, summary=f"The first {len(rows)} by name"))
    return Section(title, tuple(blocks))


def near_duplicates_section(run: RunFolder) -> Section:
    """Groups of pictures that hardly differ, as `pscd detect` has left them in its run folder.

    Args:
        run: of a detector that learnt from pictures.

    Returns:
        The pictures of each group by name.
    """
    title = "Near-duplicates"
    groups: dict[str, list[str]] = {}
    try:
        if run.duplicates.is_file():
            with run.duplicates.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    groups.setdefault(row["group"], []).append(row["file"])
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return Section(title, (Text((f"They are not shown: {run.duplicates} is damaged.",), "warning"),))
    if not groups:
        return Section(title, (Text(("No two pictures are near-duplicates of each other.",)),))
    extra = sum(len(names) - 1 for names in groups.values())
    said = f"{extra:,} picture{'s are near-duplicates' if extra > 1 else ' is a near-duplicate'} of another."
    rows = tuple((str(len(names)), ", ".join(names[:SHOWN])) for names in groups.values())[:SHOWN]
    return Section(title, (Text((said,)), Table(("pictures", "their names"), rows, summary="The groups")))


def unreadable_section(unreadable: object) -> Section | None:
    """Pictures that could not be read, and why.

    Args:
        unreadable: pairs of name and reason, as the run folder has them.

    Returns:
        Their names; None if there are none, or nothing is known.
    """
    if not isinstance(unreadable, list) or not unreadable:
        return None
    rows = tuple((str(pair[0]), str(pair[1])) for pair in unreadable if isinstance(pair, list) and len(pair) == 2)
    said = f"{len(rows):,} {'file was' if len(rows) == 1 else 'files were'} left out."
    return Section("Pictures that cannot be read", (Text((said,), "warning"), Table(("picture", "why"), rows[:SHOWN])))


def _address(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def images_sections(model: Model, *, seed: int = 0) -> tuple[Section, ...]:
    """Grids of data and samples, the strangest pictures, and chains on their way from noise.

    Args:
        model: of images.
        seed: of the samples and chains.

    Returns:
        The sections.
    """
    samples = model.sample(SHOWN, seed=seed)
    blocks: list[Block] = []
    strange: list[Block] = []
    try:
        data = load_run_data(model).train
    except UserError as error:
        blocks.append(Text((f"Without the training images: {error}.",), "warning"))
    else:
        order = torch.randperm(len(data), generator=generator(seed, Stream.IMAGES_SHOWN))[:SCORED]
        some = data[order]
        energy = model.energies(some)
        worst = energy.argsort(descending=True)[:SHOWN]
        said = "all" if len(some) == len(data) else f"{len(some):,} random ones of"
        blocks.append(_grid(some[:SHOWN], "Training images", "Training images."))
        caption = f"The highest energies first, from {energy[worst[0]]:.3g} down, among {said} {len(data):,} images."
        strange = [_grid(some[worst], "The strangest training images", caption)]
        mean = float(model.energies(samples).mean())
        facts = (
            ("training images", f"{len(data):,}"),
            ("their mean energy", f"{energy.mean():.3g}"),
            ("mean energy of samples", f"{mean:.3g}"),
        )
        blocks.insert(0, Facts(facts))
    blocks.append(_grid(samples, "Samples of the model", "Samples of the model."))
    frames = chains.chain_frames(model, CHAINS, STEPS, seed=seed)
    address = as_address(grids.grid(frames.flatten(0, 1), frames.shape[1]))
    about = f"One chain per row, from noise on the left to step {STEPS} on the right; the steps shown grow by a factor."
    sections = [Section("Images and samples", tuple(blocks))]
    sections += [Section("The strangest images", tuple(strange))] if strange else []
    return (*sections, Section("Chains", (Picture(address, "Chains from noise to images", about, half=True),)))


def _grid(x: torch.Tensor, about: str, caption: str) -> Picture:
    return Picture(as_address(grids.grid(x[:SHOWN], 12)), about, caption, half=True)
