"""Settings of the studies, by name: those of the paper, and of named sets of images."""

from pscd.config import ChainSettings, GuardSettings, OptimizerSettings, RowSettings, TrainConfig
from pscd.energies import Architecture
from pscd.errors import UserError
from pscd.objectives import PseudoSpherical
from pscd.recipes.configs import RECIPES, SMALL_IMAGES
from pscd.sampling import Langevin

_SMALL = SMALL_IMAGES.changed({"rows.data": "mnist"})
_SHARP = {"optimizer.lr": 2e-3, "optimizer.ema": 0.999}
_PHOTOS = _SMALL.changed(
    {
        "rows.data": "cifar10",
        "energy.name": "cnn",
        "energy.depth": 3,
        "energy.classes": 10,
        "sampler.n_steps": 10,
        "optimizer.lr": 2e-4,
        "updates": 2000,
        # 2.5 times as fast on processors that support it.
        "compute.precision": "bfloat16",
    }
)
_SPECTRUM = {
    "objective.gamma": 0.0,
    "sampler.slope": 1.3,
    "sampler.step_size": 100.0,
    "sampler.noise_scale": 0.02,
    "sampler.max_grad": 0.003,
    "optimizer.lr": 1e-3,
    "updates": 1400,
}
# The paper's run on CIFAR-10, Appendix D.4; learning rate, clipping and dequantisation as in the code it follows.
_PAPER = TrainConfig(
    objective=PseudoSpherical(gamma=1.0, warmup=0.0, l2=1.0, unit="nats"),
    sampler=Langevin(n_steps=60, step_size=10.0, noise_scale=0.005, max_grad=0.01, low=0.0, high=1.0),
    energy=Architecture("resnet", width=128, depth=3, fourier=0, spectral_norm=True, base_scale=None, classes=10),
    updates=50_000,
    batch_size=128,
    chains=ChainSettings(buffer_size=10_000, base="box", restart=0.05, sample_steps=60),
    optimizer=OptimizerSettings(lr=3e-4, schedule="constant", betas=(0.0, 0.999), ema=0.0),
    guard=GuardSettings(checkpoint_every=1000),
    rows=RowSettings(data="cifar10", data_noise=1 / 256, standardise="none"),
)

PRESETS: dict[str, TrainConfig] = {
    **RECIPES,
    "mnist": _SMALL,
    # At the learning rate of `mnist`, 2000 updates leave digits half learnt; at this one CD, which is for clean digits,
    # diverges where there is junk. See docs/results/image-ablation.md and junk-images-mnist.md.
    "mnist-sharp": _SMALL.changed({"objective.gamma": 0.0, **_SHARP}),
    # Images are weighed first: what is out of place, or there many times, no energy finds strange.
    "mnist-robust": _SMALL.changed({"objective.warmup": 0.05, "rows.start": "glance", **_SHARP}),
    "fashion-mnist": _SMALL.changed({"rows.data": "fashion-mnist"}),
    "cifar10-small": _PHOTOS,
    # For clean photographs: chains that are preconditioned by the spectrum of images, and five times the learning rate,
    # in as many minutes as the preset above. See docs/results/photo-ablation.md.
    "cifar10-spectrum": _PHOTOS.changed(_SPECTRUM),
    # Chains on half of the energy: the FID is lower with each of four seeds. See docs/results/images-fid-cifar10.md.
    "cifar10-negative": _PHOTOS.changed({**_SPECTRUM, "objective.gamma": -0.5, "objective.unit": "nats"}),
    # For a first look, five times as fast.
    "cifar10-tiny": _SMALL.changed({"rows.data": "cifar10", "energy.classes": 10}),
    "paper-cifar10": _PAPER,
    # Short-run chains from noise (Nijkamp et al. 2019) with 100 steps. Their step 1 and noise 0.01 are for pixels in
    # [-1, 1]; [0, 1] is half as wide.
    "paper-celeba": _PAPER.changed(
        {
            "rows.data": "celeba",
            "energy.name": "cnn",
            "energy.width": 64,
            "energy.depth": 4,
            "energy.classes": 0,
            "energy.spectral_norm": False,
            "sampler.n_steps": 100,
            "sampler.step_size": 0.25,
            "sampler.max_grad": None,
            "chains.start": "short-run",
            "updates": 100_000,
            "batch_size": 64,
            "optimizer.lr": 1e-4,
            "rows.data_noise": 0.015,
            "chains.sample_steps": 100,
        }
    ),
}
# The preset of a data set that is not called like it.
PRESET_OF = {"cifar10": "cifar10-small", "celeba": "paper-celeba", "svhn": "cifar10-small", "notmnist": "mnist"}


def preset(name: str) -> TrainConfig:
    """The preset of a given name."""
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}; there are: {', '.join(PRESETS)}")
    return PRESETS[name]
