"""Draw the README's pictures of a report, docs/report-light.png and docs/report-dark.png, in a real browser.

`python scripts/draw_report.py` makes the table of examples/dirty_table, runs the detector on it, writes the report and
opens it. It needs the extras `report` and `browser`, and Chromium from the system's packages.
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from pscd.cli.main import main as pscd
from pscd.report import write_report

ROOT = Path(__file__).resolve().parents[1]
SIZE = {"width": 900, "height": 600}


def dirty_table() -> Path:
    """The report of the example, in the current folder, so that the pictures show no other."""
    subprocess.run([sys.executable, ROOT / "examples" / "dirty_table" / "make_table.py", "."], check=True)
    words = ["detect", "tumours.csv", "--id", "name", "--contamination", "0.05", "--out", "runs/tumours"]
    if pscd(words) != 0:
        raise SystemExit("the detector failed")
    return write_report("runs/tumours").resolve()


def picture(browser: Browser, report: Path, scheme: str, top: str, opened: bool) -> None:
    """A picture of a window that starts at an element.

    Args:
        browser: in which the report is opened.
        report: the file.
        scheme: `light` or `dark`.
        top: selector of what is at the top.
        opened: whether the second row is opened.
    """
    context = browser.new_context(viewport=SIZE, color_scheme=scheme)
    page = context.new_page()
    page.goto(report.as_uri())
    if opened:
        page.locator("tr[data-row]:visible").nth(1).click()
    page.locator(top).first.evaluate("element => element.scrollIntoView()")
    page.locator("[data-chart] svg").first.wait_for()
    page.wait_for_timeout(1000)
    page.screenshot(path=ROOT / "docs" / f"report-{scheme}.png")
    context.close()


def main() -> None:
    """Draw both."""
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(path for name in names if (path := shutil.which(name)))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), sync_playwright() as started:
        report = dirty_table()
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        picture(browser, report, "light", "form.filter", opened=True)
        picture(browser, report, "dark", "section:has(> .chart.wide) h2", opened=False)
        browser.close()


if __name__ == "__main__":
    main()
