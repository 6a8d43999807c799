import csv
import io
from contextlib import redirect_stdout

import numpy as np
import pytest
from PIL import Image

from pscd.cli.main import main
from tests.cli.helpers import refused


def save(picture, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Forty light pictures of a bright square on the left, three black ones, and one of noise."""
    here, rng = tmp_path_factory.mktemp("pictures") / "mine", np.random.default_rng(0)
    for i in range(40):
        pixels = rng.normal(90, 20) + rng.normal(0, 6, (48, 48, 3))
        pixels[8:40, 4:24] += rng.normal(80, 15)
        pixels += np.linspace(0, rng.normal(0, 60), 48)[:, None, None] + np.linspace(0, rng.normal(0, 60), 48)[:, None]
        save(Image.fromarray(pixels.clip(0, 255).astype(np.uint8)), here / "good" / f"{i:02}.png")
    for i in range(3):
        save(Image.new("RGB", (48, 48)), here / f"black{i}.png")
    save(Image.fromarray(rng.integers(0, 256, (48, 48), dtype=np.uint8)), here / "odd" / "noise.png")
    (here / "broken.jpg").write_bytes(b"no picture")
    (here / ".hidden.png").write_bytes(b"no picture either")
    return here


@pytest.fixture(scope="module")
def run(folder):
    out, said = folder.parent / "run", io.StringIO()
    with redirect_stdout(said):
        assert main(["detect", str(folder), "--updates", "5", "--out", str(out)]) == 0
    (out / "said").write_text(said.getvalue())
    return out


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_strange_pictures_come_first_with_a_reason(run):
    rows = sorted(read(run / "scores.csv"), key=lambda row: -float(row["energy"]))
    assert len(rows) == 44
    assert {row["file"] for row in rows[:4]} == {"black0.png", "black1.png", "black2.png", "odd/noise.png"}
    because = {row["file"]: row["because"] for row in rows[:4]}
    assert because["odd/noise.png"] == "too busy"
    assert because["black0.png"] in ("too flat", "too dark", "too smooth")
    assert all(row["outlier"] == "1" for row in rows[:4])


def test_copies_are_told_and_the_contact_sheet_is_drawn(run):
    assert [row["file"] for row in read(run / "duplicates.csv")] == ["black0.png", "black1.png", "black2.png"]
    with Image.open(run / "scores.png") as sheet:
        assert sheet.size[0] > 1000


def test_what_is_printed_names_pictures_and_counts_unreadable_ones(run):
    said = (run / "said").read_text()
    assert "of 44 pictures" in said
    assert "1 picture cannot be read" in said
    assert "broken.jpg" in said
    assert "2 pictures are near-duplicates" in said


def test_other_pictures_are_scored_as_the_same_ones_are(run, folder, tmp_path, capsys):
    out = tmp_path / "scores.csv"
    assert main(["score", str(run), str(folder / "good"), "--out", str(out)]) == 0
    before = {row["file"]: row["energy"] for row in read(run / "scores.csv")}
    for row in read(out):
        assert float(row["energy"]) == pytest.approx(float(before[f"good/{row['file']}"]), rel=1e-6)
    capsys.readouterr()
    assert "folder of pictures" in refused(["score", run, tmp_path / "none", "--out", tmp_path / "x.csv"], capsys)


def test_bad_folders_are_one_line(folder, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert "holds no pictures" in refused(["detect", tmp_path / "empty"], capsys)
    (tmp_path / "empty" / "a.png").write_bytes(b"no picture")
    assert "none of its 1 pictures" in refused(["detect", tmp_path / "empty"], capsys)
    assert "leave --columns and --id out" in refused(["detect", folder, "--id", "name"], capsys)
    save(Image.new("L", (9, 9), 7), tmp_path / "few" / "a.png")
    assert "too few" in refused(["detect", tmp_path / "few"], capsys)
    for i in range(30):
        save(Image.new("L", (9, 9), 7), tmp_path / "same" / f"{i}.png")
    line = refused(["detect", tmp_path / "same", "--out", tmp_path / "nothing"], capsys)
    assert "all columns are constant" in line
    assert not (tmp_path / "nothing").exists()


def test_a_report_says_where_the_pictures_are(run, tmp_path):
    assert main(["report", str(run), "--out", str(tmp_path / "report.html")]) == 0
    assert "scores.png in the run folder" in (tmp_path / "report.html").read_text()
