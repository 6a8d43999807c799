"""The command `reproduce`: tables and figures of the paper."""

import argparse
from pathlib import Path

from pscd.cli.common import Command, Parser, add_engine, engine_from, whole


def add_reproduce(parser: Parser) -> None:
    """Add the flags of `pscd reproduce`.

    Args:
        parser: the command's parser.
    """
    from pscd.data.junk import JUNK
    from pscd.presets import PRESETS

    parser.add_argument("name", nargs="?", help="artefact to make; without a name they are listed")
    parser.add_argument("--quick", action="store_true", help="small and rough, in seconds, to see that it works")
    parser.add_argument("--seeds", type=whole(1), help="seeds per cell (default: the artefact's own; 1 with --quick)")
    parser.add_argument("--out", type=Path, help="folder (default: results, results/quick with --quick); resumes there")
    parser.add_argument("--hours", type=float, help="begin no cell after so long; the page says what was not run")
    add_engine(parser.add_argument_group("where cells are computed"), "cell")
    images = parser.add_argument_group("artefacts with images, or with tables")
    images.add_argument(
        "--data", help="set of images (default: mnist; pscd data lists them), or a folder of .npz tables"
    )
    images.add_argument("--preset", choices=PRESETS, help="settings of the runs (default: those for the data)")
    images.add_argument(
        "--features",
        help="feature map: pixels, classifier (default) or the path of a TorchScript Inception, @bfloat16 after it "
        "to compute in bfloat16, twice as fast",
    )
    images.add_argument("--n", type=int, help="samples to measure (default: 5000)")
    images.add_argument(
        "--junk",
        help=f"of contamination-images: {', '.join(JUNK)}, or another set of images, such as letters among digits "
        "(default: noise)",
    )
    images.add_argument("--ratio", type=float, help="of contamination-images: share of junk (default: 0.1)")
    images.add_argument(
        "--unit",
        choices=("nats", "spread", "both"),
        help="unit of gamma; both: models of each, on one page (default: that of the preset)",
    )
    images.add_argument("--updates", type=whole(1), help="of each run (default: those of the preset)")


def run_reproduce(args: argparse.Namespace) -> None:
    """Make an artefact and print its page, or list them all.

    Args:
        args: the flags.

    Raises:
        UserError: there is no such artefact, or it does not take these flags.
    """
    from pscd.paper import ARTEFACTS, TABLES, WITH_IMAGES, Choice, reproduce

    if args.name is None:
        for artefact in (*ARTEFACTS.values(), *(make(Choice()) for make in WITH_IMAGES.values())):
            name = artefact.name.removesuffix("-mnist")
            print(f"{name:<24} {artefact.title} - about {artefact.cost} on 2 cores")
        print(f"{TABLES:<24} Junk in real tables, --data FOLDER of .npz files with X and y - about 6 hours on 2 cores")
        return
    chosen = {
        name: getattr(args, name) for name in ("data", "preset", "features", "n", "junk", "ratio", "unit", "updates")
    }
    chosen = {name: value for name, value in chosen.items() if value is not None}
    engine = engine_from(args)
    out = args.out or Path("results/quick" if args.quick else "results")
    images = Choice(**chosen) if chosen else None
    page = reproduce(args.name, out, quick=args.quick, seeds=args.seeds, engine=engine, images=images, hours=args.hours)
    print(page.read_text())
    print(f"page: {page}")


REPRODUCE = Command("make a table or figure of the paper again, or list them", add_reproduce, run_reproduce)
