"""Several ways to say how strange an image is to a model; all of them rise with strangeness.

A network that has learnt little beyond smoothness gives low energies to everything smooth, however strange. Energy
alone is therefore one-sided, and each of the other scores corrects it in a way of its own.

| by | score | after |
|---|---|---|
| `energy` | E(x) | |
| `typicality` | abs(E(x) - mean E of known images) | Nalisnick et al. 2019, for one image |
| `complexity` | z(E(x)) - z(L(x)), L the length of the compressed image | Serra et al. 2020 |
| `gradient` | the norm of dE/dx | Grathwohl et al. 2020 |
| `background` | z(E(x)) - z(E'(x)), E' a model of noisy images | Ren et al. 2019 |
| `joint` | Mahalanobis distance of (E(x), L(x)) from known images | typicality in both, high or low |

z is the distance from the mean of known images in their standard deviations. The published scores subtract nats from
nats; energies of images have a unit of their own, set by the sampler's temperature, and z makes the two comparable.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pscd import fast
from pscd.data import as_rows, to_bytes
from pscd.energies import as_function
from pscd.errors import UserError
from pscd.model import IMAGE_BLOCK, Model

Measures = Mapping[str, Tensor]
FEWEST = 10  # known images that a mean and a spread are taken of
BY: dict[str, tuple[str, ...]] = {  # what each score is computed from
    "energy": ("energy",),
    "typicality": ("energy",),
    "complexity": ("energy", "bits"),
    "gradient": ("gradient",),
    "background": ("energy", "background"),
    "joint": ("energy", "bits"),
}
DEFAULT = "joint"  # of `pscd score`; how it was chosen: docs/results/ood-choice.md
LARGEST_CORRELATION = 0.99  # beyond it, two measures would be one, and their difference rounding


@dataclass(frozen=True)
class Strangeness:
    """A score of images: a model, one of the ways of `BY`, and what it gives for images that are known to be fine.

    Args:
        model: a model of images.
        by: the score.
        known: measures of known images; not needed for `energy` and `gradient`.
        background: a model of noisy images, for `background`.

    >>> import pscd
    >>> x = torch.randint(256, (50, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    >>> config = pscd.presets.PRESETS["digits"].changed({"steps": 2, "batch_size": 8, "buffer_size": 20})
    >>> score = Strangeness.fit(pscd.fit(x, config), x[:25], "complexity")
    >>> score(x[25:]).shape
    torch.Size([25])
    """

    model: Model
    by: str = "energy"
    known: Measures | None = None
    background: Model | None = None

    @classmethod
    def fit(
        cls, model: Model, known: Tensor | None = None, by: str = "energy", background: Model | None = None
    ) -> "Strangeness":
        """Measure known images, where the score compares with them.

        Args:
            model: a model of images.
            known: images like those of the training, best not the same, `(n, *shape)`.
            by: the score, a key of `BY`.
            background: a model of noisy images, for `background`.

        Returns:
            The score.

        Raises:
            UserError: there is no such score, or it needs something that was not given.
        """
        if by not in BY:
            raise UserError(f"unknown score {by!r}; there are: {', '.join(BY)}")
        if not model.is_image:
            raise UserError(f"the score {by} is for models of images; of tables there is the energy")
        if by == "background" and background is None:
            raise UserError("the score background compares with a second model, trained on noisy images; give one")
        if by in ("energy", "gradient"):
            return cls(model, by)
        if known is None or len(known) < FEWEST:
            raise UserError(f"the score {by} needs at least {FEWEST} images like those of the training to compare with")
        return cls(model, by, measures(model, known, BY[by], background), background)

    def __call__(self, x: Tensor) -> Tensor:
        """How strange images are.

        Args:
            x: images, `(n, *shape)`, as bytes or in [0, 1].

        Returns:
            `(n,)`, the higher, the stranger.
        """
        return combined(self.by, measures(self.model, x, BY[self.by], self.background), self.known)


def combined(by: str, found: Measures, known: Measures | None = None) -> Tensor:
    """A score, from what was measured of images.

    Args:
        by: the score, a key of `BY`.
        found: measures of the images, `(n,)` each.
        known: the same of known images; not needed for `energy` and `gradient`.

    Returns:
        `(n,)`, the higher, the stranger.

    Raises:
        ValueError: there are no known images to compare with.

    >>> known = {"energy": torch.tensor([0.0, 2.0]), "bits": torch.tensor([80.0, 120.0])}
    >>> combined("typicality", {"energy": torch.tensor([-1.0, 1.5])}, known)
    tensor([2.0000, 0.5000])
    """
    first, *second = BY[by]
    if by in ("energy", "gradient"):
        return found[first]
    if known is None:
        raise ValueError(f"the score {by} needs measures of known images")
    if by == "typicality":
        return (found[first] - known[first].mean()).abs()
    a, b = (_standardised(found[name], known[name]) for name in (first, second[0]))
    if by != "joint":
        return a - b
    u, v = (_standardised(known[name], known[name]) for name in (first, second[0]))
    r = ((u * v).sum() / (len(u) - 1)).clamp(-LARGEST_CORRELATION, LARGEST_CORRELATION)
    return ((a.square() - 2 * r * a * b + b.square()) / (1 - r.square())).sqrt()


def _standardised(values: Tensor, known: Tensor) -> Tensor:
    spread = known.std()
    return (values - known.mean()) / (spread if spread > 0 else 1.0)


def measures(model: Model, x: Tensor, names: tuple[str, ...], background: Model | None = None) -> dict[str, Tensor]:
    """What scores are computed from.

    Args:
        model: a model of images.
        x: images, `(n, *shape)`, as bytes or in [0, 1].
        names: some of `energy`, `bits`, `gradient` and `background`.
        background: a model of noisy images, for `background`.

    Returns:
        Values `(n,)` by name.

    Raises:
        UserError: the images have another shape than the models'.
    """
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "energy": model.energies,
        "bits": compressed_bits,
        "gradient": lambda x: gradient_norms(model, x),
    }
    if background is not None:
        ways["background"] = background.energies
    return {name: ways[name](x) for name in names}


def gradient_norms(model: Model, x: Tensor) -> Tensor:
    """The Euclidean norm of dE/dx for each image, in the network's coordinates.

    Args:
        model: a model of images.
        x: images, `(n, *shape)`, as bytes or in [0, 1].

    Returns:
        `(n,)`, on the CPU.
    """
    model.eval()
    function = as_function(model.energy, model.config.precision)
    to_network, device, dtype = model.coordinates.forward, model.shift.device, model.step_size.dtype
    found = []
    with torch.no_grad(), fast.using(model.config.gradients):
        for part in x.split(IMAGE_BLOCK):
            z = to_network(as_rows(part).to(device), dtype)
            with fast.evaluating(function, z) as evaluate:
                found.append(evaluate(z)[1].flatten(1).norm(dim=1).cpu())
    return torch.cat(found)


def compressed_bits(x: Tensor) -> Tensor:
    """The length of each image when compressed without loss: an estimate of its complexity.

    The compressor is zlib, level 9, of the bytes as they are or of differences between neighbours in a row (the filter
    `Sub` of PNG), whichever is shorter.

    Args:
        x: images, `(n, channels, height, width)`, as bytes or in [0, 1].

    Returns:
        Bits, `(n,)`.

    >>> flat, noise = torch.zeros(1, 1, 8, 8), torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> bits = compressed_bits(torch.cat([flat, noise]))
    >>> bool(bits[0] < 150), bool(bits[1] > 500)  # of 512 that are not compressed
    (True, True)
    """
    pixels = (x if x.dtype == torch.uint8 else to_bytes(x)).cpu()
    differences = pixels.clone()
    differences[..., 1:] -= pixels[..., :-1]  # modulo 256
    pairs = zip(pixels.numpy(), differences.numpy(), strict=True)
    return torch.tensor([8.0 * min(len(zlib.compress(a.tobytes(), 9)) for a in pair) for pair in pairs])
