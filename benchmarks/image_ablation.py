"""What makes better images in the same time on a CPU, one change at a time.

    python -m benchmarks.image_ablation docs/results       # trains what is missing; writes image-ablation.json and .md
    python -m benchmarks.image_ablation docs/results --only "CD, learning rate 1e-3"

Each setting is trained on MNIST without 2,000 of its training images, and its samples are compared with these: held-out
images are for the final measurement (`pscd reproduce images-fid`), not for choosing.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from pscd.config import TrainConfig
from pscd.data import load_dataset, to_bytes
from pscd.errors import Diverged
from pscd.files import markdown_table, write_json, write_text_atomic
from pscd.images.features import load_feature_map
from pscd.metrics import frechet_distance, prdc
from pscd.paper.artefact import with_reading
from pscd.parallel import digest
from pscd.presets import preset, recovering
from pscd.training.loop import fit
from pscd.version import machine, versions

NAME = "image-ablation"
N = 2000  # training images that choose, and samples
# The preset as it was before: the settings that the changes are changes of.
CD = preset("mnist").changed({"objective.gamma": 0.0, "lr": 3e-4, "objective.l2": 0.1, "ema": 0.99})
RECOVERY = recovering(CD)
VARIANTS: dict[str, TrainConfig] = {
    "CD, as it was": CD,
    "CD, cosine": CD.changed({"schedule": "cosine"}),
    "CD, average over 1,000 updates": CD.changed({"ema": 0.999}),
    "CD, no squared energies": CD.changed({"objective.l2": 0.0}),
    "CD, learning rate 1e-3": CD.changed({"lr": 1e-3}),
    "CD, learning rate 3e-3": CD.changed({"lr": 3e-3}),
    "recovery, a step at each of 12 levels": RECOVERY.changed({"steps": 3000}),
}


def measure(config: TrainConfig, n: int = N) -> dict[str, Any]:
    """Train, sample, and compare with training images that were kept aside.

    Args:
        config: of the run.
        n: images to keep aside, and samples.

    Returns:
        FID, PRDC and seconds of the processor, for training alone and with the sampling; an `error` if it diverged.
    """
    data = load_dataset(config.data, seed=0)
    features = load_feature_map("classifier", data)
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(5))
    kept, rest = data.train[order[:n]], data.train[order[n:]]
    start = time.process_time()
    try:
        model = fit(rest, config)
    except Diverged as error:
        return {"error": str(error), "config": config.to_dict()}
    trained = time.process_time()
    samples = to_bytes(model.sample(n, seed=0))
    end = time.process_time()
    real, fake = features(kept), features(samples)
    return {
        "fid": float(frechet_distance(real, fake)),
        **{name: float(value) for name, value in prdc(real, fake)._asdict().items()},
        "training": trained - start,
        "total": end - start,
        "config": config.to_dict(),
    }


def page(found: dict[str, Any]) -> str:
    """The page in Markdown."""
    rows = [
        [name, f"{config.steps:,}", *_numbers(found["cells"][digest(config.to_dict())])]
        for name, config in VARIANTS.items()
        if digest(config.to_dict()) in found["cells"]
    ]
    head = ["setting", "updates", "FID", "precision", "coverage", "seconds"]
    return PAGE.format(table=markdown_table(head, rows), n=N, machine=found["machine"])


def _numbers(cell: dict[str, Any]) -> list[str]:
    if "error" in cell:
        return ["diverged", "", "", ""]
    return [f"{cell['fid']:.1f}", f"{cell['precision']:.2f}", f"{cell['coverage']:.2f}", f"{cell['total']:.0f}"]


PAGE = """\
# What makes better digits in the same time

Made by `python -m benchmarks.image_ablation docs/results`. {machine}.

One change at a time, one seed. FID, precision and coverage by the classifier's features, of {n:,} samples against {n:,}
training images that the model has not seen; other training images against these have an FID of 7.6. Seconds are
those of one core, for training and sampling.

{table}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where results are kept and the page goes")
    parser.add_argument("--only", choices=list(VARIANTS), metavar="SETTING", help=", ".join(VARIANTS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    path = asked.folder / f"{NAME}.json"
    cells: dict[str, Any] = json.loads(path.read_text())["cells"] if path.is_file() else {}
    for name in [asked.only] if asked.only else VARIANTS:
        key = digest(VARIANTS[name].to_dict())
        if key not in cells:
            cells[key] = measure(VARIANTS[name])
            print(name, cells[key].get("fid", "diverged"), flush=True)
        found = {"cells": cells, "versions": versions(), "machine": machine()}
        write_json(path, found)
        text = asked.folder / f"{NAME}.md"
        write_text_atomic(text, with_reading(page(found), text))


if __name__ == "__main__":
    main()
