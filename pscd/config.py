"""The settings of a run: one frozen dataclass, to JSON and back."""

import json
import math
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Literal, Self

from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.extensions import is_path, loaded, path_of
from pscd.objectives import OBJECTIVES, Objective, PseudoSpherical
from pscd.sampling import SAMPLERS, Mala, Sampler
from pscd.types import check_choices, checked, documented, option

# Added later. Omitted from `to_dict` at their default, so that old run folders still resume and cached results keep
# their digest.
LATER = {
    "chains": "persistent",
    "gradients": "auto",
    "base": "gaussian",
    "precision": "float32",
    "image_size": None,
    "energy.classes": 0,
    "objective.unit": "nats",
    "start": "none",
    "hold_out": 0.0,
    "idle_steps": 0,
    "energy.bound": None,
    "energy.levels": 0,
    "energy.least_noise": 0.05,
    "energy.most_noise": 3.2,
    "stream": "auto",
    "sampler.slope": 0.0,
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


@documented
@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a run computes. Two equal configurations give equal results.

    >>> config = TrainConfig(objective=PseudoSpherical(gamma=0.5), steps=1000)
    >>> config.changed({"sampler.n_steps": 8}).sampler.n_steps
    8
    """

    data: str = option("", "a toy's name, a file or a folder of images; empty: rows given in memory", group="data")
    columns: tuple[str, ...] | None = option(
        None, "columns of the file to use, by name (a,b,c); none: all", group="data"
    )
    n_data: int = option(50_000, "training rows to draw, for toys", group="data")
    stream: Literal["auto", "yes", "no"] = option(
        "auto",
        "read rows while training (yes), hold them all in memory (no); auto: stream tables over 256 MB",
        group="data",
    )
    image_size: int | None = option(None, "side to scale the images of a folder to; none: as they are", group="data")
    objective: Objective = option(PseudoSpherical, "what is minimised, with its settings", group="objective")
    sampler: Sampler = option(Mala, "the Markov chain that draws samples of the model", group="sampler")
    energy: Architecture = option(Architecture, "the network", group="energy")
    steps: int = option(4000, "updates of the energy", group="optimisation")
    batch_size: int = option(256, "rows of data, and of samples, per update (over all processes)", group="optimisation")
    lr: float = option(3e-3, "learning rate of Adam at its highest", group="optimisation")
    schedule: Literal["cosine", "constant"] = option(
        "cosine", "learning rate over the run: cosine (to 0) or constant", group="optimisation"
    )
    beta1: float = option(0.9, "Adam's memory of the gradient", group="optimisation")
    stop: Literal["end", "randomised"] = option(
        "end",
        "end with the last update, or at a random one (randomised, Algorithm 2 of the paper)",
        group="optimisation",
    )
    clip: float | None = option(None, "largest norm of the gradient of a network; none: no limit", group="optimisation")
    ema: float = option(0.999, "memory of the averaged weights, which are the ones kept", group="optimisation")
    data_noise: float = option(0.0, "noise added to each data batch, in standard deviations", group="data")
    standardise: Literal["std", "robust", "none"] = option(
        "std", "mean 0 and deviation 1 (std), median and quartiles with tails drawn in (robust), or none", group="data"
    )
    start: Literal["none", "mixture", "glance"] = option(
        "none",
        "weigh rows first: a table by a robust mixture, to whose draws chains jump (mixture), images by their looks, "
        "copies once (glance)",
        group="data",
    )
    hold_out: float = option(
        0.0, "share of the rows that choose the update to keep, for a network that corrects a mixture", group="data"
    )
    idle_steps: int = option(
        0,
        "updates after which training ends if held-out rows have found none of them better; 0: never",
        group="optimisation",
    )
    buffer_size: int = option(10_000, "chains that persist between updates (over all processes)", group="chains")
    chains: Literal["persistent", "data", "short-run"] = option(
        "persistent", "start where they ended (persistent), at the data (CD-K) or afresh (short-run)", group="chains"
    )
    base: Literal["gaussian", "box"] = option(
        "gaussian", "fresh chains start from a broad Gaussian, or evenly in the sampler's box (box)", group="chains"
    )
    restart: float = option(
        0.01, "fraction of the drawn persistent chains that start afresh at each update", group="chains"
    )
    precision: Literal["float32", "bfloat16"] = option(
        "float32",
        "arithmetic of the network: float32, or bfloat16 on GPUs and processors that have it, which is quicker there",
        group="energy",
    )
    jump_components: int = option(32, "Gaussians in the proposal of the sampler's jumps", group="chains")
    max_gap: float = option(
        50.0, "gap between the phases' median energies that counts as running away (nats or spreads)", group="guard"
    )
    max_retries: int = option(5, "how often a run may roll back before it ends with an error", group="guard")
    checkpoint_every: int = option(500, "updates between checkpoints", group="guard")
    log_every: int = option(50, "updates between rows of metrics.jsonl", group="guard")
    sample_steps: int = option(100, "sampler steps from the proposal to a sample, after training", group="chains")
    gradients: Literal["auto", "eager", "plain"] = option(
        "auto", "in chains: the fastest (auto), by hand without C++ (eager), autograd (plain)", group="chains"
    )
    seed: int = option(0, "the same seed gives the same result", group="data")

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
        for name in ("max_retries", "idle_steps"):
            _require(getattr(self, name) >= 0, f"{name} must be at least 0, got {getattr(self, name)}")
        _require(self.seed >= 0, f"seed must be at least 0, got {self.seed}")
        check_choices(self)
        box = (self.sampler.low, self.sampler.high)
        _require(self.base != "box" or box == (0, 1), f"base box needs a sampler with low 0 and high 1, not {box}")
        _require(
            self.objective.accepts_labels or not self.energy.classes,
            "f-ebm and nce know no labels; set --classes 0",
        )
        recovers = self.objective.uses_levels
        _require(
            isinstance(self.objective, NotLoaded) or bool(self.energy.levels) == recovers,
            "recovery needs an energy with levels of noise, and no other objective has one; "
            + ("set --levels" if recovers else "set --levels 0"),
        )
        _require(not recovers or self.precision == "float32", "recovery computes in float32; set --precision float32")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; objective and sampler have their `kind` beside their settings.

        Returns:
            The inverse of `from_dict`.
        """
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
            part = getattr(self, name)
            settings = part.settings if isinstance(part, NotLoaded) else values[name]
            values[name] = {"kind": part.kind if isinstance(part, NotLoaded) else path_of(type(part)), **settings}
        return json.loads(json.dumps(values))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_dict`.

        Args:
            values: what `to_dict` returned.

        Returns:
            The configuration.

        Raises:
            UserError: a setting is of another type, or out of range.
        """
        values = dict(values)
        for name, known in (("objective", map(type, OBJECTIVES.values())), ("sampler", SAMPLERS.values())):
            settings = dict(values[name])
            values[name] = _part(settings.pop("kind"), settings, {kind.__name__: kind for kind in known})
        values["energy"] = checked(Architecture, values["energy"])
        if isinstance(values["columns"], list):  # as JSON has it
            values["columns"] = tuple(values["columns"])
        return checked(cls, values)

    def changed(self, changes: dict[str, Any]) -> Self:
        """A copy with some settings replaced.

        Args:
            changes: new values by name, with dots: `{"steps": 10, "sampler.n_steps": 3}`.

        Returns:
            The copy.

        Raises:
            UserError: there is no such setting, or a value is out of range.
        """
        values = self._all()
        for name, value in changes.items():
            *path, last = name.split(".")
            inner: Any = values
            for part in path:
                inner = inner.get(part) if isinstance(inner, dict) else None
            if not isinstance(inner, dict) or last not in inner:
                raise UserError(f"there is no setting {name!r}")
            if isinstance(inner[last], dict) and not isinstance(value, dict):
                raise UserError(
                    f"{name} is several settings; change one of {', '.join(f'{name}.{k}' for k in inner[last])}"
                )
            inner[last] = value
        return self.from_dict(values)

    def differences(self, other: Self) -> list[str]:
        """The settings in which another configuration differs, as `name: ours asked, theirs there`."""
        ours, theirs = _flat(self._all()), _flat(other._all())
        names = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
        return [f"{name}: {ours.get(name)} asked, {theirs.get(name)} there" for name in names]


@dataclass(frozen=True)
class NotLoaded:
    """A user-defined objective or sampler whose module could not be imported, kept as its settings.

    Evaluating energies needs neither, so a run can be read without them; using it says what to import.

    Args:
        kind: import path of the class.
        settings: as saved.
    """

    kind: str
    settings: dict[str, Any]

    low = high = None
    accepts_labels, uses_levels = True, False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        loaded(self.kind)  # says what to import
        raise UserError(f"{self.kind} was loaded too late; load the run again")


def _part(kind: str, settings: dict[str, Any], known: dict[str, Any]) -> Any:
    """The objective or sampler that a configuration names."""
    if not is_path(kind):
        if kind not in known:
            raise UserError(f"there is no {kind!r}; there are: {', '.join(known)}")
        return checked(known[kind], settings)
    try:
        found = loaded(kind)
    except UserError:
        return NotLoaded(kind, settings)
    # A file from a stranger must not be able to call just anything importable.
    _require(is_dataclass(found) and isinstance(found, type), f"{kind} is not a dataclass of settings")
    return checked(found, settings)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
