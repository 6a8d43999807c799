from pscd.report.blocks import Page, Picture, Section, Table, Text
from pscd.report.page import render, write_page
from tests.report.helpers import Read

NASTY = "<i>\"'&{{ 1 }}</i>"


def test_every_block_is_escaped():
    blocks = (
        Table((), ((NASTY, NASTY),)),
        Text((NASTY,)),
        Table((NASTY,), ((NASTY,),), summary=NASTY),
        Picture("data:,", NASTY, NASTY),
    )
    page = Read(render(Page(NASTY, NASTY, (Section(NASTY, blocks),))))
    assert "i" not in {tag for tag, _ in page.tags}
    assert page.text.count(NASTY) == 12  # two of them in the title of the window
    assert [attrs["alt"] for tag, attrs in page.tags if tag == "img"] == [NASTY]
    assert len(page.scripts) == 2  # without charts there is no library


def test_half_a_character_does_not_keep_a_report_from_being_written(tmp_path):
    path = write_page(Page("half \ud800", "a", ()), tmp_path / "new" / "x.html")
    assert "half ?" in path.read_text(encoding="utf-8")
