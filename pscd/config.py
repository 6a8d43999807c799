"""The settings of a run: one frozen dataclass, to JSON and back."""

import json
import math
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, Literal, Self

from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.extensions import is_path, loaded, path_of
from pscd.objectives import OBJECTIVES, Objective, PseudoSpherical
from pscd.sampling import SAMPLERS, Mala, Sampler
from pscd.types import check_types, checked, documented, option


def _at_least(settings: Any, least: int, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        _require(value is None or value >= least, f"{name} must be at least {least}, got {value}")


def _positive(settings: Any, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        _require(value is None or 0 < value < math.inf, f"{name} must be a positive number, got {value}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


@documented
@dataclass(frozen=True)
class ChainSettings:
    """Where the chains that draw negatives start, and how many persist.

    >>> ChainSettings(buffer_size=1000, restart=0.05).start
    'persistent'
    """

    buffer_size: int = option(10_000, "chains that persist between updates (over all processes)")
    start: Literal["persistent", "data", "short-run"] = option(
        "persistent", "start where they ended (persistent), at the data (CD-K) or afresh (short-run)", flag="chains"
    )
    base: Literal["gaussian", "box"] = option(
        "gaussian", "fresh chains start from a broad Gaussian, or evenly in the sampler's box (box)"
    )
    restart: float = option(0.01, "fraction of the persistent chains of a batch that start afresh at each update")
    jump_components: int = option(32, "Gaussians in the proposal of the sampler's jumps")
    sample_steps: int = option(100, "sampler steps from the proposal to a sample, after training")

    def __post_init__(self) -> None:
        check_types(self)
        _at_least(self, 1, "buffer_size", "jump_components", "sample_steps")
        _require(0 <= self.restart <= 1, f"restart must lie in [0, 1], got {self.restart}")


@documented
@dataclass(frozen=True)
class OptimizerSettings:
    """Adam, its schedule, and the average of the weights.

    >>> OptimizerSettings(lr=1e-3, schedule="constant").betas
    (0.9, 0.999)
    """

    lr: float = option(3e-3, "learning rate of Adam at its highest")
    schedule: Literal["cosine", "constant"] = option("cosine", "learning rate over the run: cosine (to 0) or constant")
    betas: tuple[float, float] = option((0.9, 0.999), "Adam's memory of the gradient and of its square")
    clip: float | None = option(None, "largest norm of the gradient of a network; none: no limit")
    ema: float = option(0.999, "memory of the averaged weights, which are the ones kept")
    stop: Literal["end", "randomised"] = option(
        "end", "end with the last update, or at a random one (randomised, Algorithm 2 of the paper)"
    )

    def __post_init__(self) -> None:
        check_types(self)
        _positive(self, "lr", "clip")
        valid = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        _require(valid, f"betas must be two numbers in [0, 1), got {self.betas}")
        _require(0 <= self.ema < 1, f"ema must lie in [0, 1), got {self.ema}")


@documented
@dataclass(frozen=True)
class GuardSettings:
    """When a run rolls back or gives up, and how often it saves and logs.

    >>> GuardSettings(checkpoint_every=100).max_retries
    5
    """

    max_gap: float = option(
        50.0, "gap between the phases' median energies that counts as running away (nats or spreads)"
    )
    max_retries: int = option(5, "how often a run may roll back before it ends with an error")
    checkpoint_every: int = option(500, "updates between checkpoints")
    log_every: int = option(50, "updates between rows of metrics.jsonl")

    def __post_init__(self) -> None:
        check_types(self)
        _positive(self, "max_gap")
        _at_least(self, 0, "max_retries")
        _at_least(self, 1, "checkpoint_every", "log_every")


@documented
@dataclass(frozen=True)
class RowSettings:
    """Which rows are learned from, and how they are prepared.

    >>> RowSettings("moon", n_data=1000).standardise
    'std'
    """

    data: str = option("", "a toy's name, a file or a folder of images; empty: rows in memory")
    columns: tuple[str, ...] | None = option(None, "columns of the file to use, by name (a,b,c); none: all")
    n_data: int = option(50_000, "training rows to draw, for toys")
    stream: Literal["auto", "yes", "no"] = option(
        "auto", "read rows while training (yes), hold them all in memory (no); auto: stream tables over 256 MB"
    )
    image_size: int | None = option(None, "side to scale the images of a folder to; none: as they are")
    data_noise: float = option(0.0, "noise added to each batch of rows, in standard deviations")
    standardise: Literal["std", "robust", "none"] = option(
        "std", "mean 0 and deviation 1 (std), median and quartiles with compressed tails (robust), or none"
    )
    start: Literal["none", "mixture", "glance"] = option(
        "none",
        "weigh rows first: a table by a robust mixture, which chains also jump to (mixture), images by their looks, "
        "copies once (glance)",
    )
    hold_out: float = option(
        0.0, "share of the rows that choose the update to keep, for a network that corrects a mixture"
    )
    idle_updates: int = option(
        0, "updates after which training ends if none of them is better by held-out rows; 0: never"
    )

    def __post_init__(self) -> None:
        check_types(self)
        _at_least(self, 1, "n_data", "image_size")
        _at_least(self, 0, "idle_updates")
        _require(0 <= self.hold_out < 1, f"hold_out must lie in [0, 1), got {self.hold_out}")
        _require(0 <= self.data_noise < math.inf, f"data_noise must be at least 0, got {self.data_noise}")


@documented
@dataclass(frozen=True)
class ComputeSettings:
    """How the network is computed.

    >>> ComputeSettings(precision="bfloat16").gradients
    'auto'
    """

    precision: Literal["float32", "bfloat16"] = option(
        "float32",
        "arithmetic of the network: float32, or bfloat16 on GPUs and processors that have it, which is quicker there",
    )
    gradients: Literal["auto", "eager", "plain"] = option(
        "auto", "in chains: the fastest (auto), by hand without C++ (eager), autograd (plain)"
    )

    def __post_init__(self) -> None:
        check_types(self)


GROUPS = {
    "energy": Architecture,
    "chains": ChainSettings,
    "optimizer": OptimizerSettings,
    "guard": GuardSettings,
    "rows": RowSettings,
    "compute": ComputeSettings,
}


@documented
@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a run computes. Two equal configurations give equal results.

    >>> config = TrainConfig(objective=PseudoSpherical(gamma=0.5), updates=1000)
    >>> config.changed({"sampler.n_steps": 8, "optimizer.lr": 1e-3}).sampler.n_steps
    8
    """

    updates: int = option(4000, "updates of the energy")
    batch_size: int = option(256, "rows of data, and of samples, per update (over all processes)")
    seed: int = option(0, "the same seed gives the same result")
    objective: Objective = option(PseudoSpherical, "what is minimised, with its settings")
    energy: Architecture = option(Architecture, "the network")
    sampler: Sampler = option(Mala, "the Markov chain that draws samples of the model")
    chains: ChainSettings = option(ChainSettings, "where chains start")
    optimizer: OptimizerSettings = option(OptimizerSettings, "Adam and its schedule")
    guard: GuardSettings = option(GuardSettings, "when to roll back, save and log")
    rows: RowSettings = option(RowSettings, "the data, and how it is prepared")
    compute: ComputeSettings = option(ComputeSettings, "how the network is computed")

    def __post_init__(self) -> None:
        check_types(self)
        for part, name, example in (("objective", "accepts_labels", PseudoSpherical), ("sampler", "low", Mala)):
            value = getattr(self, part)
            is_part = hasattr(value, name) and not isinstance(value, type)
            _require(is_part, f"{part} must be an instance such as pscd.{example.__name__}(), got {value!r}")
        _at_least(self, 1, "updates", "batch_size")
        _at_least(self, 0, "seed")
        box = (self.sampler.low, self.sampler.high)
        _require(
            self.chains.base != "box" or box == (0, 1), f"base box needs a sampler with low 0 and high 1, not {box}"
        )
        name, recovers = type(self.objective).__name__, self.objective.uses_levels
        accepts = self.objective.accepts_labels or not self.energy.classes
        _require(accepts, f"{name} takes no labels; set classes to 0")
        _require(
            isinstance(self.objective, NotLoaded) or bool(self.energy.levels) == recovers,
            f"{name} needs an energy with levels of noise; set levels"
            if recovers
            else f"{name} has no levels of noise; set levels to 0",
        )
        is_exact = not recovers or self.compute.precision == "float32"
        _require(is_exact, f"{name} computes in float32; set precision to float32")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; objective and sampler have their `kind` beside their settings.

        Returns:
            The inverse of `from_dict`.
        """
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
        return checked(cls, {name: _part(name, value) for name, value in values.items()})

    def changed(self, changes: dict[str, Any]) -> Self:
        """A copy with some settings replaced.

        Args:
            changes: new values by name, with dots: `{"updates": 10, "optimizer.lr": 1e-3, "sampler": Mala()}`.

        Returns:
            The copy.

        Raises:
            UserError: there is no such setting, or a value is out of range.
        """
        new: dict[str, Any] = {}
        inner: dict[str, dict[str, Any]] = {}
        for name, value in changes.items():
            part, dot, setting = name.partition(".")
            if part not in self.__dataclass_fields__:
                raise UserError(f"there is no setting {name!r}")
            whole = getattr(self, part)
            if dot:
                inner.setdefault(part, {})[setting] = value
            elif part in GROUPS and not isinstance(value, dict) and not is_dataclass(value):
                names = ", ".join(f"{part}.{setting}" for setting in _settings(whole))
                raise UserError(f"{part} is several settings; change one of {names}")
            else:
                new[part] = _part(part, value)
        for part, settings in inner.items():
            whole = new.get(part, getattr(self, part))
            known = _settings(whole)
            for setting in settings:
                if setting not in known and not (setting == "kind" and known):
                    raise UserError(f"there is no setting '{part}.{setting}': {type(whole).__name__} has no {setting}")
            values = {**known, **settings}
            new[part] = _part(part, values) if "kind" in values else checked(type(whole), values)
        return checked(type(self), {**_settings(self), **new})

    def differences(self, other: Self) -> list[str]:
        """The settings in which another configuration differs, as `name: ours asked, theirs there`."""
        ours, theirs = _flat(self.to_dict()), _flat(other.to_dict())
        names = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
        return [f"{name}: {ours.get(name)} asked, {theirs.get(name)} there" for name in names]


@dataclass(frozen=True)
class NotLoaded:
    """A custom objective or sampler whose module is not loaded, kept as its settings.

    A run can be scored without them; any other use raises an error that names the module to import.
    """

    kind: str  # import path of the class
    settings: dict[str, Any]  # as saved

    low = high = None
    accepts_labels, uses_levels = True, False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        loaded(self.kind)  # names the module to import
        raise UserError(f"{self.kind} was loaded too late; load the run again")


def _part(name: str, values: Any) -> Any:
    """A part of a configuration from its plain values; anything else is returned as it is."""
    if not isinstance(values, dict):
        return values
    if name in GROUPS:
        return checked(GROUPS[name], values)
    classes = map(type, OBJECTIVES.values()) if name == "objective" else SAMPLERS.values()
    known: dict[str, Any] = {kind.__name__: kind for kind in classes}
    settings = dict(values)
    kind = settings.pop("kind")
    if not is_path(kind):
        if kind not in known:
            raise UserError(f"there is no {kind!r}; there are: {', '.join(known)}")
        return checked(known[kind], settings)
    try:
        custom = loaded(kind)
    except UserError:
        return NotLoaded(kind, settings)
    # A file from elsewhere must not be able to call just anything importable.
    _require(is_dataclass(custom) and isinstance(custom, type), f"{kind} is not a dataclass of settings")
    return checked(custom, settings)


def _settings(part: Any) -> dict[str, Any]:
    """The settings of a dataclass by name; those of a class that is not loaded with their kind."""
    if isinstance(part, NotLoaded):
        return {"kind": part.kind, **part.settings}
    return {f.name: getattr(part, f.name) for f in fields(part)} if is_dataclass(part) else {}


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
