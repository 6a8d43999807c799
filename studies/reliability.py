"""The page that counts faults and wrong files, docs/reliability.md: people write its text, programs its tables."""

from collections.abc import Sequence
from pathlib import Path

from pscd.files import write_text_atomic
from studies.engine.markdown import markdown_table

MEMORY_DISK = "/dev/shm" if Path("/dev/shm").is_dir() else None  # for files of which a power cut may take all
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"


def put_table(name: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str, page: Path = PAGE) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- end of name -->`.

    Args:
        name: of the table.
        head: names of the columns.
        rows: texts.
        note: a line below the table.
        page: the page.
    """
    before, start, rest = page.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- end of {name} -->")
    if not (start and end):
        raise ValueError(f"{page} has no place for {name}")
    write_text_atomic(page, f"{before}{start}{markdown_table(head, rows)}\n\n{note}\n{end}{after}")
