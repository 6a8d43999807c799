"""The settings of a run: one frozen dataclass, in JSON and back."""

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from pscd.energies.architecture import Architecture
from pscd.errors import UserError
from pscd.fast import MODES as GRADIENTS
from pscd.objectives import FEBM, OBJECTIVES, NoiseContrastive, Objective, PseudoSpherical
from pscd.sampling.langevin import Langevin, Mala, Sampler
from pscd.types import option

SCHEDULES = ("cosine", "constant")
STANDARDISE = ("std", "none")
STOPS = ("end", "randomised")
CHAINS = ("persistent", "data", "short-run")
BASES = ("gaussian", "box")
PRECISIONS = ("float32", "bfloat16")
# Settings younger than the runs and results that people keep. At their default they are left out of the dictionary,
# so that it equals that of an old run, which so goes on, and the digest of an old result, which so is found.
LATER = {
    "chains": "persistent",
    "gradients": "auto",
    "base": "gaussian",
    "precision": "float32",
    "image_size": None,
    "energy.classes": 0,
    "objective.unit": "nats",
}
COUNTS = (
    "n_data",
    "steps",
    "batch_size",
    "buffer_size",
    "jump_components",
    "checkpoint_every",
    "log_every",
    "sample_steps",
)


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a run computes. Two equal configurations give equal results."""

    data: str = option("moon", "a toy's name or a file of your own")
    columns: tuple[str, ...] | None = option(None, "columns of the file to use, by name (a,b,c); none: all")
    n_data: int = option(50_000, "training rows to draw, for toys")
    image_size: int | None = option(None, "side to scale the images of a folder to; none: as they are")
    objective: Objective = field(default_factory=PseudoSpherical)
    sampler: Sampler = field(default_factory=Mala)
    energy: Architecture = field(default_factory=Architecture)
    steps: int = option(4000, "updates of the energy")
    batch_size: int = option(256, "rows of data, and of samples, per update (over all processes)")
    lr: float = option(3e-3, "learning rate of Adam at its highest")
    schedule: str = option("cosine", "learning rate over the run: cosine (to 0) or constant")
    beta1: float = option(0.9, "Adam's memory of the gradient")
    stop: str = option("end", "end with the last update, or at a random one (randomised, Algorithm 2 of the paper)")
    clip: float | None = option(None, "largest norm of the gradient of a network; none: no limit")
    ema: float = option(0.999, "memory of the averaged weights, which are the ones kept")
    data_noise: float = option(0.0, "noise added to each data batch, in standard deviations")
    standardise: str = option("std", "columns to mean 0 and deviation 1 (std), or as they are (none)")
    buffer_size: int = option(10_000, "chains that persist between updates (over all processes)")
    chains: str = option("persistent", "start where they ended (persistent), at the data (CD-K) or afresh (short-run)")
    base: str = option("gaussian", "fresh chains start from a broad Gaussian, or evenly in the sampler's box (box)")
    restart: float = option(0.01, "fraction of the drawn persistent chains that start afresh at each update")
    precision: str = option("float32", "arithmetic of the network: float32, or bfloat16 where a GPU is quicker with it")
    jump_components: int = option(32, "Gaussians in the proposal of the sampler's jumps")
    max_gap: float = option(
        50.0, "gap between the phases' median energies that counts as running away (nats or spreads)"
    )
    max_retries: int = option(5, "how often a run may roll back before it ends with an error")
    checkpoint_every: int = option(500, "updates between checkpoints")
    log_every: int = option(50, "updates between rows of metrics.jsonl")
    sample_steps: int = option(100, "sampler steps from the proposal to a sample, after training")
    gradients: str = option("auto", "in chains: the fastest (auto), by hand without C++ (eager), autograd (plain)")
    seed: int = option(0, "the same seed gives the same result")

    def __post_init__(self) -> None:
        for name in COUNTS:
            _require(getattr(self, name) >= 1, f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lr", "max_gap", "clip"):
            value = getattr(self, name)
            _require(value is None or 0 < value < math.inf, f"{name} must be a positive number, got {value}")
        _require(0 <= self.restart <= 1, f"restart must lie in [0, 1], got {self.restart}")
        _require(0 <= self.ema < 1, f"ema must lie in [0, 1), got {self.ema}")
        _require(0 <= self.beta1 < 1, f"beta1 must lie in [0, 1), got {self.beta1}")
        _require(0 <= self.data_noise < math.inf, f"data_noise must be at least 0, got {self.data_noise}")
        _require(self.max_retries >= 0, f"max_retries must be at least 0, got {self.max_retries}")
        _require(self.seed >= 0, f"seed must be at least 0, got {self.seed}")
        choices = {
            "schedule": SCHEDULES,
            "stop": STOPS,
            "standardise": STANDARDISE,
            "chains": CHAINS,
            "base": BASES,
            "precision": PRECISIONS,
            "gradients": GRADIENTS,
        }
        for name, words in choices.items():
            value = getattr(self, name)
            _require(value in words, f"{name} must be one of {', '.join(words)}, got {value!r}")
        box = (self.sampler.low, self.sampler.high)
        _require(self.base != "box" or box == (0, 1), f"base box needs a sampler with low 0 and high 1, not {box}")
        _require(
            not (self.energy.classes and isinstance(self.objective, FEBM | NoiseContrastive)),
            "f-ebm and nce know no labels; set --classes 0",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the kind of objective and of sampler stands beside their settings."""
        values = self._all()
        for name, default in LATER.items():
            *path, last = name.split(".")
            inner = values[path[0]] if path else values
            if last in inner and inner[last] == default:
                del inner[last]
        return values

    def _all(self) -> dict[str, Any]:
        values = asdict(self)
        for name in ("objective", "sampler"):
            values[name] = {"kind": type(getattr(self, name)).__name__, **values[name]}
        return json.loads(json.dumps(values))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        values = dict(values)
        for name in ("objective", "sampler"):
            settings = dict(values[name])
            values[name] = KINDS[settings.pop("kind")](**settings)
        values["energy"] = Architecture(**values["energy"])
        if values["columns"] is not None:
            values["columns"] = tuple(values["columns"])
        return cls(**values)

    def changed(self, changes: dict[str, Any]) -> Self:
        """A copy with some settings replaced, named with dots: `{"steps": 10, "sampler.n_steps": 3}`."""
        values = self._all()
        for name, value in changes.items():
            *path, last = name.split(".")
            inner = values
            for part in path:
                inner = inner[part]
            if last not in inner:
                raise UserError(f"there is no setting {name!r}")
            inner[last] = value
        return self.from_dict(values)

    def differences(self, other: Self) -> list[str]:
        """The settings in which two configurations differ, as `name: ours asked, theirs there`."""
        ours, theirs = _flat(self._all()), _flat(other._all())
        names = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
        return [f"{name}: {ours.get(name)} asked, {theirs.get(name)} there" for name in names]


# Classes that a configuration file may name.
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (*map(type, OBJECTIVES.values()), Mala, Langevin)}


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
