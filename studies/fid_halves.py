"""The FID that two disjoint sets of real images have: what sampling alone gives, and a check of the feature map.

python -m studies fid-halves --data cifar10 --features inception/fid-inception-2015.pt --n 2000
"""

import argparse

from pscd.metrics import frechet_distance, prdc
from studies.images.classifier import load_feature_map
from studies.images.sets import load_dataset


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("--data", default="cifar10", help="set of images (default: cifar10)")
    parser.add_argument("--features", default="classifier", help="pixels, classifier or a TorchScript Inception")
    parser.add_argument("--n", type=int, default=2000, help="images on each side (default: 2000)")


def run(args: argparse.Namespace) -> None:
    """Print the distance between the halves."""
    data = load_dataset(args.data, seed=0)
    features = load_feature_map(args.features, data, progress=True)
    x = features(data.train[: 2 * args.n])
    first, second = x[: args.n], x[args.n :]
    print(f"{args.data}, training images 1 to {args.n} against the next {len(second)}, by {features.name}")
    print(f"Frechet distance {frechet_distance(first, second):.3f}; {prdc(first, second)}")
