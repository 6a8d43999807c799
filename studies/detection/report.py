"""The page: every sentence about results is made of the numbers."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from studies.detection import tables
from studies.detection.detectors import AUTO, DETECTORS, NEIGHBOURS, NOT_ROBUST
from studies.detection.work import CURVE_ROWS, CURVE_SHARE, Plan
from studies.engine.markdown import markdown_table

TITLE = "Unsupervised anomaly detection"
FIGURE = "detection.png"
CURVES_FIGURE = "detection-contamination.png"
OUTCOMES = {"wins": "win", "ties": "tie", "losses": "loss"}


def page(plan: Plan, report: dict[str, Any], command: str) -> str:
    """The whole page, of the report that is written as JSON beside it."""
    numbers = report["summary"]
    libraries = ", ".join(f"{name} {value}" for name, value in report["libraries"].items())
    parts = [
        f"# {TITLE}",
        f"Made by `{command}`.",
        _prose(
            f"{report['machine']}; {libraries}. Computing {_count(len(report['runs']), 'run')} took "
            f"{report['run_seconds']:.0f} s of one core in all."
        ),
        "## Protocol",
        protocol(plan),
        "## Detectors",
        detector_table(numbers["detectors"]),
        _prose(
            "*sd* is the deviation over seeds of the mean AUROC. *Rank* is by AUROC, mean over the sets of the seeds' "
            "mean; *best on* counts sets, ties for each. *Time* is what fitting and scoring took in all, in units of "
            "the isolation forest's. Fits that failed: "
            + (f"{len(numbers['errors'])}, listed at the end." if numbers["errors"] else "none.")
        ),
        f"![AUROC of every detector on every set]({FIGURE})",
        *comparison_lines(numbers["auto_against_gamma_0"]),
        *group_part(numbers["groups"], numbers["detectors"]),
        "## Sets",
        set_table(numbers["sets"], numbers["detectors"]),
        _prose(
            "AUROC, mean over seeds. The best rival is picked for each set with the help of its labels, which nobody "
            "has beforehand: it is an upper limit, not a detector."
        ),
        *contamination_part(numbers["contamination"]),
        *error_part(numbers["errors"]),
    ]
    return "\n\n".join(parts) + "\n"


def protocol(plan: Plan) -> str:
    """What was done, with the counts of this run."""
    cut = [facts.name for facts in plan.sets if plan.is_cut(facts.name)]
    if cut:
        rows = (
            f"{_count(len(cut), 'set')} with more than {plan.max_rows} rows {'was' if len(cut) == 1 else 'were'} cut "
            f"to that many, drawn by the seed, the same for every detector: {', '.join(cut)}. A draw with fewer than "
            f"{tables.FEWEST_ANOMALIES} anomalies is thrown away for the next."
        )
    else:
        rows = f"No set has more than {plan.max_rows} rows, so none was cut."
    lines = [
        f"{_count(len(plan.sets), 'set')} with labels, {_count(len(plan.detectors), 'detector')}, "
        f"{_count(plan.seeds, 'seed')}. Detectors are fitted on all rows without the labels and score the same rows; "
        "the labels serve the AUROC and the average precision (AP) alone.",
        rows,
        "Rivals get columns of mean 0 and deviation 1, constant ones dropped; ours gets the rows as they are. All run "
        "with their defaults, on one thread. Those without randomness run once where all seeds have the same rows.",
        "A detector that fails is counted with AUROC .5 and the share of anomalies as its AP.",
    ]
    return "\n".join(_prose(line, "- ") for line in lines)


def detector_table(rows: Sequence[dict[str, Any]]) -> str:
    """The detectors, best mean AUROC first, ours in bold."""
    body = [
        [
            _name(row["detector"]),
            _three(row["mean_auroc"]),
            "" if row["sd_over_seeds"] is None else f"{row['sd_over_seeds']:.4f}",
            _three(row["median_auroc"]),
            _three(row["mean_ap"]),
            f"{row['mean_rank']:.2f}",
            str(row["best_on"]),
            "" if row["times_forest"] is None else f"{row['times_forest']:.2g}",
        ]
        for row in rows
    ]
    return markdown_table(["detector", "mean AUROC", "sd", "median AUROC", "mean AP", "rank", "best on", "time"], body)


def comparison_lines(comparisons: Sequence[dict[str, Any]]) -> list[str]:
    """What choosing gamma changes against gamma 0, a line for each group of sets."""
    lines = []
    for c in comparisons:
        of = {"all": "all sets", "development": "the sets of the development", "rest": "the rest"}[c["group"]]
        differences = [
            f"{value:+.4f}" + ("" if error is None else f" (standard error {error:.4f})")
            for value, error in (
                (c["auroc_difference"], c["auroc_standard_error"]),
                (c["ap_difference"], c["ap_standard_error"]),
            )
        ]
        counts = ", ".join(_count(c[plural], noun) for plural, noun in OUTCOMES.items())
        text = f"On {of}: {counts}; mean difference in AUROC {differences[0]}, in AP {differences[1]}."
        lines.append(_prose(text, "- "))
    return [f"{AUTO}, which chooses gamma, against gamma 0:\n\n" + "\n".join(lines)] if lines else []


def group_part(groups: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> list[str]:
    """Means over the sets that the defaults were chosen on and over the others, if there are both."""
    if len(groups) == 1:
        return []
    every, chosen_on, rest = groups
    head = ["detector"]
    head += [f"{value}, {group}" for value in ("AUROC", "AP", "rank") for group in ("all", "chosen on", "rest")]
    body = []
    for name in (row["detector"] for row in rows):
        shown = [_three(group[value][name]) for value in ("mean_auroc", "mean_ap") for group in groups]
        body.append([_name(name), *shown, *(f"{group['mean_rank'][name]:.2f}" for group in groups)])
    return [
        "## How much was tuned",
        _prose(
            f"The defaults of {AUTO} were first chosen on {len(chosen_on['sets'])} of the {len(every['sets'])} sets: "
            f"{', '.join(chosen_on['sets'])}. The other {len(rest['sets'])} were then looked at, and several choices "
            "were revised for all (docs/detector.md): no set is untouched."
        ),
        markdown_table(head, body),
    ]


def set_table(sets: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]]) -> str:
    """Every set: ours, the best rival and its name, the gamma that was chosen."""
    own = [name for name in (AUTO, NEIGHBOURS, NOT_ROBUST) if any(row["detector"] == name for row in rows)]
    rivals = any(table["best_rival"] is not None for table in sets)
    head = ["set", "rows", "columns", "anomalies", *own]
    head += ["best rival", "its name"] if rivals else []
    head += ["gamma"] if AUTO in own else []
    body = []
    for table in sets:
        line = [table["name"], str(table["rows"]), str(table["d"]), f"{100 * table['anomaly_share']:.2g} %"]
        line += [_three(table["auroc"][name]) for name in own]
        line += [_three(table["auroc"][table["best_rival"]]), table["best_rival"]] if rivals else []
        line += [_chosen(table["gamma"])] if AUTO in own else []
        body.append(line)
    return markdown_table(head, body)


def contamination_part(curves: dict[str, Any]) -> list[str]:
    """What added contamination does, if curves were run."""
    if not curves["curves"]:
        return []
    levels = [f"{100 * level:g} %" for level in curves["levels"]]
    body = []
    for curve in curves["curves"]:
        shown = [
            _three(mean) + ("" if sd is None else f" ± {sd:.3f}")
            for mean, sd in zip(curve["mean_auroc"], curve["sd_over_seeds"], strict=True)
        ]
        body.append([_name(curve["detector"]), *shown, f"{curve['mean_auroc'][-1] - curve['mean_auroc'][0]:+.3f}"])
    return [
        "## Contamination added",
        _prose(
            f"To each of {_count(len(curves['sets']), 'set')} ({', '.join(curves['sets'])}: the first by name with "
            f"anomalies below {100 * CURVE_SHARE:g} % and at least {CURVE_ROWS} rows), rows are added until they "
            "make up the given share of all. Half of them are one tight cluster: in columns of mean 0 and deviation "
            f"1, a Gaussian of deviation {tables.CLUSTER_SPREAD} in every column around a random point at distance "
            f"{tables.CLUSTER_RADIUS:g} sqrt(d) from the mean, d columns. The other half is uniform over the bounding "
            "box of the rows. Detectors are fitted on everything; the AUROC is that of the set's own anomalies among "
            "its own rows. Mean over sets, ± the deviation over seeds."
        ),
        markdown_table(["detector", *levels, "change"], body),
        f"![Mean AUROC against the contamination added]({CURVES_FIGURE})",
    ]


def error_part(errors: Sequence[dict[str, Any]]) -> list[str]:
    """What failed, seeds with the same message together."""
    if not errors:
        return []
    grouped = Counter((error["detector"], error["table"], error["extra"], error["error"]) for error in errors)
    lines = [
        f"- {name} on {table}{f' with {100 * extra:g} % added' if extra else ''}, {_count(n, 'seed')}: `{text}`"
        for (name, table, extra, text), n in grouped.items()
    ]
    return ["## Failures", "\n".join(lines)]


def _prose(text: str, first: str = "") -> str:
    """A paragraph in lines as long as those of the other pages."""
    paragraph = textwrap.TextWrapper(112, first, " " * len(first), break_long_words=False, break_on_hyphens=False)
    return paragraph.fill(text)


def _name(name: str) -> str:
    return f"**{name}**" if DETECTORS[name].own else name


def _three(value: float) -> str:
    return f"{value:.3f}"


def _chosen(gammas: Sequence[float | None]) -> str:
    return ", ".join(f"{gamma:.3g}" for gamma in sorted({gamma for gamma in gammas if gamma is not None}))


def _count(n: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{n or 'no'} {noun if n == 1 else plural}"
