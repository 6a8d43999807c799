import pytest

from pscd.cli.main import main
from pscd.data import IMAGE_SETS
from tests.data.test_image_sets import write_idx


def test_the_list_says_what_is_there(tmp_path, capsys):
    write_idx(tmp_path / "MNIST" / "raw")
    assert main(["data", "--root", str(tmp_path)]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert set(IMAGE_SETS) <= set(lines)
    assert lines["mnist"].endswith("- there")
    assert lines["digits"].endswith("- there")
    assert lines["cifar10"].endswith("- pscd data get cifar10")
    assert "by hand: https://" in lines["celeba"]


@pytest.mark.parametrize("before", [True, False])
def test_get_prints_where_the_files_are(tmp_path, capsys, monkeypatch, before):
    def fake(name, *, root):
        return [root / name]

    monkeypatch.setattr("pscd.data.download.download", fake)
    root = ["--root", str(tmp_path)]
    assert main(["data", *root, "get", "mnist"] if before else ["data", "get", "mnist", *root]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "mnist")


def test_a_mistake_is_one_line_and_exit_code_2(capsys):
    assert main(["data", "get", "celeba"]) == 2
    assert capsys.readouterr().err.startswith("pscd: celeba has to be fetched by hand")
