"""Plant mistakes and count those that the tests notice: `python -m mutation --help`."""

import argparse
import random
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

from tqdm import tqdm

from mutation.bench import ROOT, Bench, preload, test_files
from mutation.changes import Mutant, mutants_of
from mutation.files import CORE, FILES
from mutation.results import HERE, RESULTS, Results, equivalents, key, ordered, reason
from mutation.selection import Map

MAP = ROOT / ".mutants" / "tests.json"


def main(argv: list[str] | None = None) -> int:
    """Run the command; the exit code is 1 if a mistake with a name went unnoticed."""
    args = _arguments(argv)
    results = Results(args.results)
    if not args.report:
        preload()
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            return _named(Path(folder), results, args) if args.named else _sampled(Path(folder), results, args)
    results.write()
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("mutation", description=__doc__)
    parser.add_argument("files", nargs="*", help="parts of file names, such as sampling/ ; all of the list by default")
    parser.add_argument("--core", action="store_true", help="only files that the numbers of the library rest on")
    parser.add_argument("--sample", type=int, default=8, metavar="N", help="mistakes a file, chosen at random (8)")
    parser.add_argument("--share", type=float, default=0.02, help="and at least this share of those of a file (0.02)")
    parser.add_argument("--seed", type=int, default=0, help="of the choice (0)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (1)")
    parser.add_argument("--named", action="store_true", help="the mistakes of mutation/named.toml instead")
    parser.add_argument("--fresh", action="store_true", help="try again what was noticed before, too")
    parser.add_argument("--again", action="store_true", help="only what went unnoticed before, of all samples")
    parser.add_argument("--record", action="store_true", help="find out anew what every changed test file calls")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where to keep them (docs/results/mutants.json)")
    parser.add_argument("--report", action="store_true", help="only write the table anew")
    return parser.parse_args(argv)


Plan = list[tuple[Mutant, list[str]]]
_benches: list[Bench] = []  # of a worker: one


def _start(folder: Path, asked: list[str]) -> None:
    _benches.append(Bench(Path(tempfile.mkdtemp(dir=folder)), Map(MAP), asked))


def _record(file: str) -> list[str]:
    return _benches[0].record(file)


def _judge(task: tuple[int, Mutant, list[str]]) -> tuple[int, dict]:
    place, mutant, own = task
    return place, _benches[0].judge(mutant, own)


def _judged(plan: Plan, folder: Path, args: argparse.Namespace) -> Iterator[tuple[int, dict]]:
    """Rows as they come, with the places of their mistakes in the plan."""
    stale = _stale(plan, args)
    if stale:
        with get_context("fork").Pool(args.jobs, _start, (folder, stale)) as pool:
            for failed in tqdm(pool.imap_unordered(_record, stale), "recording tests", len(stale)):
                for name in failed:  # it depends on where it is run, and would notice anything
                    tqdm.write(f"left out, since it fails without any mistake: {name}", file=sys.stderr)
    known, there = Map(MAP), set(test_files(ROOT))
    chosen = {name.split("::")[0] for mutant, own in plan for name in known.choose_for(mutant, own)[0]}
    with get_context("fork").Pool(args.jobs, _start, (folder, sorted(chosen & there))) as pool:
        yield from pool.imap_unordered(_judge, [(i, *task) for i, task in enumerate(plan)])


def _stale(plan: Plan, args: argparse.Namespace) -> list[str]:
    """Test files to be recorded: all at first or on demand, then those that are asked first; long ones first."""
    known = Map(MAP)
    first = {name.split("::")[0] for _, own in plan for name in own}
    everything = args.record or not known.files
    files = [file for file in known.stale(ROOT, test_files(ROOT)) if everything or file in first]
    return sorted(files, key=lambda file: -(ROOT / file).stat().st_size)


def sample(file: str, source: str, seed: int, at_least: int, share: float) -> list[Mutant]:
    """A random choice of a file's mistakes; a larger one contains the smaller one."""
    everything = mutants_of(file, source)
    shuffled = random.Random(f"{seed} {file}").sample(everything, len(everything))
    return sorted(shuffled[: max(at_least, round(share * len(everything)))], key=lambda mutant: mutant.line)


def _sampled(folder: Path, results: Results, args: argparse.Namespace) -> int:
    skip = equivalents()
    plan: list[tuple[int, Mutant]] = []
    for seed, mutant in _unnoticed(results, args) if args.again else _to_try(results, args):
        if reason(mutant.row, skip):
            results.put({**mutant.row, "seed": seed, "status": "equivalent"})
        else:
            plan.append((seed, mutant))
    plan = in_turn(plan, args.seed, Counter(row["file"] for row in results.mutants if row["seed"] == args.seed))
    bar = tqdm(total=len(plan), desc="mistakes")
    for place, row in _judged([(mutant, FILES[mutant.file]) for _, mutant in plan], folder, args):
        results.put({**row, "seed": plan[place][0]})
        bar.update()
        if row["status"] == "unnoticed":
            bar.write(f"{row['file']}:{row['line']} {row['function']}\n  - {row['before']}\n  + {row['after']}")
    bar.close()
    _forget(results)
    results.write()
    return 0


def in_turn(plan: list[tuple[int, Mutant]], seed: int, done: Counter[str]) -> list[tuple[int, Mutant]]:
    """One mistake of each file after the other, at random: a run that is stopped has then seen all files alike."""
    turn: list[tuple[int, tuple[int, Mutant]]] = []
    for entry in random.Random(seed).sample(plan, len(plan)):
        turn.append((done[entry[1].file], entry))
        done[entry[1].file] += 1
    return [entry for _, entry in sorted(turn, key=lambda pair: pair[0])]


def _files(args: argparse.Namespace) -> list[str]:
    return [file for file in ordered(args.files) if file in CORE or not args.core]


def _to_try(results: Results, args: argparse.Namespace) -> Iterator[tuple[int, Mutant]]:
    """A sample of each file, without what was noticed before."""
    known = {} if args.fresh else results.of(args.seed)
    for file in _files(args):
        for mutant in sample(file, (ROOT / file).read_text(), args.seed, args.sample, args.share):
            if known.get(mutant.key, {}).get("status") != "noticed":
                yield args.seed, mutant


def _unnoticed(results: Results, args: argparse.Namespace) -> Iterator[tuple[int, Mutant]]:
    """What nobody has noticed so far, of all samples."""
    there = {mutant.key: mutant for file in _files(args) for mutant in mutants_of(file, (ROOT / file).read_text())}
    for row in results.mutants:
        if row["status"] == "unnoticed" and key(row) in there:
            yield row["seed"], there[key(row)]


def _forget(results: Results) -> None:
    """Leave out what is no longer in the code."""
    files = {row["file"] for row in results.mutants}
    there = {m.key for f in files if (ROOT / f).exists() for m in mutants_of(f, (ROOT / f).read_text())}
    results.mutants = [row for row in results.mutants if key(row) in there]


def _named(folder: Path, results: Results, args: argparse.Namespace) -> int:
    """The mistakes that somebody once made or feared: all of them must be noticed."""
    entries = tomllib.loads((HERE / "named.toml").read_text())["mutant"]
    entries = [e for e in entries if not args.files or any(part in e["file"] for part in args.files)]
    plan = [(named_mutant(e, (ROOT / e["file"]).read_text()), e.get("tests", FILES[e["file"]])) for e in entries]
    unnoticed = 0
    for place, row in _judged(plan, folder, args):
        name = entries[place]["name"]
        unnoticed += row["status"] != "noticed"
        print(f"{row['status']:10} {name}  ({row['seconds']} s) {row['noticed_by']}", flush=True)
        results.named = [r for r in results.named if r["name"] != name] + [{"name": name, **row}]
        results.keep()  # a run that is stopped has then not been in vain
    order = [entry["name"] for entry in tomllib.loads((HERE / "named.toml").read_text())["mutant"]]
    results.named = sorted((r for r in results.named if r["name"] in order), key=lambda r: order.index(r["name"]))
    results.write()
    print(f"{unnoticed} mistakes with a name went unnoticed")
    return int(unnoticed > 0)


def named_mutant(entry: dict[str, str], source: str) -> Mutant:
    """The mistake of an entry of named.toml; its text must occur in the source exactly once."""
    if source.count(entry["before"]) != 1:
        raise SystemExit(f"named.toml, {entry['name']}: the text must occur once in {entry['file']}")
    mutated = source.replace(entry["before"], entry["after"])
    line = source[: source.index(entry["before"])].count("\n") + 1
    return Mutant(entry["file"], entry.get("function", ""), line, "named", entry["before"], entry["after"], mutated)


if __name__ == "__main__":
    sys.exit(main())
