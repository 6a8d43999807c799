import json

from pscd.cli.main import main
from tests.cli.helpers import SMALL, help_of, refused


def test_a_report_of_a_run(run, tmp_path, capsys):
    assert main(["report", str(run)]) == 0
    assert f"report: {run / 'report.html'} (" in capsys.readouterr().out
    out = tmp_path / "other.html"
    assert main(["report", str(run), "--out", str(out)]) == 0
    assert "exists" in refused(["report", run, "--out", out], capsys)
    assert main(["report", str(run), "--out", str(out), "--force"]) == 0
    assert "must end in .html" in refused(["report", run, "--out", tmp_path / "x.pdf"], capsys)


def test_what_is_no_run_is_told(tmp_path, capsys):
    assert "holds no run and no detector" in refused(["report", tmp_path], capsys)
    assert "no such folder" in refused(["report", tmp_path / "nothing"], capsys)
    assert "pscd report runs/my" in help_of(["report", "--help"], capsys)


def test_a_detector_remembers_its_file(csv, tmp_path, capsys):
    out = tmp_path / "found"
    assert main(["detect", str(csv), "--id", "name", "--updates", "2", "--out", str(out)]) == 0
    source = json.loads((out / "source.json").read_text())
    assert source["data"] == str(csv)
    assert source["ids"] == ["name"]
    assert main(["report", str(out)]) == 0
    assert "somebody" in (out / "report.html").read_text()


def test_a_run_that_diverges_has_a_report_too(tmp_path, capsys):
    out = tmp_path / "away"
    words = [*SMALL, "--lr", "1e6", "--set", "guard.max_retries=0", "--set", "guard.log_every=1"]
    assert main(["train", "moon", *words, "--out", str(out)]) == 1
    assert main(["report", str(out)]) == 0
    assert "diverged" in (out / "report.html").read_text()
