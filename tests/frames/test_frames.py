"""A table goes through the whole room: read, looked at, encoded, decoded."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pscd.errors import UserError
from pscd.frames import Schema, decode, encode, look, read_frame, spell

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
    stray = {(int(i), schema.names[j]) for i, j in zip(*encoded.stray.nonzero(), strict=True)}
    assert stray == {(5, "Age"), (7, "Boarded")}
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
    assert encoded.stray[:, schema.names.index("Sex")].all()
    assert np.isnan(encoded.x[:, schema.names_out.index("Sex")]).all()
