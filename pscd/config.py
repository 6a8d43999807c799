"""The settings of a run: one frozen dataclass, in JSON and back."""

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.objectives import Objective, PseudoSpherical
from pscd.options import option
from pscd.samplers import Langevin, Mala, Sampler

SCHEDULES = ("cosine", "constant")
STANDARDISE = ("std", "none")
STOPS = ("end", "randomised")


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a run computes. Two equal configurations give equal results."""

    data: str = option("moon", "a toy's name or a file of your own")
    columns: tuple[str, ...] | None = option(None, "columns of the file to use, by name (a,b,c); none: all")
    n_data: int = option(50_000, "training rows to draw, for toys")
    objective: Objective = field(default_factory=PseudoSpherical)
    sampler: Sampler = field(default_factory=Mala)
    energy: Architecture = field(default_factory=Architecture)
    steps: int = option(4000, "updates of the energy")
    batch_size: int = option(256, "rows of data, and of samples, per update (over all processes)")
    lr: float = option(3e-3, "learning rate of Adam at its highest")
    schedule: str = option("cosine", "learning rate over the run: cosine (to 0) or constant")
    beta1: float = option(0.9, "Adam's memory of the gradient")
    stop: str = option("end", "end with the last update, or at a random one (randomised, Algorithm 2 of the paper)")
    clip: float | None = option(None, "largest norm of the parameter gradient; none: no limit")
    ema: float = option(0.999, "memory of the averaged weights, which are the ones kept")
    data_noise: float = option(0.0, "noise added to each data batch, in standard deviations")
    standardise: str = option("std", "columns to mean 0 and deviation 1 (std), or as they are (none)")
    buffer_size: int = option(10_000, "chains that persist between updates (over all processes)")
    restart: float = option(0.01, "fraction of the drawn chains that start afresh at each update")
    jump_components: int = option(32, "Gaussians in the proposal of the sampler's jumps")
    max_gap: float = option(50.0, "gap between the phases' median energies that counts as running away")
    max_retries: int = option(5, "how often a run may roll back before it ends with an error")
    checkpoint_every: int = option(500, "updates between checkpoints")
    log_every: int = option(50, "updates between rows of metrics.jsonl")
    sample_steps: int = option(100, "sampler steps from the proposal to a sample, after training")
    seed: int = option(0, "the same seed gives the same result")

    def __post_init__(self) -> None:
        for name in ("n_data", "steps", "batch_size", "buffer_size", "checkpoint_every", "log_every", "sample_steps"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.lr > 0:
            raise UserError(f"lr must be positive, got {self.lr}")
        if not (0 <= self.restart <= 1 and 0 <= self.ema < 1 and 0 <= self.beta1 < 1):
            raise UserError("restart lies in [0, 1], ema and beta1 in [0, 1)")
        if self.data_noise < 0 or self.max_retries < 0 or self.jump_components < 1 or self.seed < 0:
            raise UserError("data_noise, max_retries and seed must not be negative, jump_components at least 1")
        if self.schedule not in SCHEDULES:
            raise UserError(f"schedule must be one of {', '.join(SCHEDULES)}, got {self.schedule!r}")
        if self.stop not in STOPS:
            raise UserError(f"stop must be one of {', '.join(STOPS)}, got {self.stop!r}")
        if self.standardise not in STANDARDISE:
            raise UserError(f"standardise must be one of {', '.join(STANDARDISE)}, got {self.standardise!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the kind of objective and of sampler stands beside their settings."""
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
        values = self.to_dict()
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
        """The settings in which two configurations differ, as `name: ours, theirs`."""
        ours, theirs = _flat(self.to_dict()), _flat(other.to_dict())
        names = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
        return [f"{name}: {ours.get(name)}, {theirs.get(name)}" for name in names]


# Classes that a configuration file may name.
KINDS: dict[str, Any] = {kind.__name__: kind for kind in (PseudoSpherical, Mala, Langevin)}


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def field_names(kind: type) -> tuple[str, ...]:
    """Names of a dataclass's fields."""
    return tuple(f.name for f in fields(kind))
