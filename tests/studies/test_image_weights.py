import pytest
import torch

from pscd.data import Images
from pscd.errors import UserError
from pscd.rng import generator
from studies import image_weights
from studies.__main__ import main
from studies.image_weights import clean_line, junk_line, rare_line


@pytest.fixture(autouse=True)
def _made(monkeypatch):
    """Two hundred grey images of ten labels, each label brighter than the one before, the last of them a copy."""
    levels = torch.arange(200) % 10 * 20 + 20
    noise = torch.randint(30, (200, 1, 16, 16), generator=generator(0))
    x = (levels[:, None, None, None] + noise).to(torch.uint8)
    x[199] = x[0]

    def load(name, train):
        if name != "mnist":
            raise UserError("not here")
        return Images(x, levels.div(20, rounding_mode="floor") - 1, name)

    monkeypatch.setattr(image_weights, "load_images", load)


def test_lines_by_hand():
    assert clean_line("mnist") == ["mnist", "200", "0", "2", "0.50%"]  # two images count a half
    name, kind, ratio, lost, others, left = junk_line("mnist", "near-duplicates", 0.1, seed=0)
    assert (name, kind, ratio) == ("mnist", "near-duplicates", "10%")
    assert float(lost[:-1]) > 40  # 20 copies of ten images
    assert float(others[:-1]) < 10
    assert float(left[:-1]) < 8
    assert rare_line("mnist") == ["mnist", "0 of 90"]  # so few images are not looked at


def test_a_page_of_the_sets_that_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(image_weights, "OTHERS", ("mnist",))
    (tmp_path / "image-weights.reading.md").write_text("So it is.\n")
    assert main(["image-weights", "--out", str(tmp_path), "--sets", "mnist", "cifar10"]) == 0
    text = (tmp_path / "image-weights.md").read_text()
    assert "| mnist | 200 | 0 | 2 | 0.50% |" in text
    assert text.count("| mnist | ") == 1 + len(image_weights.JUNK) + 1
    assert "cifar10" not in text
    assert text.endswith("So it is.\n")
