"""The command `report`: everything about a run as one HTML file."""

import argparse
from pathlib import Path

from pscd.cli.common import AddUp, Command, Parser, add_force, add_import, check_out, parse_names, whole


def add_report(parser: Parser) -> None:
    """Add the flags of `pscd report`.

    Args:
        parser: the command's parser.
    """
    parser.add_argument(
        "run", type=Path, metavar="RUN", help="a folder of pscd train or detect, or NAME.json of python -m studies"
    )
    parser.add_argument("--out", type=Path, help=".html file (default: RUN/report.html, which is replaced)")
    add_force(parser, "replace the file of --out if it exists")
    parser.add_argument(
        "--data", type=Path, metavar="FILE", help="rows to show (default: those of the training, if they are unchanged)"
    )
    parser.add_argument(
        "--id", action=AddUp, type=parse_names, help="columns that name a row (a,b; default: those of pscd detect)"
    )
    parser.add_argument("--seed", type=whole(0), default=0, help="of the samples (default: 0)")
    add_import(parser)


def run_report(args: argparse.Namespace) -> None:
    """Write the report.

    Args:
        args: the flags.

    Raises:
        UserError: there is nothing to report on, or the file cannot be written.
    """
    from pscd.report import write_report

    if args.out is not None:
        check_out(args.out, args.force, (".html",))
    path = write_report(args.run, args.out, data=args.data, ids=args.id, seed=args.seed)
    print(f"report: {path} ({path.stat().st_size / 1e6:.1f} MB); open it in a browser")


REPORT = Command(
    "show a run, a detector or an experiment as one HTML file",
    add_report,
    run_report,
    "  pscd report runs/my\n  pscd report runs/my --data new.csv --id name --out new.html\n"
    "  pscd report docs/results/toys-2d.json --out toys-2d.html",
)
