"""Train an energy on a toy, a table or images, then measure and draw it.

A table of your own needs no flags: a network corrects a robust mixture, gamma
is chosen from the rows, and log densities are exact or have a known error.
Folders of pictures have a recipe, too.

Examples:
  pscd train my.csv --out runs/my
  pscd train moon --gamma 1 --updates 2000 --set sampler.n_steps=8
"""

import argparse
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli import flags
from pscd.cli.output import draw, is_first_process, measure, say
from pscd.cli.reading import device
from pscd.errors import UserError
from pscd.extensions import is_path, load

if TYPE_CHECKING:
    from pscd.config import TrainConfig
    from pscd.data import Dataset
    from pscd.model import Model

# The settings that have flags of their own; --set changes the others.
FLAGS = {
    "--updates": "updates",
    "--batch-size": "batch_size",
    "--lr": "optimizer.lr",
    "--seed": "seed",
    "--gamma": "objective.gamma",
}
# What the trainer calls, to report early that an objective was given for a sampler or that a method is missing.
PROTOCOLS = {
    "objective": (
        "needs_negatives",
        "sampling_power",
        "accepts_labels",
        "uses_levels",
        "gamma",
        "init",
        "at",
        "__call__",
    ),
    "sampler": ("n_steps", "step_size", "low", "high", "slope", "run", "adapt"),
}


def add_flags(parser: flags.Parser) -> None:
    """Add the flags of `pscd train`."""
    from pscd.config import TrainConfig
    from pscd.objectives import OBJECTIVES
    from pscd.recipes.configs import RECIPES
    from pscd.sampling import SAMPLERS

    parser.add_argument(
        "data",
        metavar="DATA",
        nargs="?",
        help="a table, a folder of pictures or of Parquet files, a toy (moon, rings, swiss_roll, mog, funnel, "
        "cosine ...), digits, or your own toy as package.module:toy",
    )
    parser.add_argument(
        "--out", type=Path, metavar="RUN", help="run folder (default: runs/NAME); a run that was stopped there resumes"
    )
    group = parser.add_argument_group("settings (default: those of the recipe for the data)")
    flags.add_columns(group)
    flags.add_settings(group, TrainConfig, FLAGS)
    group.add_argument("--recipe", metavar="NAME", help=f"start from another recipe: {', '.join(RECIPES)}")
    group.add_argument(
        "--objective", metavar="NAME", help=f"{', '.join(OBJECTIVES)}, or your own as package.module:Name"
    )
    group.add_argument("--sampler", metavar="NAME", help=f"{', '.join(SAMPLERS)}, or your own as package.module:Name")
    group.add_argument(
        "--set",
        dest="settings",
        type=flags.parse_setting,
        action=flags.Extend,
        default={},
        metavar="NAME=VALUE",
        help="any other setting, such as sampler.n_steps=10; repeatable",
    )
    group.add_argument("--help-all", action="store_true", help="list every setting with its value and exit")
    more = parser.add_argument_group("output")
    more.add_argument("--tensorboard", action="store_true", help="write TensorBoard logs too")
    more.add_argument(
        "--measure", type=int, metavar="N", help="samples to measure and draw (default: 10000, of images 2000; 0: none)"
    )
    flags.add_machine(parser).add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="with torchrun: a process that does not answer for so long counts as lost (default: 600)",
    )


def run(args: argparse.Namespace) -> None:
    """Train, measure and draw."""
    from pscd.config import TrainConfig
    from pscd.runs import load_config_data, train_model

    if args.help_all:
        say(f"settings (pscd train DATA --set NAME=VALUE):\n{flags.settings_help(_base(args, None))}")
        return
    if args.data is None:
        raise UserError("give the data to train on: a file, a folder or a toy such as moon (see pscd train --help)")
    config_from(args, None)  # refuses mistakes before the data are read
    where = device(args.device)
    data = load_config_data(TrainConfig().changed(_rows(args)))
    config = config_from(args, tuple(data.train.shape[1:]))
    if is_first_process():
        for note in data.notes:
            say(f"note: {note}")
    out = args.out or Path("runs") / name_of_run(config.rows.data)
    model = train_model(config, out, data=data, device=where, tensorboard=args.tensorboard, timeout=args.timeout)
    if is_first_process():
        _finish(args, model, data, out)


def _rows(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that decide which data are read: the recipe depends on them."""
    from pscd.config import TrainConfig

    texts = args.settings | ({"seed": vars(args)["seed"]} if "seed" in vars(args) else {})
    found = flags.read_settings(
        TrainConfig(), {n: text for n, text in texts.items() if n == "seed" or n[:5] == "rows."}
    )
    return {"rows.data": args.data, **found} | ({} if args.columns is None else {"rows.columns": args.columns})


def config_from(args: argparse.Namespace, shape: tuple[int, ...] | None) -> "TrainConfig":
    """The configuration that the flags describe, for rows of this shape, as far as it is known."""
    base = _base(args, shape)
    given = vars(args)
    texts = {name: given[name] for name in FLAGS.values() if name in given} | args.settings
    changes = flags.read_settings(base, texts)
    if args.objective == "cd" and changes.get("objective.gamma", 0) != 0:
        raise UserError("--objective cd is gamma 0; for another gamma use --objective ps-cd")
    if base.energy.name == "corrected" != changes.get("energy.name", "corrected"):
        # What was made for a network that corrects a mixture.
        changes = {"rows.hold_out": 0.0, **changes}
        if getattr(base.objective, "negatives", None) == "importance":
            changes = {"objective.negatives": "auto", **changes}
    try:
        return base.changed(_rows(args)).changed(changes)
    except UserError as error:
        hint = "; pscd train --help-all lists them" if "there is no setting" in str(error) else ""
        raise UserError(f"{error}{hint}") from None


def _base(args: argparse.Namespace, shape: tuple[int, ...] | None) -> "TrainConfig":
    """The recipe for rows of this shape with the objective and sampler chosen, before any other setting."""
    from pscd.config import TrainConfig
    from pscd.data import TOYS
    from pscd.objectives import OBJECTIVES, name_of
    from pscd.recipes.configs import for_data, for_rows, recipe, recovering
    from pscd.sampling import SAMPLERS

    if args.data and is_path(args.data) and not Path(args.data).exists():
        load(args.data)
    objective = args.objective and find_part("objective", args.objective, OBJECTIVES)
    data = "" if args.data is None or args.data in TOYS else args.data  # a folder may be called moon, too
    n_columns = shape[0] if shape is not None and len(shape) == 1 else None
    base = recipe(args.recipe) if args.recipe else for_data(data, n_columns)
    if not args.recipe and shape is not None and len(shape) == 3 and Path(data).is_file():
        base = for_rows(shape)
    if {args.objective, name_of(base.objective)} <= {"cd", "ps-cd"}:
        # The same objective, at gamma 0 for cd: its other settings are those of the recipe.
        base = base.changed({"objective.gamma": 0.0}) if args.objective == "cd" else base
    elif objective and objective.uses_levels:
        base = base if base.objective.uses_levels else recovering(base)
    elif objective:
        # A robust start is made for the gamma-score; other objectives begin from the plain defaults.
        base = TrainConfig() if base.rows.start == "mixture" else base
        base = replace(base, objective=objective, energy=replace(base.energy, classes=0, levels=0))
    return replace(base, sampler=find_part("sampler", args.sampler, dict(SAMPLERS))) if args.sampler else base


def find_part(role: str, word: str, table: dict[str, Any]) -> Any:
    """An objective or a sampler by its name in `table` or by its import path, with its defaults."""
    if word not in table and not is_path(word):
        own = "or package.module:Name for your own"
        raise UserError(f"unknown {role} {word!r}; there are: {', '.join(table)}; {own}")
    part = table[word] if word in table else load(word)
    try:
        part = part() if isinstance(part, type) else part
    except TypeError as error:
        raise UserError(f"{word}: every field needs a default ({error})") from None
    missing = [name for name in PROTOCOLS[role] if not hasattr(part, name)]
    if not is_dataclass(part) or missing:
        what = f"it has no {missing[0]}" if missing else "it is not a dataclass"
        raise UserError(f"{word} cannot be used as {role}: {what}")
    return part


def _finish(args: argparse.Namespace, model: "Model", data: "Dataset", out: Path) -> None:
    """Report how the run went, measure it and draw it."""
    from pscd import fast

    seconds = fast.compiled_in()
    compiled = "" if seconds is None else f" compiled in {seconds:.1f} s, and kept for later"
    say(f"gradients of chains: {model.gradients}{compiled}")
    for sentence in (*model.notes, *diagnostics(out)):
        say(f"diagnostics: {sentence}")
    n = args.measure if args.measure is not None else 2000 if model.is_image else 10_000
    if n > 0:
        samples = model.sample(n, progress=model.is_image)
        try:
            measure(model, out, samples, n=n, data=data)
        except UserError as error:  # too few rows to measure by are no reason to lose the picture
            say(f"not measured: {error}")
        draw(model, data.train, samples, out / "plot.png")
    say(f"run: {out}")


def name_of_run(data: str) -> str:
    """The folder in `runs` for data, if `--out` is not given.

    >>> name_of_run("tables/my.csv"), name_of_run("mypackage.toys:pinwheel")
    ('my', 'pinwheel')
    """
    return data.rpartition(":")[2] if is_path(data) else Path(data).stem


def diagnostics(run: Path) -> list[str]:
    """What the log of a run shows: sentences; none if nothing was logged."""
    from pscd.run_folder import RunFolder
    from pscd.training.guard import diagnose

    rows = RunFolder(run).read_metrics()
    return diagnose(rows, retries=int(rows[-1].get("retries", 0))) if rows else []
