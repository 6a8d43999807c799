"""The command `train`: every setting of a configuration is a flag.

Which flags there are depends on the objective and the sampler, and their defaults on the data. The words are therefore
parsed twice: first by a parser that knows every flag there could be, for the choices alone, then by the real one.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.common import (
    Command,
    Parser,
    add_device,
    add_import,
    device,
    first_use,
    is_first_process,
    load_model,
    parse_names,
)
from pscd.cli.flags import add_fields, flag_name, options
from pscd.cli.images import N_MEASURED
from pscd.cli.runs import N_POINTS, evaluate_into, plot_into
from pscd.errors import UserError
from pscd.extensions import import_module, is_path, load

if TYPE_CHECKING:
    from pscd.config import TrainConfig

# What `--help` shows: the flags that people change. `--help-all` shows the rest.
COMMON = {
    "config": {"columns", "steps", "batch_size", "lr", "seed"},
    "objective": {"gamma"},
    "sampler": set[str](),
    "energy": {"name", "width", "depth"},
}
# What the trainer asks of either, to notice in time that one was given for the other or that something is missing.
PROTOCOLS = {
    "objective": ("needs_negatives", "sampling_power", "accepts_labels", "uses_levels", "init", "at", "__call__"),
    "sampler": ("n_steps", "step_size", "low", "high", "slope", "run", "adapt"),
}
ABOUT = """

A table of your own needs no flags: a robust mixture is corrected by a network,
gamma is chosen from the rows, and log densities are exact or have a known
error. Sets of images and folders of pictures have settings of their own, too.
`pscd train my.csv --help` shows the defaults for a file; without one they are
those for toys.
"""
EXAMPLES = """\
  pscd train my.csv --out runs/my
  pscd train moon --gamma 1 --out runs/moon
  pscd train my.csv --columns height,weight --gamma 0.5 --steps 2000
  pscd train digits --objective cd
  pscd train --objective nce --help                  the flags of an objective
  pscd train moon --objective mypackage.mine:Mine    an objective of your own"""


def add_train(parser: Parser) -> None:
    """Add the flags of `pscd train`, for the objective, sampler and data that its words choose.

    Args:
        parser: the command's parser.

    Raises:
        UserError: there is no objective or sampler of the name given.
    """
    from pscd.data import TOYS

    parser.usage, parser.allow_abbrev = "pscd train DATA [flags]", False
    chosen = choices_in(parser.words, parser)
    base = starting_config(chosen)
    parser.set_defaults(base=base)
    show_all = chosen.help_all

    parser.add_argument("--help-all", action="help", help="show every flag and exit")
    data = parser.add_argument_group("data")
    data.add_argument(
        "data",
        metavar="DATA",
        help="a file (.csv, .parquet, .npy, .npz), a folder of images or of Parquet files, a toy "
        f"({', '.join(name for name in TOYS if not name.startswith('contaminated'))} ...), digits, or a "
        "toy of your own as package.module:toy",
    )
    objective = parser.add_argument_group(f"objective {chosen.objective or 'ps-cd'}")
    sampler = parser.add_argument_group(f"sampler {chosen.sampler or _name_of(base.sampler)}")
    _add_choosing(parser, objective, sampler, show_all=show_all)

    def add(group: Any, role: str, instance: Any, **more: Any) -> None:
        named = getattr(chosen, role, None) is not None  # who names an objective wants to see its flags
        add_fields(group, instance, role, shown=None if show_all or named else COMMON[role], **more)

    energy = parser.add_argument_group("energy")
    groups: dict[str, Any] = {"data": data, "energy": energy}
    for setting in options(base):
        title = setting.metadata["group"]
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        if setting.name != "data":
            add(groups[title], "config", base, only=(setting.name,))
    add(energy, "energy", base.energy)
    add(sampler, "sampler", base.sampler, prefix="sampler-")
    add(objective, "objective", base.objective)


def _add_choosing(parser: Any, objective: Any, sampler: Any, *, show_all: bool) -> None:
    """The flags that are not settings, and those that choose what other flags there are."""
    from pscd.objectives import OBJECTIVES
    from pscd.presets import PRESETS

    def rare(text: str) -> str:
        return text if show_all else argparse.SUPPRESS

    parser.add_argument("--out", type=Path, metavar="RUN", help="run folder (default: runs/NAME); a run there goes on")
    parser.add_argument(
        "--preset", metavar="NAME", help=f"settings to start from (default: those for the data): {', '.join(PRESETS)}"
    )
    add_device(parser)
    parser.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help=rare("with torchrun: a process that keeps the others waiting so long counts as lost (default: 600)"),
    )
    parser.add_argument("--tensorboard", action="store_true", help=rare("write TensorBoard logs too"))
    add_import(parser, help=rare("module of your own to import first; repeatable"))
    objective.add_argument(
        "--objective",
        metavar="NAME",
        help=f"what to minimise: {', '.join(OBJECTIVES)}, or one of your own as package.module:Name (default: ps-cd)",
    )
    sampler.add_argument(
        "--sampler",
        metavar="NAME",
        help=f"Markov chain: {', '.join(_samplers())}, or one of your own as package.module:Name "
        "(default: mala; for images langevin)",
    )


def choices_in(words: Sequence[str], parser: Parser) -> argparse.Namespace:
    """What the words choose: data, preset, objective, sampler. Modules of one's own that they name are imported.

    Args:
        words: what follows `train` on the command line.
        parser: the one that reports a flag without its value.

    Returns:
        A namespace with `data`, `preset`, `objective`, `sampler` (words), `parts` (objective and sampler, or None, by
        role) and `help_all`.

    Raises:
        UserError: there is no such objective or sampler.
    """
    from pscd.objectives import OBJECTIVES

    chosen = _scout(words, parser, ())
    for module in chosen.imports:
        import_module(module)
    parts = {
        "objective": chosen.objective and find_part("objective", chosen.objective, OBJECTIVES),
        "sampler": chosen.sampler and find_part("sampler", chosen.sampler, _samplers()),
    }
    # Now that flags of one's own are known, so are their values, and what is left is the data.
    chosen = _scout(words, parser, [(role, part) for role, part in parts.items() if part])
    if chosen.data and is_path(chosen.data) and not Path(chosen.data).exists():
        load(chosen.data)
    chosen.parts = parts
    return chosen


def _scout(words: Sequence[str], parser: Parser, own: Sequence[tuple[str, Any]]) -> argparse.Namespace:
    """Parse the words with every flag there could be: of all objectives and samplers, and of one's `own`."""
    scout = Parser(add_help=False, allow_abbrev=False, exit_on_error=False)
    scout.add_argument("-h", "--help", action="store_true")
    scout.add_argument("--help-all", action="store_true")
    scout.add_argument("data", nargs="?")
    _add_choosing(scout, scout, scout, show_all=False)
    for flag in every_flag(own):
        scout.add_argument(flag)
    try:
        return scout.parse_known_args(list(words))[0]
    except argparse.ArgumentError as error:
        parser.error(str(error))


def every_flag(own: Sequence[tuple[str, Any]] = ()) -> list[str]:
    """The flags of all objectives, samplers and other settings there are.

    Args:
        own: parts of one's own, with their roles.

    Returns:
        The flags, sorted.
    """
    return sorted({flag for role, part in (*_built_in(), *own) for flag in _flags_of(role, part)})


def _built_in() -> Iterator[tuple[str, Any]]:
    from pscd.config import TrainConfig
    from pscd.objectives import OBJECTIVES

    yield "config", TrainConfig()
    yield "energy", TrainConfig().energy
    yield from (("objective", objective) for objective in OBJECTIVES.values())
    yield from (("sampler", sampler()) for sampler in _samplers().values())


def _flags_of(role: str, part: Any) -> Iterator[str]:
    for f in options(part):
        yield flag_name(f, "sampler-" if role == "sampler" else "")
        yield flag_name(f, f"{role}-")


def _samplers() -> dict[str, Any]:
    from pscd.sampling import SAMPLERS

    return dict(SAMPLERS)


def _name_of(sampler: Any) -> str:
    return next((name for name, kind in _samplers().items() if type(sampler) is kind), type(sampler).__name__)


def find_part(role: str, word: str, table: dict[str, Any]) -> Any:
    """An objective or a sampler by its name, or by its import path.

    Args:
        role: `objective` or `sampler`.
        word: what a person typed.
        table: those of the library, by name.

    Returns:
        An instance with its defaults.

    Raises:
        UserError: there is none of that name, or what the path names is none.
    """
    if word not in table and not is_path(word):
        own = "or package.module:Name for one of your own"
        raise UserError(f"unknown {role} {word!r}; there are: {', '.join(table)}; {own}")
    found = table[word] if word in table else load(word)
    try:
        part = found() if isinstance(found, type) else found
    except TypeError as error:
        raise UserError(f"{word}: every field needs a default ({error})") from None
    missing = [name for name in PROTOCOLS[role] if not hasattr(part, name)]
    if not is_dataclass(part) or missing:
        what = f"it has no {missing[0]}" if missing else "it is not a dataclass"
        article = "an" if role == "objective" else "a"
        raise UserError(f"{word} is not {article} {role}: {what}")
    return part


def starting_config(chosen: argparse.Namespace) -> "TrainConfig":
    """What flags change: the preset, or that of the data if they have one, with the objective and sampler chosen.

    Args:
        chosen: what `choices_in` returned.

    Returns:
        The configuration before any other flag.

    Raises:
        UserError: there is no such preset.
    """
    from pscd.config import TrainConfig
    from pscd.data import TOYS
    from pscd.objectives import name_of
    from pscd.presets import default_preset, preset, recovering

    data = "" if chosen.data is None or chosen.data in TOYS else chosen.data  # a folder may be called moon, too
    base = preset(chosen.preset) if chosen.preset else default_preset(data, _n_columns(data, chosen.columns))
    objective, sampler = chosen.parts["objective"], chosen.parts["sampler"]
    if {chosen.objective, name_of(base.objective)} <= {"cd", "ps-cd"}:
        # The same objective, at gamma 0 for cd: what else the preset says of it stays.
        base = base.changed({"objective.gamma": 0.0}) if chosen.objective == "cd" else base
    elif objective and objective.uses_levels:
        base = base if base.objective.uses_levels else recovering(base)
    elif objective:
        # A robust start is made for the gamma-score; other objectives begin from the plain defaults.
        base = TrainConfig() if base.start == "mixture" else base
        base = replace(base, objective=objective, energy=replace(base.energy, classes=0, levels=0))
    return replace(base, sampler=sampler) if sampler else base


def _n_columns(data: str, columns: str | None) -> int | None:
    """How many columns of a file are learnt from; None where that cannot be told without reading it."""
    from pscd.data.tables import count_columns

    try:
        return len(parse_names(columns)) if columns else count_columns(Path(data))
    except argparse.ArgumentTypeError:  # the parser of all flags will say so
        return None


def config_from(args: argparse.Namespace) -> "TrainConfig":
    """The configuration that the flags of `train` describe.

    Args:
        args: what the parser made of the words.

    Returns:
        The configuration.

    Raises:
        UserError: a value is out of its range, or flags contradict each other.
    """
    base: TrainConfig = args.base
    given: dict[str, dict[str, Any]] = {role: {} for role in COMMON}
    for name, value in vars(args).items():
        role, dot, field = name.partition(".")
        if dot:
            given[role][field] = value
    if args.objective == "cd" and given["objective"].get("gamma", 0.0) != 0:
        raise UserError("--objective cd is gamma 0; for another gamma use --objective ps-cd")
    parts: dict[str, Any] = {
        role: replace(getattr(base, role), **given[role]) for role in ("objective", "sampler", "energy")
    }
    if base.energy.name == "corrected" != parts["energy"].name:  # what was made for a network that corrects a mixture
        given["config"].setdefault("hold_out", 0.0)
        if getattr(parts["objective"], "negatives", None) == "importance" and "negatives" not in given["objective"]:
            parts["objective"] = replace(parts["objective"], negatives="auto")
    return replace(base, data=args.data, **given["config"], **parts)


def run_train(args: argparse.Namespace) -> None:
    """Train, measure and draw.

    Args:
        args: the flags.

    Raises:
        UserError: the flags or the data are no good.
        Diverged: training ran away, and the retries are used up.
    """
    from pscd.runs import train

    config = config_from(args)
    out = args.out or Path("runs") / name_of_run(config.data)
    train(config, out, device=device(args.device), tensorboard=args.tensorboard, timeout=args.timeout)
    if is_first_process():
        finish(out, args.device)


def finish(out: Path, where: str) -> None:
    """Say how a run went, measure it and draw it.

    Args:
        out: the run folder.
        where: name of the device.
    """
    model = load_model(out, where)
    print(f"gradients of chains: {model.gradients}{first_use()}")
    for sentence in (*model.notes, *verdict_on(out)):
        print(f"verdict: {sentence}")
    samples = model.sample(N_MEASURED if model.is_image else N_POINTS, progress=model.is_image)
    try:
        evaluate_into(model, out, n=len(samples), seed=0, samples=samples)
    except UserError as error:  # too few rows to measure by are no reason to lose the picture
        print(f"not measured: {error}")
    print(f"picture: {plot_into(model, samples, out / 'plot.png')}")
    print(f"run: {out}")


def name_of_run(data: str) -> str:
    """The folder in `runs` for data, if `--out` is not given.

    Args:
        data: a file, a folder, a name or an import path.

    Returns:
        The name without folder and ending.

    >>> name_of_run("tables/my.csv"), name_of_run("mypackage.toys:pinwheel")
    ('my', 'pinwheel')
    """
    return data.rpartition(":")[2] if is_path(data) else Path(data).stem


def verdict_on(run: Path) -> list[str]:
    """What the log of a run says about it.

    Args:
        run: the run folder.

    Returns:
        Sentences; none if nothing was logged.
    """
    from pscd.run_folder import RunFolder
    from pscd.training.guard import verdict

    rows = RunFolder(run).read_metrics()
    return verdict(rows, retries=int(rows[-1].get("retries", 0))) if rows else []


TRAIN = Command("train an energy on a toy, a table or images", add_train, run_train, EXAMPLES, ABOUT)
