"""Outlier scores of images; the higher, the more anomalous.

A network that has learnt little beyond smoothness gives low energies to everything smooth, however anomalous. Energy
alone is therefore one-sided; each of the other scores corrects it in another way.

| by | score | after |
|---|---|---|
| `energy` | E(x) | |
| `typicality` | abs(E(x) - mean E of reference images) | Nalisnick et al. 2019, for one image |
| `complexity` | z(E(x)) - z(L(x)), L the length of the compressed image | Serra et al. 2020 |
| `gradient` | the norm of dE/dx | Grathwohl et al. 2020 |
| `background` | z(E(x)) - z(E'(x)), E' a model of noisy images | Ren et al. 2019 |
| `joint` | Mahalanobis distance of (E(x), L(x)) from reference images | typicality in both, high or low |

z is the distance from the mean of reference images in their standard deviations. The published scores subtract nats
from nats; energies of images have a unit of their own, set by the sampler's temperature, and z makes both comparable.
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
SCORES: dict[str, tuple[str, ...]] = {  # what each score is computed from
    "energy": ("energy",),
    "typicality": ("energy",),
    "complexity": ("energy", "bits"),
    "gradient": ("gradient",),
    "background": ("energy", "background"),
    "joint": ("energy", "bits"),
}
DEFAULT = "joint"  # the best single score on held-out pairs of image sets
MIN_REFERENCE = 10  # images of which a mean and a standard deviation are taken


@dataclass(frozen=True)
class OutlierScore:
    """An outlier score of images, ready to be applied.

    Args:
        model: a model of images.
        by: a key of `SCORES`.
        reference: measures of reference images; not needed for `energy` and `gradient`.
        background: a model of noisy images, for `background`.

    >>> import pscd
    >>> x = torch.randint(256, (50, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    >>> config = pscd.recipes.configs.recipe("digits").changed({"updates": 2, "batch_size": 8})
    >>> score = OutlierScore.fit(pscd.fit(x, config=config), x[:25], "complexity")
    >>> score(x[25:]).shape
    torch.Size([25])
    """

    model: Model
    by: str = "energy"
    reference: Measures | None = None
    background: Model | None = None

    @classmethod
    def fit(
        cls, model: Model, reference: Tensor | None = None, by: str = "energy", background: Model | None = None
    ) -> "OutlierScore":
        """Measure reference images, for the scores that compare with them.

        Args:
            model: a model of images.
            reference: images like those of the training, best held-out ones, `(n, *shape)`.
            by: a key of `SCORES`.
            background: a model of noisy images, for `background`.

        Returns:
            The score.

        Raises:
            UserError: there is no such score, or an argument that it needs is missing.
        """
        if by not in SCORES:
            raise UserError(f"unknown score {by!r}; give one of {', '.join(SCORES)}")
        if not model.is_image:
            raise UserError(f"the score {by} needs a model of images; rows of a table are scored by their energy")
        if by == "background" and background is None:
            raise UserError("the score background needs a second model, trained on noisy images")
        if by in ("energy", "gradient"):
            return cls(model, by)
        if reference is None or len(reference) < MIN_REFERENCE:
            raise UserError(f"the score {by} needs at least {MIN_REFERENCE} reference images (held-out data)")
        return cls(model, by, measures(model, reference, SCORES[by], background), background)

    def __call__(self, x: Tensor) -> Tensor:
        """Scores `(n,)` of images `(n, *shape)`, as bytes or in [0, 1]."""
        return combined(self.by, measures(self.model, x, SCORES[self.by], self.background), self.reference)


def combined(by: str, values: Measures, reference: Measures | None = None) -> Tensor:
    """A score `(n,)` from measures of images and of reference images.

    >>> reference = {"energy": torch.tensor([0.0, 2.0])}
    >>> combined("typicality", {"energy": torch.tensor([-1.0, 1.5])}, reference)
    tensor([2.0000, 0.5000])
    """
    first, *second = SCORES[by]
    if by in ("energy", "gradient"):
        return values[first]
    if reference is None:
        raise ValueError(f"the score {by} needs measures of reference images")
    if by == "typicality":
        return (values[first] - reference[first].mean()).abs()
    a, b = (_standardised(values[name], reference[name]) for name in (first, second[0]))
    if by != "joint":
        return a - b
    u, v = (_standardised(reference[name], reference[name]) for name in (first, second[0]))
    # Two measures that are one would make the distance infinite.
    r = ((u * v).sum() / (len(u) - 1)).clamp(-0.99, 0.99)
    return ((a.square() - 2 * r * a * b + b.square()) / (1 - r.square())).sqrt()


def _standardised(values: Tensor, reference: Tensor) -> Tensor:
    spread = reference.std()
    return (values - reference.mean()) / (spread if spread > 0 else 1.0)


def measures(model: Model, x: Tensor, names: tuple[str, ...], background: Model | None = None) -> dict[str, Tensor]:
    """Some of `energy`, `bits`, `gradient` and `background` of images, `(n,)` each."""
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "energy": model.energy,
        "bits": compressed_bits,
        "gradient": lambda x: gradient_norms(model, x),
    }
    if background is not None:
        functions["background"] = background.energy
    return {name: functions[name](x) for name in names}


def gradient_norms(model: Model, x: Tensor, *, block_size: int = IMAGE_BLOCK) -> Tensor:
    """The Euclidean norm of dE/dx of each image, `(n,)`, in the network's coordinates."""
    model.eval()
    function = as_function(model.network, model.config.compute.precision)
    to_network, device, dtype = model.coordinates.forward, model.shift.device, model.step_size.dtype
    norms = []
    with torch.no_grad(), fast.using(model.config.compute.gradients):
        for part in x.split(block_size):
            z = to_network(as_rows(part).to(device), dtype)
            with fast.evaluating(function, z) as evaluate:
                norms.append(evaluate(z)[1].flatten(1).norm(dim=1).cpu())
    return torch.cat(norms)


def compressed_bits(x: Tensor) -> Tensor:
    """The losslessly compressed length of each image, `(n,)`, as an estimate of its complexity."""
    # By zlib, level 9, of the bytes as they are or of differences in a row (`Sub` of PNG), whichever is shorter.
    pixels = (x if x.dtype == torch.uint8 else to_bytes(x)).cpu()
    differences = pixels.clone()
    differences[..., 1:] -= pixels[..., :-1]  # modulo 256
    pairs = zip(pixels.numpy(), differences.numpy(), strict=True)
    return torch.tensor([8.0 * min(len(zlib.compress(a.tobytes(), 9)) for a in pair) for pair in pairs])
