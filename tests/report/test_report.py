"""Whole reports: what they show, that they need nothing else, and that a stranger's cells stay text."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pscd
from pscd.cli.main import main
from pscd.errors import UserError
from pscd.report import write_report
from tests.report.conftest import HOSTILE, HOSTILE_COLUMN
from tests.report.helpers import read

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_a_detector_shows_the_rows_of_highest_energy_with_their_cells(hostile):
    page = read(write_report(hostile))
    head, *rows = page.data["tables"][0]
    assert head["ids"] == ["note"]
    assert {row["ids"][0] for row in rows[: len(HOSTILE)]} == set(HOSTILE)
    for row in rows[: len(HOSTILE)]:
        column, value, suggestion, cost = row["cells"][0]
        assert head["names"][column] == HOSTILE_COLUMN
        assert float(value) > 25
        assert abs(float(suggestion)) < 10
        assert cost > 10
    energies = [
        float(attrs["data-value"]) for tag, attrs in page.tags if tag == "td" and attrs.get("class") == "number"
    ]
    assert max(energies) == energies[0]
    assert len([1 for tag, attrs in page.tags if tag == "tr" and "data-outlier" in attrs]) >= len(HOSTILE)
    assert "Rows above" in page.text


def test_tables_with_words_dates_and_missing_values(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"size": rng.normal(170, 8, 80).round(1).astype(str), "town": rng.choice(["Rome", "Oslo"], 80)}
    )
    frame["day"] = pd.date_range("2020-01-01", periods=80).strftime("%Y-%m-%d")
    frame.loc[3, "size"] = "17.1"  # a misplaced decimal point
    frame.loc[4:6, "size"] = ["", "tall", "171,2"]
    frame.to_csv(tmp_path / "mixed.csv", index=False, sep=";")
    words = ["detect", tmp_path / "mixed.csv", "--updates", 2, "--out", tmp_path / "run"]
    assert main([str(word) for word in words]) == 0
    page = read(write_report(tmp_path / "run"))
    head, *rows = page.data["tables"][0]
    cells = {row["cells"][0][1]: row["cells"][0] for row in rows}
    assert head["names"][cells["17.1"][0]] == "size"
    assert float(cells["17.1"][2]) == pytest.approx(170, abs=5)
    assert cells["tall"][3] == 50
    missing = [cell for row in rows for cell in row["cells"] if cell[1] == "missing"]
    assert 140 < float(missing[0][2]) < 200  # what is expected where nothing is
    assert "3 rows without a number" in page.text
    assert "median 2020-02-" in page.text
    towns = next(chart for chart in page.data["charts"] if "words" in chart["datasets"])
    assert {row["word"] for row in towns["datasets"]["words"]} == {"Rome", "Oslo"}


def test_hostile_cells_are_text_and_nothing_else(hostile):
    path = write_report(hostile)
    page = read(path)
    allowed = {"a", "b", "bdi", "body", "button", "caption", "dd", "details", "div", "dl", "dt", "figcaption", "figure",
               "footer", "form", "h1", "h2", "head", "header", "html", "input", "label", "li", "link", "main", "meta",
               "nav", "noscript", "output", "p", "script", "section", "small", "span", "strong",
               "style", "summary", "table", "tbody", "td", "th", "thead", "title", "tr", "ul"}  # fmt: skip
    assert {tag for tag, _ in page.tags} == allowed
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    assert len(page.scripts) == 3  # the data, the library, the page's own
    assert page.data["tables"][0][0]["names"].count(HOSTILE_COLUMN) == 1
    assert "window.broken" not in page.scripts[1] + page.scripts[2]
    assert "{{ 7 * 7 }}" in page.text  # not computed


def test_a_report_needs_no_other_file_and_no_network(hostile, two_moons):
    for run in (hostile, two_moons):
        page = read(write_report(run))
        addresses = [attrs[name] for _, attrs in page.tags for name in ("src", "href") if name in attrs]
        assert addresses
        assert all(address.startswith(("#", "data:")) for address in addresses)
        (policy,) = (
            attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy.startswith("default-src 'none'")


def test_a_run_shows_findings_curves_settings_and_the_plane(two_moons, monkeypatch):
    monkeypatch.chdir(two_moons.parent)
    path = write_report(two_moons, ids=["who"])
    page = read(path)
    fingerprint = json.loads((two_moons / "config.json").read_text())["fingerprint"]
    assert fingerprint in page.text
    assert "Checked: energies of data and samples" in page.text
    assert re.search(rf"updates 20 {pscd.TrainConfig().updates}", page.text)  # this run, and the default
    assert "state finished" in page.text
    assert "updates 20 of 20" in page.text
    curves = [chart for chart in page.data["charts"] if "rows" in chart["datasets"]]
    energies = {row["of"] for row in curves[0]["datasets"]["rows"]}
    assert energies == {"data", "samples"}
    landscape = next(chart for chart in page.data["charts"] if "cells" in chart["datasets"])
    assert len(landscape["datasets"]["cells"]) == 48 * 48
    assert page.data["tables"][0][1]["ids"][0].startswith("nobody")


def test_rows_keep_their_numbers_in_the_file(two_moons, monkeypatch):
    monkeypatch.chdir(two_moons.parent)
    table = pd.read_csv("moons.csv")
    head, *rows = read(write_report(two_moons, ids=["who"])).data["tables"][0]
    for row in rows[:20]:
        at = table.index[table["who"] == row["ids"][0]][0]
        for column, value, *_ in row["cells"]:
            assert float(value) == pytest.approx(table[head["names"][column]][at], rel=1e-5)


def test_dates_of_a_trained_run_are_dates(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"size": np.random.default_rng(0).normal(size=90).round(3)})
    frame["day"] = pd.date_range("2020-01-01", periods=90).strftime("%Y-%m-%d")
    frame.to_csv("days.csv", index=False)
    assert main(["train", "days.csv", "--updates", "2", "--measure", "50", "--out", "run"]) == 0
    page = read(write_report("run"))
    assert "median 2020-02-" in page.text
    head, *rows = page.data["tables"][0]
    for row in rows:
        (day,) = (value for column, value, *_ in row["cells"] if head["names"][column] == "day")
        assert day in set(frame["day"])


def test_rows_without_an_energy_do_not_shift_the_numbers_of_the_others(two_moons, tmp_path):
    table = pd.read_csv(two_moons.parent / "moons.csv")
    table.loc[[0, 10], "left"] = np.nan
    table.loc[[20], "right"] = 40.0
    table.to_csv(tmp_path / "holes.csv", index=False)
    page = read(write_report(two_moons, tmp_path / "x.html", data=tmp_path / "holes.csv", ids=["who"]))
    assert "2 rows with missing values are left out" in page.text
    first = next(attrs for (_, row), (_, attrs) in zip(page.tags, page.tags[1:], strict=False) if "data-row" in row)
    assert first["data-value"] == "20"
    assert page.data["tables"][0][1]["ids"] == ["nobody 20"]


def test_missing_or_changed_rows_are_reported_and_can_be_replaced(two_moons, hostile, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "Rows are not shown: " in read(write_report(two_moons)).text
    moons = tmp_path / "moons.csv"
    pd.read_csv(two_moons.parent / "moons.csv").assign(left=1.0).to_csv(moons, index=False)
    assert "changed" in read(write_report(two_moons)).text
    page = read(write_report(two_moons, tmp_path / "given.html", data=moons))
    assert "given for this report" in page.text

    copy = tmp_path / "run"
    shutil.copytree(hostile, copy)
    source = json.loads((copy / "source.json").read_text())
    (copy / "source.json").write_text(json.dumps({**source, "data": "gone.csv"}))
    assert "gone.csv does not exist any more" in read(write_report(copy)).text
    page = read(write_report(copy, data=source["data"]))
    assert "Weight: the weight of the row in training" in page.text  # the file that it was fitted to
    other = tmp_path / "other.csv"
    pd.read_csv(source["data"]).iloc[:30].to_csv(other, index=False)
    (copy / "source.json").write_text(json.dumps({**source, "data": str(other)}))
    assert "has changed since" in read(write_report(copy)).text
    assert "not those of the training" in read(write_report(copy, data=other, ids=["note"])).text
    (copy / "source.json").unlink()
    assert "does not know its file" in read(write_report(copy)).text


def test_a_run_that_stopped_is_reported_as_far_as_it_came(two_moons, tmp_path):
    for name in ("config.json", "metrics.jsonl"):
        shutil.copy(two_moons / name, tmp_path)
    page = read(write_report(tmp_path))
    assert "state not finished" in page.text
    assert "to resume it" in page.text
    (tmp_path / "metrics.jsonl").unlink()
    assert "Nothing has been logged yet" in read(write_report(tmp_path)).text


def test_a_run_that_stopped_at_a_checkpoint_shows_what_it_had_learnt(two_moons, tmp_path, monkeypatch):
    monkeypatch.chdir(two_moons.parent)
    for name in ("config.json", "metrics.jsonl", "state.pt"):
        shutil.copy(two_moons / name, tmp_path)
    page = read(write_report(tmp_path))
    assert "state not finished" in page.text
    assert "updates so far" in page.text
    assert page.data["tables"]  # of rows, as of a finished run
    (tmp_path / "state.pt").write_bytes(b"damaged")
    assert "Rows are not shown: " in read(write_report(tmp_path)).text


def test_a_hundred_thousand_rows_stay_under_three_megabytes(hostile, tmp_path):
    rng = np.random.default_rng(0)
    many = tmp_path / "many.npy"
    np.save(many, rng.normal(size=(100_000, 3)))
    copy = tmp_path / "run"
    shutil.copytree(hostile, copy)
    named = tmp_path / "many.csv"
    pd.DataFrame(np.load(many), columns=["x", HOSTILE_COLUMN, "y"]).round(3).to_csv(named, index=False)
    path = write_report(copy, data=named)
    assert path.stat().st_size < 3e6
    text = read(path).text
    assert "The 200 rows of highest energy" in text
    assert re.search(r"Drawn from 16,8\d\d of 100,000 rows", text)


def test_a_table_that_was_scored_in_blocks_is_shown(tmp_path):
    rows = np.random.default_rng(0).normal(size=(400, 3))
    rows[[7, 350], 1] = 40.0
    (tmp_path / "parts").mkdir()
    for i, part in enumerate(np.split(rows, 2)):
        pd.DataFrame(part, columns=["a", "b", "c"]).to_parquet(tmp_path / "parts" / f"{i}.parquet")
    run = tmp_path / "run"
    assert main([str(word) for word in ["detect", tmp_path / "parts", "--updates", 2, "--out", run]]) == 0
    page = read(write_report(run))
    assert "All 200 rows" not in page.text
    assert "of 400 rows are outliers" in page.text
    numbers = [int(attrs["data-value"]) for (_, row), (tag, attrs) in zip(page.tags, page.tags[1:], strict=False)
               if "data-row" in row and tag == "td"]  # fmt: skip
    assert set(numbers[:2]) == {7, 350}
    assert len(numbers) == 200


def test_a_model_that_cannot_be_read_leaves_the_curves(two_moons, tmp_path):
    for name in ("config.json", "metrics.jsonl"):
        shutil.copy(two_moons / name, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    page = read(write_report(tmp_path))
    assert "Rows are not shown: " in page.text
    assert "model.safetensors: damaged" in page.text
    assert page.data["charts"]


@pytest.mark.parametrize("name", ["nothing", "empty", "broken.json", "list.json"])
def test_a_folder_without_a_run_is_refused_in_one_line(name, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(UserError) as error:
        write_report(tmp_path / name)
    assert "\n" not in str(error.value)
    assert name in str(error.value)


def test_settings_of_another_version_are_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"data": "moon"}')
    with pytest.raises(UserError, match="damaged, or of another version"):
        write_report(tmp_path)


def test_rows_of_another_width_are_refused(two_moons, hostile, tmp_path):
    np.save(tmp_path / "wide.npy", np.zeros((30, 5)))
    for run in (two_moons, hostile):
        with pytest.raises(UserError, match=r"wide\.npy"):
            write_report(run, data=tmp_path / "wide.npy")


def test_without_the_extra_one_line_says_what_to_install(two_moons, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(UserError, match=re.escape("pip install '.[report]'")):
        write_report(two_moons)
