"""The numbers of the page, computed from the results of all pieces of work.

A method that failed counts with what one column at a time gives there (AUROC .5 for rows): its user would be left with
that. How often it failed is counted beside it.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from studies.cells.corruptions import KINDS
from studies.cells.ours import NAME
from studies.cells.rivals import SIMPLE
from studies.cells.work import FIND, METHODS, RANK
from studies.detection.tables import natural
from studies.engine import Row, Run

MEASURES = (
    "ap",
    "cell_auroc",
    "nrmse",
    "right",
    "untouched nrmse",
    "repaired nrmse",
    "repaired right",
    "found",
    "false_alarms",
    "coverage",
    "auroc",
    "method_seconds",
    *(f"ap {kind}" for kind in KINDS),
)
MAIN = {"find": "ap", "fill": "nrmse", "rank": "auroc"}
HIGHER_IS_BETTER = ("ap", "auroc")
TIE = 1e-9


class Case(NamedTuple):
    """What is compared: the same dirt on the same group of tables."""

    task: str
    group: str
    wrong: float
    missing: float
    mechanism: str


Values = dict[str, dict[str, dict[int, dict[str, Any]]]]  # method, table, seed


def summarise(done: Sequence[Run]) -> dict[str, Any]:
    """All numbers that the page shows, as JSON can hold them."""
    cases = group_by_case(done)
    return {
        "cases": [{**case._asdict(), "tables": n_tables(v), "methods": method_lines(case, v)} for case, v in cases],
        "falls": fall_lines(cases),
        "tables": table_lines(done, cases),
        "errors": error_lines(done),
        "seconds": seconds(done),
    }


def group_by_case(done: Sequence[Run]) -> list[tuple[Case, Values]]:
    """Results by case, without tables and cases that some method has not met yet; failures are replaced."""
    cases: dict[Case, Values] = {}
    for d in done:
        s = d.settings
        case = Case(s["task"], s["group"], s["wrong"], s["missing"], s["mechanism"])
        of_method = cases.setdefault(case, {}).setdefault(s["method"], {})
        of_method.setdefault(s["table"], {})[s["seed"]] = d.result
    for case, values in cases.items():
        met = set.intersection(*(set(by_table) for by_table in values.values()))
        for method, by_table in values.items():
            values[method] = {
                table: {seed: _stand_in(case, values, table, seed, result) for seed, result in by_seed.items()}
                for table, by_seed in by_table.items()
                if table in met
            }
    # A run that was stopped has cases that some method or table has not met. They would not compare with the others.
    everyone: dict[str, set[str]] = {}
    most: Counter[tuple[str, str]] = Counter()
    for case, values in cases.items():
        everyone.setdefault(case.task, set()).update(values)
        most[case.task, case.group] = max(most[case.task, case.group], n_tables(values))
    whole = [
        case
        for case, values in cases.items()
        if set(values) == everyone[case.task] and 0 < n_tables(values) == most[case.task, case.group]
    ]
    # By task and group: alone and at random first, then by share.
    whole.sort(key=lambda c: (c.task, c.group, c.mechanism, c.wrong > 0 and c.missing > 0, c.wrong, c.missing))
    return [(case, cases[case]) for case in whole]


def _stand_in(case: Case, values: Values, table: str, seed: int, result: dict[str, Any]) -> dict[str, Any]:
    if "error" not in result:
        return result
    kept = {name: result[name] for name in ("error", "method_seconds")}
    if case.task == RANK:
        return {"auroc": 0.5, **kept}
    simple = values.get(SIMPLE, {}).get(table, {}).get(seed, {})
    return {**simple, **kept}


def n_tables(values: Values) -> int:
    """Tables that every method has met."""
    return len(next(iter(values.values())))


def method_lines(case: Case, values: Values) -> list[dict[str, Any]]:
    """One line for each method, ours first and then the best: every measure, failures, and how it stands to ours."""
    main = MAIN[case.task]
    lines = []
    for method, by_table in values.items():
        line: dict[str, Any] = {"method": method}
        line |= {measure: numbers for measure in MEASURES if (numbers := _numbers(by_table, measure))}
        line["runs"] = sum(map(len, by_table.values()))
        line["failed"] = sum("error" in result for by_seed in by_table.values() for result in by_seed.values())
        if method != NAME and NAME in values:
            line["against_ours"] = _against(by_table, values[NAME], main)
        lines.append(line)
    sign = -1 if main in HIGHER_IS_BETTER else 1
    return sorted(
        lines, key=lambda line: (line["method"] != NAME, sign * line.get(main, {"mean": -sign * np.inf})["mean"])
    )


def _numbers(by_table: dict[str, dict[int, dict[str, Any]]], measure: str) -> dict[str, Any] | None:
    """Mean and median over tables of the seeds' means, and the deviation over seeds of the mean over tables."""
    found = {
        table: {seed: r[measure] for seed, r in by_seed.items() if r.get(measure) is not None}
        for table, by_seed in by_table.items()
    }
    found = {table: by_seed for table, by_seed in found.items() if by_seed}
    if not found:
        return None
    means = [np.mean(list(by_seed.values())) for by_seed in found.values()]
    seeds = set.intersection(*(set(by_seed) for by_seed in found.values()))
    by_seed = [np.mean([values[seed] for values in found.values()]) for seed in sorted(seeds)]
    return {
        "mean": float(np.mean(means)),
        "median": float(np.median(means)),
        "sd": float(np.std(by_seed, ddof=1)) if len(by_seed) > 1 else None,
        "tables": len(means),
    }


def _against(theirs: dict[str, Any], ours: dict[str, Any], measure: str) -> dict[str, Any]:
    """By table, how much better ours is: wins, losses, mean difference and its standard error."""
    differences = []
    for table, by_seed in theirs.items():
        shared = [
            s
            for s in by_seed
            if s in ours[table] and None not in (by_seed[s].get(measure), ours[table][s].get(measure))
        ]
        if shared:
            differences.append(np.mean([ours[table][s][measure] - by_seed[s][measure] for s in shared]))
    better = np.array(differences) * (1 if measure in HIGHER_IS_BETTER else -1)
    if not len(better):
        return {"wins": 0, "losses": 0, "better_by": None, "standard_error": None}
    return {
        "wins": int((better > TIE).sum()),
        "losses": int((better < -TIE).sum()),
        "better_by": float(better.mean()),
        "standard_error": float(better.std(ddof=1) / np.sqrt(len(better))) if len(better) > 1 else None,
    }


def fall_lines(cases: Sequence[tuple[Case, Values]]) -> list[dict[str, Any]]:
    """By how much less our AUROC falls than each rival's, by table, from the least to the largest share of gaps."""
    ranked = [(case, values) for case, values in cases if case.task == RANK]
    if len(ranked) < 2:
        return []
    (_, first), (_, last) = ranked[0], ranked[-1]  # sorted by share
    changes: Values = {}
    for method in first:
        for table in first[method]:
            for seed, result in first[method][table].items():
                if seed in last[method].get(table, {}):
                    change = last[method][table][seed]["auroc"] - result["auroc"]
                    changes.setdefault(method, {}).setdefault(table, {})[seed] = {"auroc": change}
    if NAME not in changes:
        return []
    rivals = ordered([method for method in changes if method != NAME])
    return [{"method": method, **_against(changes[method], changes[NAME], "auroc")} for method in rivals]


def table_lines(done: Sequence[Run], cases: Sequence[tuple[Case, Values]]) -> list[dict[str, Any]]:
    """Every table with its size and, by task and method, the mean of the main measure over all dirt."""
    sizes = {(d.settings["group"], d.settings["table"]): (d.result["n"], d.result["d"]) for d in done}
    found: dict[tuple[str, str], dict[str, dict[str, list[float]]]] = {}
    for case, values in cases:
        for method, by_table in values.items():
            for table, by_seed in by_table.items():
                measured = [r[MAIN[case.task]] for r in by_seed.values() if r.get(MAIN[case.task]) is not None]
                of_task = found.setdefault((case.group, table), {}).setdefault(case.task, {})
                of_task.setdefault(method, []).extend(measured)
    return [
        {"table": table, "group": group, "n": n, "d": d}
        | {
            task: {m: float(np.mean(v)) for m, v in found.get((group, table), {}).get(task, {}).items() if v}
            for task in MAIN
        }
        for (group, table), (n, d) in sorted(sizes.items(), key=lambda item: (item[0][0], natural(item[0][1])))
    ]


def error_lines(done: Sequence[Run]) -> list[dict[str, Any]]:
    """What failed with which words, and how often, on which tables."""
    counts: Counter[tuple[str, str, str]] = Counter()
    where: dict[tuple[str, str, str], set[str]] = {}
    for d in done:
        if "error" in d.result:
            key = (d.settings["method"], d.settings["task"], d.result["error"])
            counts[key] += 1
            where.setdefault(key, set()).add(d.settings["table"])
    return [
        {"method": method, "task": task, "error": error, "times": n, "tables": sorted(where[method, task, error])}
        for (method, task, error), n in counts.most_common()
    ]


def seconds(done: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Processor seconds of a piece of work, median, by task and method."""
    spent: dict[str, dict[str, list[float]]] = {}
    for d in done:
        spent.setdefault(d.settings["task"], {}).setdefault(d.settings["method"], []).append(d.result["method_seconds"])
    return {task: {m: float(np.median(values)) for m, values in by.items()} for task, by in spent.items()}


def table_rows(done: Sequence[Run]) -> list[Row]:
    """The main measure of every case and method, in the form of the other results."""
    rows = []
    for case, values in group_by_case(done):
        for line in method_lines(case, values):
            numbers = line.get(MAIN[case.task])
            if numbers:
                rows.append(
                    Row(line["method"], label(case._asdict()), numbers["mean"], numbers["sd"], numbers["tables"])
                )
    return rows


def label(case: dict[str, Any]) -> str:
    """A case in words."""
    parts = [f"{100 * case['wrong']:g} % wrong"] if case["task"] == FIND or case["wrong"] else []
    if case["missing"] or case["task"] != FIND:
        how = "" if case["mechanism"] == "at random" else " not at random"
        parts.append(f"{100 * case['missing']:g} % missing{how}")
    return f"{case['group']}: {', '.join(parts)}"


def ordered(methods: Sequence[str]) -> list[str]:
    """Methods in the order in which they are always shown."""
    return [name for name in METHODS if name in methods]
