"""The commands for people's own tables: `detect` strange rows, `score` new ones, and say why."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pscd.cli.common import (
    Command,
    Parser,
    add_force,
    add_out,
    add_run,
    check_out,
    device,
    in_words,
    load_model,
    parse_names,
    whole,
    write,
)
from pscd.cli.images import score_folder
from pscd.errors import UserError
from pscd.run_folder import RunFolder

if TYPE_CHECKING:
    import numpy as np

    from pscd.data import Table
    from pscd.detector.estimator import EnergyDetector

STRANGEST = 10  # rows that are printed
REASONS = 3  # columns named for each row
OWN_COLUMNS = ("row", "energy", "outlier", "because", "log_density")  # of the scores


def add_detect(parser: Parser) -> None:
    """Add the flags of `pscd detect`.

    Args:
        parser: the command's parser.
    """
    parser.add_argument("data", type=Path, metavar="FILE", help="a table (.csv, .parquet, .npy, .npz), junk included")
    parser.add_argument("--out", type=Path, help="run folder (default: runs/NAME)")
    add_force(parser, "replace a detector that is there")
    parser.add_argument(
        "--columns", type=parse_names, help="columns to learn from, by name (a,b,c; default: all but the ids)"
    )
    parser.add_argument(
        "--id", type=parse_names, default=(), help="columns that name a row and are not learnt from (a,b)"
    )
    parser.add_argument(
        "--gamma",
        type=_number_or_auto,
        default="auto",
        help="robustness: 0 trusts every row alike, more trusts odd rows less (default: auto)",
    )
    parser.add_argument(
        "--contamination",
        type=_number_or_auto,
        default="auto",
        help="share of the rows to call outliers, up to 0.5 (default: auto)",
    )
    parser.add_argument("--updates", type=whole(1), default=600, help="updates of the network (default: 600)")
    parser.add_argument("--seed", type=whole(0), default=0, help="the same seed gives the same result (default: 0)")


def run_detect(args: argparse.Namespace) -> None:
    """Learn what the rows of a table have in common, and report the strange ones.

    Args:
        args: the flags.

    Raises:
        UserError: the table or the folder is no good.
    """
    from pscd.coordinates import Coordinates
    from pscd.data import check_enough, read_table
    from pscd.detector.estimator import IGNORED, EnergyDetector
    from pscd.files import file_digest, write_json

    out = args.out or Path("runs") / args.data.stem
    if RunFolder(out).is_detector and not args.force:
        raise UserError(f"{out} holds a detector; choose another --out, or add --force to replace it")
    if RunFolder(out).model.exists():
        raise UserError(f"{out} holds a run of pscd train; choose another --out")
    _check_ids(args.id)
    table = read_table(args.data, args.columns, args.id)
    x = _flat(table, args.data)
    check_enough(args.data, len(x))
    detector = EnergyDetector(
        gamma=args.gamma,
        contamination=args.contamination,
        n_updates=args.updates,
        random_state=args.seed,
        verbose=True,
    )
    try:
        Coordinates.robust(table.x)  # a table without anything to learn is told before a folder is made
        out.mkdir(parents=True, exist_ok=True)
        detector.fit(_named(x, table.columns))
    except ValueError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}") from None
    detector.save(out)
    source = {"data": str(args.data), "columns": args.columns, "ids": args.id, "fingerprint": file_digest(args.data)}
    write_json(RunFolder(out).source, source)
    ignored = int((detector.sample_weight_ < IGNORED).sum())
    print(f"{len(x)} rows, {x.shape[1]} columns; estimated contamination: {100 * detector.contamination_:.1f} %")
    if detector.gamma_ > 0:
        print(f"gamma {detector.gamma_:.3g}: {ignored} rows counted less than a tenth")
    else:
        print("gamma 0: nothing to be robust against, every row counted")
    _report(detector, table, x, args.data, out / "scores.csv", picture=out / "scores.png")
    print(f"run: {out}")


def add_score(parser: Parser) -> None:
    """Add the flags of `pscd score`.

    Args:
        parser: the command's parser.
    """
    add_run(parser)
    parser.add_argument(
        "file",
        type=Path,
        help="rows to score (.csv, .parquet, .npy, .npz); for an image model also a folder of pictures",
    )
    parser.add_argument("--id", type=parse_names, default=(), help="columns to carry over, such as a row's name (a,b)")
    parser.add_argument("--log-density", action="store_true", help="write the log density of every row too, in nats")
    add_out(parser, ".csv or .npy file for the energies, in the order of the rows")


def run_score(args: argparse.Namespace) -> None:
    """Write the energy of every row of a file; the higher, the stranger.

    Args:
        args: the flags.

    Raises:
        UserError: the file does not fit the run, or cannot be read or written.
    """
    import numpy as np

    from pscd.data import read_table

    check_out(args.out, args.force)
    _check_ids(args.id)
    named = args.file.suffix.lower() in (".csv", ".parquet")
    if is_detector(args.run):
        from pscd.detector.estimator import EnergyDetector

        if device(args.device).type != "cpu":
            raise UserError("a detector scores on the cpu; leave --device out")
        detector = EnergyDetector.load(args.run)
        names = tuple(getattr(detector, "feature_names_in_", ())) or None
        table = read_table(args.file, names if named else None, args.id)
        x = _flat(table, args.file)
        _check_width(x.shape[1:], (detector.n_features_in_,), args)
        _report(detector, replace(table, columns=names), x, args.file, args.out, log_density=args.log_density)
        return
    model = load_model(args.run, args.device)
    if model.is_image and args.file.is_dir():
        score_folder(model, args.file, args.out)
        return
    table = read_table(args.file, model.columns if named else None, args.id)
    _check_width(table.x.shape[1:], model.shape, args)
    energy = model.energies(table.x).numpy()
    columns: dict[str, Any] = {"row": np.arange(1, len(energy) + 1), **table.ids, "energy": energy}
    if args.log_density:
        columns["log_density"] = model.log_prob(table.x).numpy()
        warning = model.log_z().warning
        if warning is not None:
            print(f"warning: {warning}")
    write(args.out, columns["log_density"] if args.log_density else energy, columns)
    print(f"{len(energy)} rows scored: {args.out}")


def _report(
    detector: "EnergyDetector",
    table: "Table",
    x: "np.ndarray",
    source: Path,
    out: Path,
    *,
    picture: Path | None = None,
    log_density: bool = False,
) -> None:
    """Write all scores, print the strangest rows with the columns to blame, and draw them if asked to."""
    import numpy as np

    rows = _named(x, table.columns)
    energy = -detector.score_samples(rows)
    outlier = energy > -detector.offset_
    blame = detector.explain(rows)
    names = table.columns or tuple(f"x{j}" for j in range(x.shape[1]))
    because = [reasons(names, x[i], blame[i]) for i in range(len(x))]
    row = np.arange(1, len(x) + 1)
    columns = {"row": row, **table.ids, "energy": energy, "outlier": outlier.astype(int), "because": because}
    if log_density:
        columns["log_density"] = detector.log_density(rows)
    write(out, energy, columns)
    print(f"{int(outlier.sum())} of {len(x)} rows of {source} are outliers; the strangest:")
    for i in np.argsort(-energy)[:STRANGEST]:
        label = ", ".join(str(values[i]) for values in table.ids.values()) or f"row {row[i]}"
        print(f"  {label:<14} energy {energy[i]:>9.2f}   {because[i]}")
    print(f"scores: {out}")
    if picture is not None:
        from pscd.plots import plot_scores

        worst = np.argsort(-blame[outlier].clip(min=0).sum(0))[:2].tolist()
        print(f"picture: {plot_scores(energy, -detector.offset_, x, names, worst, picture)}")


def reasons(names: Sequence[str], values: "np.ndarray", blame: "np.ndarray") -> str:
    """The columns that pushed a row's energy up most.

    Args:
        names: of the columns.
        values: of the row.
        blame: what each column added to the energy.

    Returns:
        Text with name, value and share of the energy, the largest first.
    """
    import numpy as np

    order = [j for j in np.argsort(-blame)[:REASONS] if blame[j] > 0]
    return "; ".join(f"{names[j]} = {values[j]:.6g} (+{blame[j]:.1f})" for j in order)


def sample(args: argparse.Namespace) -> None:
    """Draw rows from a detector, for `pscd sample`.

    Args:
        args: the flags.

    Raises:
        UserError: the detector is damaged, or the file cannot be written.
    """
    from pscd.detector.estimator import EnergyDetector

    detector = EnergyDetector.load(args.run)
    rows = detector.sample(args.n, random_state=args.seed)
    names = getattr(detector, "feature_names_in_", [f"x{j}" for j in range(rows.shape[1])])
    write(args.out, rows, dict(zip(names, rows.T, strict=True)))
    print(f"{len(rows)} samples: {args.out}")


def is_detector(run: Path) -> bool:
    """Whether a run folder was written by `pscd detect`.

    Args:
        run: the folder.

    Returns:
        True if it holds a detector.
    """
    return RunFolder(run).is_detector


def _flat(table: "Table", path: Path) -> "np.ndarray":
    if table.x.ndim != 2:
        raise UserError(f"{path}: rows of shape {in_words(table.x.shape[1:])}; detect takes tables; use pscd train")
    return table.x.numpy()


def _named(x: "np.ndarray", columns: tuple[str, ...] | None) -> Any:
    if columns is None:
        return x
    import pandas as pd

    return pd.DataFrame(x, columns=list(columns))


def _check_ids(ids: Sequence[str]) -> None:
    taken = [name for name in ids if name in OWN_COLUMNS]
    if taken:
        raise UserError(f"the scores have a column {taken[0]!r} of their own; rename it in the file to carry it along")


def _check_width(found: Sequence[int], wanted: Sequence[int], args: argparse.Namespace) -> None:
    if tuple(found) != tuple(wanted):
        raise UserError(f"{args.file}: {in_words(found)} a row, but {args.run} was trained on {in_words(wanted)}")


def _number_or_auto(text: str) -> float | str:
    number = 0.0 if text == "auto" else float(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"must be auto or at least 0, got {text}")
    return "auto" if text == "auto" else number


_number_or_auto.__name__ = "number or auto"  # argparse names it in its message


DETECT = Command(
    "find the strange rows of a table, and say why they are strange",
    add_detect,
    run_detect,
    "  pscd detect my.csv --id name --out runs/my\n  pscd score runs/my new.csv --id name --out scores.csv",
)
SCORE = Command("write the energy of new rows: the higher, the stranger", add_score, run_score)
