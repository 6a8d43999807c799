"""`python -m studies data`: the named sets of images on this machine; `data get NAME` downloads one and checks it."""

import argparse
from pathlib import Path

from pscd.data.pictures import data_root
from pscd.errors import UserError
from studies.images.download import DOWNLOADS, download
from studies.images.sets import IMAGE_SETS


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("action", nargs="?", choices=("get",), help="get: download the set that is named next")
    parser.add_argument("set", nargs="?", choices=DOWNLOADS, metavar="NAME", help="the set to download")
    parser.add_argument("--root", type=Path, help="folder of the files (default: what PSCD_DATA names, or the cache)")


def run(args: argparse.Namespace) -> None:
    """List the sets, or download one."""
    if args.action == "get":
        if args.set is None:
            raise UserError(f"name a set to download: {', '.join(DOWNLOADS)}")
        for path in download(args.set, root=args.root):
            print(path)
        return
    root = data_root(args.root)
    print(f"in {root}:")
    for name, images in IMAGE_SETS.items():
        missing = f"python -m studies data get {name}" if images.by_hand is None else f"by hand: {images.by_hand}"
        print(f"  {name:<14} {images.about} - {'there' if images.there(root) else missing}")
