"""The site in a real browser: `make docs`, then `make test-browser`. Skipped where the site has not been built."""

import pytest

from tests.report.test_browser import NARROW, ROOT, browser, until  # noqa: F401  (a fixture)

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SITE = ROOT / "build" / "site"
PAGES = ("index.html", "explanations/one-picture.html", "how-to/own-parts.html", "gallery/index.html", "api/index.html")


@pytest.fixture
def visit(browser):  # noqa: F811
    """Opens a page of the site; afterwards it must not have complained, nor asked for anything that is not a file."""
    if not (SITE / "index.html").is_file():
        pytest.skip("the site has not been built: make docs")
    complaints, contexts = [], []

    def open_page(name, **options):
        contexts.append(browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options)))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(("file:", "data:")) or complaints.append(request.url))
        page.goto(f"{(SITE / name.partition('?')[0]).as_uri()}{''.join(name.partition('?')[1:])}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


@pytest.mark.parametrize("name", PAGES)
def test_pages_open_without_a_network_also_on_a_phone(visit, name):
    for viewport in ({"width": 1280, "height": 800}, NARROW):
        page = visit(name, viewport=viewport)
        page.wait_for_timeout(1000)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_the_first_page_says_what_why_and_how_without_scrolling(visit):
    page = visit("index.html")
    for text in ("Learn a density", "so a little junk bends the whole model", "pscd detect", "Start in five minutes"):
        box = page.locator("article").get_by_text(text).locator("visible=true").first.bounding_box()
        assert box["y"] + box["height"] <= 800, text


def test_the_sliders_of_the_picture_work_with_the_keyboard(visit):
    page = visit("explanations/one-picture.html")
    until(page, "document.querySelectorAll('.one-picture-sliders input').length === 2")
    picture = "document.querySelector('.one-picture-chart svg').innerHTML"
    for name in ("gamma", "share of junk"):
        slider = page.get_by_role("slider", name=name)
        page.evaluate(f"window.before = {picture}; null")
        value = float(slider.input_value())
        slider.focus()
        page.keyboard.press("ArrowRight")
        assert float(slider.input_value()) > value
        until(page, f"{picture} !== window.before", 20)


def test_the_search_finds_how_to_add_an_energy(visit):
    page = visit("search.html?q=own+energy")
    until(page, "document.querySelectorAll('#search-results li a').length > 3", 60)
    first = page.locator("#search-results li a").all_inner_texts()[:3]
    assert "An energy, objective or sampler of your own" in first


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_keeps_people_out(visit, scheme):
    from axe_playwright_python.sync_playwright import Axe

    for name in PAGES[:3]:
        page = visit(name, color_scheme=scheme)
        page.wait_for_timeout(2000)
        found = Axe().run(page, options={"preload": False}).response["violations"]
        serious = [v for v in found if v["impact"] in ("serious", "critical")]
        assert not [(name, v["id"], v["nodes"][0]["html"], v["nodes"][0]["failureSummary"]) for v in serious]
