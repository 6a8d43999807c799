import base64
import io

import numpy as np
import pytest
from PIL import Image

import pscd
from pscd.recipes.configs import recipe
from pscd.report import pictures, write_report
from pscd.run_folder import RunFolder
from tests.report.helpers import read


def decoded(address):
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


def test_pictures_survive_as_addresses_and_large_ones_shrink(tmp_path):
    picture = np.random.default_rng(0).integers(0, 255, (20, 30, 3)).astype(np.uint8)
    assert np.array_equal(np.array(decoded(pictures.as_address(picture))), picture)
    Image.fromarray(picture.repeat(100, 0).repeat(100, 1)).save(tmp_path / "large.png")
    assert decoded(pictures.file_address(tmp_path / "large.png")).size == (3000, 2000)
    assert decoded(pictures.file_address(tmp_path / "large.png", most_bytes=10)).size == (1600, 1067)
    (tmp_path / "no.png").write_text("no picture")
    assert pictures.file_address(tmp_path / "no.png") is None


def test_a_run_on_images_shows_grids_chains_and_outliers(tmp_path):
    changes = {
        "updates": 4,
        "batch_size": 8,
        "chains.buffer_size": 16,
        "energy.width": 4,
        "chains.sample_steps": 3,
        "guard.log_every": 2,
    }
    config = recipe("digits").changed(changes)
    run = pscd.train(config, tmp_path / "run", progress=False)
    page = read(write_report(run))
    alternatives = [attrs["alt"] for tag, attrs in page.tags if tag == "img"]
    assert alternatives == ["Training images", "Samples of the model", "Outliers", "Chains from noise to images"]
    model = pscd.load(run)
    model.config = model.config.changed({"rows.data": ""})
    sections = pictures.images_sections(model, n_steps=5)
    assert [section.title for section in sections] == ["Images and samples", "Chains"]
    assert "not kept" in sections[0].blocks[0].lines[0]


def test_groups_of_near_duplicates_are_those_of_the_file(tmp_path):
    run = RunFolder(tmp_path)
    assert "No two pictures" in pictures.near_duplicates_section(run).blocks[0].lines[0]
    run.duplicates.write_text("group,file\n1,a.png\n1,b.png\n1,c.png\n2,d.png\n2,e.png\n")
    said, table = pictures.near_duplicates_section(run).blocks
    assert said.lines == ("3 pictures are near-duplicates of another.",)
    assert table.rows == (("3", "a.png, b.png, c.png"), ("2", "d.png, e.png"))
    run.duplicates.write_text("nothing\n1\n")
    assert "damaged" in pictures.near_duplicates_section(run).blocks[0].lines[0]


@pytest.mark.parametrize("unreadable", [None, [], "text", 5])
def test_without_unreadable_pictures_there_is_no_section(unreadable):
    assert pictures.unreadable_section(unreadable) is None
