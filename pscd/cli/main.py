"""The command line. Flags of `train` are read off the configuration's dataclasses.

argparse and not a generator of command lines: objective and sampler are chosen by a word, and every
mistake is told in one line.
"""

import argparse
import json
import os
import sys
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pscd import __version__
from pscd.cli import bench as cli_bench
from pscd.cli import data as cli_data
from pscd.cli import images as cli_images
from pscd.cli import tables as cli_tables
from pscd.cli.common import Parser, add_out, add_run, check_out, command, device, parse_names, write
from pscd.config import TrainConfig
from pscd.data import TOYS
from pscd.errors import Diverged, UserError
from pscd.evaluation import Measurement, evaluate, evaluate_images, load_run_data
from pscd.images import grids
from pscd.model import Model
from pscd.objectives import OBJECTIVES, PseudoSpherical
from pscd.presets import DEFAULT_OF, PRESETS, default_preset
from pscd.run_folder import RunFolder
from pscd.runs import load, train
from pscd.sampling import SAMPLERS
from pscd.training import checkpoint
from pscd.training.guard import verdict

DESCRIPTION = """\
Train energy-based models on data that are not clean, then sample and score with them.

  pscd train moon --gamma 1 --out runs/moon     a toy, to see it work
  pscd fit my.csv --out runs/my                 your own table, junk included: who is strange, and why
  pscd score runs/my new.csv --out scores.csv   the higher the energy, the stranger the row
  pscd sample runs/my --n 1000 --out new.csv
  pscd train my.csv --out runs/full             an energy of your own choosing: every setting is a flag
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0 well, 1 training diverged, 2 bad input."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser(argv)
    args = parser.parse_args(argv)
    try:
        threads = getattr(args, "threads", None)
        if threads is not None:
            if threads < 1:
                raise UserError(f"--threads must be at least 1, got {threads}")
            torch.set_num_threads(threads)
        args.command(args)
    except (UserError, Diverged) as error:
        if _is_first():
            print(f"pscd: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    except KeyboardInterrupt:
        print("pscd: stopped; train and reproduce go on with the same command, others start again", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 0


def build_parser(argv: Sequence[str]) -> Parser:
    """The parser for these arguments: which flags `train` has depends on its objective and sampler."""
    parser = Parser("pscd", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"pscd {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_train(commands, argv)
    _add_sample(commands)
    cli_tables.add_fit(commands)
    cli_tables.add_score(commands)
    _add_evaluate(commands)
    _add_plot(commands)
    cli_images.add_strip(commands)
    cli_images.add_mend(commands)
    cli_data.add_data(commands)
    _add_reproduce(commands)
    cli_bench.add_bench(commands)
    return parser


# --- train ---


def _add_train(commands: Any, argv: Sequence[str]) -> None:
    parser = command(commands, "train", _train, "train an energy on a toy or on a file of your own")
    parser.add_argument(
        "data",
        help=f"a file (.csv, .parquet, .npy, .npz), a toy ({', '.join(TOYS)}), images by name (see pscd data) "
        "or a folder of images",
    )
    parser.add_argument("--out", type=Path, help="run folder (default: runs/NAME); a run there goes on")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 ... (default: cpu)")
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard logs too")
    choose = Parser(add_help=False, exit_on_error=False)
    for target in (parser, choose):
        target.add_argument(
            "--preset", choices=PRESETS, help="settings to start from, for images (default: those for the data)"
        )
        target.add_argument("--objective", choices=OBJECTIVES, help="what to minimise (default: ps-cd)")
        target.add_argument("--sampler", choices=SAMPLERS, help="Markov chain (default: mala; for images langevin)")
    try:
        chosen, _ = choose.parse_known_args(list(argv))
    except argparse.ArgumentError:  # the real parser will say what is wrong
        chosen = choose.parse_args([])
    base = _starting_config(chosen, argv)
    parser.set_defaults(base=base)
    _add_fields(parser.add_argument_group("training"), base, skip=("data",))
    _add_fields(parser.add_argument_group("objective " + (chosen.objective or "ps-cd")), base.objective)
    sampler = next(name for name, kind in SAMPLERS.items() if isinstance(base.sampler, kind))
    _add_fields(parser.add_argument_group(f"sampler {sampler}"), base.sampler, prefix="sampler-")
    _add_fields(parser.add_argument_group("energy"), base.energy)


def _starting_config(chosen: argparse.Namespace, argv: Sequence[str]) -> TrainConfig:
    """What flags change: the preset, or that of the data if they have one, with the objective and sampler chosen."""
    words = [word for word, before in zip(argv, ("", *argv), strict=False) if before != "--out"]
    data = next((word for word in words if word in PRESETS or word in DEFAULT_OF or Path(word).is_dir()), "")
    base = PRESETS[chosen.preset] if chosen.preset else default_preset(data)
    if chosen.objective in ("cd", "ps-cd") and isinstance(base.objective, PseudoSpherical):
        # The same objective with another gamma: what else the preset says of it stays.
        base = replace(
            base, objective=replace(base.objective, gamma=getattr(OBJECTIVES[chosen.objective], "gamma", 1.0))
        )
    elif chosen.objective:
        base = replace(base, objective=OBJECTIVES[chosen.objective], energy=replace(base.energy, classes=0))
    return replace(base, sampler=SAMPLERS[chosen.sampler]()) if chosen.sampler else base


def _add_fields(group: Any, instance: Any, *, prefix: str = "", skip: Sequence[str] = ()) -> None:
    """A flag for every described field of a dataclass, with the instance's value as the default."""
    hints = typing.get_type_hints(type(instance))
    for f in fields(instance):
        default = getattr(instance, f.name)
        if "help" not in f.metadata or f.name in skip or is_dataclass(default):
            continue
        shown = "none" if default is None else default
        group.add_argument(
            _flag(f.name, f.metadata, prefix),
            dest=f"{type(instance).__name__}.{f.name}",
            type=_parser_of(hints[f.name]),
            metavar=_metavar(hints[f.name]),
            default=argparse.SUPPRESS,
            help=f"{f.metadata['help']} (default: {shown})".replace("%", "%%"),
        )


def _flag(name: str, metadata: Any, prefix: str) -> str:
    return "--" + prefix + metadata.get("flag", name).replace("_", "-")


def _parser_of(hint: Any) -> Callable[[str], Any]:
    """What turns the text of a flag into the value of a field with this type."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    may_be_none = type(None) in options
    kind = next(option for option in options if option is not type(None))

    def parse(text: str) -> Any:
        if may_be_none and text.lower() == "none":
            return None
        if kind is bool:
            if text.lower() not in ("true", "false"):
                raise ValueError(text)
            return text.lower() == "true"
        if typing.get_origin(kind) is tuple:
            return parse_names(text)
        return kind(text)

    parse.__name__ = _metavar(hint).lower()  # argparse names it: "invalid number value"
    return parse


def _metavar(hint: Any) -> str:
    names = {int: "INTEGER", float: "NUMBER", bool: "TRUE|FALSE", str: "NAME"}
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next(names.get(option, "LIST") for option in options if option is not type(None))


def config_from(args: argparse.Namespace) -> TrainConfig:
    """The configuration that the flags of `train` describe."""
    base: TrainConfig = args.base
    given: dict[str, dict[str, Any]] = {}
    for name, value in vars(args).items():
        if "." in name:
            owner, field_name = name.split(".")
            given.setdefault(owner, {})[field_name] = value

    if args.objective == "cd" and given.get("PseudoSpherical", {}).get("gamma", 0.0) != 0:
        raise UserError("--objective cd is gamma 0; for another gamma use --objective ps-cd")

    def updated(instance: Any) -> Any:
        return replace(instance, **given.get(type(instance).__name__, {}))

    return replace(
        updated(base),
        data=args.data,
        objective=updated(base.objective),
        sampler=updated(base.sampler),
        energy=updated(base.energy),
    )


def _train(args: argparse.Namespace) -> None:
    config = config_from(args)
    out = args.out or Path("runs") / Path(config.data).stem
    train(config, out, device=device(args.device), tensorboard=args.tensorboard)
    if not _is_first():
        return
    model = load(out, device=device(args.device))
    print(f"gradients of chains: {model.gradients}{cli_bench.first_use()}")
    for sentence in _verdict(out):
        print(f"verdict: {sentence}")
    samples = model.sample(cli_images.N_MEASURED if model.is_image else 10_000, progress=model.is_image)
    try:
        _evaluate_into(model, out, n=len(samples), seed=0, samples=samples)
    except UserError as error:  # too few rows to measure by are no reason to lose the picture
        print(f"not measured: {error}")
    print(f"picture: {_plot_into(model, samples, out / 'plot.png')}")
    print(f"run: {out}")


def _is_first() -> bool:
    """Whether this is the process that speaks and writes, when `torchrun` has started several."""
    return os.environ.get("RANK", "0") == "0"


def _verdict(run: Path) -> list[str]:
    rows, state = RunFolder(run).read_metrics(), checkpoint.load(run)
    return verdict(rows, retries=state["retries"] if state is not None else 0) if rows else []


# --- what a run can do ---


def _add_sample(commands: Any) -> None:
    parser = command(commands, "sample", _sample, "draw from the model of a run")
    add_run(parser)
    add_out(parser, ".npy or .csv file for the samples; of images also a grid, .png")
    parser.add_argument("--n", type=int, help="how many (default: 10000; of images 100)")
    parser.add_argument("--label", type=int, help="what to draw, from a conditional model")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same samples (default: 0)")
    parser.add_argument("--steps", type=int, help="sampler steps (default: the run's sample_steps)")


def _sample(args: argparse.Namespace) -> None:
    check_out(args.out, args.force, (".npy", ".csv", *cli_images.PICTURES))
    if cli_tables.is_detector(args.run):
        args.n = 10_000 if args.n is None else args.n
        cli_tables.sample(args)
        return
    is_picture = args.out.suffix in cli_images.PICTURES
    model = (cli_images.load_image_model if is_picture else _load_on)(args.run, args.device)
    n = args.n if args.n is not None else 100 if model.is_image else 10_000
    samples = model.sample(n, seed=args.seed, n_steps=args.steps, label=args.label, progress=model.is_image)
    if is_picture:
        grids.save(grids.grid(samples), args.out)
        print(f"{n} samples: {args.out}")
        return
    flat = samples.flatten(1).numpy()
    names = model.columns or [f"x{i}" for i in range(flat.shape[1])]
    write(args.out, samples.numpy(), dict(zip(names, flat.T, strict=True)))
    print(f"{len(samples)} samples: {args.out}")


def _load_on(run: Path, where: str) -> Model:
    return load(run, device=device(where))


def _add_evaluate(commands: Any) -> None:
    parser = command(commands, "evaluate", _evaluate, "compare samples of a run with data it has not seen")
    add_run(parser)
    parser.add_argument("--n", type=int, help="points on each side (default: 10000; of images 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the samples and fresh data (default: 0)")
    parser.add_argument(
        "--features",
        default="pixels",
        help="of images: pixels (default), classifier, or a TorchScript Inception's path for the FID",
    )


def _evaluate(args: argparse.Namespace) -> None:
    if args.n is not None and args.n < 2:
        raise UserError(f"--n must be at least 2, got {args.n}")
    model = load(args.run, device=device(args.device))
    n = args.n or (cli_images.N_MEASURED if model.is_image else 10_000)
    _evaluate_into(model, args.run, n=n, seed=args.seed, features=args.features)


def _add_plot(commands: Any) -> None:
    parser = command(commands, "plot", _plot, "draw data, samples and energy of a run")
    add_run(parser)
    parser.add_argument("--out", type=Path, help="picture, .png, .pdf or .svg (default: RUN/plot.png)")
    parser.add_argument("--force", action="store_true", help="replace the file if it is there")


def _plot(args: argparse.Namespace) -> None:
    if args.out is not None:
        check_out(args.out, args.force, (".png", ".pdf", ".svg"))
    model = load(args.run, device=device(args.device))
    samples = model.sample(cli_images.SHOWN if model.is_image else 10_000)
    print(f"picture: {_plot_into(model, samples, args.out or args.run / 'plot.png')}")


def _add_reproduce(commands: Any) -> None:
    parser = command(commands, "reproduce", _reproduce, "make a table or figure of the paper again; alone: list them")
    parser.add_argument("name", nargs="?", help="artefact, from the list")
    parser.add_argument("--quick", action="store_true", help="small and rough, in seconds, to see that it works")
    parser.add_argument("--seeds", type=int, help="seeds per cell (default: the artefact's own; 1 with --quick)")
    parser.add_argument("--out", type=Path, help="folder (default: results, results/quick with --quick); resumes there")
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: one per core)")
    images = parser.add_argument_group("artefacts with images")
    images.add_argument("--data", help="set of images (default: mnist); pscd data lists them")
    images.add_argument("--preset", choices=PRESETS, help="settings of the runs (default: those for the data)")
    images.add_argument(
        "--features", help="feature map: pixels, classifier (default) or a TorchScript Inception's path"
    )
    images.add_argument("--n", type=int, help="samples to measure (default: 5000)")


def _reproduce(args: argparse.Namespace) -> None:
    from pscd.paper import ARTEFACTS, WITH_IMAGES, Choice, reproduce

    if args.name is None:
        for artefact in (*ARTEFACTS.values(), *(make(Choice()) for make in WITH_IMAGES.values())):
            name = artefact.name.removesuffix("-mnist")
            print(f"{name:<24} {artefact.title} - about {artefact.cost} on 2 cores")
        return
    chosen = {name: getattr(args, name) for name in ("data", "preset", "features", "n")}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if args.jobs == 0:
        raise UserError("--jobs must not be 0; -1 means one per core")
    out = args.out or Path("results/quick" if args.quick else "results")
    images = Choice(**chosen) if chosen else None
    page = reproduce(args.name, out, quick=args.quick, seeds=args.seeds, n_jobs=args.jobs, images=images)
    print(page.read_text())
    print(f"page: {page}")


def _evaluate_into(
    model: Model, run: Path, *, n: int, seed: int, samples: torch.Tensor | None = None, features: str = "pixels"
) -> None:
    """Measure, print, and keep in the run folder."""
    if model.is_image:
        of_images = evaluate_images(model, n=n, seed=seed, features=features, samples=samples)
        cli_images.print_measurements(of_images)
        rows = [asdict(m) for m in of_images]
    else:
        measurements = evaluate(model, n=n, seed=seed, samples=samples)
        _print_measurements(measurements)
        rows = [asdict(m) for m in measurements]
    (run / "evaluation.json").write_text(json.dumps({"seed": seed, "rows": rows}, indent=1) + "\n")


def _print_measurements(measurements: Sequence[Measurement]) -> None:
    print(f"against {measurements[0].n_real} held-out rows      MMD^2 x 1e4        n")
    for m in measurements:
        print(f"  {m.name:<26} {1e4 * m.mmd:>11.2f} {m.n_fake:>8}")


def _plot_into(model: Model, samples: torch.Tensor, path: Path) -> Path:
    from pscd.plots import plot_run

    data = load_run_data(model)
    if model.is_image:
        return cli_images.plot_images(data, samples, path)
    try:
        return plot_run(model, data.train, samples, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
