"""Training that meets junk: a tenth of the images replaced by noise, after a warm-up on clean ones (Table 6).

`--junk` and `--ratio` choose other junk and another share: blank and saturated frames, images that are half covered or
shifted, near-duplicates, or images of another set.

The warm-up is contrastive divergence on clean images, one for each seed. From its weights, chains and optimiser
every objective goes on, on the same contaminated images; a control goes on with clean ones.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pscd.config import TrainConfig
from pscd.data import Dataset, contaminate, to_bytes
from pscd.errors import Diverged
from pscd.files import read_json, write_json
from pscd.images.features import FeatureMap
from pscd.losses import effective_sample_fraction, energy_spread, importance_weights
from pscd.metrics import aupr, auroc, frechet_distance
from pscd.model import Model
from pscd.rng import generator
from pscd.training import checkpoint
from pscd.training.fit import fit
from studies.engine import Experiment, Result, Row, Run, Settings, digest, mean_rows
from studies.engine.streams import StudyStream
from studies.images.classifier import load_feature_map
from studies.images.contamination import junk
from studies.images.sets import load_dataset
from studies.paper import published
from studies.paper.images import SHOWN, Choice, decode, encode

STAGE = 1000  # updates between two measurements
STAGES = 2


def line(gamma: float, *, unit: str = "spread", contaminated: bool = True) -> Settings:
    """One way to go on after the warm-up."""
    return {"gamma": gamma, "unit": unit, "contaminated": contaminated}


# The last is what CD would have done without the junk.
LINES = (line(0.0), line(1.0), line(0.0, contaminated=False))
CURVE = 500  # updates of each line of the curve over gamma
CURVE_LINES = (
    *(line(gamma) for gamma in (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)),
    *(line(gamma, unit="nats") for gamma in (0.5, 1.0, 2.0, 10.0)),
)


def runs(
    choice: Choice,
    quick: bool,
    seeds: int,
    lines: Sequence[Settings] = LINES,
    stages: int = STAGES,
    updates: int = STAGE,
) -> list[Settings]:
    """A run for each seed, with all its lines, which share a warm-up."""
    made = []
    for seed in range(seeds):
        # Without labels, as the paper has it.
        warm = choice.config(0.0, seed, quick=quick).changed({"energy.classes": 0})
        after = warm.changed({"updates": 10 if quick else updates, "objective.warmup": 0.0})
        made.append(
            {
                "data": choice.data,
                "ratio": choice.ratio,
                **({} if choice.junk == Choice.junk else {"junk": choice.junk}),
                "lines": list(lines[:3] if quick else lines),
                "stages": stages,
                "seed": seed,
                "warm": warm.to_dict(),
                "after": after.to_dict(),
                "features": choice.features,
                "n": 100 if quick else choice.n,
            }
        )
    return made


def compute(settings: Settings, checkpoints: Path) -> Result:
    """Warm up, then for every line go on and measure at every stage; training that was done before is kept."""
    warm = TrainConfig.from_dict(settings["warm"])
    data = load_dataset(warm.rows.data, seed=warm.seed)
    feature_map = load_feature_map(settings["features"], data)
    real = _kept(
        checkpoints / f"{digest(feature_map.name, settings['n'])}.pt",
        lambda: feature_map(data.held_out[: settings["n"]]),
    )
    folder = checkpoints / digest(settings["warm"])
    model = fit(
        data.train, config=warm, label=data.train_labels if warm.energy.classes else None, folder=folder, progress=True
    )
    before = measure(model, data, real, feature_map, settings, folder)
    lines = []
    for way in settings["lines"]:
        stages = [before, *_go_on({**settings, **way, "stages": settings["stages"]}, data, real, feature_map, folder)]
        lines.append({**way, **{f"fid_{i}": stage["fid"] for i, stage in enumerate(stages)}, "stages": stages})
    return {"lines": lines}


def _go_on(settings: Settings, data: Dataset, real: Tensor, feature_map: FeatureMap, folder: Path) -> list[Result]:
    """The stages of one line, from the run in `folder`; the last has no FID if training diverged."""
    x, noise = training_images(data, settings)
    stages: list[Result] = []
    for stage in range(settings["stages"]):
        # Another seed for each stage: randomness is a function of seed and update.
        changes = {
            "objective.gamma": settings["gamma"],
            "objective.unit": settings["unit"],
            "seed": 1000 * (stage + 1) + settings["seed"],
        }
        config = TrainConfig.from_dict(settings["after"]).changed(changes)
        of_junk = (settings["junk"],) if "junk" in settings else ()
        dirt = settings["contaminated"], settings["ratio"], *of_junk
        follow = folder.parent / digest(folder.name, config.to_dict(), *dirt)
        checkpoint.branch(folder, follow)
        folder = follow
        try:
            model = fit(
                x,
                config=config,
                label=data.train_labels if config.energy.classes else None,
                folder=follow,
                progress=True,
            )
        except Diverged as error:
            return [*stages, {"fid": None, "error": error.reason}]
        found = measure(model, data, real, feature_map, settings, follow)
        stages.append({**found, **weights(model, x, noise, settings["gamma"], settings["unit"])})
    return stages


def training_images(data: Dataset, settings: Settings) -> tuple[Tensor, Tensor]:
    """The images to go on with, and which of them are junk."""
    if not settings["contaminated"]:
        return data.train, torch.zeros(len(data.train), dtype=torch.bool)
    make = junk(settings.get("junk", Choice.junk))
    dirty = contaminate(
        data.train,
        settings["ratio"],
        lambda n, generator: make(data.train, n, generator),
        generator=generator(settings["seed"], StudyStream.NOISY_IMAGES),
    )
    return dirty.x, dirty.is_noise


def measure(
    model: Model, data: Dataset, real: Tensor, feature_map: FeatureMap, settings: Settings, folder: Path
) -> Result:
    """FID of samples, their looks, and how far above the data noise lies, in spreads; kept in the run folder."""
    kept = folder / f"measured-{digest(feature_map.name, settings['n'])}.json"
    if kept.is_file():
        return dict(read_json(kept))
    samples = to_bytes(model.sample(settings["n"], seed=settings["seed"]))
    e = model.energy(data.held_out[:1000])
    noise = torch.rand(1000, *model.shape, generator=generator(settings["seed"], StudyStream.NOISE_PROBES))
    gap = (model.energy(noise).median() - e.median()) / energy_spread(e).clamp(min=1e-9)
    found: Result = {
        "fid": frechet_distance(real, feature_map(samples)),
        "gap_in_spreads": float(gap),
        "samples": encode(samples[:SHOWN]),
        "feature_map": feature_map.name,
        "n": len(samples),
    }
    write_json(kept, found)
    return found


def _kept(path: Path, make: Callable[[], Tensor]) -> Tensor:
    """What a slow function gives, from its file if there is one."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(make(), path)
    return torch.load(path, weights_only=True)


def weights(model: Model, x: Tensor, noise: Tensor, gamma: float, unit: str) -> Result:
    """Share of training weight of the contamination, effective share of the images, and the AUROC of the energy."""
    order = torch.randperm(len(x), generator=generator(0, StudyStream.IMAGE_WEIGHTS))[:5000]
    e = model.energy(x[order])
    w = importance_weights(e / energy_spread(e).clamp(min=1e-9) if unit == "spread" else e, gamma)
    is_junk = noise[order]
    found: Result = {"weight_of_noise": float(w[is_junk].sum()), "ess": float(effective_sample_fraction(w))}
    if is_junk.any() and not is_junk.all():
        found |= {"auroc": auroc(e[~is_junk], e[is_junk]), "ap": aupr(e[~is_junk], e[is_junk]).value}
    return found


def contamination_images(choice: Choice) -> Experiment:
    """Table 6 and Figure 7."""
    is_paper = (choice.junk, choice.ratio) == (Choice.junk, Choice.ratio)
    name = f"contamination-images-{choice.data}" + ("" if is_paper else f"-{choice.junk}-{100 * choice.ratio:g}")
    what = "a tenth" if is_paper else f"{choice.ratio:.3g}"
    title = f"Training with {what} of {choice.data} replaced by {choice.junk}"
    # With a large network as the feature map measuring takes longer than training; the control is then left out.
    lines = LINES if choice.features in ("pixels", "classifier") else LINES[:-1]
    return Experiment(
        name,
        f"{title} (Table 6 and Figure 7, at the size of a CPU)" if is_paper else title,
        "60 minutes",
        2,
        lambda quick, seeds: runs(choice, quick, seeds, lines),
        compute,
        _rows,
        lambda done, out: _draw(done, out / f"{name}.png"),
        _notes,
        keeps_checkpoints=True,
        command=f"contamination-images {choice.options}",
    )


def robustness_images(choice: Choice) -> Experiment:
    """What a gamma does, in spreads and in nats: a curve that the paper has not."""
    name = f"robustness-images-{choice.data}"
    return Experiment(
        name,
        f"Robustness and ESS over gamma on {choice.data}, in spreads of the energy and in nats",
        "30 minutes",
        1,
        lambda quick, seeds: runs(choice, quick, seeds, CURVE_LINES, stages=1, updates=CURVE),
        compute,
        _rows,
        lambda done, out: _draw_curve(done, out / f"{name}.png"),
        _notes,
        store_name=f"contamination-images-{choice.data}",
        keeps_checkpoints=True,
        command=f"robustness-images {choice.options}",
    )


def label(way: Settings) -> str:
    """What a table calls a line."""
    per = " per nat" if way["unit"] == "nats" else ""
    name = "CD" if way["gamma"] == 0 else f"PS-CD, gamma {way['gamma']:g}{per}"
    return name if way["contaminated"] else f"{name}, clean images"


def _lines(done: Sequence[Run]) -> list[Run]:
    """A run for each line."""
    return [Run({**d.settings, **way}, way) for d in done for way in d.result["lines"]]


def _rows(done: Sequence[Run]) -> list[Row]:
    is_cifar = done[0].settings["data"] == "cifar10"
    lines = _lines(done)
    rows: list[Row] = []
    updates = done[0].settings["after"]["updates"]
    for stage in range(done[0].settings["stages"] + 1):
        column, value = f"FID after {stage * updates}", f"fid_{stage}"
        table = {
            (row, column): published.CIFAR10_CONTAMINATED[name][stage * updates]
            for name, row in (("CD", "CD"), ("PS-CD", "PS-CD, gamma 1"))
            if is_cifar and updates == STAGE and "junk" not in done[0].settings
        }
        kept = [d for d in lines if value in d.result]
        rows += mean_rows(kept, lambda s, c=column: (label(s), c), value, table)  # type: ignore[misc]
    last = {"weight_of_noise": "share of the weight on noise", "ess": "ESS of the data"}
    last |= {"auroc": "AUROC of junk among the images", "ap": "AP of junk among the images"}
    for value, column in ((value, f"{words}, last") for value, words in last.items()):
        kept = [Run(d.settings, d.result["stages"][-1]) for d in lines if value in d.result["stages"][-1]]
        rows += mean_rows(kept, lambda s, c=column: (label(s), c), value)  # type: ignore[misc]
    order = list(dict.fromkeys(label(d.settings) for d in lines))
    return sorted(rows, key=lambda row: order.index(row.row))


def _draw(done: Sequence[Run], path: Path) -> list[Path]:
    from studies.paper import figures

    first = _lines(done[:1])
    grids = {"before": decode(first[0].result["stages"][0]["samples"])}
    updates = done[0].settings["after"]["updates"]
    for d in first:
        shown = [i for i, stage in enumerate(d.result["stages"]) if "samples" in stage][-1]
        # What diverged is shown as it was measured last.
        name = label(d.settings) + (f", after {shown * updates}" if shown < len(d.result["stages"]) - 1 else "")
        grids[name] = decode(d.result["stages"][shown]["samples"])
    return [figures.image_grids(grids, path)]


def _draw_curve(done: Sequence[Run], path: Path) -> list[Path]:
    from studies.paper import figures

    found: dict[str, list[tuple[float, Result]]] = {"spread": [], "nats": []}
    for d in _lines(done):
        last = d.result["stages"][-1]
        if last["fid"] is not None:
            found[d.settings["unit"]].append((d.settings["gamma"], last))
    before = done[0].result["lines"][0]["stages"][0]["fid"]
    return [figures.robustness(found, before, path)]


def _notes(done: Sequence[Run]) -> str:
    warm, config = (TrainConfig.from_dict(done[0].settings[name]) for name in ("warm", "after"))
    stage = done[0].result["lines"][0]["stages"][0]
    lost = [label(d.settings) for d in _lines(done) if d.result["stages"][-1]["fid"] is None]
    diverged = f"\n**Diverged before the last measurement: {', '.join(lost)}.**" if lost else ""
    gaps = [d.result["lines"][0]["stages"][0]["gap_in_spreads"] for d in done]
    junk_in_words = f"junk ({done[0].settings['junk']})" if "junk" in done[0].settings else "uniform noise"
    return f"""
{warm.updates} updates of CD on clean images, then {done[0].settings["stages"]} x {config.updates} on images
{done[0].settings["ratio"]:.0%} of which are {junk_in_words}.
A {config.energy.name} of width {config.energy.width}, {config.sampler.n_steps} sampler steps an update, batches of
{config.batch_size}. FID with {stage["feature_map"]}, {stage["n"]} samples. Gamma is in spreads of the data's
energies unless said: after the warm-up noise lies {min(gaps):.0f} to {max(gaps):.0f} spreads above the data,
so that any gamma above {3 / min(gaps):.2g} gives a noise image less than a twentieth of the weight of a real one. The
published numbers are of a larger network and, very likely, another warm-up: another experiment.
{diverged}
"""
