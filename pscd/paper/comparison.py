"""Models of images side by side: what a page calls them, and how far each is from CD."""

from collections.abc import Callable, Sequence
from statistics import fmean, stdev

from pscd.config import TrainConfig
from pscd.files import markdown_table
from pscd.objectives import PseudoSpherical
from pscd.paper.artefact import CellResult, number, objective_label
from pscd.parallel import Settings

BOTH = {"nats": "per nat", "spread": "per spread"}  # the units of `--unit both`, and what a table calls them


def unit_of(settings: Settings) -> str:
    """The unit of a model's gamma as a table calls it; empty for CD, which has none."""
    objective = TrainConfig.from_dict(settings["config"]).objective
    return BOTH[objective.unit] if isinstance(objective, PseudoSpherical) and settings["gamma"] != 0 else ""


def naming(done: Sequence[CellResult]) -> Callable[[Settings], str]:
    """What a page calls its models: by gamma, and by the unit of gamma too if the page has both.

    Args:
        done: all cells of the page.

    Returns:
        A function from settings to a name.
    """
    both = {unit_of(d.settings) for d in done} >= set(BOTH.values())
    return lambda s: f"{objective_label(s['gamma'])} {unit_of(s) if both else ''}".rstrip()


APART = """
FID less that of CD with the same seed, mean and 95 % interval (Student's t, over seeds), and the mechanism: temperature
of the chains, spread of the energies of held-out images, and effective share of the data in the last tenth of the run.

"""


def differences(models: Sequence[CellResult]) -> str:
    """A table of the FID of each gamma less that of CD with the same seed, with intervals; empty for one seed.

    Args:
        models: cells of `compute`; those that diverged are left out.

    Returns:
        Markdown.
    """
    name = naming(models)
    by_name: dict[str, dict[int, CellResult]] = {}
    for d in models:
        if d.result["fid"] is not None:
            by_name.setdefault(name(d.settings), {})[d.settings["seed"]] = d
    cd = objective_label(0.0)
    base, rows = by_name.get(cd, {}), []
    for label, cells_of in by_name.items():
        found = [d.result["fid"] - base[seed].result["fid"] for seed, d in cells_of.items() if seed in base]
        shown = "" if label == cd or len(found) < 2 else _interval(found)
        config = TrainConfig.from_dict(next(iter(cells_of.values())).settings["config"])
        temperature = getattr(config.sampler, "temperature", 1.0)
        means = (
            fmean(values) if (values := [d.result[k] for d in cells_of.values() if k in d.result]) else None
            for k in ("spread", "ess_pos")
        )
        rows.append([label, shown, f"{temperature:.3g}", *map(number, means)])
    if not any(row[1] for row in rows):
        return ""
    return markdown_table(["", "FID less CD's", "temperature", "spread", "ESS of the data"], rows)


def _interval(values: Sequence[float]) -> str:
    """Mean and half width of the 95 % interval."""
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return f"{fmean(values):.1f} +- {half:.1f}"
