"""What was aimed at before anything was measured, and whether it was reached."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from studies.cells.ours import NAME
from studies.cells.tables import MIXED, NUMERIC
from studies.cells.work import FILL, FIND, RANK

CELLWISE = ("CellMCD", "DDC")
COVERED = (0.85, 0.95)
Case = dict[str, Any]


class Goal(NamedTuple):
    """A goal, whether it was reached, and the numbers."""

    text: str
    reached: bool
    shown: str


def goals(cases: Sequence[Case]) -> list[Goal]:
    """All that can be judged; none if ours was not run."""
    judged = [
        _finding(cases, NUMERIC, CELLWISE, "AP above CellMCD's and DDC's on tables of numbers at every rate"),
        _finding(cases, MIXED, None, "AP above every rival's on mixed tables at every rate"),
        _suggesting(cases, NUMERIC, "nrmse", "suggested values nearer to the truth than CellMCD's and DDC's (NRMSE)"),
        _suggesting(
            cases, NUMERIC, "repaired nrmse", "wrong cells nearer to the truth after repair of what is flagged (NRMSE)"
        ),
        _suggesting(cases, MIXED, "right", "categories suggested right more often than by CellMCD and DDC"),
        _filling(cases),
        _covering(cases),
        _ranking(cases),
    ]
    return [goal for goal in judged if goal is not None]


def _finding(cases: Sequence[Case], group: str, rivals: Sequence[str] | None, text: str) -> Goal | None:
    chosen = [c for c in cases if (c["task"], c["group"], c["missing"]) == (FIND, group, 0.0)]
    pairs = [_ours_and_best(case, "ap", rivals, max) for case in chosen]
    return _verdict(text, chosen, [p for p in pairs if p], lambda ours, best: ours > best, "wrong")


def _suggesting(cases: Sequence[Case], group: str, measure: str, text: str) -> Goal | None:
    chosen = [c for c in cases if (c["task"], c["group"], c["missing"]) == (FIND, group, 0.0)]
    higher = measure == "right"
    pairs = [_ours_and_best(case, measure, CELLWISE, max if higher else min) for case in chosen]
    return _verdict(
        text, chosen, [p for p in pairs if p], lambda ours, best: ours > best if higher else ours < best, "wrong"
    )


def _filling(cases: Sequence[Case]) -> Goal | None:
    chosen = [
        c
        for c in cases
        if (c["task"], c["wrong"], c["mechanism"]) == (FILL, 0.0, "at random") and c["group"] == NUMERIC
    ]
    pairs = [_ours_and_best(case, "nrmse", None, min) for case in chosen]
    text = "missing values, tables of numbers, at random: NRMSE no worse than the best rival's mean"
    return _verdict(text, chosen, [p for p in pairs if p], lambda ours, best: ours <= best, "missing")


def _covering(cases: Sequence[Case]) -> Goal | None:
    chosen = [c for c in cases if c["task"] == FILL and c["wrong"] == 0 and c["mechanism"] == "at random"]
    covered = [
        line["coverage"]["mean"]
        for c in chosen
        for line in c["methods"]
        if line["method"] == NAME and "coverage" in line
    ]
    if not covered:
        return None
    mean = sum(covered) / len(covered)
    shown = f"{mean:.3f} in the mean, {min(covered):.3f} to {max(covered):.3f}"
    return Goal("90 % intervals that cover 85 to 95 %", COVERED[0] <= mean <= COVERED[1], shown)


def _ranking(cases: Sequence[Case]) -> Goal | None:
    chosen = sorted((c for c in cases if c["task"] == RANK), key=lambda c: c["missing"])
    if len(chosen) < 2:
        return None
    first, last = ({line["method"]: line["auroc"]["mean"] for line in c["methods"]} for c in (chosen[0], chosen[-1]))
    falls = {name: first[name] - last[name] for name in first if name in last}
    if NAME not in falls or len(falls) < 2:
        return None
    others = {name: fall for name, fall in falls.items() if name != NAME}
    slowest = min(others, key=lambda name: others[name])
    text = f"AUROC of rows falls more slowly from 0 to {100 * chosen[-1]['missing']:g} % missing than every rival's"
    return Goal(text, falls[NAME] < others[slowest], f"{falls[NAME]:.3f} against {others[slowest]:.3f} ({slowest})")


def _ours_and_best(case: Case, measure: str, rivals: Sequence[str] | None, best_of: Any) -> tuple[Any, ...] | None:
    values = {line["method"]: line[measure]["mean"] for line in case["methods"] if measure in line}
    others = {name: v for name, v in values.items() if name != NAME and (rivals is None or name in rivals)}
    if NAME not in values or not others:
        return None
    best = best_of(others, key=lambda name: others[name])
    return case, values[NAME], others[best], best


def _verdict(
    text: str, chosen: Sequence[Case], pairs: Sequence[tuple[Any, ...]], is_good: Any, share: str
) -> Goal | None:
    if not pairs or len(pairs) < len(chosen):
        return None
    shown = "; ".join(
        f"{100 * case[share]:g} %: {ours:.3f} against {best:.3f} ({name})" for case, ours, best, name in pairs
    )
    return Goal(text, all(is_good(ours, best) for _, ours, best, _ in pairs), shown)
