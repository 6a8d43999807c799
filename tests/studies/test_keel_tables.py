import numpy as np
import pytest

from studies.__main__ import main
from studies.keel_tables import keel_tables, mixed, read


@pytest.fixture
def folder(tmp_path):
    """Three files as KEEL writes them: an imbalanced set, one of six classes with a word and a gap, and a small one."""
    for kind in ("imbalanced", "balanced"):
        (tmp_path / kind / "raw").mkdir(parents=True)
    rows = [f"{i}.5, {i % 3}, {'positive' if i < 5 else 'negative'}" for i in range(50)]
    (tmp_path / "imbalanced" / "raw" / "ecoli4.dat").write_text("@relation ecoli\n@data\n" + "\n".join(rows) + "\n")
    rows = [f"{i}, {'abc'[i % 3]}, {i % 6}" for i in range(600)] + ["<null>, a, 0"]
    (tmp_path / "balanced" / "raw" / "letter.dat").write_text("\n".join(rows))
    rows = [f"{i}, {i % 7}, {'big' if i % 3 else 'small'}" for i in range(300)]
    (tmp_path / "balanced" / "raw" / "sonar.dat").write_text("\n".join(rows))
    return tmp_path


def test_words_become_numbers_and_rows_with_gaps_are_left_out(folder):
    x, label = read(folder / "balanced" / "raw" / "letter.dat")
    assert x.shape == (600, 2)
    np.testing.assert_array_equal(x[:4], [[0, 0], [1, 1], [2, 2], [3, 0]])
    assert label[:3].tolist() == ["0", "1", "2"]


def test_the_tables_of_the_files_that_are_there(folder):
    tables = {name: (x, y) for name, x, y in keel_tables(folder)}
    assert list(tables) == ["ecoli4", "letter-groups-0", "letter-groups-1", "letter-one", "sonar-one"]
    assert tables["ecoli4"][1].sum() == 5
    for i in range(2):  # three classes of a hundred rows; junk of a fourth makes up a twentieth
        x, y = tables[f"letter-groups-{i}"]
        assert (len(x), y.sum()) == (316, 16)
        assert len(np.unique(x[~y, 0] % 6)) == 3
        assert len(np.unique(x[y, 0] % 6)) == 1
    x, y = tables["sonar-one"]  # the larger class, 200 rows
    assert (y.sum(), (~y).sum()) == (35, 200)
    assert (x[~y, 0] % 3 > 0).all()
    again = {name: x for name, x, _ in keel_tables(folder)}
    np.testing.assert_array_equal(again["letter-groups-1"], tables["letter-groups-1"][0])


def test_large_majorities_are_cut_and_junk_is_never_less_than_a_few():
    x = np.arange(100.0)[:, None]
    rows, junk = mixed(x, np.arange(90), np.arange(90, 100), 0.01, np.random.default_rng(0), most_rows=40)
    assert (len(rows), junk.sum()) == (45, 5)
    assert (rows[junk, 0] >= 90).all()


def test_the_command(folder, tmp_path, monkeypatch, capsys):
    assert main(["keel-tables", str(folder), str(tmp_path / "out")]) == 0
    saved = np.load(tmp_path / "out" / "ecoli4.npz")
    assert (saved["X"].shape, saved["y"].sum()) == ((50, 2), 5)
    assert main(["keel-tables", str(tmp_path / "out"), str(tmp_path / "none")]) == 2
    assert "no file of KEEL" in capsys.readouterr().err
