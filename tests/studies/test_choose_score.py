import json
from pathlib import Path

import pytest
import torch

from pscd.data import Images
from studies import choose_score
from studies.__main__ import main
from studies.engine import with_reading

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def report(folder, name, **scores):
    rows = [
        {"row": outside, "column": f"CD: AUROC{'' if by == 'energy' else f' by {by}'}", "measured": value}
        for by, table in scores.items()
        for outside, value in table.items()
    ]
    rows += [{"row": "mean over the sets", "column": "CD: AUROC", "measured": 0.0}]
    rows += [{"row": "noise", "column": "gamma 1: AUROC", "measured": 0.0}]
    (folder / f"ood-{name}.json").write_text(json.dumps({"rows": rows}))


def test_the_default_is_read_off_the_tables_of_two_sets(tmp_path):
    report(tmp_path, "a", energy={"noise": 0.5, "b": 0.3}, gradient={"noise": 0.9, "b": 0.8})
    report(tmp_path, "b", energy={"noise": 0.6, "a": 0.4}, gradient={"noise": 0.7, "a": 0.9})
    report(tmp_path, "old", energy={"noise": 1.0})
    assert main(["choose-score", "--out", str(tmp_path)]) == 0
    assert main(["choose-score", "--out", str(tmp_path)]) == 0  # its own file is no table
    found = json.loads((tmp_path / "ood-choice.json").read_text())
    assert list(found["tables"]) == ["a", "b"]
    assert found["verdicts"][0] == {
        "judged": "a", "by": "gradient", "elsewhere": 0.7, "here": pytest.approx(0.85), "energy": pytest.approx(0.4)
    }  # fmt: skip
    page = (tmp_path / "ood-choice.md").read_text()
    assert "that is: **gradient**" in page
    assert "| a | gradient | 0.700 | 0.850 | 0.400 |" in page


def test_one_set_is_not_enough(tmp_path, capsys):
    report(tmp_path, "a", energy={"noise": 0.5}, gradient={"noise": 0.9})
    assert main(["choose-score", "--out", str(tmp_path)]) == 2
    assert "at least two sets" in capsys.readouterr().err


def test_small_models_give_a_table_of_every_score(tmp_path, monkeypatch):
    monkeypatch.setenv("PSCD_DATA", str(tmp_path))  # no set is there but the digits
    table = choose_score.small_table("digits", "digits", 2, n=30)
    assert list(table) == ["energy", "typicality", "complexity", "gradient", "background", "joint"]
    assert {tuple(by_set) for by_set in table.values()} == {("uniform noise", "Gaussian noise", "interpolations")}
    alone = choose_score.length_alone("digits", n=30)
    assert alone.keys() == table["energy"].keys()
    assert alone["uniform noise"] == 1.0  # which cannot be compressed
    again = choose_score.small_table("digits", "digits", 2, n=30)
    assert again == table


def test_of_notmnist_the_smaller_file_is_enough(monkeypatch):
    x = torch.arange(30, dtype=torch.uint8)[:, None, None, None]

    def smaller(name, train):
        assert (name, train) == ("notmnist", False)
        return Images(x, None, name)

    monkeypatch.setattr(choose_score, "load_images", smaller)
    monkeypatch.setattr(choose_score, "N_SMALL", 5)
    data = choose_score.images_of("notmnist")
    assert (len(data.train), len(data.held_out)) == (20, 10)
    assert sorted(torch.cat([data.train, data.held_out]).flatten().tolist()) == list(range(30))
    assert data.held_out.flatten().tolist() != list(range(10))  # letters come in order


def test_a_page_of_small_models_says_so():
    table = {"energy": {"x": 0.5}, "gradient": {"x": 0.6}}
    found = {"small": True, "tables": {"a": table}, "verdicts": [], "default": "energy"}
    text = choose_score.page(found)
    assert "--small`.\n\n**A first look**: one model of each set, one seed" in text
    assert "| a | x | 0.500 | 0.600 |" in text
    assert "| a | x | 0.500 | 0.600 | 0.700 |" in choose_score.page({**found, "length_alone": {"a": {"x": 0.7}}})


def test_the_page_is_the_one_of_the_numbers():
    page = RESULTS / "ood-choice.md"
    assert page.read_text() == with_reading(choose_score.page(json.loads(page.with_suffix(".json").read_text())), page)
