"""Models of images side by side: what a page calls them, and how far each is from CD."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, stdev

import torch
from torch import Tensor, nn
from torch.nn import functional

from pscd.config import TrainConfig
from pscd.data.pixels import to_unit
from pscd.objectives import PseudoSpherical
from studies.engine import Result, Run, Settings, number, objective_label
from studies.engine.markdown import markdown_table

BOTH = {"nats": "per nat", "spread": "per spread"}  # the units of `--unit both`, and what a table calls them

MECHANISM = {
    "spread": "spread",
    "ess_pos": "ESS of the data",
    "cosine_to_cd": "cosine to CD",
    "cosine_of_batches": "of two batches",
    "energy_step": "step of the energy",
}


def unit_of(settings: Settings) -> str:
    """The unit of a model's gamma as a table calls it; empty for CD, which has none."""
    objective = TrainConfig.from_dict(settings["config"]).objective
    return BOTH[objective.unit] if isinstance(objective, PseudoSpherical) and settings["gamma"] != 0 else ""


def naming(done: Sequence[Run]) -> Callable[[Settings], str]:
    """What a page calls its models: by gamma, and by the unit of gamma too if the page has both."""
    both = {unit_of(d.settings) for d in done} >= set(BOTH.values())
    return lambda s: f"{objective_label(s['gamma'])} {unit_of(s) if both else ''}".rstrip()


APART = """
FID less that of CD with the same seed, mean and 95 % interval (Student's t, over seeds), and the mechanism: temperature
of the chains, spread of the energies of held-out images, effective share of the data in the last tenth of the run, and
the cosine between the gradient of the objective and that of CD, on the same batch, at the weights that training ended
with. What chance does in an update is the cosine between CD's gradients on two batches, in the column after it. The
last one is by how much an update of Adam changes the energies of held-out images against each other, as a share of
their standard deviation: where it is the same for all, no objective learns faster than another merely because its steps
are longer.

"""


def differences(models: Sequence[Run]) -> str:
    """A table of the FID of each gamma less that of CD with the same seed, with intervals; empty for one seed."""
    name = naming(models)
    by_name: dict[str, dict[int, Run]] = {}
    for d in models:
        if d.result["fid"] is not None:
            by_name.setdefault(name(d.settings), {})[d.settings["seed"]] = d
    cd = objective_label(0.0)
    base, rows = by_name.get(cd, {}), []
    for label, runs_of in by_name.items():
        found = [d.result["fid"] - base[seed].result["fid"] for seed, d in runs_of.items() if seed in base]
        shown = "" if label == cd or len(found) < 2 else _interval(found)
        config = TrainConfig.from_dict(next(iter(runs_of.values())).settings["config"])
        temperature = getattr(config.sampler, "temperature", 1.0)
        means = (
            fmean(values) if (values := [d.result[k] for d in runs_of.values() if k in d.result]) else None
            for k in MECHANISM
        )
        rows.append([label, shown, f"{temperature:.3g}", *map(number, means)])
    if not any(row[1] for row in rows):
        return ""
    return markdown_table(["", "FID less CD's", "temperature", *MECHANISM.values()], rows)


def _interval(values: Sequence[float]) -> str:
    """Mean and half width of the 95 % interval."""
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return f"{fmean(values):.1f} +- {half:.1f}"


def gradient_agreement(
    energy: nn.Module,
    objective: PseudoSpherical,
    real: Tensor,
    fake: Tensor,
    *,
    batch_size: int,
    lr: float,
    n_batches: int = 16,
) -> Result:
    """How the gradient of an objective compares with that of CD, as means over batches.

    `cosine_to_cd` is between the gradients of both on the same batch, `cosine_of_batches` between those of CD on two
    batches; `energy_step` is the deviation, over real images, of what an update changes in their energies, divided by
    that of the energies.
    """
    n_batches = min(n_batches, len(real) // batch_size, len(fake) // batch_size)
    energy = copy.deepcopy(energy).requires_grad_()  # that of a trained model asks for no gradients
    parameters = list(energy.parameters())

    def gradients(of: PseudoSpherical) -> Tensor:
        rows = []
        for i in range(n_batches):
            part = slice(i * batch_size, (i + 1) * batch_size)
            loss, _ = of.of_energies(energy(to_unit(real[part])), energy(to_unit(fake[part])))
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
        return torch.stack(rows).double()

    own = gradients(objective)
    own_way, cd_way = (functional.normalize(g, dim=1) for g in (own, gradients(replace(objective, gamma=0.0))))
    between = (cd_way @ cd_way.T)[~torch.eye(n_batches, dtype=torch.bool)]
    # Adam without momentum divides by the root of the mean square; a weight that no batch moves stays.
    updates = -lr * own / own.square().mean(0).sqrt().clamp(min=torch.finfo(own.dtype).tiny)
    return {
        "cosine_to_cd": float((own_way * cd_way).sum(1).mean()),
        "cosine_of_batches": float(between.mean()),
        "energy_step": _energy_step(energy, updates, to_unit(real[: n_batches * batch_size])),
    }


@torch.no_grad()
def _energy_step(energy: nn.Module, updates: Tensor, x: Tensor) -> float:
    """Mean over updates, `(n, parameters)`, of the deviation of the change of energy, over that of the energies."""
    before = energy(x).double()
    parameters: list[Tensor] = list(energy.parameters())
    sizes, changes = [p.numel() for p in parameters], []
    for update in updates:
        # Not `vector_to_parameters`, which takes no weights in channels-last order.
        parts = [part.view(p.shape).to(p.dtype) for part, p in zip(update.split(sizes), parameters, strict=True)]
        torch._foreach_add_(parameters, parts)
        changes.append((energy(x).double() - before).std())
        torch._foreach_sub_(parameters, parts)
    return float(torch.stack(changes).mean() / before.std())
