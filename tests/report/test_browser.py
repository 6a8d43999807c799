"""Reports in a real browser: `make test-browser`. Skipped where there is no Chromium or no playwright."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pscd.cli.main import main
from pscd.report import write_report
from tests.report.conftest import HOSTILE, HOSTILE_COLUMN

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

ROOT = Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome")
NARROW = {"width": 380, "height": 800}


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"there is no browser here ({', '.join(NAMES)})")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def tumours(tmp_path_factory):
    """The report of the example of a dirty table."""
    folder = tmp_path_factory.mktemp("tumours")
    subprocess.run([sys.executable, ROOT / "examples" / "dirty_table" / "make_table.py", folder], check=True)
    words = ["detect", folder / "tumours.csv", "--id", "name", "--contamination", "0.05", "--out", folder / "run"]
    assert main([str(word) for word in words]) == 0
    return write_report(folder / "run")


@pytest.fixture
def visit(browser):
    """Opens a report; afterwards it must not have complained, nor asked for anything but itself."""
    complaints, contexts = [], []

    def open_page(path, **options):
        contexts.append(browser.new_context(**({"viewport": {"width": 1100, "height": 900}} | options)))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or complaints.append(request.url))
        page.goto(path.as_uri())
        page.evaluate("dispatchEvent(new Event('beforeprint'))")  # draws all charts, also those out of sight
        drawn = "[...document.querySelectorAll('[data-chart]')].every((place) => place.querySelector('svg'))"
        until(page, drawn)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


def until(page, expression, seconds=120):
    """Wait for an expression to be true. Not `wait_for_function`, whose `eval` the page's security policy forbids."""
    for _ in range(10 * seconds):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"never true: {expression}")


def rows(page):
    return page.locator("tr[data-row]:visible")


def first_column(page, column):
    return rows(page).first.locator("td, th").nth(column).inner_text()


def test_rows_are_sorted_searched_and_opened(visit, tumours):
    page = visit(tumours)
    assert "patient 040" in rows(page).first.inner_text()
    page.get_by_role("button", name="name").click()
    assert first_column(page, 1) == "patient 001" or first_column(page, 1) < "patient 010"
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("name")
    page.get_by_role("button", name="energy").click()
    assert "patient 040" in rows(page).first.inner_text()

    page.get_by_role("searchbox").fill("patient 198")
    assert rows(page).count() == 1
    assert page.locator("form.filter output").inner_text() == "1 of 200 rows"
    rows(page).first.click()
    cells = page.locator(".cell")
    assert cells.count() == 30
    assert "mean radius" in cells.first.inner_text()
    assert "118" in cells.first.inner_text()
    assert "suggested 11.8" in cells.first.inner_text()
    rows(page).first.click()
    assert cells.count() == 0

    page.get_by_role("searchbox").fill("")
    page.get_by_label("outliers only").check()
    assert page.locator("form.filter output").inner_text() == "19 of 200 rows"
    page.get_by_label("outliers only").uncheck()
    page.get_by_role("button", name="Show all 200 rows").click()
    assert rows(page).count() == 200


def test_the_keyboard_is_enough(visit, tumours):
    page = visit(tumours)
    page.get_by_role("searchbox").focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('open')"):
            break
    page.keyboard.press("Enter")
    assert page.locator(".cell").count() == 30
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"


def test_hostile_cells_are_shown_as_text(visit, hostile):
    page = visit(write_report(hostile))
    assert page.evaluate("window.broken") is None
    for text in HOSTILE:
        page.get_by_role("searchbox").fill(text.strip()[:40])
        rows(page).first.click()
        shown = page.locator("dl.ids dd") if len(text) > 60 else rows(page).first.locator("th")
        assert text.strip() == shown.inner_text().strip()
        assert HOSTILE_COLUMN in page.locator(".cell").first.inner_text()
        rows(page).first.click()
    assert page.evaluate("window.broken") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_people_out(visit, tumours, two_moons, scheme):
    from axe_playwright_python.sync_playwright import Axe

    for path in (tumours, write_report(two_moons, data=two_moons.parent / "moons.csv")):
        page = visit(path, color_scheme=scheme)
        if path == tumours:
            rows(page).first.click()
        page.set_viewport_size({"width": 900, "height": 900})  # charts are drawn again
        page.wait_for_timeout(700)
        found = Axe().run(page).response["violations"]
        assert not [(v["id"], v["impact"], v["nodes"][0]["html"], v["nodes"][0]["failureSummary"]) for v in found]


def test_a_phone_needs_no_sideways_scrolling(visit, tumours, two_moons, hostile):
    for path in (tumours, write_report(two_moons, data=two_moons.parent / "moons.csv"), write_report(hostile)):
        page = visit(path, viewport=NARROW)
        rows(page).first.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"], path
