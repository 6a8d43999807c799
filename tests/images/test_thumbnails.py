import numpy as np
import pytest
import torch
from PIL import Image

from pscd.images.thumbnails import (
    COLUMNS,
    GROUPS,
    columns_for,
    describe,
    miniatures_of,
    near_duplicates,
    reason,
)


def test_few_pictures_have_few_columns():
    assert columns_for(20) == columns_for(35) == ("brightness", "contrast", "detail", "colour 1", "colour 2")
    assert columns_for(36)[5:] == ("layout 1",)
    assert len(columns_for(77)) == 12
    assert columns_for(78) == columns_for(10_000) == COLUMNS
    assert len(COLUMNS) == 13


def test_reasons_are_words_for_the_dearest_column():
    typical = np.zeros(len(COLUMNS))

    def said(name, value):
        x, cost = typical.copy(), typical.copy()
        x[COLUMNS.index(name)], cost[COLUMNS.index(name)] = value, 1.0
        return reason(x, typical, cost)

    assert said("brightness", -1) == "too dark"
    assert said("brightness", 1) == "too bright"
    assert said("contrast", -1) == "too flat"
    assert said("detail", 1) == "too busy"
    assert said("colour 2", 1) == "colour"
    assert said("layout 8", 1) == "layout"
    assert reason(typical, typical, typical) == ""
    assert all(any(name.startswith(group) for group in GROUPS) for name in COLUMNS)


def test_pictures_of_any_kind_are_described_and_others_counted(tmp_path):
    Image.new("L", (5, 9), 128).save(tmp_path / "grey.png")
    Image.new("RGBA", (300, 200), (255, 0, 0, 0)).save(tmp_path / "clear.png")  # transparent: shown white
    frames = [Image.new("P", (20, 20), i) for i in (0, 1)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    paths = [tmp_path / name for name in ("grey.png", "clear.png", "moving.gif", "broken.jpg")]
    found = describe(paths)
    assert found.paths == tuple(paths[:3])
    assert found.x[:2, 0] == pytest.approx([128 / 255, 1.0])
    assert found.x.shape == (3, len(COLUMNS))
    ((path, why),) = found.unreadable
    assert path == paths[3]
    assert why.startswith("cannot identify")


def test_copies_are_near_duplicates_and_other_pictures_not(tmp_path):
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 256, (8, 8), dtype=np.uint8) for _ in range(4)]
    pictures = [Image.fromarray(p).resize((64, 64), Image.Resampling.BICUBIC) for p in pixels]
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / f"{i}.png")
    pictures[1].resize((200, 200)).save(tmp_path / "4.jpg", quality=70)
    pictures[1].resize((40, 40)).save(tmp_path / "5.png")
    pictures[3].save(tmp_path / "6.bmp")
    described = describe(sorted(tmp_path.iterdir()))
    assert near_duplicates(described.miniatures) == [[1, 4, 5], [3, 6]]


def test_a_darker_copy_is_no_duplicate():
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.integers(60, 200, (1, 3, 32, 32), dtype=np.uint8))
    assert near_duplicates(miniatures_of(torch.cat([x, x])).numpy()) == [[0, 1]]
    assert near_duplicates(miniatures_of(torch.cat([x, x - 6])).numpy()) == []
