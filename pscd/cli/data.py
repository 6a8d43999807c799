"""The commands for sets of images: `data` lists them, `data get` downloads one."""

import argparse
from pathlib import Path
from typing import Any

from pscd.cli.common import command
from pscd.data.download import DOWNLOADS, download
from pscd.data.image_sets import IMAGE_SETS, data_root


def add_data(commands: Any) -> None:
    """`pscd data` and `pscd data get`."""
    parser = command(commands, "data", _list, "list the sets of images, and which of them are on disk")
    _add_root(parser)
    inner = parser.add_subparsers(title="commands", metavar="get")
    get = command(inner, "get", _get, "download a set of images and check it")
    get.add_argument("name", help=f"one of: {', '.join(DOWNLOADS)}")
    _add_root(get)


def _add_root(parser: Any) -> None:
    # A default here would, in the inner parser, replace what the outer one was given.
    text = "folder of the files (default: what PSCD_DATA names, else ~/.cache/pscd)"
    parser.add_argument("--root", type=Path, default=argparse.SUPPRESS, help=text)


def _list(args: argparse.Namespace) -> None:
    root = data_root(getattr(args, "root", None))
    print(f"in {root}:")
    for name, images in IMAGE_SETS.items():
        if images.there(root):
            state = "there"
        else:
            state = f"pscd data get {name}" if images.by_hand is None else f"by hand: {images.by_hand}"
        print(f"  {name:<14} {images.about} - {state}")
    print("or give any folder of pictures; its sub-folders are labels")


def _get(args: argparse.Namespace) -> None:
    paths = download(args.name, root=getattr(args, "root", None))
    for path in paths:
        print(path)
