from argparse import Namespace

import numpy as np
import pytest

from pscd.cli.streams import Part, in_parts, job_of, source_of
from pscd.errors import UserError
from pscd.parts import Parts

READING = {"sheet": None, "delimiter": None, "encoding": None, "header": None}


def test_work_is_done_once_for_each_block(tmp_path):
    done = []

    def work(i, block):
        done.append(i)
        return Part({"x": block}, block, {"rows": len(block)})

    blocks = [np.arange(4.0), np.arange(4.0) + 4, np.arange(2.0) + 8]
    found = in_parts(tmp_path / "x.npy", {}, lambda first: iter(blocks[first:]), work, total=10)
    assert found == [{"rows": 4}, {"rows": 4}, {"rows": 2}]
    assert sorted(done) == [0, 1, 2]
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.arange(10.0))


def test_a_part_that_is_there_is_not_computed_again(tmp_path):
    """Parts are finished in any order: behind the first that is missing there may be others."""
    blocks = [np.zeros(2), np.ones(2), np.full(2, 2.0)]
    parts = Parts(tmp_path / "x.npy", {})
    with parts.open():
        parts.write(1, {}, blocks[1], {"rows": 2})
    done = []

    def work(i, block):
        done.append(i)
        return Part({}, block, {"rows": 2})

    in_parts(tmp_path / "x.npy", {}, lambda first: iter(blocks[first:]), work, total=6, one_by_one=True)
    assert done == [0, 2]
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.concatenate(blocks))


def test_a_second_file_and_what_is_done_at_the_end(tmp_path):
    """A block is done once both files have their part; the first is not joined before the end is done."""
    blocks, done, seen = [np.zeros(2), np.ones(2)], [], []

    def work(i, block):
        done.append(i)
        return Part({}, block, {"rows": 2}, Part({}, -block, {"rows": 2}))

    def at_end(parts):
        seen.append([np.load(path).tolist() for path in parts])
        assert not (tmp_path / "x.npy").exists()
        if len(seen) == 1:
            raise UserError("the disk is full")

    def once():
        here, beside = tmp_path / "x.npy", tmp_path / "y.npy"
        in_parts(here, {}, lambda first: iter(blocks[first:]), work, total=4, beside=beside, at_end=at_end)

    with pytest.raises(UserError):
        once()
    (tmp_path / "y.npy.partial" / "part-000001.json").unlink()
    once()
    assert sorted(done) == [0, 1, 1]
    assert seen == [[[0, 0], [1, 1]]] * 2
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), [0, 0, 1, 1])
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), [0, 0, -1, -1])


def test_another_model_or_another_file_is_another_job(tmp_path):
    (tmp_path / "run").mkdir()
    model, rows = tmp_path / "run" / "model.safetensors", tmp_path / "x.npy"
    model.write_text("a model")
    rows.write_text("rows")
    args = Namespace(id=("a",), out="anywhere")

    def job():
        return job_of("score", args, tmp_path / "run", ["id"], [rows])

    first = job()
    assert job() == first
    args.out = "elsewhere"
    assert job() == first
    model.write_text("another model")
    second = job()
    assert second != first
    rows.write_text("other rows")
    assert job() != second
    args.id = ("b",)
    assert job()["flags"] == {"id": ("b",)}


def test_small_files_are_read_in_blocks_only_where_they_must_be(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 2)))
    np.savez(tmp_path / "x.npz", np.zeros((5, 2)))
    args = Namespace(**READING)
    assert source_of(args, tmp_path / "x.npy") is None
    assert source_of(args, tmp_path / "x.npy", always=True).n_rows == 5
    with pytest.raises(UserError, match="cannot be read in blocks"):
        source_of(args, tmp_path / "x.npz", always=True)
