"""Tables in Markdown, for the pages that studies write."""

from collections.abc import Iterable, Sequence


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A table in Markdown, without a newline at its end; bars within cells are escaped.

    >>> print(markdown_table(["set", "KL(p || q)"], [["moon", "0.1"]]))
    | set | KL(p \|\| q) |
    |---|---|
    | moon | 0.1 |
    """
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
