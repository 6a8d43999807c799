"""A table goes through the whole room: read, looked at, encoded, decoded."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pscd.errors import UserError
from pscd.tables import Schema, decode, encode, look, spell
from tests.tables.helpers import read_frame

TITANIC = """PassengerId,Survived,Name,Sex,Age,Fare,Cabin,Embarked,Boarded
1,0,"Braund, Mr. Owen Harris",male,22,7.25,,S,10/04/1912
2,1,"Cumings, Mrs. John",female,38,71.2833,C85,C,10/04/1912
3,1,"Heikkinen, Miss. Laina",female,26,7.925,,S,10/04/1912
4,1,"Futrelle, Mrs. Jacques",female,35,53.1,C123,S,10/04/1912
5,0,"Allen, Mr. William",male,?,8.05,,S,13/04/1912
6,0,"Moran, Mr. James",male,unknown,8.4583,,Q,11/04/1912
7,0,"McCarthy, Mr. Timothy",male,54,51.8625,E46,S,10/04/1912
8,0,"Palsson, Master. Gosta",male,2,21.075,,S,31/02/1912
9,1,"Johnson, Mrs. Oscar",female,27,11.1333,,S,10/04/1912
10,1,"Nasser, Mrs. Nicholas",female,14,30.0708,,C,10/04/1912
11,1,"Sandstrom, Miss",female,4,16.7,G6,S,10/04/1912
12,1,"Bonnell, Miss",female,58,"1,026.55",C103,S,10/04/1912
"""


@pytest.fixture
def titanic(tmp_path):
    path = tmp_path / "titanic.csv"
    path.write_text(TITANIC)
    return read_frame(path)


def test_a_dirty_table_as_it_comes(titanic):
    schema = look(titanic)
    kinds = {column.name: column.kind for column in schema.columns}
    assert kinds == {
        "PassengerId": "left out",
        "Survived": "boolean",
        "Name": "left out",
        "Sex": "category",
        "Age": "integer",
        "Fare": "number",
        "Cabin": "category",
        "Embarked": "category",
        "Boarded": "date",
    }
    encoded = encode(titanic, schema)
    invalid = {(int(i), schema.names[j]) for i, j in zip(*encoded.invalid.nonzero(), strict=True)}
    assert invalid == {(5, "Age"), (7, "Boarded")}
    assert encoded.missing[:, schema.names.index("Age")].tolist() == [i == 4 for i in range(12)]
    fare = encoded.x[:, schema.names_out.index("Fare")]
    assert fare[-1] == 1026.55
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_what_is_decoded_is_what_was_encoded(titanic):
    schema = look(titanic)
    x = encode(titanic, schema).x
    back = decode(x, schema)
    assert back["Survived"].tolist() == titanic["Survived"].tolist()
    assert back["Sex"].tolist() == titanic["Sex"].tolist()
    assert str(back["Age"].dtype) == "Int64"
    assert back["Boarded"][0] == pd.Timestamp("1912-04-10")
    np.testing.assert_array_equal(encode(back, schema).x, x)
    written = spell(back, schema)
    assert written["Boarded"][0] == "10/04/1912"
    assert written["Fare"].tolist()[:2] == ["7.25", "71.2833"]
    assert written["Fare"][11] == "1,026.55"
    np.testing.assert_array_equal(encode(written, schema).x, x)


@pytest.mark.parametrize("library", [pl.from_pandas, pa.Table.from_pandas])
def test_all_libraries_are_one_path(titanic, library):
    other = library(titanic)
    assert look(other).columns == look(titanic).columns
    schema = look(titanic)
    x = encode(titanic, schema).x
    np.testing.assert_array_equal(encode(other, schema).x, x)
    back = decode(x, schema, like=other)
    assert type(back) is type(other)
    np.testing.assert_array_equal(encode(back, schema).x, x)


def test_columns_come_in_any_order_and_type_but_they_must_come(titanic):
    schema = look(titanic)
    x = encode(titanic, schema).x
    typed = titanic[titanic.columns[::-1]].assign(extra=1, Survived=titanic["Survived"] == "1")
    np.testing.assert_array_equal(encode(typed, schema).x, x)
    with pytest.raises(UserError, match=r"no column 'Sex', 'Fare'; there are 'PassengerId'"):
        encode(titanic.drop(columns=["Sex", "Fare"]), schema)
    encode(titanic.drop(columns=["Name"]), schema)  # it was left out anyway


def test_a_category_that_was_not_there_before_is_stray(titanic):
    schema = look(titanic)
    encoded = encode(titanic.assign(Sex="robot"), schema)
    assert encoded.invalid[:, schema.names.index("Sex")].all()
    assert np.isnan(encoded.x[:, schema.names_out.index("Sex")]).all()


WORDS = [
    ["1", "2", "3.5", "-4", "1e3", "0.25"],
    ["1,5", "2,25", "1.234,5", "7"],
    ["1,234", "12", "5,678.9", "(3)"],
    ["yes", "no", "YES", "maybe"],
    ["a", "b", "c", "d e", " a"],
    ["2020-01-31", "2021-02-03", "1999-12-31", "2020-02-30"],
    ["01/02/2020", "13/02/2020", "02/14/2020"],
    ["Jun 12 1998", "Feb 30 1999", "May 1 2020"],
    ["2020-01-31T10:00:00Z", "2020-05-31T11:30:00+02:00"],
    ["10:15", "9:05", "23:59", "25:00"],
    ["", "NA", "?", "unknown"],
    ["007", "012", "123"],
    ["0", "1", "0.0", "1.0", "True"],
    ["12%", "13 %", "$1,000"],
    ["5 kg", "6 kg", "7.5kg", "8 lb"],
    ["99", "999", "-1", "inf", "1e400"],
]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=2), st.integers(2, 60), st.integers(0, 1000))
def test_whatever_stands_in_a_column(words, n, seed):
    """Every cell is a value, missing or invalid; what is learnt comes back, and no mixture of words is an error."""
    rng = np.random.default_rng(seed)
    vocabulary = [word for group in words for word in group]
    weights = rng.dirichlet(np.full(len(vocabulary), 0.5))
    frame = pd.DataFrame({"a": rng.choice(vocabulary, n, p=weights), "row": [f"r{i}" for i in range(n)]})
    schema = look(frame)
    encoded = encode(frame, schema)
    column = schema.columns[0]
    assert (encoded.missing[:, 0].sum(), encoded.invalid[:, 0].sum()) == (column.missing, column.invalid)
    for j, part in enumerate(schema.parts):
        x = encoded.x[:, j]
        absent = encoded.missing[:, part.source] | encoded.invalid[:, part.source]
        assert (np.isnan(x) == absent).all()
        if part.n_levels:
            assert set(x[~absent]) <= set(range(part.n_levels))
    back = decode(encoded.x, schema)
    rounding = 0.5 * 10.0 ** -(column.decimals or 0) if column.kind in ("number", "integer") else 1e-6
    for again in (back, spell(back, schema)):
        np.testing.assert_allclose(encode(again, schema).x, encoded.x, rtol=1e-6, atol=rounding)
