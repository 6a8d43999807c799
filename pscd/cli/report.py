"""Show a run or a detector as one HTML file.

Examples:
  pscd report runs/my
  pscd report runs/my --evaluate --picture my.png
"""

import argparse
from pathlib import Path

from pscd.cli.flags import Parser, add_ids, add_machine, add_out, add_run, at_least
from pscd.cli.output import check_out, draw, measure, say
from pscd.cli.reading import load_model
from pscd.errors import UserError


def add_flags(parser: Parser) -> None:
    """Add the flags of `pscd report`."""
    add_run(parser)
    add_out(parser, ".html file (default: RUN/report.html, which is replaced)", required=False)
    parser.add_argument("--data", type=Path, metavar="FILE", help="rows to show (default: those of the training)")
    add_ids(parser)
    parser.add_argument("--seed", type=at_least(0), default=0, help="of the samples (default: 0)")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw data and samples, too: .png, .pdf, .svg")
    group = parser.add_argument_group("evaluation of a trained run")
    group.add_argument("--evaluate", action="store_true", help="measure samples against held-out data")
    group.add_argument("--n", type=at_least(2), help="samples and rows to measure (default: 10000, of images 2000)")
    group.add_argument(
        "--features",
        default="pixels",
        help="images are compared by: pixels (default), or the path of a TorchScript Inception for the FID",
    )
    add_machine(parser)


def run(args: argparse.Namespace) -> None:
    """Evaluate and draw where asked, and write the report."""
    from pscd.report import write_report
    from pscd.report.write import check_extra
    from pscd.run_folder import RunFolder

    for path, endings in ((args.out, (".html",)), (args.picture, (".png", ".pdf", ".svg"))):
        if path is not None:
            check_out(path, args.force, endings)
    check_extra()
    if args.evaluate or args.picture:
        if RunFolder(args.run).is_detector or args.run.is_file():
            raise UserError(f"{args.run}: --evaluate and --picture need the run folder of pscd train")
        from pscd.evaluation import load_run_data

        model = load_model(args.run, args.device)
        if args.evaluate:
            measure(model, args.run, n=args.n, seed=args.seed, features=args.features)
        if args.picture:
            data = load_run_data(model)
            draw(model, data.train, model.sample(100 if model.is_image else 10_000, seed=args.seed), args.picture)
    path = write_report(args.run, args.out, data=args.data, ids=args.ids or None, seed=args.seed)
    say(f"report: {path} ({path.stat().st_size / 1e6:.1f} MB); open it in a browser")
