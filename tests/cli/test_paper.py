from pscd.cli.main import main
from pscd.paper import ARTEFACTS, TABLES, WITH_IMAGES
from tests.cli.helpers import refused


def test_without_a_name_the_artefacts_are_listed(capsys):
    assert main(["reproduce"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert sorted(listed) == sorted([*ARTEFACTS, *WITH_IMAGES, TABLES])


def test_mistakes_are_told_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "unknown artefact 'gamma-9d'" in refused(["reproduce", "gamma-9d"], capsys)
    assert "--jobs must not be 0" in refused(["reproduce", "gamma-1d", "--jobs", "0"], capsys)
    assert "must be at least 1, got 0" in refused(["reproduce", "gamma-1d", "--seeds", "0"], capsys)
    assert "has no images to choose" in refused(["reproduce", "gamma-1d", "--data", "mnist"], capsys)
    assert list(tmp_path.iterdir()) == []
