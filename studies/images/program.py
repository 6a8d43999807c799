"""`python -m studies data`: the named sets of images on this machine; `data get NAME` downloads one and checks it."""

from pathlib import Path

from pscd.cli.flags import Parser
from pscd.data.pictures import data_root
from studies.images.download import DOWNLOADS, download
from studies.images.sets import IMAGE_SETS


def main() -> None:
    """List the sets, or download one."""
    parser = Parser("python -m studies data", description=__doc__)
    parser.add_argument("action", nargs="?", choices=("get",), help="get: download the set that is named next")
    parser.add_argument("name", nargs="?", choices=DOWNLOADS, help="the set to download")
    parser.add_argument("--root", type=Path, help="folder of the files (default: what PSCD_DATA names, or the cache)")
    args = parser.parse_args()
    if args.action == "get":
        if args.name is None:
            parser.error(f"name a set to download: {', '.join(DOWNLOADS)}")
        for path in download(args.name, root=args.root):
            print(path)
        return
    root = data_root(args.root)
    print(f"in {root}:")
    for name, images in IMAGE_SETS.items():
        missing = f"python -m studies data get {name}" if images.by_hand is None else f"by hand: {images.by_hand}"
        print(f"  {name:<14} {images.about} - {'there' if images.there(root) else missing}")
