import pandas as pd
import pytest

from pscd.frames import look, read_frame, write_like
from pscd.frames.blocks import open_blocks

CASES = {
    "a\n1\n\n3\n": ["1", "", "3"],
    "a\n1\n\n\n3\n\n\n": ["1", "", "", "3"],  # what comes after the last row is no row
    "a\n\n1\n2\n  \n": ["", "1", "2"],
    "\n\na\n1\n2": ["1", "2"],  # nor what comes before the header
    "a\r\n1\r\n   \r\n3\r\n": ["1", "", "3"],
    'a\n"1"\n""\n"3"\n""\n': ["1", "", "3", ""],  # an empty text is always a cell
    'a\n""\n""\n': ["", ""],
    "# by me\n\na\n1\n\n3\n": ["1", "", "3"],
    '# by me\na\n"x\ny"\n\nz\n': ["x\ny", "", "z"],
}


@pytest.mark.parametrize("text", CASES)
def test_a_blank_line_between_others_is_a_missing_cell(tmp_path, text):
    path = tmp_path / "one.csv"
    path.write_bytes(text.encode())
    frame = read_frame(path)
    assert frame["a"].tolist() == CASES[text]
    blocks = list(open_blocks(path, size=2).blocks())
    assert pd.concat(blocks)["a"].tolist() == CASES[text]
    assert look(frame).columns[0].missing == CASES[text].count("")


def test_a_blank_line_of_a_wider_table_is_no_row(tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("a,b\n1,2\n\n3,4\n")
    assert len(read_frame(path)) == 2
    assert sum(map(len, open_blocks(path, size=1).blocks())) == 2


def test_a_blank_line_can_be_filled(tmp_path):
    path, out = tmp_path / "one.csv", tmp_path / "out.csv"
    path.write_bytes(b'\n# by me\na\r\n1\r\n\r\n  \r\n""\r\n5\r\n\r\n')
    write_like(path, {(1, "a"): "2", (3, "a"): "4", (4, "a"): "6"}, out)
    assert out.read_bytes() == b'\n# by me\na\r\n1\r\n2\r\n  \r\n"4"\r\n6\r\n\r\n'
    write_like(path, {}, out)
    assert out.read_bytes() == path.read_bytes()
