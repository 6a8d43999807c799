"""A page with what every command says to `--help`, written before each build."""

import contextlib
import io
import os
from unittest.mock import patch

from api_pages import write
from sphinx.application import Sphinx

from pscd.cli.main import COMMANDS, main

ABOUT = """\
# Every flag

What `pscd COMMAND --help` prints, for each command; [the command line](../command-line.md) says how they go together.

"""


def help_of(*words: str) -> str:
    """What the command line prints for these words."""
    printed = io.StringIO()
    plain = patch.dict(os.environ, COLUMNS="100", NO_COLOR="1")
    with plain, contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main(words)
    return printed.getvalue().rstrip()


def write_page(app: Sphinx) -> None:
    """Write docs/api/commands.md."""
    parts = [f"## pscd {name}\n\n```text\n{help_of(name, '--help')}\n```\n" for name in COMMANDS]
    parts += [f"## pscd train, every setting\n\n```text\n{help_of('train', '--help-all')}\n```\n"]
    write(app.srcdir / "api" / "commands.md", ABOUT + "\n".join(parts))


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the page before the build."""
    app.connect("builder-inited", write_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
