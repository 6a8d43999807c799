"""Rivals on images: f-EBM through the same trainer; NCSN, Glow and PixelCNN++ as they are, at the size of a CPU.

CD and PS-CD stand beside, from the runs of `images-fid`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from pscd.config import TrainConfig
from pscd.data import Dataset, to_bytes
from pscd.errors import Diverged
from pscd.objectives import FEBM
from pscd.training.fit import fit
from studies.baselines import FITS, ImageModel
from studies.baselines import load as load_baseline
from studies.baselines.ncsn import NCSN
from studies.engine import Experiment, Result, Row, Run, Settings, digest, mean_rows, objective_label
from studies.images.sets import load_dataset
from studies.paper import images
from studies.paper.images import SHOWN, Choice, decode, encode
from studies.paper.ood import MADE, OTHERS, measure_ood

DIVERGENCES = ("kl", "reverse-kl", "hellinger", "js")
GAMMAS = (0.0, 1.0)
L2 = 0.1  # of energy and critic, as the preset has it for the energy


def runs(choice: Choice, quick: bool, seeds: int) -> list[Settings]:
    """CD and PS-CD as `images-fid` has them, f-EBM with its four divergences, and the baselines."""
    found = images.runs(choice, GAMMAS, quick, seeds)
    plain = {"data": choice.data, "features": choice.features, "n": 100 if quick else choice.n}
    for seed in range(seeds):
        config = choice.config(0.0, seed, quick=quick).changed({"energy.classes": 0})
        for divergence in DIVERGENCES[:1] if quick else DIVERGENCES:
            rival = replace(config, objective=FEBM(divergence=divergence, l2=L2))
            found.append({**plain, "method": f"f-EBM, {divergence}", "seed": seed, "config": rival.to_dict()})
        for name in FITS:
            found.append({**plain, "method": name, "seed": seed, "steps": 2 if quick else None})
    return found


def compute(settings: Settings, checkpoints: Path) -> Result:
    """Train and measure one method."""
    if "method" not in settings:
        return images.compute(settings, checkpoints)
    if "config" not in settings:
        return _compute_baseline(settings, checkpoints)
    config = TrainConfig.from_dict(settings["config"])
    data = load_dataset(config.rows.data, seed=config.seed)
    try:
        model = fit(data.train, config=config, folder=checkpoints / digest(settings["config"]))
    except Diverged as error:
        return {"fid": None, "error": error.reason}
    samples = to_bytes(model.sample(settings["n"], seed=config.seed))
    return _measured(samples, model.energy, data, settings)


def _compute_baseline(settings: Settings, checkpoints: Path) -> Result:
    data, name, seed = load_dataset(settings["data"], seed=settings["seed"]), settings["method"], settings["seed"]
    path = checkpoints / f"{name}-{digest(settings)}.safetensors"
    if path.is_file():
        model: ImageModel = load_baseline(path)
    else:
        steps = {} if settings["steps"] is None else {"steps": settings["steps"]}
        model = FITS[name](data.train, seed=seed, progress=True, **steps)
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path)
    if name == "pixelcnn":  # a pass for every pixel of every sample: asked only what it finds strange
        return {
            "fid": None,
            "ood": measure_ood(model.energy, data, settings["data"], n=min(settings["n"], 500), seed=seed),
        }
    if not isinstance(model, NCSN):
        return _measured(model.sample(settings["n"], seed=seed, progress=True), model.energy, data, settings)
    noisy, clean = model.draw(settings["n"], seed=seed, progress=True)
    without = images.measure(noisy, data, settings["features"])["fid"]
    return _measured(clean, model.energy, data, settings) | {"fid_without_denoising": without}


def _measured(samples: Tensor, energy: Callable[[Tensor], Tensor], data: Dataset, settings: Settings) -> Result:
    ood = measure_ood(energy, data, settings["data"], n=settings["n"], seed=settings["seed"])
    return {**images.measure(samples, data, settings["features"]), "samples": encode(samples[:SHOWN]), "ood": ood}


def rivals_images(choice: Choice) -> Experiment:
    """The rivals of Tables 1 and 5."""
    name = f"rivals-images-{choice.data}"
    return Experiment(
        name,
        f"Rivals on {choice.data}: FID and out-of-distribution detection (Tables 1 and 5, at the size of a CPU)",
        "90 minutes",
        1,
        lambda quick, seeds: runs(choice, quick, seeds),
        compute,
        _rows,
        lambda done, out: _draw(done, out / f"{name}.png"),
        _notes,
        store_name=f"images-{choice.data}",
        keeps_checkpoints=True,
        command=f"rivals-images {choice.options}",
    )


def label(settings: Settings) -> str:
    """What a table calls a method."""
    return str(settings["method"]) if "method" in settings else objective_label(settings["gamma"])


def _rows(done: Sequence[Run]) -> list[Row]:
    rows = mean_rows(done, lambda s: (label(s), "FID"), "fid")
    raw = [d for d in done if "fid_without_denoising" in d.result]
    rows += mean_rows(raw, lambda s: (label(s), "FID without denoising"), "fid_without_denoising")
    for other in (*MADE, *OTHERS):
        kept = [Run(d.settings, d.result["ood"][other]) for d in done if other in d.result.get("ood", {})]
        rows += mean_rows(kept, lambda s, other=other: (label(s), f"AUROC, {other}"), "auroc")  # type: ignore[misc]
    order = list(dict.fromkeys(label(d.settings) for d in done))
    return sorted(rows, key=lambda row: order.index(row.row))


def _draw(done: Sequence[Run], path: Path) -> list[Path]:
    from studies.paper import figures

    first = [d for d in done if d.settings["seed"] == 0 and "samples" in d.result]
    return [figures.image_grids({label(d.settings): decode(d.result["samples"]) for d in first}, path)]


def _notes(done: Sequence[Run]) -> str:
    one = next(d for d in done if d.result.get("fid_data") is not None)
    return f"""
FID with {one.result["feature_map"]}, {one.result["n_measured"]} samples; training images give
{one.result["fid_data"]:.3g}. f-EBM has the network, chains and updates of CD. NCSN (told how much noise there is;
version 2: not told), Glow and PixelCNN++ are small ones trained for minutes, and say what such a size can do, not
what their authors' do. What is strange is judged by the energy, and by the likelihood for Glow and PixelCNN++; NCSN has
neither, and is judged by how badly it denoises an image.
"""
