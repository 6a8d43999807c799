"""The paper's tables of images: FID by objective, the effect of gamma, samples, out-of-distribution scores.

One run trains one model and measures everything, so that the four experiments share their runs. The sizes are
those of a CPU: published numbers, of networks and runs a thousand times larger, stand beside as another experiment.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from pscd import losses
from pscd.config import TrainConfig
from pscd.data import Dataset, to_bytes
from pscd.errors import Diverged, UserError
from pscd.metrics import frechet_distance, prdc
from pscd.objectives import PseudoSpherical
from pscd.rng import Stream, generator
from pscd.training.fit import fit
from studies.engine import Experiment, Result, Row, Run, Settings, digest, mean_rows
from studies.images.cache import cached_features
from studies.images.classifier import load_feature_map
from studies.images.sets import load_dataset
from studies.paper import published
from studies.paper.comparison import APART, BOTH, differences, gradient_agreement, naming, unit_of
from studies.paper.ood import measure_ood, ood_rows, other_images
from studies.paper.ood_scores import (
    OF_A_BACKGROUND,
    OF_A_MODEL,
    background_settings,
    measure_sets,
    score_summary,
    sets_to_judge,
)
from studies.paper.ood_scores import score_rows as scores_of
from studies.presets import PRESET_OF, PRESETS

GAMMAS = (0.0, -0.5, 0.5, 1.0, 2.0)
SHOWN = 64  # samples of each model that a figure shows
PRDC = ("density", "coverage", "precision", "recall")


@dataclass(frozen=True)
class Choice:
    """What `--data`, `--preset`, `--features`, `--n`, `--junk`, `--ratio`, `--unit` and `--updates` ask for."""

    data: str = "mnist"
    preset: str | None = None
    features: str = "classifier"
    n: int = 5000
    junk: str = "noise"
    ratio: float = 0.1
    unit: str | None = None
    updates: int | None = None

    def config(self, gamma: float, seed: int, *, quick: bool) -> TrainConfig:
        """The preset with a gamma and a seed."""
        name = self.preset or PRESET_OF.get(self.data, self.data)
        if name not in PRESETS:
            raise UserError(f"there is no preset for {self.data!r}; choose one with --preset: {', '.join(PRESETS)}")
        changes = {"rows.data": self.data, "objective.gamma": gamma, "seed": seed}
        # CD knows no unit: one run of it stands beside the gammas of both.
        changes |= {} if self.unit in (None, "both") or gamma == 0 else {"objective.unit": self.unit}
        changes |= {} if self.updates is None else {"updates": self.updates}
        small = (
            {"updates": 20, "energy.width": 4, "chains.buffer_size": 200, "batch_size": 16, "chains.sample_steps": 5}
            if quick
            else {}
        )
        return PRESETS[name].changed({**changes, **small})

    @property
    def options(self) -> str:
        """The flags that say the same."""
        flags: dict[str, object] = {"--data": self.data, "--preset": self.preset, "--features": self.features}
        flags |= {"--n": self.n, "--junk": None if self.junk == Choice.junk else self.junk}
        flags |= {"--ratio": None if self.ratio == Choice.ratio else self.ratio}
        flags |= {"--unit": self.unit, "--updates": self.updates}
        return " ".join(f"{flag} {value}" for flag, value in flags.items() if value is not None)

    @property
    def suffix(self) -> str:
        """What the names of pages end with: the images, and the unit of gamma if one was chosen."""
        return self.data if self.unit in (None, "both") else f"{self.data}-{self.unit}"


def runs(choice: Choice, gammas: Sequence[float], quick: bool, seeds: int) -> list[Settings]:
    """A model for each gamma and seed, with all that decides its numbers."""
    both = [replace(choice, unit=unit) for unit in BOTH] if choice.unit == "both" else [choice]
    pairs = [(one, gamma) for i, one in enumerate(both) for gamma in gammas if gamma != 0 or i == 0]
    return [
        {
            "data": choice.data,
            "gamma": gamma,
            "seed": seed,
            "config": one.config(gamma, seed, quick=quick).to_dict(),
            "features": choice.features,
            "n": 100 if quick else choice.n,
        }
        for one, gamma in pairs
        for seed in range(seeds)
    ]


def compute(settings: Settings, checkpoints: Path) -> Result:
    """Train, and measure what comes out against images that training has not seen."""
    if "background" in settings:
        return _compute_background(settings, checkpoints)
    config = TrainConfig.from_dict(settings["config"])
    data = load_dataset(config.rows.data, seed=config.seed)
    rows: list[dict[str, float]] = []
    try:
        model = fit(
            data.train,
            config=config,
            label=data.train_labels if config.energy.classes else None,
            folder=checkpoints / digest(settings["config"]),
            callbacks=[lambda at: rows.append(at["stats"])],
        )
    except Diverged as error:
        return {"fid": None, "error": error.reason, **dict.fromkeys(PRDC)}
    tail = rows[-max(1, len(rows) // 10) :]
    names = [name for name in ("ess_pos", "ess_neg", "gap") if tail and name in tail[0]]
    weights: Result = {name: sum(row[name] for row in tail) / len(tail) for name in names}
    spread = losses.energy_spread(model.energy(data.held_out[: settings["n"]]))
    samples = to_bytes(model.sample(settings["n"], seed=config.seed))
    assert isinstance(config.objective, PseudoSpherical)
    held_out, batch = data.held_out[: settings["n"]], min(config.batch_size, settings["n"] // 2)
    weights |= gradient_agreement(model, config.objective, held_out, samples, batch_size=batch, lr=config.optimizer.lr)
    n, others = settings["n"], other_images(data, config.rows.data, settings["n"], config.seed)
    return {
        **measure(samples, data, settings["features"]),
        **weights,
        "spread": float(spread),
        "samples": encode(samples[:SHOWN]),
        "ood": measure_ood(model.energy, data, config.rows.data, n=n, seed=config.seed, others=others),
        "measures": measure_sets(model, sets_to_judge(data, others, n), OF_A_MODEL),
    }


def _compute_background(settings: Settings, checkpoints: Path) -> Result:
    """Train a model of noisy images, and keep its energies of the images that the other models are judged by."""
    config = TrainConfig.from_dict(settings["background"])
    data = load_dataset(config.rows.data, seed=config.seed)
    try:
        model = fit(
            data.train,
            config=config,
            label=data.train_labels if config.energy.classes else None,
            folder=checkpoints / digest(settings["background"]),
        )
    except Diverged as error:
        return {"error": error.reason}
    others = other_images(data, config.rows.data, settings["n"], config.seed)
    return {"measures": measure_sets(model, sets_to_judge(data, others, settings["n"]), OF_A_BACKGROUND)}


def measure(samples: Tensor, data: Dataset, features: str) -> Result:
    """FID and PRDC of samples against held-out images, beside the FID of training images."""
    feature_map = load_feature_map(features, data)
    n = min(len(samples), len(data.held_out))
    some = torch.randperm(len(data.train), generator=generator(0, Stream.IMAGES_SHOWN))[:n]
    real, known = (cached_features(feature_map, x) for x in (data.held_out[:n], data.train[some]))
    fake = feature_map(samples[:n])
    return {
        "fid": frechet_distance(real, fake),
        "fid_data": frechet_distance(real, known),
        "n_measured": n,
        "feature_map": feature_map.name,
        **prdc(real, fake)._asdict(),
    }


def encode(x: Tensor) -> Result:
    """Bytes as text, for a JSON file; in a dictionary, which reports leave out."""
    return {"shape": list(x.shape), "bytes": base64.b64encode(x.numpy().tobytes()).decode()}


def decode(kept: Result) -> Tensor:
    """The inverse of `encode`."""
    return torch.frombuffer(bytearray(base64.b64decode(kept["bytes"])), dtype=torch.uint8).view(kept["shape"])


# --- the four ways to look at the runs ---


def _experiment(
    choice: Choice,
    name: str,
    title: str,
    where: str,
    rows: Callable[[Sequence[Run]], list[Row]],
    draw: Callable[[Sequence[Run], Path], list[Path]] = lambda done, path: [],
    gammas: Sequence[float] = GAMMAS,
    seeds: int = 2,
    backgrounds: bool = False,
    resumes_from_page: bool = True,
) -> Experiment:
    def all_runs(quick: bool, seeds: int) -> list[Settings]:
        models = runs(choice, gammas, quick, seeds)
        n = 100 if quick else choice.n
        configs = (choice.config(0.0, seed, quick=quick) for seed in range(seeds if backgrounds else 0))
        return [*models, *(background_settings(config, n) for config in configs)]

    return Experiment(
        f"{name}-{choice.suffix}",
        f"{title} ({where}, at the size of a CPU)",
        f"{len(gammas) * seeds * 5} minutes, none of it for models that were trained for another",
        seeds,
        all_runs,
        compute,
        rows,
        lambda done, out: draw(done, out / f"{name}-{choice.suffix}.png"),
        lambda done: _notes(done, where) + (f"\n{score_summary(scores_of(done))}" if backgrounds else ""),
        store_name=f"images-{choice.data}",
        keeps_checkpoints=True,
        command=f"{name} {choice.options}",
        resumes_from_page=resumes_from_page,
    )


def images_fid(choice: Choice) -> Experiment:
    """FID by objective."""
    return _experiment(choice, "images-fid", f"FID of CD and PS-CD on {choice.data}", "Table 1", _fid_rows)


def images_gamma(choice: Choice) -> Experiment:
    """Density, coverage, precision and recall by gamma."""
    title = f"The effect of gamma on {choice.data}"
    return _experiment(choice, "images-gamma", title, "Table 4", _gamma_rows, _draw_gamma)


def images_samples(choice: Choice) -> Experiment:
    """Grids of samples."""
    title = f"Samples of CD and PS-CD on {choice.data}"
    return _experiment(
        choice, "images-samples", title, "Figure 5", _fid_rows, _draw_samples, seeds=1, resumes_from_page=False
    )


def ood(choice: Choice) -> Experiment:
    """AUROC against other sets of images, of the energy and of every other score."""

    def rows(done: Sequence[Run]) -> list[Row]:
        return [*ood_rows(done, choice.data), *scores_of(done)]

    title = f"Out-of-distribution detection with models of {choice.data}"
    return _experiment(
        choice, "ood", title, "Table 5", rows, gammas=(0.0, 1.0), backgrounds=True, resumes_from_page=False
    )


def _fid_rows(done: Sequence[Run]) -> list[Row]:
    data, name = done[0].settings["data"], naming(done)
    known = published.CIFAR10_FID if data == "cifar10" else {}
    table = {(data, name(d.settings)): known[g] for d in done if (g := d.settings["gamma"]) in known}
    rows = mean_rows(done, lambda s: (s["data"], name(s)), "fid", table)
    return [*rows, *mean_rows(done[:1], lambda s: (s["data"], "training images"), "fid_data")]


def _gamma_rows(done: Sequence[Run]) -> list[Row]:
    rows: list[Row] = []
    model = naming(done)
    known = published.CIFAR10_GAMMA if done[0].settings["data"] == "cifar10" else {}
    for name in (*PRDC, "fid", "ess_pos"):
        table = {
            (model(d.settings), name): known[g][name] for d in done if name in known.get(g := d.settings["gamma"], {})
        }
        kept = [d for d in done if name in d.result]
        rows += mean_rows(kept, lambda s, name=name: (model(s), name), name, table)  # type: ignore[misc]
    order = list(dict.fromkeys(model(d.settings) for d in done))
    return sorted(rows, key=lambda row: order.index(row.row))


def _draw_gamma(done: Sequence[Run], path: Path) -> list[Path]:
    from studies.paper import figures

    names = (*PRDC, "ess_pos", "fid")
    kept = [d for d in done if d.result["fid"] is not None]
    units = [unit for unit in BOTH.values() if any(unit_of(d.settings) == unit for d in kept)]
    panels: dict[str, figures.Series] = {
        name: {
            unit: [
                (d.settings["gamma"], d.result[name])
                for d in kept
                if unit_of(d.settings) in ("", unit) and name in d.result
            ]
            for unit in units
        }
        for name in names
    }
    return [figures.over_gamma(panels, path)]


def _draw_samples(done: Sequence[Run], path: Path) -> list[Path]:
    from studies.paper import figures

    first, name = [d for d in done if d.settings["seed"] == 0 and "samples" in d.result], naming(done)
    return [figures.image_grids({name(d.settings): decode(d.result["samples"]) for d in first}, path)]


def _notes(done: Sequence[Run], where: str) -> str:
    models = [d for d in done if "background" not in d.settings]
    one = next((d for d in models if d.result["fid"] is not None), None)
    if one is None:
        return "Every run diverged."
    lost = sum(d.result["fid"] is None for d in models)
    apart = differences(models)
    config = TrainConfig.from_dict(one.settings["config"])
    energy = config.energy
    text = f"""
{config.updates} updates of {config.sampler.n_steps} sampler steps, a {energy.name} of width {energy.width},
batches of {config.batch_size}. Measured with {one.result["feature_map"]} on {one.result["n_measured"]} samples and as
many held-out images; lower FID is better, and training images against held-out ones give {one.result["fid_data"]:.3g}.
Of {len(models)} runs, {lost} diverged. Published numbers ({where}) are those of CIFAR-10 at 32 x 32 with a network, a
number of updates and a feature map of another size: another experiment, not a level to reach here.
"""
    return f"{text}{APART}{apart}\n" if apart else text


OVER_GAMMA = {"images-fid": images_fid, "images-gamma": images_gamma, "images-samples": images_samples}
IMAGE_EXPERIMENTS = {**OVER_GAMMA, "ood": ood}
