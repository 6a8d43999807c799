"""Settings that work, by the name of the data; `--preset` chooses one, and flags change it.

Chains on images follow the recipe of IGEBM (Du and Mordatch 2019): long steps, little noise, a clamped gradient, and a
buffer part of which restarts from noise. Its temperature is far below 1, so gamma is stated per spread of the energies
(see `PseudoSpherical`).
"""

from dataclasses import replace
from pathlib import Path

from pscd.config import ChainSettings, GuardSettings, OptimizerSettings, RowSettings, TrainConfig
from pscd.data import TOYS
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.extensions import is_path
from pscd.objectives import PseudoSpherical, Recovery
from pscd.sampling import Jumps, Langevin

# Images of 8 to 32 pixels a side, on a CPU. Short chains: with a buffer, updates count more than steps.
_SHORT = Langevin(n_steps=8, step_size=10.0, noise_scale=0.005, max_grad=0.03, low=0.0, high=1.0)
_SMALL = TrainConfig(
    objective=PseudoSpherical(gamma=0.3, warmup=0.5, l2=0.1, unit="spread"),
    sampler=_SHORT,
    energy=Architecture("conv", width=16, depth=4, fourier=0, base_scale=None),
    updates=2000,
    batch_size=64,
    chains=ChainSettings(buffer_size=5000, base="box", restart=0.02, sample_steps=100),
    optimizer=OptimizerSettings(lr=3e-4, schedule="constant", betas=(0.0, 0.999), clip=0.1, ema=0.99),
    guard=GuardSettings(max_gap=20.0, checkpoint_every=250, log_every=25),
    rows=RowSettings(data="mnist", data_noise=0.01, standardise="none"),
)
_SHARP = {"optimizer.lr": 2e-3, "optimizer.ema": 0.999}
_PHOTOS = _SMALL.changed(
    {
        "rows.data": "cifar10",
        "energy.name": "cnn",
        "energy.depth": 3,
        "energy.classes": 10,
        "sampler.n_steps": 10,
        "optimizer.lr": 2e-4,
        "updates": 2000,
        # 2.5 times as fast on processors that support it.
        "compute.precision": "bfloat16",
    }
)
_SPECTRUM = {
    "objective.gamma": 0.0,
    "sampler.slope": 1.3,
    "sampler.step_size": 100.0,
    "sampler.noise_scale": 0.02,
    "sampler.max_grad": 0.003,
    "optimizer.lr": 1e-3,
    "updates": 1400,
}
# The paper's run on CIFAR-10, Appendix D.4; learning rate, clipping and dequantisation as in the code it follows.
_PAPER = TrainConfig(
    objective=PseudoSpherical(gamma=1.0, warmup=0.0, l2=1.0, unit="nats"),
    sampler=Langevin(n_steps=60, step_size=10.0, noise_scale=0.005, max_grad=0.01, low=0.0, high=1.0),
    energy=Architecture("resnet", width=128, depth=3, fourier=0, spectral_norm=True, base_scale=None, classes=10),
    updates=50_000,
    batch_size=128,
    chains=ChainSettings(buffer_size=10_000, base="box", restart=0.05, sample_steps=60),
    optimizer=OptimizerSettings(lr=3e-4, schedule="constant", betas=(0.0, 0.999), ema=0.0),
    guard=GuardSettings(checkpoint_every=1000),
    rows=RowSettings(data="cifar10", data_noise=1 / 256, standardise="none"),
)

# One's own table. A robust mixture says which rows are no junk; gamma .1 per spread does the rest.
_ROBUST = PseudoSpherical(gamma="auto", warmup=0.0, unit="spread")
_FREE = TrainConfig(objective=_ROBUST, rows=RowSettings(start="mixture"))
# The mixture is close to the data, and its draws are all that a network needs to learn what is missing.
_BY_DRAWS = replace(_ROBUST, negatives="importance")
# In the plane the network may see fine waves, since held-out rows say when it begins to memorise.
_PLANE = TrainConfig(
    objective=_BY_DRAWS,
    sampler=Jumps(n_steps=2),  # keeps no chains, so the buffer is small
    energy=Architecture("corrected", width=128, depth=3, fourier=128, base_scale=None),
    updates=2000,
    chains=ChainSettings(buffer_size=256, sample_steps=50),
    # Held-out rows have mostly chosen the update by then; later ones are learned by heart.
    rows=RowSettings(start="mixture", hold_out=0.1, idle_updates=500),
)
_TABLE = TrainConfig(
    objective=_BY_DRAWS,
    sampler=Jumps(n_steps=2),
    energy=Architecture("corrected", width=64, depth=2, fourier=32, base_scale=None),
    updates=1000,
    chains=ChainSettings(buffer_size=256, sample_steps=50),
    optimizer=OptimizerSettings(lr=8e-3, ema=0.995),
    guard=GuardSettings(checkpoint_every=250),
    rows=RowSettings(standardise="robust", start="mixture", hold_out=0.2),
)

PRESETS: dict[str, TrainConfig] = {
    "plane": _PLANE,
    "table": _TABLE,
    # For a network of one's own, in any number of columns.
    "free": _FREE,
    # So few pixels leave room for a smaller step with more noise.
    "digits": _SMALL.changed(
        {
            "rows.data": "digits",
            "energy.depth": 2,
            "energy.width": 32,
            "objective.gamma": 0.5,
            "sampler.step_size": 1.0,
            "sampler.noise_scale": 0.02,
            "sampler.max_grad": 0.3,
            "rows.data_noise": 0.03,
            "optimizer.lr": 1e-3,
            "optimizer.schedule": "cosine",
        }
    ),
    "mnist": _SMALL,
    # At the learning rate of `mnist`, 2000 updates leave digits half learnt; at this one CD, which is for clean digits,
    # diverges where there is junk. See docs/results/image-ablation.md and junk-images-mnist.md.
    "mnist-sharp": _SMALL.changed({"objective.gamma": 0.0, **_SHARP}),
    # Images are weighed first: what is out of place, or there many times, no energy finds strange.
    "mnist-robust": _SMALL.changed({"objective.warmup": 0.05, "rows.start": "glance", **_SHARP}),
    "fashion-mnist": _SMALL.changed({"rows.data": "fashion-mnist"}),
    "cifar10-small": _PHOTOS,
    # For clean photographs: chains that are preconditioned by the spectrum of images, and five times the learning rate,
    # in as many minutes as the preset above. See docs/results/photo-ablation.md.
    "cifar10-spectrum": _PHOTOS.changed(_SPECTRUM),
    # Chains on half of the energy: the FID is lower with each of four seeds. See docs/results/images-fid-cifar10.md.
    "cifar10-negative": _PHOTOS.changed({**_SPECTRUM, "objective.gamma": -0.5, "objective.unit": "nats"}),
    # For a first look, five times as fast.
    "cifar10-tiny": _SMALL.changed({"rows.data": "cifar10", "energy.classes": 10}),
    "paper-cifar10": _PAPER,
    # Short-run chains from noise (Nijkamp et al. 2019) with 100 steps. Their step 1 and noise 0.01 are for pixels in
    # [-1, 1]; [0, 1] is half as wide.
    "paper-celeba": _PAPER.changed(
        {
            "rows.data": "celeba",
            "energy.name": "cnn",
            "energy.width": 64,
            "energy.depth": 4,
            "energy.classes": 0,
            "energy.spectral_norm": False,
            "sampler.n_steps": 100,
            "sampler.step_size": 0.25,
            "sampler.max_grad": None,
            "chains.start": "short-run",
            "updates": 100_000,
            "batch_size": 64,
            "optimizer.lr": 1e-4,
            "rows.data_noise": 0.015,
            "chains.sample_steps": 100,
        }
    ),
}
_OWN_PICTURES = PRESETS["cifar10-small"].changed({"energy.classes": 0, "rows.start": "glance"})
# What `train` takes, if it is not the preset of the same name; `MEASURED` is what studies take whose pages
# name no preset.
MEASURED = {"cifar10": "cifar10-small", "celeba": "paper-celeba", "svhn": "cifar10-small", "notmnist": "mnist"}
DEFAULT_OF = {**MEASURED, "mnist": "mnist-robust", "notmnist": "mnist-robust"}


def preset(name: str) -> TrainConfig:
    """The preset of a given name.

    Args:
        name: a key of `PRESETS`.

    Returns:
        Its configuration.

    Raises:
        UserError: there is none; with the names there are.

    >>> preset("mnist").energy.name
    'conv'
    """
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}; there are: {', '.join(PRESETS)}")
    return PRESETS[name]


def recovering(config: TrainConfig) -> TrainConfig:
    """Settings for images by contrastive divergence, changed for recovery likelihood.

    Args:
        config: a preset for images.

    Returns:
        The same network, with levels of noise and without labels, trained by recovery likelihood.

    Raises:
        UserError: the network is not one for images.

    >>> recovering(preset("mnist")).energy.levels
    12
    """
    base = config.changed(
        {
            "compute.precision": "float32",
            "energy": replace(config.energy, classes=0, levels=12),
            "objective": Recovery(),
        }
    )
    return base.changed(
        {
            "optimizer.lr": 5e-4,
            "optimizer.schedule": "cosine",
            "optimizer.betas": (0.9, 0.999),
            "optimizer.clip": 20.0,
            "optimizer.ema": 0.999,
            "rows.data_noise": 0.0,  # the first level has noise of its own
            "chains.buffer_size": 64,  # there are no chains to keep
            "chains.sample_steps": 12,
        }
    )


def for_rows(shape: tuple[int, ...], *, own: bool = False) -> TrainConfig:
    """The configuration that `fit` uses by default: robust, with gamma chosen from the rows.

    A table gets a mixture of its majority, corrected by a bounded network that is trained on rows drawn by their
    probability of not being junk. Images get the settings of a folder of images.

    Args:
        shape: of a row.
        own: whether the network is one's own, which corrects no mixture but is trained on the same rows.

    Returns:
        The configuration.
    """
    if len(shape) == 3:
        return _OWN_PICTURES.changed({"rows.data": ""})
    if len(shape) == 1 and own:
        return PRESETS["free"]
    return PRESETS["plane"] if len(shape) == 1 and shape[0] <= 2 else PRESETS["table"]


NOTES = {
    "plane": "recipe for one or two columns: a robust mixture, corrected by a bounded network",
    "table": "recipe for tables: a robust mixture, corrected by a bounded network",
    "free": "recipe for a custom energy: rows weighted by a robust mixture, negatives from chains",
    "images": "recipe for images: a convolutional network, images weighted by their looks",
}


def recipe_for(shape: tuple[int, ...], *, own: bool) -> tuple[TrainConfig, str]:
    """The settings of `fit` for rows of a shape, and a sentence that names the recipe."""
    config = for_rows(shape, own=own)
    name = next((name for name in ("plane", "table", "free") if PRESETS[name] is config), "images")
    return config, NOTES[name]


def default_preset(data: str, n_columns: int | None = None) -> TrainConfig:
    """What `train` takes for this data if no preset is chosen.

    Args:
        data: a name, a file or a folder.
        n_columns: how many columns of a file are learnt from, where that is known.

    Returns:
        The preset of that name, those for one's own pictures or table, or for toys the plain defaults.
    """
    name = DEFAULT_OF.get(data, data)
    if name in PRESETS:
        return PRESETS[name]
    if not data or data in TOYS or is_path(data):
        return TrainConfig()
    if Path(data).is_dir() and n_columns is None:  # pictures of one's own, of which nothing is known
        return _OWN_PICTURES
    return for_rows((3 if n_columns is None else n_columns,))
