"""The settings of `fit` and `pscd train` when nothing else is given, by the kind of the data.

Chains on images follow IGEBM (Du and Mordatch 2019): long steps, little noise, a clamped gradient, and a buffer part of
which restarts from noise. Their temperature is far below 1, so gamma is stated per spread of the energies (see
`PseudoSpherical`).
"""

from dataclasses import replace
from pathlib import Path

from pscd.config import ChainSettings, GuardSettings, OptimizerSettings, RowSettings, TrainConfig
from pscd.data import TOYS
from pscd.data.pictures import DIGITS
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.extensions import is_path
from pscd.objectives import PseudoSpherical, Recovery
from pscd.sampling import Jumps, Langevin

# Gamma is chosen from the rows, whose weights come from a robust mixture.
_ROBUST = PseudoSpherical(gamma="auto", warmup=0.0, unit="spread")
# The mixture is close to the data, and its draws are all that a network needs to learn the correction.
_BY_DRAWS = replace(_ROBUST, negatives="importance")
# In the plane the network may see high frequencies, since held-out rows detect when it begins to memorise.
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

# Images of 8 to 32 pixels a side, on a CPU. Short chains: with a buffer, updates count more than steps.
SMALL_IMAGES = TrainConfig(
    objective=PseudoSpherical(gamma=0.3, warmup=0.5, l2=0.1, unit="spread"),
    sampler=Langevin(n_steps=8, step_size=10.0, noise_scale=0.005, max_grad=0.03, low=0.0, high=1.0),
    energy=Architecture("conv", width=16, depth=4, fourier=0, base_scale=None),
    updates=2000,
    batch_size=64,
    chains=ChainSettings(buffer_size=5000, base="box", restart=0.02, sample_steps=100),
    optimizer=OptimizerSettings(lr=3e-4, schedule="constant", betas=(0.0, 0.999), clip=0.1, ema=0.99),
    guard=GuardSettings(max_gap=20.0, checkpoint_every=250, log_every=25),
    rows=RowSettings(data_noise=0.01, standardise="none"),
)

RECIPES: dict[str, TrainConfig] = {
    "plane": _PLANE,
    "table": _TABLE,
    # For a custom network, in any number of columns.
    "free": TrainConfig(objective=_ROBUST, rows=RowSettings(start="mixture")),
    "images": SMALL_IMAGES.changed(
        {
            "energy.name": "cnn",
            "energy.depth": 3,
            "sampler.n_steps": 10,
            "optimizer.lr": 2e-4,
            "compute.precision": "bfloat16",  # 2.5 times as fast on processors that support it
            "rows.start": "glance",
        }
    ),
    # So few pixels leave room for a smaller step with more noise.
    "digits": SMALL_IMAGES.changed(
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
}
NOTES = {
    "plane": "recipe for one or two columns: a robust mixture, corrected by a bounded network",
    "table": "recipe for tables: a robust mixture, corrected by a bounded network",
    "free": "recipe for a custom energy: rows weighted by a robust mixture, negatives from chains",
    "images": "recipe for images: a convolutional network, images weighted by their looks",
}


def recipe(name: str) -> TrainConfig:
    """The recipe of a given name.

    >>> recipe("digits").energy.name
    'conv'
    """
    if name not in RECIPES:
        raise UserError(f"unknown recipe {name!r}; there are: {', '.join(RECIPES)}")
    return RECIPES[name]


def recovering(config: TrainConfig) -> TrainConfig:
    """Settings for images by contrastive divergence, changed for recovery likelihood: levels of noise, no labels.

    >>> recovering(recipe("digits")).energy.levels
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


def name_for_rows(shape: tuple[int, ...], *, own: bool = False) -> str:
    """The name of the recipe for rows of a shape, or for your `own` energy, which corrects no mixture."""
    if len(shape) == 3:
        return "images"
    if len(shape) == 1 and own:
        return "free"
    return "plane" if len(shape) == 1 and shape[0] <= 2 else "table"


def for_rows(shape: tuple[int, ...], *, own: bool = False) -> TrainConfig:
    """The recipe for rows of a shape."""
    return RECIPES[name_for_rows(shape, own=own)]


def for_data(data: str, n_columns: int | None = None) -> TrainConfig:
    """The recipe for a toy, a file of so many columns, or a folder of images; for toys the plain defaults."""
    if data == DIGITS:
        return RECIPES["digits"]
    if not data or data in TOYS or is_path(data):
        return TrainConfig()
    if Path(data).is_dir() and n_columns is None:
        return RECIPES["images"]
    return for_rows((3 if n_columns is None else n_columns,))
