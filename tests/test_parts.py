import json
import os

import numpy as np
import pandas as pd
import pytest

from pscd import UserError
from pscd.parts import Parts

JOB = {"rows": "these"}


def write(parts, i, names=None):
    columns = {"row": np.arange(3) + 3 * i, "name": names or ["a", "b", "c"], "energy": np.arange(3) / 7 + i}
    parts.write(i, columns, columns["energy"], {"rows": 3})


def read(path):
    if path.suffix == ".npy":
        return pd.DataFrame({"energy": np.load(path)})
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


@pytest.mark.parametrize("name", ["x.csv", "x.npy", "x.parquet", "folder"])
def test_parts_become_one_file_in_their_order(tmp_path, name):
    parts = Parts(tmp_path / name, JOB)
    with parts.open():
        for i in (1, 0, 2):
            write(parts, i)
        assert not (tmp_path / name).exists()
        parts.join()
    found = read(tmp_path / name)
    np.testing.assert_allclose(found["energy"], np.concatenate([np.arange(3) / 7 + i for i in range(3)]), rtol=1e-8)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", ["x.csv", "x.npy", "x.parquet"])
def test_the_file_is_as_if_written_at_once(tmp_path, name):
    from pscd.cli.output import write as at_once

    parts = Parts(tmp_path / name, JOB)
    with parts.open():
        for i in range(3):
            write(parts, i)
        parts.join()
    row, names = np.arange(9), ["a", "b", "c"] * 3
    energy = np.concatenate([np.arange(3) / 7 + i for i in range(3)])
    at_once(tmp_path / f"whole{name}", energy, {"row": row, "name": names, "energy": energy})
    if name == "x.parquet":
        pd.testing.assert_frame_equal(read(tmp_path / name), read(tmp_path / f"whole{name}"))
    else:
        assert (tmp_path / name).read_bytes() == (tmp_path / f"whole{name}").read_bytes()


def test_arrays_are_joined_row_by_row_however_they_lie_in_memory(tmp_path):
    whole = np.arange(18.0).reshape(6, 3)
    parts = Parts(tmp_path / "x.npy", JOB)
    with parts.open():
        for i in range(2):
            parts.write(i, {}, np.asfortranarray(whole[3 * i : 3 * i + 3]), {"rows": 3})
        parts.join()
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), whole)


def test_a_killed_command_finds_its_parts(tmp_path):
    first = Parts(tmp_path / "x.csv", JOB)
    with first.open():
        write(first, 0)
        write(first, 2)
        (first.folder / "data" / "part-000001.csv.123.tmp").write_text("half a par")  # killed in the middle
    again = Parts(tmp_path / "x.csv", JOB)
    with again.open():
        assert again.done == {0: {"rows": 3}, 2: {"rows": 3}}
        write(again, 1)
        again.join()
    assert read(tmp_path / "x.csv")["row"].tolist() == list(range(9))
    assert os.listdir(tmp_path) == ["x.csv"]


def test_parts_of_another_job_or_damaged_notes_are_not_used(tmp_path):
    first = Parts(tmp_path / "x.csv", JOB)
    with first.open():
        for i in range(3):
            write(first, i)
    note = first.folder / "part-000001.json"
    note.write_text(note.read_text().replace("3", "4"))
    (first.folder / "data" / "part-000002.csv").unlink()
    same = Parts(tmp_path / "x.csv", JOB)
    with same.open():
        assert list(same.done) == [0]
    other = Parts(tmp_path / "x.csv", {"rows": "others"})
    with other.open():
        assert other.done == {}
        assert not list(other.folder.glob("data/*"))
    assert json.loads((other.folder / "job.json").read_text())["job"] == {"rows": "others"}


def test_ids_may_have_gaps_in_one_part_only(tmp_path):
    parts = Parts(tmp_path / "x.parquet", JOB)
    with parts.open():
        write(parts, 0, [1, 2, 3])
        write(parts, 1, [4.0, None, 6.0])
        parts.join()
    assert read(tmp_path / "x.parquet")["name"].tolist()[:4] == [1, 2, 3, 4]


def test_two_commands_cannot_write_one_file(tmp_path):
    import threading

    told = []

    def second():
        try:
            with Parts(tmp_path / "x.csv", JOB).open():
                pass
        except UserError as error:
            told.append(str(error))

    with Parts(tmp_path / "x.csv", JOB).open():
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert "in use by another" in told[0]


def test_a_place_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write to"), Parts(tmp_path / "file" / "x.csv", JOB).open():
        pass


@pytest.mark.parametrize("name", ["x.csv", "x.npy", "x.parquet", "folder"])
def test_a_damaged_part_is_made_again(tmp_path, name):
    first = Parts(tmp_path / name, JOB)
    with first.open():
        write(first, 0)
        write(first, 1)
    path = first._part(0)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1  # a digit, a mantissa
    path.write_bytes(bytes(content))
    (first.folder / "part-of somebody else.json").write_text("{}")
    again = Parts(tmp_path / name, JOB)
    with again.open():
        assert list(again.done) == [1]
