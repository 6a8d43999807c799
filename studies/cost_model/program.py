"""What training together costs, on paper and here: `python -m studies cost-model` writes docs/results/cost-model.md.

python -m studies cost-model --quick      # a minute; in results/quick
"""

import argparse
import json
import os
import statistics
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from pscd.files import write_json, write_text_atomic
from pscd.version import machine, versions
from studies.cost_model import measure, model
from studies.cost_model.model import Network, Work
from studies.engine import with_reading
from studies.engine.markdown import markdown_table
from studies.timing import CASES

NAME = "cost-model"
PROCESSES = (2, 8, 64, 1024)
MEASURED = (2, 4)  # processes, on this machine
ASSUMED = (  # what nobody measured here: round numbers for such networks
    Network("10 Gbit/s Ethernet (assumed)", 50e-6, 8 / 10e9),
    Network("100 Gbit/s (assumed)", 10e-6, 8 / 100e9),
)
BILLION = 1_000_000_000
OF_THE_BILLION = "mlp-20"  # the case of the table: 20 columns
ON_MACHINES = ("mlp-2", "mlp-20", "conv", "resnet")
COMPARED = ("mlp-20", "conv")


def measure_all(quick: bool, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Everything that is measured, saved after every part; rounds of updates may be stopped at any time."""
    torch.set_num_threads(1)
    repeats, rounds, updates = (3, 1, 2) if quick else (6, 3, 5)
    network, points = measure.network_here(20 if quick else measure.REPEATS)
    found: dict[str, Any] = {"machine": machine(), "versions": versions(), "updates": updates, "load": _load()}
    found |= {"network": asdict(network), "collectives": points, "works": {}, "measured": {}}
    for name in ON_MACHINES[:2] if quick else ON_MACHINES:
        found["works"][name] = asdict(measure.work_here(name, repeats))
    for _ in range(rounds):
        for name in COMPARED if not quick else COMPARED[:1]:
            for key, seconds in compare(name, updates).items():
                found["measured"].setdefault(name, {}).setdefault(key, []).append(seconds)
        found["load"] = _load()
        save(found)
    return found


def _load() -> float:
    """Processes that wanted a core, over the last quarter of an hour."""
    return round(os.getloadavg()[2], 1)


def compare(name: str, updates: int) -> dict[str, float]:
    """Updates of 1, 2 and 4 processes on the same batch, and of as many that know nothing of each other, in turns."""
    times: dict[str, float] = {}
    for n in (1, *MEASURED):
        words = ("update", name, str(n), str(updates))
        found = measure.launch(n, *words)
        times[f"{n}"] = max(clock for clock, _ in found)
        times[f"{n} busy"] = statistics.fmean(busy for _, busy in found)
        if n > 1:
            times[f"{n} apart"] = max(clock for clock, _ in measure.launch(n, *words, apart=True))
    return times


def report(found: dict[str, Any]) -> dict[str, Any]:
    """The model's numbers beside the measured ones."""
    works = {name: Work(**values) for name, values in found["works"].items()}
    networks = [Network(**found["network"]), *ASSUMED]
    growing = [
        {"case": name, "network": network.name, "processes": p} | _predicted(works[name], network, p, _rows(name))
        for name in works
        for network in networks
        for p in PROCESSES
    ]
    return {**found, "predicted": growing, "compared": _compared(found, works, networks[0])} | {
        "billion": [_billion(works[OF_THE_BILLION], network, p) for network in networks for p in (1, *PROCESSES)]
    }


def _rows(name: str) -> int:
    return CASES[name].batch_size


def _predicted(work: Work, network: Network, p: int, rows: int) -> dict[str, float]:
    return {
        "bytes": model.bytes_sent(work, p, rows),
        "messages": model.messages(p),
        "communication": model.communication(work, network, p, rows),
        "replicated": work.per_energy * model.PHASES * rows * (p - 1),
        "update": model.together(work, network, p, rows),
        "efficiency": model.efficiency_growing(work, network, p, rows),
        "efficiency_fixed": model.efficiency_fixed(work, network, p, rows) if p <= rows else None,
    }


def _compared(found: dict[str, Any], works: dict[str, Work], network: Network) -> list[dict[str, Any]]:
    """Efficiency at a fixed batch: predicted, what the machine allows, and measured; medians of ratios in a round."""
    rows = []
    for name, times in found["measured"].items():
        for n in MEASURED:
            allowed = [one / (n * t) for one, t in zip(times["1"], times[f"{n} apart"], strict=True)]
            reached = [one / (n * t) for one, t in zip(times["1"], times[str(n)], strict=True)]
            busy = [one / (n * t) for one, t in zip(times["1 busy"], times[f"{n} busy"], strict=True)]
            predicted = model.efficiency_fixed(works[name], network, n, _rows(name))
            rows.append(
                {
                    "case": name,
                    "processes": n,
                    "predicted": predicted,
                    "allowed": statistics.median(allowed),
                    "measured": statistics.median(reached),
                    "of_processor": statistics.median(busy),
                    "lowest": min(reached),
                    "highest": max(reached),
                }
            )
    return rows


def _billion(work: Work, network: Network, p: int) -> dict[str, Any]:
    """One pass over a billion rows, with the case's rows per process and update."""
    rows, columns = _rows(OF_THE_BILLION), CASES[OF_THE_BILLION].shape[0]
    seconds = model.together(work, network, p, rows)
    return {
        "network": network.name,
        "processes": p,
        "hours": BILLION / (p * rows) * seconds / 3600,
        "rows_per_second": p * rows / seconds,
        "shard_gigabytes": BILLION * columns * model.FLOAT / p / 1e9,
        "read_megabytes_per_second": rows * columns * model.FLOAT / seconds / 1e6,
        "efficiency": model.efficiency_growing(work, network, p, rows),
    }


def page(found: dict[str, Any], command: str) -> str:
    """The page in Markdown."""
    network = Network(**found["network"])
    lines = ["# What training together costs", "", f"Made by `{command}`. {found['machine']}; "]
    lines[-1] += f"{found['versions']['torch']}. While it was measured the machine had a load of {found['load']}."
    lines += ["", ABOUT.format(latency=1e6 * network.latency, speed=network.gigabytes_per_second), ""]
    lines += ["## An update, by network and process", "", _works_table(found), "", WORKS_READ, ""]
    lines += ["## Predicted efficiency", "", PREDICTED_READ, "", _predicted_table(found), ""]
    lines += [f"![Predicted efficiency]({NAME}.png)", "", "## Beside what is measured here", ""]
    rounds = min(len(times["1"]) for times in found["measured"].values())
    lines += [COMPARED_READ.format(cores=os.cpu_count(), rounds=rounds, updates=found["updates"]), ""]
    lines += [_compared_table(found), "", "## A table of a billion rows", "", BILLION_READ, "", _billion_table(found)]
    return "\n".join(lines) + "\n"


ABOUT = """\
An update makes two collective calls, whatever the objective of two phases: the energies of data and samples are
gathered (8 bytes for each row of a process), and gradients and statistics are summed (4 bytes for each parameter). Both
go around a ring of p processes: each sends 3 (p - 1) messages, and `8 b (p - 1) + 4 (P + s) 2 (p - 1) / p` bytes for b
rows of its own, P parameters and s statistics. A test counts the calls and their bytes in an update of real training.
Once per checkpoint the chains are gathered, too: `--buffer-size` rows, which at 500 updates between checkpoints is
little.

The time of an update is `fixed + b per row + 2 b p per energy + messages x latency + bytes / bandwidth`. Every process
computes the loss of the whole batch, hence the term that grows with p. Between two processes of this machine a message
takes {latency:.0f} microseconds, and {speed:.2g} GB a second go through (gloo, loopback, the fastest of many)."""
WORKS_READ = """\
Rows are those of a process. Fixed and per row are processor time of one core, so that other load does not count."""
PREDICTED_READ = """\
Each process keeps its rows and the batch grows with p (weak scaling): 1 would be an update that takes as long as that
of one process. In brackets, where there is a row for each process, the same batch divided among p (strong scaling). The
loopback says what cores of such a machine would do if it had as many; the other networks are assumed, not measured.

What ends it for small networks is latency: the 3 (p - 1) messages of a ring wait for each other, 3,069 of them for
1,024 processes. The loss that every process computes for all comes next; bytes hardly count. So more rows for each
process help, and so would a tree in place of the ring, as NCCL has."""
COMPARED_READ = """\
The same batch divided among 2 and 4 processes, one thread each, in {rounds} rounds of {updates} updates that took turns
with a single process; medians of ratios within a round, lowest and highest in brackets.

- **Of processor time** is the ratio in seconds of the processor: what the collective calls and the replicated loss
  cost, without waiting and whatever else the machine does. It is what to compare with the prediction.
- **Allowed**, by the clock, is what as many processes reach that never talk to each other, and **measured** what those
  reach that train together: compare these two. Four processes on {cores} cores are more than there are: each runs half
  of the time, so that an idle machine allows {cores}/4 at most, and every call may wait for a process that does not
  run, which the model does not know. On a busy machine, more processes get a larger share of it than one, and both
  ratios come out too high."""
BILLION_READ = """\
Twenty columns, 4 bytes each: 80 GB. Each process has 512 rows of every batch (case `mlp-20`) and reads its own part of
the table. One pass:"""


def _works_table(found: dict[str, Any]) -> str:
    rows = []
    for name, values in found["works"].items():
        work, b = Work(**values), _rows(name)
        rows.append(
            [
                CASES[name].title,
                f"{work.parameters:,}",
                str(b),
                *(f"{model.bytes_sent(work, p, b) / 1e3:,.0f}" for p in PROCESSES),
                f"{1e3 * work.fixed:.3g}",
                f"{1e6 * work.per_row:.3g}",
                f"{1e9 * work.per_energy:.3g}",
            ]
        )
    head = ["network", "parameters", "rows", *(f"kB, p = {p:,}" for p in PROCESSES)]
    return markdown_table([*head, "fixed, ms", "per row, microseconds", "per energy, ns"], rows)


def _predicted_table(found: dict[str, Any]) -> str:
    by: dict[tuple[str, str], list[str]] = {}
    for row in found["predicted"]:
        fixed = "" if row["efficiency_fixed"] is None else f" ({row['efficiency_fixed']:.2f})"
        by.setdefault((CASES[row["case"]].title, row["network"]), []).append(f"{row['efficiency']:.2f}{fixed}")
    return markdown_table(
        ["network of the energy", "between processes", *(f"p = {p:,}" for p in PROCESSES)],
        [[*key, *values] for key, values in by.items()],
    )


def _compared_table(found: dict[str, Any]) -> str:
    rows = [
        [
            CASES[row["case"]].title,
            str(row["processes"]),
            f"{row['predicted']:.2f}",
            f"{row['of_processor']:.2f}",
            f"{row['allowed']:.2f}",
            f"{row['measured']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})",
        ]
        for row in found["compared"]
    ]
    head = ["", "processes", "predicted, a core each", "of processor time", "allowed", "measured"]
    return markdown_table(head, rows)


def _billion_table(found: dict[str, Any]) -> str:
    rows = [
        [
            row["network"],
            f"{row['processes']:,}",
            f"{row['hours']:.3g}",
            f"{row['rows_per_second']:,.0f}",
            f"{row['shard_gigabytes']:.3g}",
            f"{row['read_megabytes_per_second']:.3g}",
            f"{row['efficiency']:.2f}",
        ]
        for row in found["billion"]
    ]
    head = ["between processes", "processes", "hours", "rows per second", "GB of each", "MB/s read by each"]
    return markdown_table([*head, "efficiency"], rows)


def draw(found: dict[str, Any], path: Path) -> None:
    """Predicted efficiency over the number of processes, for each network."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    works = {name: Work(**values) for name, values in found["works"].items()}
    networks = [Network(**found["network"]), *ASSUMED]
    figure, axes = plt.subplots(1, len(networks), figsize=(4 * len(networks), 3.4), sharey=True, layout="constrained")
    at = [2**k for k in range(11)]
    for axis, network in zip(axes, networks, strict=True):
        for i, (name, work) in enumerate(works.items()):
            values = [model.efficiency_growing(work, network, p, _rows(name)) for p in at]
            axis.plot(at, values, color=f"C{i}", label=CASES[name].title)
        axis.set(xscale="log", xlabel="processes", title=network.name, ylim=(0, 1.05))
        axis.set_xscale("log", base=2)
    axes[0].set_ylabel("efficiency (weak scaling)")
    axes[-1].legend(frameon=False, fontsize="x-small", loc="lower left")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def flags(parser: argparse.ArgumentParser) -> None:
    """The flags of this study."""
    parser.add_argument("--page-only", action="store_true", help="write the page from the numbers that are there")


def run(args: argparse.Namespace) -> Path:
    """Measure, and write numbers, figure and page."""
    out = args.out
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{NAME}.json"
    if args.page_only:
        found = report(json.loads(path.read_text()))
    else:
        found = report(measure_all(args.quick, lambda partly: write_json(path, partly)))
    write_json(path, found)
    draw(found, out / f"{NAME}.png")
    text = page(found, f"python -m studies cost-model{' --quick' if args.quick else ''}")
    write_text_atomic(out / f"{NAME}.md", with_reading(text, out / f"{NAME}.md"))
    return out / f"{NAME}.md"
