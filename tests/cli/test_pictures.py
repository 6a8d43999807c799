import base64
import csv
import io
import shutil
from contextlib import redirect_stdout

import numpy as np
import pytest
from PIL import Image

from pscd.cli.main import main
from pscd.report import write_report
from tests.cli.helpers import refused
from tests.report.helpers import read as read_page


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


def test_outliers_come_first_with_a_reason(run):
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
    assert "cannot be read, and were left out: 1" in said
    assert "broken.jpg" in said
    assert "near-duplicates of another: 2" in said


def test_the_report_has_near_duplicates_and_unreadable_pictures_too(run):
    text = read_page(write_report(run)).text
    assert "2 pictures are near-duplicates of another" in text
    assert "black0.png, black1.png, black2.png" in text
    assert "1 file was left out" in text
    assert "broken.jpg" in text.split("Pictures that cannot be read")[-1]


def test_few_pictures_are_told_to_be_few(run):
    assert "note: 44 pictures are few" in (run / "said").read_text()


def disc(rng):
    """A red disc somewhere on a light ground, with a little noise."""
    across, down = np.mgrid[:64, :64]
    pixels = np.full((64, 64, 3), (200.0, 200.0, 190.0))
    x, y, radius = rng.integers(20, 44), rng.integers(20, 44), rng.integers(8, 16)
    pixels[(across - x) ** 2 + (down - y) ** 2 < radius**2] = (180, 30 + rng.integers(30), 40)
    return (pixels + rng.normal(0, 4, pixels.shape)).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize(("n", "seed"), [(37, 0), (37, 1), (110, 2)])
def test_ordinary_pictures_are_not_strange(n, seed, tmp_path, capsys):
    """With squares of 8 x 8 for the layout, a quarter of such discs were called strange."""
    rng = np.random.default_rng(seed)
    for i in range(n):
        save(Image.fromarray(disc(rng)), tmp_path / "discs" / f"{i:03}.png")
    odd = {"black.png": np.zeros((64, 64, 3), np.uint8), "noise.png": rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)}
    for name, pixels in odd.items():
        save(Image.fromarray(pixels), tmp_path / "discs" / name)
    out = tmp_path / "run"
    assert main(["detect", str(tmp_path / "discs"), "--updates", "50", "--out", str(out)]) == 0
    rows = sorted(read(out / "scores.csv"), key=lambda row: -float(row["energy"]))
    assert {row["file"] for row in rows[:2]} == set(odd)
    assert sum(row["outlier"] == "1" for row in rows) <= 2 + 0.05 * n
    assert ("pictures are few" in capsys.readouterr().out) == (n < 100)


def test_other_pictures_are_scored_as_the_same_ones_are(run, folder, tmp_path, capsys):
    out = tmp_path / "scores.csv"
    assert main(["score", str(run), str(folder / "good"), "--out", str(out)]) == 0
    before = {row["file"]: row["energy"] for row in read(run / "scores.csv")}
    for row in read(out):
        assert float(row["energy"]) == pytest.approx(float(before[f"good/{row['file']}"]), rel=1e-6)
    capsys.readouterr()
    assert "holds no pictures" in refused(["score", run, tmp_path / "none", "--out", tmp_path / "x.csv"], capsys)
    (tmp_path / "y.png").write_text("precious")
    assert "y.png exists" in refused(["score", run, folder / "good", "--out", tmp_path / "y.csv"], capsys)
    assert (tmp_path / "y.png").read_text() == "precious"


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


def test_a_report_shows_the_strangest_pictures(run, folder, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert main(["report", str(run), "--out", str(out)]) == 0
    page = out.read_text()
    assert "Outlier detector" in page
    assert base64.b64encode((run / "scores.png").read_bytes()).decode() in page
    assert "odd/noise.png" in page
    assert "too busy" in page
    assert f"pictures in {folder} are outliers" in page
    assert "pictures fitted" in page
    capsys.readouterr()
    line = refused(["report", run, "--data", folder, "--out", tmp_path / "other.html"], capsys)
    assert "no other data" in line


def test_a_report_does_without_scores_that_are_damaged(run, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "scores.csv").write_text("file,energy\na.png,none\n")
    assert main(["report", str(copy)]) == 0
    assert "is missing or damaged" in (copy / "report.html").read_text()
