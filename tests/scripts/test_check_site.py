"""A site with broken links, or one that needs the network, does not pass."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_site.py"
GOOD = '<h1 id="top">a</h1><a href="sub/b.html#there">b</a><a href="https://example.org">out</a><img src="p.png">'


@pytest.fixture
def check():
    spec = importlib.util.spec_from_file_location("check_site", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def site(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "p.png").touch()
    (tmp_path / "index.html").write_text(GOOD)
    (tmp_path / "sub" / "b.html").write_text('<p id="there">b</p><a href="../#top">a</a><a href="#there">here</a>')
    return tmp_path


def test_a_good_site_passes(check, site):
    assert check.problems(site) == []
    assert check.main(str(site)) == 0


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ('<a href="gone.html">', "index.html links to gone.html, which is not there"),
        ('<a href="sub/b.html#gone">', "index.html links to sub/b.html#gone, where nothing has that name"),
        ('<a href="#gone">', "index.html links to #gone, where nothing has that name"),
        ('<img src="gone.png">', "index.html links to gone.png, which is not there"),
        ('<script src="https://cdn.example/x.js">', "index.html fetches https://cdn.example/x.js"),
        ('<link rel="stylesheet" href="//cdn.example/x.css">', "index.html fetches //cdn.example/x.css"),
    ],
)
def test_what_is_wrong_is_named(check, site, wrong, complaint):
    (site / "index.html").write_text(GOOD + wrong)
    assert check.problems(site) == [complaint]
    assert check.main(str(site)) == 1


def test_an_empty_folder_is_no_site(check, tmp_path):
    assert check.problems(tmp_path) == [f"{tmp_path} holds no pages"]
