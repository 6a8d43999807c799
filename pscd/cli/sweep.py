"""The command `sweep`: `train` over a grid. Every setting of `train` may be a list or a range."""

import argparse
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.common import Command, Parser, add_engine, device, engine_from, whole
from pscd.cli.train import add_train, config_from, every_flag, name_of_run
from pscd.errors import UserError

if TYPE_CHECKING:
    from pscd.sweep import Run

SWITCHES = ("-h", "--help", "--help-all", "--dry-run")  # flags without a value
AS_THEY_ARE = ("", "--device", "--import", "--help-all")  # of the flags of `train`; the first is DATA
LEFT_OUT = ("--out", "--tensorboard", "--report", "--timeout")
SETTING = "setting "  # before the flag, the name of its texts among the arguments
MOST = 10_000  # values of a range, and runs of a sweep: more are a slip of the pen
NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
RANGE = re.compile(rf"{NUMBER}:{NUMBER}:(x?){NUMBER}")
EXAMPLES = """\
  pscd sweep moon --gamma 0,0.5,1 --seeds 5 --out sweeps/moon     15 runs
  pscd sweep my.csv --lr 1e-4:1e-2:x10 --gamma auto,0             a range of factors: 0.0001, 0.001, 0.01
  pscd sweep moon --width 32:128:32 --sampler-steps 5,10,20       a range of steps: 32, 64, 96, 128
  pscd sweep mnist --preset mnist,digits --seed 7                 presets, one seed
  pscd sweep my.csv --columns a,b --columns a,b,c                 a flag given twice: both, where commas belong to it
  pscd sweep moon --gamma 0,1 --backend dask --scheduler tcp://10.0.0.1:8786 --out /shared/sweep

A sweep that was stopped goes on with the same command, and a larger grid in the same folder computes what is new."""


def add_sweep(parser: Parser) -> None:
    """Add the flags of `pscd sweep`: its own, and those of `pscd train` as texts.

    Args:
        parser: the command's parser.

    Raises:
        UserError: there is no objective or sampler of the name given.
    """
    from pscd.sweep import MEASURES

    parser.usage, parser.allow_abbrev = "pscd sweep DATA [flags of pscd train, as lists a,b,c or ranges]", False
    parser._negative_number_matcher = re.compile(r"^-[\d.].*$")  # -0.5,0,1 is a value, too; argparse has no public way
    own = parser.add_argument_group("sweep")
    own.add_argument("--out", type=Path, metavar="FOLDER", help="of the sweep (default: sweeps/NAME); it goes on there")
    own.add_argument("--seeds", type=whole(1), help="runs of each setting, with the seeds 0, 1, ... (default: 3)")
    own.add_argument("--by", choices=MEASURES, metavar="MEASURE", help=f"what decides: {', '.join(MEASURES)}")
    own.add_argument("--n", type=whole(10), help="samples to measure with (default: 10000; of images 2000)")
    own.add_argument("--hours", type=float, help="begin no run after so long; the same command goes on")
    own.add_argument("--dry-run", action="store_true", help="tell the grid, and stop")
    add_engine(parser.add_argument_group("where runs are computed"), "run")
    _add_settings(parser)
    parser.set_defaults(words=list(parser.words))


def _add_settings(parser: Parser) -> None:
    """The flags of `train`, with its help, for texts that stand for several values."""
    model = Parser("pscd sweep", add_help=False)
    model.words = list(_first_of_each(parser.words))
    add_train(model)
    lists = set()
    for group in model._action_groups:
        ours = parser.add_argument_group(group.title, group.description)
        for action in group._group_actions:
            flag = action.option_strings[0] if action.option_strings else ""
            if flag in AS_THEY_ARE:
                ours._add_action(action)
            elif flag not in LEFT_OUT:
                _add_text(ours, flag, action.metavar, action.help)
                lists |= {flag} if action.metavar == "LIST" else set()
    for flag in every_flag():  # those of the other objectives and samplers of a list
        if flag not in parser._option_string_actions:
            _add_text(parser, flag, None, argparse.SUPPRESS)
    parser.set_defaults(lists=lists)


def _add_text(group: Any, flag: str, metavar: Any, help: str | None) -> None:
    group.add_argument(
        flag, dest=f"{SETTING}{flag}", action="append", default=argparse.SUPPRESS, metavar=metavar, help=help
    )


def _first_of_each(words: Sequence[str]) -> Iterator[str]:
    """The words for `train` of the first run, whose objective and sampler decide what the help shows."""
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        if not word.startswith("-"):
            yield word
        elif word in SWITCHES:
            yield from ([word] if word == "--help-all" else [])
        else:
            value = value if equals else next(rest, "")
            if flag in ("--objective", "--sampler", "--preset", "--import", "--columns"):
                yield f"{flag}={value if flag in ('--columns', '--import') else alternatives(value)[0]}"


def alternatives(text: str) -> list[str]:
    """The values that a text stands for: a list, ranges, or both.

    Args:
        text: values with commas between them; `a:b:s` goes from a to b in steps of s, `a:b:xf` by factors of f.

    Returns:
        The values as texts, in their order.

    Raises:
        UserError: a range leads nowhere, or is too long.

    >>> alternatives("0,0.5,1"), alternatives("0:1:0.25"), alternatives("1e-4:1e-2:x10")
    (['0', '0.5', '1'], ['0', '0.25', '0.5', '0.75', '1'], ['0.0001', '0.001', '0.01'])
    """
    found: list[str] = []
    for part in text.split(","):
        match = RANGE.fullmatch(part.strip())
        found += [part.strip()] if match is None else _range(part.strip(), *match.groups())
    return found


def _range(text: str, *parts: str) -> list[str]:
    start, stop, step = (Decimal(parts[i]) for i in (0, 1, 3))
    by_factors = bool(parts[2])
    goes = 0 < start <= stop and step > 1 if by_factors else step != 0 and (stop - start) / step >= 0
    if not goes:
        raise UserError(f"the range {text} leads nowhere; 0:1:0.25 goes up in steps, 1e-4:1e-2:x10 by factors")
    values, value = [], start
    while (value <= stop) if step > 0 else (value >= stop):  # exact: these are decimal numbers
        values.append(f"{value.normalize():f}")
        value = value * step if by_factors else value + step
        if len(values) > MOST:
            raise UserError(f"the range {text} has more than {MOST} values")
    return values


def runs_from(args: argparse.Namespace) -> "list[Run]":
    """The runs that the flags of `sweep` describe.

    Args:
        args: what the parser made of the words.

    Returns:
        A run for every combination of values.

    Raises:
        UserError: a value is out of its range, flags contradict each other, or there are too many runs.
    """
    from pscd.sweep import Run

    given = {name.removeprefix(SETTING): texts for name, texts in vars(args).items() if name.startswith(SETTING)}
    values = {
        flag: texts if flag in args.lists else [value for text in texts for value in alternatives(text)]
        for flag, texts in given.items()
    }
    if "--seed" in values and args.seeds is not None:
        raise UserError("give --seeds, how many, or --seed, a list of them; not both")
    seeds = _seeds(values.pop("--seed", None) or map(str, range(args.seeds or 3)))
    if (count := len(seeds) * math.prod(map(len, values.values()))) > MOST:
        raise UserError(f"these are {count} runs, more than {MOST}; begin with a coarser grid")
    varied = [flag for flag, texts in values.items() if len(texts) > 1]
    data = str(Path(args.data).resolve()) if args.backend != "cores" and Path(args.data).exists() else args.data
    found = []
    for chosen in product(*values.values()):
        by_flag = dict(zip(values, chosen, strict=True))
        imports = [f"--import={module}" for module in args.imports]
        config = _config([data, *(f"{flag}={value}" for flag, value in by_flag.items()), *imports])
        told = (shlex.quote(data), *_told(by_flag), *imports)
        names = {flag[2:]: by_flag[flag] for flag in varied}
        found += [Run(replace(config, seed=seed), names, (*told, f"--seed {seed}")) for seed in seeds]
    return found


def _seeds(texts: Iterable[str]) -> list[int]:
    try:
        return [int(text) for text in texts]
    except ValueError as error:
        raise UserError(f"--seed: {error}") from None


def _told(by_flag: dict[str, str]) -> Iterator[str]:
    yield from (f"{flag}{'=' if value.startswith('-') else ' '}{shlex.quote(value)}" for flag, value in by_flag.items())


def _config(words: Sequence[str]) -> Any:
    parser = Parser("pscd sweep", add_help=False)
    parser.words = list(words)
    add_train(parser)
    return config_from(parser.parse_args(list(words)))


def run_sweep(args: argparse.Namespace) -> None:
    """Tell the grid, compute it, and print the table.

    Args:
        args: the flags.

    Raises:
        UserError: flags or data are no good, a cluster does not answer, or every run failed.
    """
    from pscd.files import read_json
    from pscd.sweep import JSON, PICTURE, best_command, sweep, table

    engine, runs = engine_from(args), runs_from(args)
    out = args.out or Path("sweeps") / name_of_run(args.data)
    print(_told_grid(runs, out), flush=True)
    if args.dry_run:
        return
    device(args.device)
    page = sweep(
        runs,
        out,
        engine=engine,
        by=args.by,
        n=args.n,
        device=args.device,
        imports=args.imports,
        hours=args.hours,
        command=f"pscd sweep {shlex.join(args.words)}",
    )
    found = read_json(page.with_name(JSON))
    print(table(found))
    for run in found["runs"]:
        if "failed" in run:
            print(f"failed: {run['folder']}: {run['failed']}")
    print(f"best: {best_command(found)} --out {shlex.quote(str(out / found['best']['folder']))}")
    print(f"page: {out / page.name}")
    print(f"picture: {out / PICTURE}")


def _told_grid(runs: "Sequence[Run]", out: Path) -> str:
    """What will be computed, in one line."""
    values: dict[str, list[str]] = {}
    for run in runs:
        for name, value in {**run.varied, "seed": str(run.config.seed)}.items():
            if value not in values.setdefault(name, []):
                values[name].append(value)
    shown = (f"{name} {', '.join(texts[:8])}{' ...' if len(texts) > 8 else ''}" for name, texts in values.items())
    return f"{len(runs)} runs in {out}: {' x '.join(shown)}"


SWEEP = Command("train over a grid of settings, in parallel, and compare", add_sweep, run_sweep, EXAMPLES)
