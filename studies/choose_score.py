"""Which score of strange images should be the default, by pairs of sets that it is not judged by.

    python -m studies choose-score            # reads ood-*.json in results, writes ood-choice.json and ood-choice.md
    python -m studies choose-score --small    # minutes: trains small models of five sets instead

With small models, the score is chosen by the mean AUROC over the pairs of sets that contain neither CIFAR-10 nor MNIST,
and judged on these two. With tables, for each set that models were trained on the score is chosen by all pairs of sets
without it, and judged on its own pairs. A score becomes the default if it is chosen every time, and beats the energy on
average where it is judged. The tables are made by `python -m studies ood --data SET`, one command for each set,
or, with `--small`, by one model of each set after few updates, which is enough for a first look.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from pscd.config import TrainConfig
from pscd.data import Dataset
from pscd.errors import UserError
from pscd.files import write_json, write_text_atomic
from pscd.images.scores import SCORES, compressed_bits
from pscd.metrics import auroc
from pscd.rng import generator
from pscd.training.fit import fit
from pscd.version import machine, versions
from studies.engine import with_reading
from studies.engine.markdown import markdown_table
from studies.images.sets import load_dataset, load_images
from studies.paper.ood import other_images
from studies.paper.ood_scores import (
    INSIDE,
    KNOWN,
    MEAN,
    OF_A_BACKGROUND,
    OF_A_MODEL,
    aurocs,
    background_settings,
    column,
    default_score,
    judge_choices,
    means_without,
    measure_sets,
    sets_to_judge,
)
from studies.presets import preset

NAME = "ood-choice"
OBJECTIVE = "CD"  # the one that every table has
SMALL = {
    "fashion-mnist": ("fashion-mnist", 400),
    "notmnist": ("mnist", 400),
    "quickdraw": ("mnist", 400),
    "cifar10": ("cifar10-tiny", 1000),
    "mnist": ("mnist", 400),
}
JUDGED = ("cifar10", "mnist")  # of small models; the scores were invented with an eye on these
N_SMALL = 1000  # images of each set


def read_tables(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """AUROC by the set that models were trained on, score and other set."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for path in sorted(folder.glob("ood-*.json")):
        if path.stem == NAME:
            continue
        names = {column(OBJECTIVE, by): by for by in SCORES}
        table: dict[str, dict[str, float]] = {}
        for row in json.loads(path.read_text())["rows"]:
            if row["column"] in names and row["row"] != MEAN:
                table.setdefault(names[row["column"]], {})[row["row"]] = row["measured"]
        if len(table) > 1:  # those of earlier versions have the energy alone
            found[path.stem.removeprefix("ood-")] = table
    return found


def images_of(name: str) -> Dataset:
    """A set of images; of notMNIST the smaller of its files, which is enough, in two parts."""
    if name != "notmnist":
        return load_dataset(name, seed=0)
    x = load_images(name, train=False).x
    held_out, train = x[torch.randperm(len(x), generator=generator(0))].tensor_split([2 * N_SMALL])
    return Dataset(train, held_out)


def small_table(name: str, settings: str, updates: int, n: int = N_SMALL) -> dict[str, dict[str, float]]:
    """AUROC by score and other set, of a model that is trained by CD for a while, and its background model.

    Args:
        name: of the set of images.
        settings: name of the preset.
        updates: of each model.
        n: images of each set at most.

    Returns:
        The table.
    """
    config = preset(settings).changed({"rows.data": name, "objective.gamma": 0.0, "updates": updates})
    data = images_of(name)
    sets = sets_to_judge(data, other_images(data, name, n, 0), n)
    noisy = TrainConfig.from_dict(background_settings(config, n)["background"])
    models = (
        fit(data.train, config=c, label=data.train_labels if c.energy.classes else None, progress=True)
        for c in (config, noisy)
    )
    of_model, of_noisy = (
        measure_sets(model, sets, names) for model, names in zip(models, (OF_A_MODEL, OF_A_BACKGROUND), strict=True)
    )
    return aurocs(of_model, of_noisy)


def length_alone(name: str, n: int = N_SMALL) -> dict[str, float]:
    """AUROC of the compressed length, unlike that of known images in either direction: what a score owes to no model.

    Args:
        name: of the set of images.
        n: images of each set at most.

    Returns:
        By other set.
    """
    data = images_of(name)
    sets = sets_to_judge(data, other_images(data, name, n, 0), n)
    bits = {kind: compressed_bits(x) for kind, x in sets.items()}
    away = {kind: (b - bits[KNOWN].mean()).abs() for kind, b in bits.items()}
    return {kind: auroc(away[INSIDE], a) for kind, a in away.items() if kind not in (INSIDE, KNOWN)}


def page(found: dict[str, Any]) -> str:
    """The page in Markdown."""
    head = ["trained on", "chosen by the other pairs", "mean AUROC there", "here", "of the energy here"]
    rows = [
        [v["judged"], v["by"], f"{v['elsewhere']:.3f}", f"{v['here']:.3f}", f"{v['energy']:.3f}"]
        for v in found["verdicts"]
    ]
    scores = [by for by in SCORES if all(by in table for table in found["tables"].values())]
    alone = found.get("length_alone", {})
    best = found.get("means", {})
    length = ["length alone"] if alone else []
    means = [
        [
            name,
            *(f"{fmean(t.values()):.3f}" for t in (*(table[by] for by in scores), *([alone[name]] if alone else []))),
        ]
        for name, table in found["tables"].items()
    ]
    pairs = [
        [name, other, *(f"{t[other]:.3f}" for t in (*(table[by] for by in scores), *([alone[name]] if alone else [])))]
        for name, table in found["tables"].items()
        for other in table["energy"]
    ]
    return PAGE.format(
        how=SMALL_CHOSEN if found["small"] else EACH_CHOSEN,
        choosing="".join(
            f"\n{text}\n"
            for text in (CHOOSING, markdown_table(["score", "mean AUROC"], [[k, f"{v:.3f}"] for k, v in best.items()]))
            if best
        ),
        verdicts=markdown_table(head, rows),
        means=markdown_table(["trained on", *scores, *length], means),
        pairs=markdown_table(["trained on", "other set", *scores, *length], pairs),
        default=found["default"],
        command=f"python -m studies choose-score{' --small' if found['small'] else ''}",
        source=SMALL_READ if found["small"] else REPRODUCED_READ,
    )


REPRODUCED_READ = "The tables are those of `python -m studies ood --data SET`, models trained by CD."
UPDATES = ", ".join(f"{name} {updates:,}" for name, (_, updates) in SMALL.items())
SMALL_READ = f"""\
**A first look**: one model of each set, one seed, by CD, with a background model of the same size; {N_SMALL:,} images
of each set. Updates: {UPDATES}."""
EACH_CHOSEN = """\
For each set the score is chosen by the mean AUROC over all pairs of sets without it, and judged on its own pairs."""
SMALL_CHOSEN = f"""\
The score is chosen by the mean AUROC over all pairs that contain neither {" nor ".join(JUDGED)}, and judged on the
pairs of models of these two."""
CHOOSING = "The choice:"
PAGE = """\
# Which score of strange images is the default

Made by `{command}`.

{source}

{how}
{choosing}
{verdicts}

A score becomes the default if it is chosen every time and beats the energy on average where it is judged. By these
tables that is: **{default}**.

Mean AUROC of every score over the other sets, for reading only:

{means}

AUROC of every pair:

{pairs}
"""


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("--small", action="store_true", help=f"train small models of {', '.join(SMALL)} instead")


def run(args: argparse.Namespace) -> Path:
    """Choose a score by the files ood-SET.json in `args.out`; returns the page, which goes there too."""
    folder = args.out
    torch.set_num_threads(1)
    tables = {name: small_table(name, *how) for name, how in SMALL.items()} if args.small else read_tables(folder)
    if len(tables) < 2:
        there = ", ".join(tables) or "none"
        raise UserError(
            f"needs tables of at least two sets with all scores (python -m studies ood --data SET); found {there}"
        )
    verdicts = judge_choices(tables, JUDGED if args.small else ())
    found: dict[str, Any] = {"small": args.small, "tables": tables, "verdicts": [asdict(v) for v in verdicts]}
    if args.small:
        found["means"] = means_without(tables, JUDGED)
        found["length_alone"] = {name: length_alone(name) for name in SMALL}
    found |= {"default": default_score(verdicts), "versions": versions(), "machine": machine()}
    write_json(folder / f"{NAME}.json", found)
    path = folder / f"{NAME}.md"
    write_text_atomic(path, with_reading(page(found), path))
    return path
