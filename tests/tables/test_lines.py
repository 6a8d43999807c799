import pandas as pd
import pytest

from pscd.tables import look, open_table, write_like
from tests.tables.helpers import read_frame
from tests.tables.test_read import find_layout

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
    blocks = list(open_table(path).blocks(2))
    assert pd.concat(blocks)["a"].tolist() == CASES[text]
    assert look(frame).columns[0].missing == CASES[text].count("")


def test_a_blank_line_of_a_wider_table_is_no_row(tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("a,b\n1,2\n\n3,4\n")
    assert len(read_frame(path)) == 2
    assert sum(map(len, open_table(path).blocks(1))) == 2


def test_a_blank_line_can_be_filled(tmp_path):
    path, out = tmp_path / "one.csv", tmp_path / "out.csv"
    path.write_bytes(b'\n# by me\na\r\n1\r\n\r\n  \r\n""\r\n5\r\n\r\n')
    write_like(path, {(1, "a"): "2", (3, "a"): "4", (4, "a"): "6"}, out)
    assert out.read_bytes() == b'\n# by me\na\r\n1\r\n2\r\n  \r\n"4"\r\n6\r\n\r\n'
    write_like(path, {}, out)
    assert out.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("0,1,2\n5,6,9\n7,7,7\n", True),  # as pandas writes an array
        ("0,1\n0.5,1.5\n2.0,x\n", True),
        ("0,1\n0.5,1\n", False),  # two whole numbers may be a row among others
        (",0,1,2\n0,5,6,9\n1,7,7,7\n", True),  # with its index
        ("2019,2020,2021\n1.5,2.5,3\n", True),
        ("1,2,3\n5,6,9\n", False),
        ("2099,2100,2101\n1.5,2.5,3\n", False),
        ("1899,1900,1901\n1.5,2.5,3\n", False),
        ("2019,2021,2022\n1.5,2.5,3\n", False),
        ("0,1,2\n3,4,5\n", False),  # a row like this one
        ("0,1,2\n", False),  # what it would name is not there
        ("0\n1.5\n2.5\n", False),
    ],
)
def test_columns_may_be_counted_or_named_by_years(text, header):
    found, notes = find_layout(text)
    assert found.header is header
    first = text.splitlines()[0]
    shown = first if first.count(",") < 3 else ",0,1,..."
    assert (f"header: the first line, {shown}; state header=False if it is a row" in notes) is header
    for told in (True, False):
        found, notes = find_layout(text, header=told)
        assert found.header is told
        assert notes == ()


def test_counted_columns_come_back_by_their_numbers(tmp_path):
    path = tmp_path / "array.csv"
    made = pd.DataFrame([[0.5, 1.25], [2.5, 3.75], [4.5, 5.25]])
    made.to_csv(path, index=False)
    frame = read_frame(path)
    assert list(frame.columns) == ["0", "1"]
    assert len(frame) == 3
