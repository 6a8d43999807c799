"""The page of the benchmark: targets first, then a table for each part."""

import statistics
from collections.abc import Iterator
from typing import Any

from studies.engine.markdown import markdown_table
from studies.speed.growth import BASE, MEMORY_BATCH
from studies.speed.quality import CAP, IN_A_ROW, THRESHOLD
from studies.speed.rivals import PEERS
from studies.speed.updates import OURS, PLAIN

Results = dict[str, dict[str, Any]]  # part, then run

FASTER_THAN_PEERS = {"mlp-2": 2.0, "mlp-20": 2.0, "conv": 1.4}
LARGEST_PSCD_OVER_CD = 1.02
LARGEST_OVER_BOUND = {"mlp-20": 2.5, "conv": 2.5}
FASTER_TO_QUALITY = 5.0
SPEED_UP = 1.7
LARGEST_SLOPE = {"batch": 1.05, "steps": 1.05}
SAME_MEMORY = 1.05  # largest over smallest peak that counts as constant


def targets(results: Results) -> list[dict[str, Any]]:
    """Every target that can be judged by what was measured: what, wanted, measured, met."""
    found = [*_of_updates(results.get("updates", {})), *_of_quality(results.get("quality", {}))]
    return [*found, *_of_growth(results.get("growth", {})), *_of_processes(results.get("processes", {}))]


def _target(what: str, wanted: str, measured: float, met: bool, shown: str | None = None) -> dict[str, Any]:
    return {"what": what, "target": wanted, "measured": measured, "shown": shown or f"{measured:.2f}", "met": bool(met)}


def _at_least(what: str, least: float, value: dict[str, float] | float, prefix: str = "") -> dict[str, Any]:
    middle, shown = _middle(value)
    return _target(what, f"at least {least:g}", middle, middle >= least, prefix + shown)


def _at_most(what: str, most: float, value: dict[str, float] | float) -> dict[str, Any]:
    middle, shown = _middle(value)
    return _target(what, f"at most {most:g}", middle, middle <= most, shown)


def _middle(value: dict[str, float] | float) -> tuple[float, str]:
    if isinstance(value, dict):
        return value["median"], interval(value)
    return value, f"{value:.2f}"


def interval(value: dict[str, float]) -> str:
    return f"{value['median']:.2f} ({value['low']:.2f} to {value['high']:.2f})"


def _of_updates(runs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, run in runs.items():
        for rival, value in run["times_ours"].items():
            who, objective = rival.rsplit(" ", 1)
            least = 1.0 if who == PLAIN else FASTER_THAN_PEERS.get(name)
            if least is not None:
                yield _at_least(f"{run['title']}: {objective}, {who} over {OURS}", least, value)
    for run in runs.values():
        yield _at_most(f"{run['title']}: PS-CD over CD", LARGEST_PSCD_OVER_CD, run["pscd_over_cd"])
    for name, most in LARGEST_OVER_BOUND.items():
        if name in runs:
            run = runs[name]
            yield _at_most(f"{run['title']}: sampler over its matrix products", most, run["sampler_over_bound"])


def _of_quality(runs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for data in dict.fromkeys(run["data"] for run in runs.values()):
        ours = best(runs, OURS, data)
        rivals = [found for name in PEERS if (found := best(runs, name, data)) is not None]
        if ours is None or not rivals:
            continue
        what = f"{data}: seconds to quality, best peer over {OURS}"
        if ours["seconds"] is None:
            yield _target(what, f"at least {FASTER_TO_QUALITY:g}", 0.0, False, "not reached")
            continue
        theirs = min(_seconds(rival) for rival in rivals)
        reached = any(rival["seconds"] is not None for rival in rivals)
        yield _at_least(what, FASTER_TO_QUALITY, theirs / ours["seconds"], "" if reached else "more than ")


def best(runs: dict[str, Any], who: str, data: str) -> dict[str, Any] | None:
    """The setting that was quickest, or any if none arrived; None if nothing was measured."""
    mine = [run for run in runs.values() if run["who"] == who and run["data"] == data]
    return min(mine, key=lambda run: (run["seconds"] is None, _seconds(run)), default=None)


def _seconds(run: dict[str, Any]) -> float:
    """Seconds to quality; of one that never got there, the seconds that it was given (more, if it ended by itself)."""
    return run["seconds"] if run["seconds"] is not None else max(run["trained"], CAP * run["diverged"])


def _of_growth(runs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for axis, most in LARGEST_SLOPE.items():
        if axis in runs:
            yield _at_most(f"exponent of time over {axis}", most, runs[axis]["time_slope"])
    if "steps" in runs:
        memory = runs["steps"]["mib"]
        yield _at_most("memory over steps, largest over smallest", SAME_MEMORY, max(memory) / max(min(memory), 0.1))


def _of_processes(runs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for run in runs.values():
        yield _at_least(f"{run['title']}: two processes, speed-up", SPEED_UP, run["speed_up"])


def page(report: dict[str, Any]) -> str:
    """The report in Markdown."""
    results: Results = report["results"]
    lines = ["# Speed", "", f"Made by `{report['command']}`. {report['machine']}; {_versions(report)}.", ""]
    lines += [f"**{text}**" for text in report["remarks"]] + [""] * bool(report["remarks"])
    lines += [
        "Whatever is compared takes turns in one process; a ratio is taken within a round, then the median over",
        "rounds. In brackets: the interval that holds the median with 95 per cent. Everybody trains the same module on",
        "the same rows, with the same batch, steps, buffer and Adam, and with the number of threads, one or all, that",
        "was faster in a trial.",
        "",
    ]
    wanted = report["targets"]
    if wanted:
        met = sum(target["met"] for target in wanted)
        lines += [f"## Targets: {met} of {len(wanted)} met", ""]
        rows = [[t["what"], t["target"], t["shown"], "yes" if t["met"] else "**no**"] for t in wanted]
        lines += [markdown_table(["", "target", "measured", "met"], rows), ""]
    lines += ["![Ratios, time to quality and growth](speed.png)", ""]
    for part, write in SECTIONS.items():
        if results.get(part):
            lines += [*write(results[part]), ""]
    return "\n".join(lines).rstrip() + "\n"


def _versions(report: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in report["versions"].items())


def _updates(runs: dict[str, Any]) -> list[str]:
    columns = list(dict.fromkeys(name for run in runs.values() for name in run["milliseconds"]))
    rows = [[c["title"], *(_number(c["milliseconds"].get(name)) for name in columns)] for c in runs.values()]
    lines = ["## One update", "", "Milliseconds, medians:", "", markdown_table(["", *columns], rows), ""]
    rivals = list(dict.fromkeys(name for run in runs.values() for name in run["times_ours"]))
    rows = []
    for run in runs.values():
        ratios = [interval(run["times_ours"][name]) if name in run["times_ours"] else "" for name in rivals]
        own = [interval(run["pscd_over_cd"]), interval(run["sampler_over_bound"]), run["gradients"]]
        own.append(", ".join(map(str, run["threads"].values())))
        rows.append([run["title"], str(run["rounds"]), *ratios, *own])
    lines += [
        f"How many times longer than {OURS} under the same objective, what PS-CD costs beside CD, and the sampler"
    ]
    lines += [
        f"over its matrix products alone; the last column has the threads of {OURS} and of the others in order:",
        "",
    ]
    head = ["", "rounds", *rivals, "PS-CD over CD", "sampler over bound", "gradients", "threads"]
    return [*lines, markdown_table(head, rows), *_first_use(runs)]


def _first_use(runs: dict[str, Any]) -> list[str]:
    """What compiling costs, and when that is paid for."""
    compiled = [run for run in runs.values() if run.get("without_cpp")]
    if not compiled:
        return []
    seconds = statistics.median(run["compile_seconds"] for run in compiled)
    lines = ["", f"Without C++, by hand in torch, an update takes longer. Compiling takes {seconds:.1f} s, once on a"]
    lines += ["machine, which is won back after so many updates:", ""]
    rows = []
    for run in compiled:
        gained = (run["without_cpp"]["median"] - 1) * run["milliseconds"][f"{OURS} CD"] / 1e3
        paid = f"{run['compile_seconds'] / gained:,.0f}" if gained > 0 else "never"
        rows.append([run["title"], interval(run["without_cpp"]), paid])
    return [*lines, markdown_table(["", "without C++ over with", "updates"], rows)]


def _quality(runs: dict[str, Any]) -> list[str]:
    lines = ["## Time to quality", ""]
    lines += [f"Seconds of training until the MMD^2 of 5,000 samples against fresh data is below {THRESHOLD:g} for"]
    lines += [f"{IN_A_ROW} looks in a row, the median of the seeds in brackets; with the number of threads that was"]
    lines += ["faster in a trial. The last column is the lowest that was seen with the first seed:", ""]
    rows = []
    for run in runs.values():
        seconds = "diverged" if run["diverged"] else f"not in {run['trained']:.0f}"
        if run["seconds"] is not None:
            each = ("late" if one is None else f"{one:.1f}" for one in run["each"])
            seconds = f"{run['seconds']:.1f} ({', '.join(each)})"
        lowest = min((value for _, value in run["looks"]), default=float("nan"))
        rows.append([run["data"], run["who"], run["setting"], str(run["threads"]), seconds, f"{1e4 * lowest:.2f}"])
    return [*lines, markdown_table(["data", "", "settings", "threads", "seconds", "MMD^2 x 1e4"], rows)]


def _growth(runs: dict[str, Any]) -> list[str]:
    lines = ["## Growth", ""]
    axes = [run for name, run in runs.items() if name != "mmd"]
    rows = []
    for run in axes:
        sizes, times, memory = (", ".join(f"{v:,.6g}" for v in run[key]) for key in ("sizes", "milliseconds", "mib"))
        rows.append([run["axis"], sizes, times, f"{run['time_slope']:.2f}", memory, f"{run['memory_slope']:.2f}"])
    if rows:
        lines += [f"One PS-CD update of an {BASE.title}; exponents of the power laws that fit best. Memory is what is"]
        lines += [
            f"held and used on top of the libraries, with {MEMORY_BATCH} times the batch, so that it stands out:",
            "",
        ]
        lines += [markdown_table(["over", "sizes", "milliseconds", "exponent", "peak MiB", "exponent"], rows), ""]
    if "mmd" in runs:
        run = runs["mmd"]
        size = f"{run['points']:,} x {run['points']:,} points"
        lines += [f"MMD of {size}: {run['seconds']:.0f} s, and {run['mib']:.0f} MiB at its peak."]
    return lines


def _processes(runs: dict[str, Any]) -> list[str]:
    lines = ["## Two processes", ""]
    for run in runs.values():
        one, two = (statistics.median(run["milliseconds"][n]) for n in ("1", "2"))
        lines += [f"{run['title']}, one thread each: {one:.0f} ms with one process, {two:.0f} ms with two,"]
        lines += [
            f"{interval(run['speed_up'])} times as fast, medians of {run['rounds']} turns. Two processes that train"
        ]
        lines += [f"half of the batch each without knowing of each other: {interval(run['allowed'])}."]
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


SECTIONS = {"updates": _updates, "quality": _quality, "growth": _growth, "processes": _processes}
