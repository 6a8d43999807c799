"""The commands for sets of images: `data` lists them, `data get` downloads one."""

import argparse
from pathlib import Path

from pscd.cli.common import Command, Parser, add_command


def add_data(parser: Parser) -> None:
    """Add the flags of `pscd data`, and `pscd data get`.

    Args:
        parser: the command's parser.
    """
    _add_root(parser)
    inner = parser.add_subparsers(title="commands", metavar="get")
    GET.add(add_command(inner, "get", GET))


def add_get(parser: Parser) -> None:
    """Add the flags of `pscd data get`.

    Args:
        parser: the command's parser.
    """
    from pscd.data.download import DOWNLOADS

    parser.add_argument("name", help=f"one of: {', '.join(DOWNLOADS)}")
    _add_root(parser)


def _add_root(parser: Parser) -> None:
    # A default here would, in the inner parser, replace what the outer one was given.
    text = "folder of the files (default: what PSCD_DATA names, else ~/.cache/pscd)"
    parser.add_argument("--root", type=Path, default=argparse.SUPPRESS, help=text)


def run_data(args: argparse.Namespace) -> None:
    """List the sets of images, and how to get those that are missing.

    Args:
        args: the flags.
    """
    from pscd.data.image_sets import IMAGE_SETS, data_root

    root = data_root(getattr(args, "root", None))
    print(f"in {root}:")
    for name, images in IMAGE_SETS.items():
        if images.there(root):
            state = "there"
        else:
            state = f"pscd data get {name}" if images.by_hand is None else f"by hand: {images.by_hand}"
        print(f"  {name:<14} {images.about} - {state}")
    print("or give any folder of pictures; its sub-folders are labels")


def run_get(args: argparse.Namespace) -> None:
    """Download a set of images, check it, and print where it is.

    Args:
        args: the flags.

    Raises:
        UserError: there is no such set, or it cannot be downloaded.
    """
    from pscd.data.download import download

    for path in download(args.name, root=getattr(args, "root", None)):
        print(path)


DATA = Command("list the sets of images, and which of them are on disk", add_data, run_data)
GET = Command("download a set of images and check it", add_get, run_get)
