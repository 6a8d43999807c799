import json

import numpy as np
import pytest

from pscd.cli.main import main
from tests.cli.helpers import refused

TABLE = "id;height;zip;smokes;age\n" + "\n".join(
    f"p{i};{1.5 + 0.01 * (i % 37):.2f};{(10115, 20095, 80331)[i % 3]};{'yes' if i % 4 else 'no'};{20 + i % 45}"
    for i in range(60)
).replace(".", ",")


@pytest.fixture
def csv(tmp_path):
    rows = TABLE.splitlines()
    rows[5] = rows[5].replace(";1,", ";1")  # centimetres
    rows[9] = rows[9].replace(";1,", ";1")
    for i in (11, 12, 13):
        rows[i] = rows[i].rpartition(";")[0] + ";999"
    rows[20] = rows[20].rpartition(";")[0] + ";old"
    path = tmp_path / "people.csv"
    path.write_text("\n".join(rows))
    return path


def test_look_says_what_columns_are_what_is_odd_and_how_to_correct_it(csv, capsys):
    assert main(["look", str(csv)]) == 0
    printed = capsys.readouterr().out
    lines = {line.split()[0]: line for line in printed.splitlines() if line.strip()}
    assert "60 rows, 5 columns" in printed
    assert "2 values are 100 times the others" in lines["height"]
    assert "1,50 to " in lines["height"]
    assert "999 x 3 looks like a code for missing: missing=999" in lines["age"]
    assert "1 word: old" in lines["age"]
    assert "boolean" in lines["smokes"]
    assert "identifier" in lines["id"]
    assert "--as" in lines["to"]
    assert printed.splitlines()[-1].strip() == "--missing 999"


def test_what_is_told_is_believed(csv, capsys):
    assert main(["look", str(csv), "--json", "--as", "zip=category,id=skip", "--missing", "age=999,OLD"]) == 0
    found = json.loads(capsys.readouterr().out)
    columns = {column["name"]: column for column in found["columns"]}
    assert columns["zip"]["levels"] == ["10115", "20095", "80331"]
    assert columns["age"]["missing"] == 4
    assert "invalid" not in columns["age"]
    assert columns["id"]["notes"] == ["stated to be left out"]


def test_mistakes_are_one_line(csv, tmp_path, capsys):
    assert "no column 'zap'" in refused(["look", csv, "--as", "zap=category"], capsys)
    assert "number, integer, boolean" in refused(["look", csv, "--as", "zip=colour"], capsys)
    assert "COLUMN=KIND" in refused(["look", csv, "--as", "zip"], capsys)
    assert "holds no dates" in refused(["look", csv, "--as", "smokes=date"], capsys)
    assert "holds no numbers" in refused(["look", csv, "--as", "smokes=number"], capsys)
    assert "is no boolean" in refused(["look", csv, "--as", "zip=boolean"], capsys)
    assert "no such file" in refused(["look", tmp_path / "none.csv"], capsys)
    assert "unknown encoding" in refused(["look", csv, "--encoding", "klingon"], capsys)
    assert "one character" in refused(["look", csv, "--delimiter", "::"], capsys)
    np.save(tmp_path / "images.npy", np.zeros((3, 1, 8, 8)))
    assert "no table" in refused(["look", tmp_path / "images.npy"], capsys)


def test_arrays_are_tables_too(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(30, 2)))
    assert main(["look", str(tmp_path / "x.npy")]) == 0
    assert "x1" in capsys.readouterr().out


def test_a_folder_is_no_table_and_pictures_have_commands_of_their_own(tmp_path, capsys):
    assert refused(["look", tmp_path], capsys) == f"pscd: {tmp_path}: a folder without Parquet files; give one table"
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a.png").write_bytes(b"names decide")
    line = refused(["look", tmp_path], capsys)
    assert f"{tmp_path}: a folder of pictures, not a table; pscd detect {tmp_path}" in line


def test_advice_about_a_name_with_a_comma_can_be_typed(tmp_path, capsys):
    path = tmp_path / "x.csv"
    path.write_text('"Class, old",b\n' + "".join(f"{i % 5},{i * 0.37}\n" for i in range(40)))
    assert main(["look", str(path)]) == 0
    assert """--as '"Class, old=category"'""" in capsys.readouterr().out
    assert main(["look", str(path), "--json", "--as", '"Class, old=category"']) == 0
    assert json.loads(capsys.readouterr().out)["columns"][0]["kind"] == "category"


def test_the_codes_of_all_columns_are_one_flag_that_works(tmp_path, capsys):
    path = tmp_path / "codes.csv"
    rows = [f"{40 + i % 9},{100 + i % 7}" for i in range(30)] + ["-999,103", "41,-99"] * 3
    path.write_text("\n".join(["a,b", *rows]))
    assert main(["look", str(path)]) == 0
    advice = capsys.readouterr().out.splitlines()[-1].strip()
    assert advice == "--missing -999,-99"
    assert main(["look", str(path), *advice.split()]) == 0
    assert "looks like a code" not in capsys.readouterr().out
