import io

import numpy as np
import pandas as pd
import pytest

from pscd.cli.output import OutputBlock, check_folder, check_out, in_parts, job_of, say, write
from pscd.errors import UserError


def test_control_characters_become_blanks_and_letters_stay():
    out = io.StringIO()
    say("caf\u00e9\x1b[31m\r\u202e\nnext\t1", file=out)
    assert out.getvalue() == "caf\u00e9 [31m  \nnext 1\n"


def test_what_a_terminal_cannot_show_is_replaced():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    say("caf\u00e9", file=out)
    out.flush()
    assert raw.getvalue() == b"caf?\n"


@pytest.mark.parametrize("name", ["x.csv", "x.npy", "x.parquet"])
def test_rows_are_written_as_the_name_says(tmp_path, name):
    path = tmp_path / "new" / name
    x = np.arange(6.0).reshape(3, 2) / 7
    write(path, x, {"a": x[:, 0], "b": x[:, 1]})
    read = {".csv": pd.read_csv, ".npy": lambda p: pd.DataFrame(np.load(p)), ".parquet": pd.read_parquet}[path.suffix]
    np.testing.assert_allclose(read(path).to_numpy(), x, rtol=1e-8)
    assert [p.name for p in path.parent.iterdir()] == [name]


def test_outputs_that_must_not_be_written_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("precious")
    (tmp_path / "folder").mkdir()
    for path, message in (("x.csv", "exists"), ("folder", "folders are not replaced"), ("x.txt", "must end in")):
        with pytest.raises(UserError, match=message):
            check_out(tmp_path / path, force=False)
    check_out(tmp_path / "x.csv", force=True)
    with pytest.raises(UserError, match="cannot write"):
        check_folder(tmp_path / "x.csv" / "run")
    check_folder(tmp_path / "a" / "b")
    assert not (tmp_path / "a").exists()


def test_a_stopped_command_resumes_after_its_last_part(tmp_path, capsys):
    done = []

    def blocks(first):
        return iter(range(first, 4))

    def work(i, block):
        done.append(i)
        if done == [0, 1]:
            raise KeyboardInterrupt
        values = np.full(2, float(block))
        return OutputBlock({"x": values}, values, {"rows": 2}, OutputBlock({"y": -values}, -values, {"rows": 2}))

    out, copy = tmp_path / "x.csv", tmp_path / "y.npy"
    call = {"total": 8, "threads": 1, "copy": copy}
    with pytest.raises(KeyboardInterrupt):
        in_parts(out, {"job": 1}, blocks, work, **call)
    assert not out.exists()
    assert len(in_parts(out, {"job": 1}, blocks, work, **call)) == 4
    assert done == [0, 1, 1, 2, 3]
    assert "resuming after 2 rows" in capsys.readouterr().out
    assert pd.read_csv(out)["x"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert np.load(copy).tolist() == [0, 0, -1, -1, -2, -2, -3, -3]


def test_what_decides_a_job_is_in_it(tmp_path):
    model = tmp_path / "m.safetensors"
    model.write_bytes(b"one")
    first = job_of("sample", {"n": 5}, model, "data")
    assert job_of("sample", {"n": 5}, model, "data") == first
    assert job_of("score", {"n": 5}, model, "data") != first
    assert job_of("sample", {"n": 6}, model, "data") != first
    assert job_of("sample", {"n": 5}, model, "other") != first
    model.write_bytes(b"two")
    assert job_of("sample", {"n": 5}, model, "data") != first
