"""Which score of strange images should be the default, by pairs of sets that it is not judged by.

    python -m benchmarks.choose_score docs/results    # reads ood-*.json there, writes ood-choice.json and ood-choice.md

For each set that models were trained on, the score is chosen by the mean AUROC over all pairs of sets without it, and
judged on its own pairs. A score becomes the default if it is chosen whichever set is left out, and then beats the
energy on average. The tables are made by `pscd reproduce ood --data SET`, one command for each set.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pscd.files import markdown_table, write_json, write_text_atomic
from pscd.images.strangeness import BY
from pscd.paper.ood_scores import MEAN, column, default_score, judge_choices

NAME = "ood-choice"
OBJECTIVE = "CD"  # the one that every table has


def read_tables(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """AUROC by the set that models were trained on, score and other set."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for path in sorted(folder.glob("ood-*.json")):
        if path.stem == NAME:
            continue
        names = {column(OBJECTIVE, by): by for by in BY}
        table: dict[str, dict[str, float]] = {}
        for row in json.loads(path.read_text())["rows"]:
            if row["column"] in names and row["row"] != MEAN:
                table.setdefault(names[row["column"]], {})[row["row"]] = row["measured"]
        if len(table) > 1:  # those of earlier versions have the energy alone
            found[path.stem.removeprefix("ood-")] = table
    return found


def page(found: dict[str, Any]) -> str:
    """The page in Markdown."""
    head = ["trained on", "chosen by the other pairs", "mean AUROC there", "here", "of the energy here"]
    rows = [
        [v["judged"], v["by"], f"{v['elsewhere']:.3f}", f"{v['here']:.3f}", f"{v['energy']:.3f}"]
        for v in found["verdicts"]
    ]
    scores = [by for by in BY if all(by in table for table in found["tables"].values())]
    means = [
        [name, *(f"{sum(table[by].values()) / len(table[by]):.3f}" for by in scores)]
        for name, table in found["tables"].items()
    ]
    return PAGE.format(
        verdicts=markdown_table(head, rows),
        means=markdown_table(["trained on", *scores], means),
        default=found["default"],
        commands=", ".join(f"`pscd reproduce ood --data {name}`" for name in found["tables"]),
    )


PAGE = """\
# Which score of strange images is the default

Made by `python -m benchmarks.choose_score docs/results` from the tables of {commands} (models trained by CD). For each
set the score is chosen by the mean AUROC over all pairs of sets without it, and judged on its own pairs.

{verdicts}

A score becomes the default if it is chosen whichever set is left out and beats the energy on average where it is
judged. By these tables that is: **{default}**.

Mean AUROC of every score over the other sets, for reading only:

{means}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="with the files ood-SET.json")
    folder = parser.parse_args().folder
    tables = read_tables(folder)
    if len(tables) < 2:
        there = ", ".join(tables) or "none"
        parser.error(
            f"needs tables of at least two sets with all scores (pscd reproduce ood --data SET); found {there}"
        )
    verdicts = judge_choices(tables)
    found = {"tables": tables, "verdicts": [asdict(v) for v in verdicts], "default": default_score(verdicts)}
    write_json(folder / f"{NAME}.json", found)
    write_text_atomic(folder / f"{NAME}.md", page(found))
    print(f"{found['default']}: {folder / f'{NAME}.md'}")


if __name__ == "__main__":
    main()
