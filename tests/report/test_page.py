from pscd.report.blocks import Facts, Page, Prose, Section, Table, Text
from pscd.report.page import render, write_page
from tests.report.helpers import Read

NASTY = "<i>\"'&{{ 1 }}</i>"


def test_every_block_is_escaped():
    blocks = (
        Facts(((NASTY, NASTY),)),
        Text((NASTY,)),
        Table((NASTY,), ((NASTY,),), summary=NASTY),
        Prose("<em>x</em>"),
    )
    page = Read(render(Page(NASTY, NASTY, (Section(NASTY, blocks),))))
    tags = {tag for tag, _ in page.tags}
    assert "i" not in tags
    assert "em" in tags  # made by the library itself
    assert page.text.count(NASTY) == 11  # two of them in the title of the window
    assert len(page.scripts) == 2


def test_half_a_character_does_not_keep_a_report_from_being_written(tmp_path):
    path = write_page(Page("half \ud800", "a", ()), tmp_path / "new" / "x.html")
    assert "half ?" in path.read_text(encoding="utf-8")


def test_a_page_that_follows_a_run_can_be_told_to_stand_still():
    still, live = (Read(render(Page("a", "b", (), running=running))) for running in (False, True))
    boxes = [[attrs for tag, attrs in page.tags if attrs.get("id") == "follow"] for page in (still, live)]
    assert [len(found) for found in boxes] == [0, 1]
