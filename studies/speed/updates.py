"""Time of an update (a), PS-CD beside CD (b), and the sampler over its matrix products (c), in the same rounds."""

import statistics
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pscd import fast
from studies.speed import rivals
from studies.timing import CASES, OBJECTIVES, Case, Task, Training, best_threads, ratio, take_turns, with_threads

OURS, PLAIN = "pscd", "plain loop"
WITHOUT, IN_CPP = f"{OURS} CD without C++", "by hand in C++"


def measure(case: Case, rounds: int, *, show: bool = True) -> dict[str, Any]:
    """Everybody's update in alternating rounds, as plain numbers."""
    runs = {objective: Training(case, gamma) for objective, gamma in OBJECTIVES.items()}
    has_cpp = runs["CD"].gradients == IN_CPP
    own = best_threads(runs["CD"].update)
    tasks: dict[str, Task] = {f"{OURS} {objective}": run.update for objective, run in runs.items()}
    if has_cpp:
        tasks[WITHOUT] = Training(case, 0.0, "eager").update
    tasks["sampler"] = runs["CD"].sample
    tasks = {name: with_threads(task, own) for name, task in tasks.items()} | {"bound": runs["CD"].bound()}
    threads = {}
    for name, task in contestants(case).items():
        threads[name] = best_threads(task)
        tasks[name] = with_threads(task, threads[name])
    times = take_turns(tasks, rounds, show=show)
    ours = {name: f"{OURS} {name.rsplit(' ', 1)[1]}" for name in threads}
    return {
        "title": case.title,
        "rounds": rounds,
        "gradients": runs["CD"].gradients,
        "threads": {OURS: own, **threads},
        "milliseconds": {name: round(1e3 * statistics.median(values), 3) for name, values in times.items()},
        # How many times longer theirs takes.
        "times_ours": {name: asdict(ratio(times[name], times[ours[name]])) for name in threads},
        "pscd_over_cd": asdict(ratio(times[f"{OURS} PS-CD"], times[f"{OURS} CD"])),
        "sampler_over_bound": asdict(ratio(times["sampler"], times["bound"])),
        # What C++ gains over the same by hand in torch, and after how many updates that pays for compiling it.
        "without_cpp": asdict(ratio(times[WITHOUT], times[f"{OURS} CD"])) if has_cpp else None,
        "compile_seconds": fast.time_to_compile() if has_cpp else None,
        "sampler_share": asdict(ratio(times["sampler"], times[f"{OURS} CD"])),
    }


def contestants(case: Case) -> dict[str, Task]:
    """Updates of everybody else; the name ends with the objective."""
    data = case.data()
    tasks: dict[str, Task] = {
        f"{PLAIN} {objective}": rivals.PlainLoop(rivals.network(case), data, case, gamma).update
        for objective, gamma in OBJECTIVES.items()
    }
    absent = rivals.missing_peers()
    if "torchebm" not in absent:
        tasks["torchebm CD"] = rivals.torchebm_update(rivals.network(case), data, case)[0]
    if "ebmkit" not in absent:
        tasks["ebmkit CD"] = rivals.ebmkit_trainer(rivals.network(case), data, case)[0]
    return tasks


def runs(quick: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    """What there is to measure, by name."""
    chosen = ["mlp-2"] if quick else list(CASES)

    def count(name: str) -> int:
        # An update of the ResNet takes a second or more.
        return 3 if quick else 30 if name == "resnet" else 40

    return {name: (lambda name=name: measure(CASES[name], count(name))) for name in chosen}
