"""How well an energy tells other images from those it was trained on."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from pscd.data import Dataset, as_shape
from pscd.errors import UserError
from pscd.metrics import aupr, auroc, fpr_at_95
from pscd.rng import generator
from studies.engine import Result, Row, Run, Settings, mean_rows, objective_label
from studies.engine.streams import StudyStream
from studies.images.noise import gaussian_noise, interpolations, uniform_noise
from studies.images.sets import IMAGE_SETS, load_images
from studies.paper import published

OTHERS = tuple(name for name in IMAGE_SETS if name != "digits")  # whose 8 x 8 pixels would tell by their blur
MADE: dict[str, Callable[[Dataset, int, torch.Generator], Tensor]] = {
    "uniform noise": lambda data, n, generator: uniform_noise(n, data.train.shape[1:], generator),
    "Gaussian noise": lambda data, n, generator: gaussian_noise(n, data.train.shape[1:], generator),
    "interpolations": lambda data, n, generator: interpolations(data.held_out, n, generator),
}


def other_images(data: Dataset, name: str, n: int, seed: int) -> dict[str, Tensor]:
    """Up to `n` images of every other set on this machine, in the shape of `data`, and as many made of noise."""
    channels, size = data.train.shape[1], data.train.shape[2]
    sets = {kind: make(data, n, generator(seed, StudyStream.OOD_SYNTHETIC)) for kind, make in MADE.items()}
    for other in OTHERS:
        if other == name:
            continue
        try:
            images = load_images(other, train=False)
        except UserError:  # not on this machine; the table then has no such row
            continue
        order = torch.randperm(len(images.x), generator=generator(seed, StudyStream.OOD_DATA))[:n]
        sets[other] = as_shape(images.x[order], channels, size)
    return sets


def measure_ood(
    energy: Callable[[Tensor], Tensor],
    data: Dataset,
    name: str,
    *,
    n: int,
    seed: int,
    others: Mapping[str, Tensor] | None = None,
) -> Result:
    """AUROC, AUPR and FPR at 95 % of an energy for every other set of images, with the sizes."""
    inside = energy(data.held_out[:n])
    found: Result = {}
    for other, x in (other_images(data, name, n, seed) if others is None else others).items():
        outside = energy(x)
        found[other] = {
            "auroc": auroc(inside, outside),
            "aupr": aupr(inside, outside).value,
            "fpr_at_95": fpr_at_95(inside, outside),
            "n_in": len(inside),
            "n_out": len(outside),
        }
    return found


def ood_rows(done: Sequence[Run], data: str) -> list[Row]:
    """AUROC, AUPR with its balance and FPR at 95 % by set and objective."""
    rows: list[Row] = []
    for other in (name for name in [*MADE, *OTHERS] if any(name in d.result.get("ood", {}) for d in done)):
        kept = [Run(d.settings, d.result["ood"][other]) for d in done if other in d.result.get("ood", {})]
        size = kept[0].result
        share = size["n_out"] / (size["n_in"] + size["n_out"])
        for value, label in (("auroc", "AUROC"), ("aupr", f"AUPR, {share:.2f} outside"), ("fpr_at_95", "FPR at 95 %")):
            table = {
                (other, f"{objective_label(gamma)}: {label}"): published.CIFAR10_OOD[other][gamma]
                for gamma in (0.0, 1.0)
                if value == "auroc" and data == "cifar10" and other in published.CIFAR10_OOD
            }
            key = partial(_key, other, label)
            rows += mean_rows(kept, key, value, table)
    return rows


def _key(other: str, label: str, settings: Settings) -> tuple[str, str]:
    return other, f"{objective_label(settings['gamma'])}: {label}"
