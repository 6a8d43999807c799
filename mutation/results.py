"""What was found: kept in docs/results/mutants.json, and shown in the page beside it."""

import json
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

from mutation.bench import ROOT
from mutation.files import CORE, FILES, FURTHER

HERE = ROOT / "mutation"
RESULTS = ROOT / "docs" / "results" / "mutants.json"


class Results:
    """Rows of all samples, and of the mistakes with a name.

    Args:
        path: of the file that they are kept in.
    """

    def __init__(self, path: Path = RESULTS) -> None:
        self.path = path
        self.read()

    def read(self) -> None:
        """Take what the file holds by now."""
        kept = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.mutants: list[dict] = kept.get("mutants", [])
        self.named: list[dict] = kept.get("named", [])

    def of(self, seed: int) -> dict[tuple[str, ...], dict]:
        """Rows of one sample, by what identifies them."""
        return {key(row): row for row in self.mutants if row["seed"] == seed}

    def put(self, row: dict) -> None:
        """Add a row, or replace it, and keep everything; what was found when it was tried first stays with it."""
        known = self.of(row["seed"]).get(key(row), row)
        row = {**row, "first": known.get("first", known["status"])}
        self.mutants = [r for r in self.mutants if r["seed"] != row["seed"] or key(r) != key(row)]
        self.mutants.append(row)
        self.keep()

    def keep(self) -> None:
        """Write the file."""
        self.mutants.sort(key=lambda row: (row["seed"], row["file"], row["line"], row["after"]))
        values = {"command": "python -m mutation", "mutants": self.mutants, "named": self.named}
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(values, indent=1) + "\n")
        temporary.replace(self.path)

    def write(self) -> None:
        """Ask the list of equivalent mistakes once more, and write the page."""
        known = equivalents()
        for row in self.mutants:
            if row["status"] != "noticed":
                row["reason"] = reason(row, known)
                row["status"] = "equivalent" if row["reason"] else "unnoticed"
        self.keep()
        reading = self.path.with_suffix(".reading.md")
        text = page(self.mutants, self.named) + ("\n" + reading.read_text() if reading.exists() else "")
        self.path.with_suffix(".md").write_text(text)


def key(row: dict) -> tuple[str, ...]:
    """What identifies a mistake although lines above it may come and go."""
    return row["file"], row["function"], row["before"], row["after"]


def equivalents() -> list[dict[str, str]]:
    """Mistakes that change nothing anybody could notice, each with its reason."""
    return tomllib.loads((HERE / "equivalent.toml").read_text()).get("mutant", [])


def reason(row: dict, known: list[dict[str, str]]) -> str:
    """Why a mistake is equivalent; empty if it is not known to be. `*` in the list stands for any text."""
    for entry in known:
        names = ("file", "function", "before", "after")
        if all(fnmatchcase(row[n], _pattern(entry.get(n, "*"))) for n in names):
            return entry["reason"]
    return ""


def _pattern(text: str) -> str:
    return text.replace("[", "[[]")  # brackets are code, not a choice of characters


INTRODUCTION = """\
# Mistakes that the tests notice

`make mutants` plants mistakes in the code, one at a time: an operator, a constant, a condition, an argument,
a statement. A mistake is noticed if one of the tests that call the function fails. Mistakes that change
nothing anybody could notice are listed with their reasons in `mutation/equivalent.toml`; the score is of
all others. Each file has a random sample of them, which a seed chooses; the table shows the newest one.

A test that fails proves nothing by itself: it may fail without the mistake, too. So each test that notices one
is run again without it, where it has to pass, and with it, where it has to fail again; otherwise the next test
is asked. Time limits count processor time, and what exceeds one is tried without the mistake as well.

*Fresh* is what the tests noticed when the mistake was planted first; tests were written for some of the others
since, so that the fresh score is the one to go by. *Left* are those that are unnoticed still.
"""


def page(rows: list[dict], named: list[dict]) -> str:
    """The newest sample of each file, the scores of all samples, and what is left, in Markdown."""
    newest = {file: max(row["seed"] for row in rows if row["file"] == file) for file in {row["file"] for row in rows}}
    shown = [row for row in rows if row["seed"] == newest[row["file"]]]
    lines = [INTRODUCTION, *by_room(shown), "", "## File by file", "", *table(shown)]
    lines += ["", "## All samples", "", *_head("seed")]
    for seed in sorted({row["seed"] for row in rows}):
        part = [row for row in rows if row["seed"] == seed]
        lines.append(_line(f"{seed}, {len({row['file'] for row in part})} files", part))
    left = [row for row in shown if row["status"] == "unnoticed"]
    if left:
        lines += ["", "## Unnoticed still", ""]
        lines += [f"- `{r['file']}`, {r['function'] or 'module'}: `{r['before']}` became `{r['after']}`" for r in left]
    if named:
        lines += ["", "## Mistakes with a name", "", "| mistake | noticed by |", "|---|---|"]
        lines += [f"| {r['name']} | {_test(r['noticed_by']) or '**nobody**'} |" for r in named]
    return "\n".join(lines) + "\n"


def by_room(rows: list[dict]) -> list[str]:
    """The score of each folder, of both groups of files and of all together, as lines of Markdown."""
    rooms = sorted({str(Path(row["file"]).parent) for row in rows})
    lines = _head("folder")
    for room in rooms:
        lines.append(_line(f"`{room}`", [row for row in rows if str(Path(row["file"]).parent) == room]))
    return lines + [line.replace("** |", "**", 1) for line in table(rows) if line.startswith("| **")]


def table(rows: list[dict]) -> list[str]:
    """The score of each file and of all together, as lines of Markdown."""
    lines = _head("file", "seed")
    for name, group in (("what the numbers rest on", CORE), ("what is built around it", FURTHER)):
        part = [row for row in rows if row["file"] in group]
        for file in group:
            if mine := [row for row in part if row["file"] == file]:
                lines.append(_line(f"`{file}` | {mine[0]['seed']}", mine))
        if part:
            lines.append(_line(f"**{name}** |", part))
    return [*lines, _line("**all** |", rows)]


def _head(*first: str) -> list[str]:
    return [
        f"| {' | '.join(first)} | mistakes | equivalent | fresh | fresh score | left |",
        "|---" * len(first) + "|--:" * 5 + "|",
    ]


def _line(name: str, part: list[dict]) -> str:
    real = [row for row in part if row["status"] != "equivalent"]
    fresh = sum(row.get("first", row["status"]) == "noticed" for row in real)  # old results know of no first time
    left = sum(row["status"] == "unnoticed" for row in real)
    score = f"{fresh / len(real):.0%}" if real else ""
    return f"| {name} | {len(part)} | {len(part) - len(real)} | {fresh} | {score} | {left} |"


def _test(name: str) -> str:
    return f"`{name.removeprefix('tests/')}`" if "::" in name else name


def ordered(files: list[str]) -> list[str]:
    """Files of the list with one of the given parts in their names; all if there are none."""
    return [file for file in FILES if not files or any(part in file for part in files)]
